"""Word lists of the name rules, in lower case unless capitals matter."""

from __future__ import annotations

from importlib import resources


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


COMMON = _set(resources.files(__package__).joinpath("common.txt").read_text("utf-8"))
"""Ordinary words that often start a sentence: not names when alone. One per line, sorted."""

FUNCTION = _set("""
a about above across after again against ago ah alas albeit all almost along alongside already also
although altogether always am amid amidst among amongst an and another any anybody anyone anything
anyway apart are around as aside at atop away back barring be because been before behind being
below beneath beside besides between beyond both but by can certain circa concerning consequently
considering could current despite did do does doing done down during each earlier early either else
enough even eventually ever every everybody everyone everything everywhere except excluding few
fewer finally firstly following for former formerly fortunately from further furthermore generally
given had has have having he hello hence her here hereafter hers herself hey hi him himself his
hitherto how however i if in including indeed initially inside instead into is it its itself just
largely last lastly late lately later latter least less lest like likewise little lots mainly many
may maybe me meanwhile merely might mine minus more moreover most mostly much must my myself namely
near nearly neither never nevertheless new newly next no nobody none nonetheless nor not nothing
notwithstanding now nowhere of off often oh okay on once one ones only onto opposite or originally
other others otherwise ought our ours ourselves out outside over overall owing particularly past
pending per perhaps please plenty plus possibly presumably previously primarily prior probably
provided providing quite rarely rather recent recently regarding right roughly round save secondly
seemingly seldom several shall she should similarly simply since so some somebody somehow someone
something sometimes somewhat somewhere soon sorry specifically still subsequently such supposing
sure than thanks that the their theirs them themselves then thence there thereafter thereby
therefore thereupon these they this those though through throughout thus till to today together
tomorrow tonight too toward towards twice typically ultimately under underneath unfortunately
unless unlike until unto up upon us usually various versus very via was we well were what whatever
when whenever where whereas whereby wherein whereupon wherever whether which whichever while whilst
who whoever whom whose why will with within without would yeah yes yesterday yet you your yours
yourself
""") - {"new"}

ROLES = _set("""
admiral ambassador archbishop archduke aunt baron baroness bishop brother caliph captain cardinal
chairman chancellor chief colonel commander congressman congresswoman constable corporal councillor
count countess dad daddy dame deputy detective doctor duchess duke earl emperor empress father
foreign general governor grandfather grandma grandmother grandpa imam inspector judge justice khan
king lady lieutenant lord madame maharaja major mama marshal master mayor minister miss mister mom
monsieur mother mum mummy papa pope president prime prince princess private professor queen rabbi
rajah representative reverend saint secretary senator sergeant shah sheriff sir sister sultan tsar
tsarina uncle vice viceroy
""")
DEMOTED = _set("""
activist actor actress analyst analysts architect ask asked astronomer author beating billionaire
biologist both businessman calling chemist citizens coach composer critics dear defender director
dozens drummer economist eight eighty eleven entrepreneur fans farmers fifty five forty forward
four goalkeeper guitarist historian hundred hundreds inside investors journalist lawyer leaving
manager mathematician meeting midfielder millions nine ninety novelist officials old opposition
painter philosopher photographer physicist pianist pitcher poet police poor producer quarterback
reading researcher researchers residents scientist scientists seeing seven seventy shares singer
six sixty spokesman spokeswoman striker teammate teammates ten thirty thousands three twelve twenty
two using visiting voters watching winger writer young
""")

OF_HEADS = _set("""
abbey academy act arc archbishop art arts association bank banks battle bay bishop board book books
bridge bureau cape castle cathedral chancellor chapel church city college commonwealth
confederation convent council count county court courts dean declaration department director
duchess duchy duke earl emperor empire faculty fall feast federation festival fire forest fort
gallery game gospel grand gulf hall house houses institute island islands isle isles king kingdom
knights lady lake league legend library lord mayor minister ministry mount mountains museum office
order organisation organization palace patriarch peace plague pope port prince princess
principality queen republic river sack school sea secretary siege society song state states statue
strait straits tale tales temple theatre tower treaty union university valley war wars
""")
ORG_HEADS = _set("""
academy agency alliance association board bureau campaign center centre college commission
committee conference convention council department faculty foundation fund institute minister
ministry movement museum office organisation organization panel party school secretary society
summit university
""")
EPITHETS = _set("""
apostle bald baptist bold confessor conqueror cruel elder evangelist fair fat good great impaler
kid lionheart magnificent navigator pious pooh red ripper short simple terrible unready wise
younger
""")
POSSESSIVE_HEADS = _set("""
abbey basilica bay cathedral chapel church college comet court cup day eve hospital island palsy
park school square university
""")
NUMBERED = _set("""
act airbus android apollo area article boeing book building catch channel chapter day episode
falcon figure flight formula galaxy game gate gemini group highway hill interstate iphone lap level
mach mariner page part phase pioneer platform playstation ps psalm room round route season section
soyuz sputnik stage starship studio super table test type unit viking volume vostok voyager week
windows world xbox
""")
NATIONALITIES = _set("""
american argentine argentinian australian austrian bangladeshi belgian brazilian british bulgarian
burmese canadian chilean chinese colombian croatian cuban czech danish dutch egyptian english
ethiopian european finnish french german greek hungarian icelandic indian indonesian iranian iraqi
irish israeli italian jamaican japanese jordanian kenyan korean lebanese libyan malaysian mexican
moroccan nigerian norwegian pakistani palestinian peruvian philippine polish portuguese romanian
russian saudi scottish serbian singaporean slovak slovenian somali soviet spanish sudanese swedish
swiss syrian taiwanese thai tunisian turkish ukrainian venezuelan vietnamese welsh
""")
PREFIXES = _set(
    "co anti pre non pro ex self multi semi sub re mid post inter counter cross ultra e"
)
GIVEN = _set("""
beverly billy emily holly italy kelly lily lyly molly penelope polly sally sicily willy
""")
ARTICLES = _set("""
a an and as but he her his i it of or she that the they this we you
""")
SURNAMES = _set("""
may will more self little own few
""")
ACRONYMS = _set("""
it un us who
""")
NOT_OF = NATIONALITIES
PAIRS = _set("""
antigua+barbuda barnes+noble black+decker bosnia+herzegovina brighton+hove ernst+young
johnson+johnson kitts+nevis marks+spencer procter+gamble romeo+juliet simon+garfunkel smith+wesson
standard+poor tom+jerry trinidad+tobago tyne+wear
""")
OWNERS = _set("""
boys children father girls king ladies men mother new people queen valentine veterans women
""")
OFFICES = _set("""
affairs agriculture commerce commons congress defence defense education energy finance health house
interior justice labor labour parliament staff state trade transport treasury war
""")
COUNTED = _set("""
air airborne amendment armored armoured army avenue baron battalion brigade cavalry company
congress corps division duke earl fleet infantry marine marines parliament regiment squadron street
wing
""")
PARTICLES = _set("""
abu al ben bin da de del della den der des di do dos du el ibn la le ten ter und van von y zu zur
""")
TAILS = _set("""
co corp dc esq inc jr llc ltd md phd plc sr
""")
ABBREVIATIONS = _set("""
adm capt cmdr col dr ft gen gov hon lt maj messrs mlle mme mr mrs ms mt mx prof rep rev sen sgt st
ste
""")
NOT_NAMES = _set("""
ad ai al am atm bc bce cd ce ceo cfo cpu dna dvd et gdp i madam mp mps mvp ngo o ok pc pdf phd pm
rna tv ufo usb vs
""")
