"""Ordinary English words that often begin a sentence, in lower case: no names when alone."""

from __future__ import annotations

TEXT = """
abandoned able aboard abroad abstract academic access accident accompanied according account acid
acids act action active activity actor actress actual add added adding additional address admission
admits admittedly adult adults advance advice afar afternoons afterward afterwards age aged
agencies agency agent aging agreed agreement agriculture ahead aid air aircraft airline airport
album alcohol algae alive alkali allegedly allergens allow allowed alloys almost alone alternative
alveoli amazing amount analysis analyst analysts ancient anger angry animal animals announced
announces annual answer answers anthem antibiotics antibodies anyways apparent apparently appeal
apple apples application appointed approach approves approximately archaeologist archaeologists
architect architectural architecture area areas argon arguably argument arm armed arms army around
arrest arrested arrived arriving art arteries article articles artillery artist artists ash ashore
ask asked asking assassinated assists asteroid astonishingly astronomer astronomers athlete
athletes atmospheric atom atoms attack attacks attempt attempts attendance attention attorney
attorneys audience audiences author authorities authority authors autumn autumns average award
awards awareness awesome aww baby background backs bacteria bad bag bakers balance ball ballet band
bank bankers banks bans bar bare barely baroque base baseball based bases basic basketball bats
batsmen batteries batting battle beach bear bears beats beautiful beauty bed beef beer bees
beginning begins behavior behaviour being belief believed believing bell bells benched bend
benefits best better big bigger biggest bile bill billions biologically biology bird birds birth
birthday bit bitter black bladder blame blind blood blow blue board boat boats bodies body
bolstered bomb bombs bonds bone bones book books border bordered bored born borrowers boss both
bottle bottom bound bounded bowl bowler bowlers bowling box boy boys brain brave bread break
breakfast breathing brewers bridge bridges brief briefly bright bring broad broadcast broken bronze
brother brothers brown budget build builders building buildings built buried burning bus buses bush
business businesses busy butchers butt butter butterflies buyer buyers buying buys cabinet cake
calcium call called calls calm camera camp campaign campaigners campaigns campers can cancer
candidate candidates capillaries captain car carbon carcinogens card care career careful carnivores
carpenters carrying cars case cases cash casualties cat catalysts catchers cats cattle caught cause
caused causes caution cavalry cell cells cement cemeteries census central centuries century
ceremony chain chair chairman champion chance change changed changes chaos chapter character
characters charge charges charity chasing cheap cheese chemical chemically chemicals chemist
chemists chess chicken chief child childcare childhood children chilly chlorine chlorophyll
chocolate choice cholera christmas church churches cinema circle circuits cities citing citizen
citizens city civil civilian civilians clad claim claims class classes classic classical clay clean
clear clearly clerk climate climbers climbing clinical clock close closed closes cloth clothes
cloud clouds cloudy club clubs coach coaches coal coast coastal cobalt cod code codenamed coffee
coins cold collection college colonised colonized color colour combined come comedy comes coming
command commanded commander commandos comment comments commerce commercial commission commissioned
committee commodities common commonly communication communities community commuters companies
company comparable compare compared competition competitors complaints complete completed composed
compost compounds compressive computer computers concern concerns concert conclusion concrete
condensation condition conditions conference conflict congestion conifers conquered conservation
conservationists conservative conservatives consider considered constables constant constraints
constructed construction consumer consumers contact containing contemporary content contents
context contract contrary control converted convicts convinced convoys cool cooled copies copper
copy coral corn corners corporate corps correct corruption cost costs cotton council counsel count
countries country county couple coupled courage course court courts cover covered covering craft
craftsmen create created creative credit cricket crime crimes criminal crisis critic critical
critically criticism criticized critics crop crops cross crossing crowd crowds crown crowned
crucially crude cruel crystals cultivated cultural culturally culture cup curious curiously
currency currently curtain customer customers customs cut cuts cutting cycle cyclists daily damage
damp dance dancers dancing danger dangerous dark darkness data date dates daughter daughters dawn
day days dead deadline deaf deal dealers death deaths debate debates debt decades decision
decisions decomposers deep deeply deer defeat defeated defence defendants defender defenders
defending defense definition delays delegates delegation delighted demand democracy democratic
demolished demonstrators denies dense density dentists department depending deployed depression
depth descendants described desert design designed designer designers desk detail detailed details
detective detectives determined developers developing development device devices devised diagnosis
diamonds diaphragm dies diet difference differences different difficult difficulty digital dinner
dinosaurs diplomat diplomatic diplomats direct directed direction directly director directors dirty
disaster disciples discovered discoveries discovery discussion discussions disease diseases
dissolve dissolved distance distant district disturbance divers diverse diversity divided dividends
divorced dna doctor doctors document documents dog dogs dollar dolphins domestic donations door
doors double doubt doubts downstairs dozens drained drama drawing drawn dream dreams dressed drier
drink drinking drive driven driver drivers driving drone droplets drops drought drug drugs drunk
dry dubbed duck due dust duties duty eagles ear ears earth earthquake earthquakes ease easily east
eastern eastward easy eating economic economically economics economist economists economy edge
editor editors educated education educators effect effects efficiency effort efforts egg eggs eight
eighteen eighty elderly elected election elections electric electrical electricians electricity
electron electrons elegant elephants eleven elsewhere email emboldened emergency emerging emotion
emotions emperor empire employed employees employer employers employment empty encouraged
encouraging end ended ending ends energy engaged engine engineer engineering engineers engines
entering entertainment entire entry environment environmental enzymes episode equal equally
equipment equipped equities error especially essential essentially established estimate estimated
estimates evaporation even evening evenings event events evidence evidently evil evolution exact
exactly examination example examples exams excellent exchange excited executed executive executives
exercise exhausted exhibition exiled existing exit expanded expect expected experience experienced
experiment experiments expert experts explore exploring explosion exporters exports express extinct
extra extreme extremely eye eyes face faced faces facial facing fact factories factors factory
facts failed fails failure fair fairly faith fall fallen falling falls false fame families family
famous fan fans far farm farmer farmers farming fashion fast fat father fathers fault favorite
favourite fear fearing fears featuring federal feeling fellow female fermentation ferns ferry
fertile fever fiction field fielders fields fierce fifteen fifth fifty fight fighters fighting
figure figures film filming filmmaker filmmakers films final finance financed financial find
finding findings finds fine finish fire fired firefighters fires firm firms first fish fishermen
fishing fit fitted five flag flames flanked flash flat fleeing fleet flight flights flood flooded
flooding floods floor flour flower flowers flying focus fog foggy folds folk folklore follow
followed food foods foot football footballers force forced forces forecasters foreign forest
forests forget forgetting forgotten form formal format formed forms forty forward forwards fossil
fossils fouls found foundation founded four fourteen fourth fox foxes fragments frankly free
freedom frequent fresh freshly friction friend friends frogs front frost frosty frozen fruit fruits
fuel fueled full fully fun function functions fund funded funding funds funeral fungi funny fur
furious furniture future futures gains galaxies galaxy gallery game games gang gap garbage garden
gardens gas gases gate gates gather gaze gender gene general generals genes genetic geneticists
gentle gentlemen genuine geographically geologists geology geometry get gets getting ghost giant
giants gift girl girls give gives giving glaciers glad glass glasses global go goal goalkeepers
goalless goals goats god gods going gold golden gone good goodbye goods gorgeous gosh got gothic
government governments governor governors grace grade gradual gradually graduate graduates grain
grand grandfather grandmother grant grapes grass grasses gravity gray great greater green grey
grievances ground grounds group groups growing grown growth guard guards guess guest guests guide
guided guilty guitar gulls gun gunmen guns ha habit hair half halfway hall hand hands happily
happiness happy harbour hard hardly harvest hat hate having head headed heading headquartered heads
health healthy hearing heart heartbroken hearts heat heated heating heavier heavily heavy height
held helium help helped helping herbivores herbs hero heroes hidden hiding high higher highest
highly hikers hill hills hint hired historian historians historic historical historically history
hit hits hmm hmmm hold holds holes holiday holidays home homeless homeowners homes homesick
homologues honest honey honour hope hopefully hopes hoping hormones horrible horse horses hospital
hospitals hostages hostile hot hotel hotels hour hours house housed household households houses
housing huge huh human humanity humans humid humidity hundred hundreds hung hunger hungry hunters
hunting hurdlers hurricanes hurry husband husbands hydroelectric hydrogen ice iconic icy idea
ideally ideas identity illegal illness image images imagine immediate immediately immigrants
immigration impact imperial important importantly importers imports impossible impressive
imprisoned improved improvement improvements incidents income incomplete increase increased
increases increasing increasingly incredibly independence independent index individual individuals
indoors industrial industry inequality infantry infection infections infielders inflation
inflorescences influence influenced influential information infrared inhabitants inhabited initial
injured injuries injury ink inland inmates inner innovation insects inside inspectors inspired
installed institution institutions instruments insufficient insurance insurers insurgents
intelligence intelligent intended intense interest interestingly interests interior internal
international internet introduced introduction invented inventor inventors investigation
investigators investment investments investor investors invitation iodine iron ironclads ironically
irrigated irrigation island islanders islands isotopes issue issues items ivory janitors jazz
jealous job jobs join joined joins joint journal journalism journalists journey joy judge judges
judgment juice jump jumpers junior jurors jury justice keen keep keepers keeping keeps kept key
keys kick kidneys kids killed killer kills kind king kings kitchen knight knighted knights knowing
knowledge known labor laboratory labour lack lacking ladies lady lake lakes lamps land landed
landing landlords landslides language languages large larger largest larvae laser laughing laughter
launch launched launches launching lava law lawmakers lawn laws lawyer lawyers layers laying lead
leader leaders leadership leading leads leaf learned learning leather leave leaves leaving
lecturers led left legal legend legendary legends legislation legislators lemon lenders length
lesser lesson lessons let letter letters level levels liaison liberal liberals liberty librarians
library licence license lichens lie life lift ligaments light lightning lights limestone limited
line lines linesmen lions lipids liquid liquids list listed listen listeners literary literature
lithium live lived lively lives living load loaded loans local locals located location lock locked
logic logs lol lone loneliness lonely long longer look looked looking loose lord lords lose loses
losing loss losses lost lot loud love loved lovely lovers low lower loyal luck luckily lunch lung
lungs luxury lying machine machinery machines mad madam made magazine magic magma magnesium
magnetic mail main major majority make makers makes making male mammals man manage managed
management manager managers managing manufacturers manufacturing map maps marble march marines mark
marked market markets marriage married masons mass masses massive master masters match matches
material materials mathematical mathematically mathematicians mathematics matter mature maximum
mayor mayors meal meals mean meaning means measure measures measuring meat mechanical mechanics
media medical medicine medieval medium meet meeting meetings meets mega melted melting member
members membership memories memory men mental mention merchants mercury mere message messages metal
metals metamorphosis meteorites meteorologists method methods metro mice microbes midday middle
midfielders midnight midway midwives migrants migration mild militants military milk mind minds
mine mineral minerals miners minimum mining minister ministers ministry minor minute minutes
missing mission mist mistakes mix mixed mixing mixture mixtures mobile model models modern modest
molecular molecules moment momentum money monkeys monks monthly months mood moon moons moral
morning mornings mortality mosquitoes moss mosses mother mothers motion motor motorists mountain
mountains mouse mouth move moved movement movements movie movies moving mudslides multiple murder
murdered muscle muscles museum museums mushrooms music musical musicians mutations mutual
mysterious mystery myth nah naked name named names narrow nation national nations nationwide native
natural naturally nature naval navy nearby nearly necessary neck need needed needing needs negative
negotiations negotiators neighbor neighborhood neighbour neighbours neither neon nerve nervous
nestled network networks neurons neutral neutrons new newcomers news newspaper newspapers nice
nickel nicknamed night nights nine nineteen ninety nitrogen noble nobles noise nominated nominees
nonsense noon normal normally north northern northward northwest notable notably note noted notes
notice noting novel novelist novelists novels nuclear nuclei number numbered numbers numerous nurse
nurses nutrients nuts oak oats obesity object objects observation observations observers obtaining
obvious obviously occasional occasionally occupied ocean oceans odd oddly offensive offered
offering offers office officer officers offices official officially officials offshore oftentimes
oil oils old older oldest olive omnivores onions online only ooh open opened opening opens opera
operating operation operations operators opinion opinions opponent opponents opportunity opposed
opposition optical option options oral orange orbit orbiting orchestras ordained order ordered
orders ordinary ore organic organisation organisations organisers organisms organization
organizations organized organizers origin original orphaned orphans ours outdoor outdoors outer
outfielders outlook output outsiders overhead overnight overseas own owned owner owners ownership
oxygen oysters pace pack package packed page pages pain pains painted painter painters painting
paintings pair palace pale panels panic papal paper papers parade paradoxically paratroopers parent
parents park parking parks parliament part partial participants particle particles parties partly
partner partners parts partway party pass passed passenger passengers passing passion passive
password path patience patient patients patrols pattern patterned patterns pay paying payment
payments peace peaceful peak peasants pedestrians penalties pension pensions people pepper
percentage perched perfect perfectly performance performances performed performers performing
period permanent permission permits persistent person personal personality personally petrol pets
pharmacists philosopher philosophers philosophy phone phones phosphorus photo photograph
photographer photographers photographs photography photons photosynthesis phrase physical
physically physician physicians physicist physicists physics piano piassava picked pickers
picnickers picture pictures piece pieces pigeons pigment pigments pigs pilgrims pilot pilots pink
pipe pipelines pirates pitch pitchers place placed places plain plaintiffs plan plane planes planet
planets plankton planned planners planning plans plant planted planting plants plasma plaster
plastic plate platelets plates platform platinum play played player players playing plays plazas
plot plumbers plutonium poem poems poet poetic poetry poets point points poison polar pole poles
police policies policy policymakers polite political politically politicians politics pollen polls
pollsters pollutants pollution pool poor pop popular popularity populated population populations
port portrait ports position positive possession possible post postal poster pot potassium potato
potatoes potential pottery poverty powder power powered powerful powers practical practice
practitioners praise praised prayer prayers praying precious precipitation precise precisely
predators predicting predictions pregnant prehistoric preliminary premier preparation preparations
prepared presence present presented president presidential presidents press pressed pressure
pressures pretty prevention previous prey price prices pride priest priests primary prime primitive
prince princes princess principal principle principles print printed printers printing prison
prisoner prisoners private prize prizes problem problems procedure proceeds process processes
produce produced producer producers product production productivity products professional
professionals professor professors profit profits program programme programmes programming programs
progress prohibition project projects prominent promise promises promising promoted proof proper
properties property proponents proposal proposals proposed prosecutors prospect prospects
prosperity protected protecting protection protein proteins protest protesters protesting protests
protons proud provided public publication publications published publisher publishers publishing
pulled pumps punishment pupils purchase pure purely purple purpose pushed pushing put putting
pyramids qualified quality quantum quarter quarterbacks queen queens question questioned questions
queues quick quickly quiet quietly quits rabbits race races racial racing racism radar radiation
radical radio radiocarbon radium rail railway railways rain rainfall rainforests rainy raised
raises raising rallies rallying ran random range ranging ranked rankings ranks rapid rapidly rare
rarely rate rated rates rather ratings ratio raw reach reached reaching reactants reaction
reactions reactors read reader readers readied reading ready real reality realizing really reason
reasons rebel rebels rebounds rebuilding rebuilt recalled recalling received receivers receiving
receptors recession recipes recognised recognition recognized reconstructed record recorded
recording recordings records recovery recruiting recyclables red reduced reducing reduction reefs
referees reference referendum reflecting reform reformers reforms refreshments refugees regardless
region regional regions registered registration regrettably regular regularly regulation
regulations regulators rehabilitation rehearsals reign reindeer rejected rejects related relations
relationship relationships relative relatively relatives release released relief relieved religion
religions religious remaining remarkable remarkably remember remnant remote removed removing
renamed renewable renovated renowned rent rents repair repairs repeated repeatedly replaced
replacing reply report reported reportedly reporter reporters reporting reports representatives
represented representing reptiles republic republican republicans reputation required requirements
rescue rescued rescuers research researcher researchers reserve reserves reservoirs residence
resident residents resigns resistance resolution resource resources respect response responses
responsibility rest restaurant restaurants restoration restored result resulting results retail
retailers retired retirement retiring retrieved retrospective return returned returning returns
revealed reveals revenge revenue revenues reverse review reviewers reviews revised revolution
revolutionary reward rhythm rice rich riders riding rifles rightly rights ring riots rise rises
rising risk risks ritual rituals rival rivals river rivers road roads robots rock rockets rocks
rodents role rolling romance romanesque romantic roof room rooms roots roses rotating rough roughly
roulette routes rowers royal royalties rubber rugby ruins rule ruled rulers rules ruling rumors
rumours run runners running rural sabotage sad sadly safe safely safety said sailing sailors sails
salaries sale sales saliva salmon salt same sample samples sanctions sand sandstone sap saplings
satellite satellites saturated save saves saving savings say saying says scale scandal scarcely
scared scattered scenes scenic scheduled scheme schemes scholar scholars school schools science
sciences scientific scientist scientists score scored scoreless scores scoring scouts screening
screens sculptor sculptors sculpture sculptures sea seafood sealed seals search searches searching
seas season seasons seat seated seating seats second secondary secret secretaries secretary section
sections sector security sediment sediments see seed seedlings seeds seeing seeking seeks seems
seen sees seismologists selected self seller sellers selling sells senate senator senators send
senior sensitive sensors sent sentence sentences separate separately sequels serfs series serious
seriously servants serve served service services serving session set sets setting settled
settlement settlements settlers seven seventeen seventy severe sewage sex sexual shadow shadows
shaken shallow shame shape shaped share shared shareholders shares sharks sharp sheep sheets
shelter shelters sheriff shift shining ship shipbuilding shipping ships shipwrecks shock shoes
shoot shooting shop shoppers shopping shops shore short shortages shortly shot shots should
shoulders show showed shower showing shows shrubs shut siblings sick sickness side sidelined sides
sight sign signals signature signed significant significantly signs silence silent silk silver
similar simple simultaneous simultaneously sin sing singer singers singing single sir sister
sisters sit site sites sitting situated situation six sixteen sixty sizable size skating skeletons
sketches skiers skies skiing skill skills skin skull sky slavery slaves sleep sleeping slides
slight slightly slips slow slower slowly small smaller smart smell smiling smiths smoke smoking
smooth snakes snipers snow snowfall snowy soap soars sober soccer social socialist socialists
socially society sociologists sodium soft software soil soils solar sold soldier soldiers sole
solid solids solo solutes solution solutions solvents solving sometime son song songs songwriters
sons sophisticated soul souls sound sounds soup source sources south southern southward sovereign
space spacecraft spam spanning sparse speaker speakers speaking special specialist specialists
species specific spectators spectrum speculation speech speeches speed speeding spending spices
spider spiders spies spirit spirits spiritual split spoken sponsors sport sporting sports spots
spread spring springs sprinters stability stable staff stage stages stairs stamps stand standard
standards standing star stars start started starting startups state statements states static
station stations statistical statistics statue statues status stay steady steam steel steep steered
stem steps stewards stick stock stocks stolen stomach stone stones stood stop stopped stopping
storage store stores stories storm storms stormy story stragglers straight strange strangely
stranger strangers strategic strategy stream streams street streets strength stress strict strictly
strike strikers strikes striking string strings strong stronger structural structure structures
struggle struggling stubborn student students studies studio studios study studying stuff stunned
style styles subject subjects subsidies substance substantial substitute substituted subtle suburbs
success successful successive sudden suddenly suffering sugar suggestions suicide suitable sulfur
sulphur summer summers sun sunken sunlight sunny sunset sunshine superior supermarkets supplied
suppliers supplies supply support supported supporter supporters supporting supposedly supreme
surely surface surfers surgeon surgeons surgery surges surprise surprised surprising surprisingly
surrounded surrounding survey surveys survival surviving survivor survivors suspect suspected
suspects suspended suspicion sustainable sweat sweet swimmers swimming swords symbol symbols
symptoms synthetic system systems table tables tackles tactics tadpoles take taken takes taking
tale talent talented tales talk talking talks tall tanks tap target targeted targets tariffs task
taste tax taxation taxes taxi taxpayers tea teach teacher teachers teaching team teamed teams tears
technical technically technicians technique techniques technological technologies technology
teenage teenagers teeth telecommunications telephone telescope telescopes television tell telling
tellingly temperature temperatures temple temples temporary ten tenants tendons tennis tens tension
tensions tentative term terminal terms terrible territory terror terrorism terrorists test
testimony testing tests text textbooks textile texts thankfully theater theatre theft theme themes
theology theorists theory therapists thermal thick thin thing things think thinkers thinking third
thirsty thirteen thirty thoroughly thought thousand thousands threat threatened threats three
thrilled throwers thunder ticket tickets tide tides tigers tight timber time times tin tiny tired
tissue title titles tobacco toilet tomatoes ton tone tongue tool tools top topics tops tornadoes
tortoises tossed total totally touch tough tour touring tourism tourist tourists tournament towers
town towns townspeople toxic toys trace traces track tracking tracks trade traders trades trading
tradition traditional traditionally traditions traffic tragedy tragic trail trailing train trained
trainers training trains transfer translated translation translations translator transport
transportation trapped trash travel traveler travelers traveling travelled travellers travelling
treasure treaties treating treatment treatments tree trees trial trials tribal tribes tribute
tricks trilogy troops tropical trouble troubled truck trucks true truly trust truth try trying
tuberculosis tunnels turbines turn turned turning turnout turnovers tv twelve twenty twins two type
types typhoons typical ugh ugly uh um umpires unable unbeaten unbeknownst uncertain uncertainty
uncle uncommon undaunted undefeated undergraduates underground understandably understanding
undeterred undoubtedly unemployed unemployment unexpected unexpectedly unfazed unfortunate unhappy
uniform union unions unique unit united units universities university unknown unsurprisingly unused
unusual unusually upper upstairs uranium urban urgent urges use used useful user users using
utilities utility vaccination vaccine vaccines valley valleys valuable value values vampires van
vandals vapor vapour variable variation variations vast vegetables vegetarian vegetation vehicle
vehicles veins vendors venue vertebrae veteran veterans vibrations vice victim victims victories
victory video videos viewers views village villagers villages violence violent violin virtual
virtually virus viruses visibility visible vision visit visited visiting visitor visitors visits
visual vitamin vitamins voice voices volcanic volcanoes voltage volume volumes volunteer volunteers
vote voted voter voters votes voting vowels voyages vulnerable waged wages wait waiters waiting
wake walk walked walkers walking wall walls want wanted war wardens warm warmer warming warned
warning warnings warns warriors wars warships wartime washing waste wastes watch watched watching
water waters wave waves weak weaker weakness wealth wealthy weapons wearing weather weavers weaving
wedding weddings weed weeds week weekly weeks weight weird welcome welders welfare west western
westward wet whale whales whaling wheat wheels when whiskey whisky whisper whispers white whoa
whoever wholesale wicked wide widely wider widespread widowed widows wife wild wildfires wildlife
willing win wind windmills window windows winds windy wine wingers winless winner winners winning
wins winter winters wire wise wishing witch witches witness witnesses wives wolf wolves woman women
wonder wonderful wondering wood wooden woods wool word words work worked worker workers workforce
working works workshops world worldwide worms worried worries worse worship worst worth worthy
wounded wounds wow writer writers writing writings written wrong yard yea year years yeast yellow
yep yield yields yikes young younger youngest youth zero zinc zones zoo zoologists
"""
