"""Ordinary English words that often begin a sentence, in lower case: no names when alone."""

from __future__ import annotations

COMMON = frozenset(
    """
able abstract academic access accident according account acid act action active activity actor
actress actual add added adding address adult adults advance advice age aged agency agent aging
agreement agriculture aid air aircraft airline airport album alcohol alive allegedly allow allowed
alone alternative amazing amount analysis analyst analysts ancient anger angry animal animals
announced annual answer answers anthem antibiotics apparent apparently appeal apple apples
application approach approximately archaeologist archaeologists architect architecture area areas
argument arm armed arms army around arrest arrested arrived arriving art article articles artist
artists ash ask asked asking asteroid astronomer astronomers athlete athletes atom atoms attack
attacks attempt attempts attendance attention attorney audience audiences author authorities
authority authors autumn average award awards awareness baby background bacteria bad bag balance
ball ballet band bank bankers banks bar bare base baseball based basic basketball bats battle beach
bear bears beautiful beauty bed beef beer bees beginning behavior behaviour being belief believed
believing bell bells best better big bigger biggest bill biology bird birds birth birthday bit
bitter black blame blind blood blow blue board boat boats bodies body bomb bombs bone bones book
books border born borrowers boss both bottle bottom bound bowl bowler box boy boys brain brave
bread break breakfast breathing bridge bridges brief briefly bright bring broad broken bronze
brother brothers brown budget build builders building buildings built buried burning bus buses bush
business businesses busy butter butterflies buyer buyers buying cabinet cake call called calls calm
camera camp campaign campaigners campaigns can cancer candidate candidates captain car carbon card
care career careful carrying cars case cases cash cat cats cattle caught cause caused causes
caution cavalry cell cells cement census central centuries century ceremony chain chair chairman
champion chance change changed changes chaos chapter character characters charge charges charity
cheap cheese chemical chemicals chemist chemists chess chicken chief child childhood children
chocolate choice cholera christmas church churches cinema circle cities citing citizen citizens
city civil civilian civilians clad claim claims class classes classic classical clay clean clear
clearly clerk climate climbers climbing clinical clock close closed cloth clothes cloud clouds club
clubs coach coaches coal coast cod code coffee coins cold collection college color colour combined
come comedy comes coming command commander comment comments commerce commercial commission
committee commodities common commonly communication communities community companies company
comparable compare compared competition complaints complete computer computers concern concerns
concert conclusion concrete condition conditions conference conflict congestion conservation
conservationists conservative conservatives consider considered construction consumer consumers
contact containing content contents context contract contrary control convinced copies copper copy
coral corn corporate corruption cost costs cotton council counsel count countries country county
couple courage course court courts cover covered covering craft create created creative credit
cricket crime crimes criminal crisis critic critical criticism criticized critics crops cross
crossing crowd crowds crown crude cruel cultural culture cup curious currency currently curtain
customer customers customs cut cutting cycle cyclists daily damage dance dancers dancing danger
dangerous dark darkness data date dates daughter daughters dawn day days dead deadline deaf deal
dealers death deaths debate debt decades decision decisions deep deeply deer defeat defeated
defence defender defenders defending defense definition delays delegates delegation demand
democracy democratic demonstrators dense density department depending deployed depression depth
descendants described desert design designed designer designers desk detail details detective
detectives determined developers developing development device devices diamonds diet difference
differences different difficult difficulty digital dinner dinosaurs diplomat diplomats direct
directed direction directly director directors dirty disaster disciples discovered discoveries
discovery discussion discussions disease diseases dissolve distance distant district divers
diversity divided dna doctor doctors document documents dog dogs dollar dolphins domestic donations
door doors double doubt doubts dozens drama drawing drawn dream dreams dressed drink drinking drive
driven driver drivers driving drone drought drug drugs dry dubbed duck due dust duties duty eagles
ear ears earth earthquake earthquakes ease easily east eastern easy eating economic economics
economist economists economy edge editor editors education educators effect effects efficiency
effort efforts egg eggs eight eighteen eighty elderly elected election elections electric
electrical electricity electron electrons elegant elephants eleven elsewhere email emergency
emerging emotion emotions emperor empire employees employer employers employment empty encouraged
encouraging end ended ending energy engine engineer engineering engineers engines entering
entertainment entire entry environment environmental enzymes episode equal equally equipment
equipped error especially essential essentially established estimate estimated estimates even
evening event events evidence evil evolution exact exactly examination example examples exams
excellent exchange excited executive executives exercise exhausted exhibition existing exit expect
expected experience experienced experiment experiments expert experts explore exploring explosion
exporters exports express extinct extra extreme extremely eye eyes face faced faces facing fact
factories factors factory facts failed failure fair fairly faith fall fallen falling false fame
families family famous fan fans far farm farmer farmers farming fashion fast fat father fathers
fault favorite favourite fear fearing fears featuring federal feeling fellow female fermentation
ferry fertile fever fiction field fields fierce fifteen fifth fifty fight fighters fighting figure
figures film filming films final finance financial find finding findings fine finish fire fired
firefighters fires firm firms fish fishermen fishing fit five flag flames flat fleeing fleet flight
flights flood flooded flooding floods floor flour flower flowers flying focus fog folk folklore
follow followed food foods foot football footballers force forced forces forecasters foreign forest
forests forget forgetting form formal format formed forms forty forward fossil fossils found
foundation founded four fourteen fourth fox foxes fragments frankly free freedom frequent fresh
freshly friction friend friends frogs front frost frozen fruit fruits fuel full fully fun function
functions fund funded funding funds funeral funny fur furniture future galaxies galaxy gallery game
games gang gap garden gardens gas gases gate gather gaze gender gene general generals genes genetic
geneticists gentle gentlemen genuine geologists geology geometry get getting ghost giant giants
gift girl girls give giving glaciers glad glass glasses global go goal goals goats god gods going
gold golden gone good goodbye goods gorgeous got government governments governor governors grace
grade gradual gradually graduate graduates grain grand grandfather grandmother grant grapes grass
gravity gray great greater green grey ground grounds group groups growing grown growth guard guards
guess guest guests guide guided guilty guitar gulls gun guns habit hair half halfway hall hand
hands happily happiness happy harbour hard harvest hat hate having head headed heading
headquartered heads health healthy hearing heart hearts heat heated heating heavily heavy height
held help helped helping herbs hero heroes hidden hiding high higher highest highly hikers hill
hills hint historian historians historic historical history hit hold holes holiday holidays home
homeless homeowners homes honest honey honour hope hopefully hopes hoping horrible horse horses
hospital hospitals hostages hostile hot hotel hotels hour hours house housed household households
houses housing huge human humanity humans humidity hundred hundreds hunger hunters hunting
hurricanes hurry husband hydrogen ice iconic icy idea ideally ideas identity illegal illness image
images imagine immediate immediately immigrants immigration impact imperial important importantly
importers imports impossible impressive improved improvement improvements incidents income increase
increased increases increasing increasingly incredibly independence independent index individual
individuals industrial industry inequality infantry infection infections inflation influence
influenced influential information infrared inhabitants initial injured injuries injury ink inner
innovation insects inside inspectors inspired installed institution institutions instruments
insurance insurers intelligence intelligent intended intense interest interestingly interests
interior internal international internet introduced introduction inventor inventors investigation
investigators investment investments investor investors invitation iron ironically irrigation
island islanders islands issue issues items ivory jazz jealous job jobs join joined joint journal
journalism journalists journey joy judge judges judgment juice jump junior jurors jury justice keen
keep keeping kept key keys kick kids killed killer kind king kings kitchen knight knights knowing
knowledge known labor laboratory labour lack lacking ladies lady lake lakes lamps land landed
landing landlords landslides language languages large larger largest laser laughing laughter launch
launched launching lava law lawmakers laws lawyer lawyers layers laying lead leader leaders
leadership leading leaf learned learning leather leave leaves leaving led left legal legend legends
legislation legislators lemon lenders length lesson lessons let letter letters level levels liberal
liberals liberty library licence license lie life lift light lightning lights limestone limited
line lines lions lipids liquid list listed listen listeners literary literature live lived lively
lives living load loaded loans locals located location lock locked logic logs lone loneliness long
longer look looked looking loose lord lords lose losing loss losses lost lot loud love loved lovely
lovers low lower loyal luck luckily lunch lung lungs luxury lying machine machinery machines mad
madam made magazine magic magma magnetic mail main major majority make makers making male mammals
man manage managed management manager managers managing manufacturers manufacturing map maps marble
march mark marked market markets marriage married mass massive master masters match matches
material materials mathematical mathematicians mathematics matter mature maximum mayor mayors meal
meals mean meaning means measure measures measuring meat mechanical media medical medicine medieval
medium meet meeting meetings melted melting member members membership memories memory men mental
mention merchants mercury mere message messages metal metals meteorites meteorologists method
methods metro mice microbes middle midnight migrants migration mild military milk mind minds mine
mineral minerals miners minimum mining minister ministers ministry minor minute minutes missing
mission mist mistakes mix mixed mixing mixture mobile model models modern modest molecular
molecules moment momentum money monkeys monks monthly months mood moon moons moral morning
mortality mosquitoes moss mother mothers motion motor motorists mountain mountains mouse mouth move
moved movement movements movie movies moving multiple murder muscle muscles museum museums
mushrooms music musical musicians mutations mutual mysterious mystery myth naked name named names
narrow nation national nations native natural naturally nature naval navy nearby necessary neck
need needed needing needs negative negotiations negotiators neighbor neighborhood neighbour
neighbours neither nerve nervous nestled network networks neurons neutral neutrons new newcomers
news newspaper newspapers nice night nights nine nineteen ninety nitrogen noble noise nominated
nominees nonsense noon normal normally north northern northwest notable notably note noted notes
notice noting novel novelist novelists novels nuclear nuclei number numbers numerous nurse nurses
nutrients nuts oak oats obesity object objects observation observations observers obtaining obvious
obviously occasional occasionally occupied ocean oceans odd oddly offensive offered offering offers
office officer officers offices official officially officials oil oils old older oldest olive
onions online only open opened opening opera operating operation operations operators opinion
opinions opponent opponents opportunity opposed opposition optical option oral orange orbit
orbiting orchestras order ordered orders ordinary ore organic organisation organisations organisers
organisms organization organizations organized organizers origin original orphans ours outdoor
outer outlook output overhead overnight overseas own owned owner owners ownership oxygen oysters
pace pack package packed page pages pain pains painted painter painters painting paintings pair
palace pale panels panic papal paper papers parade paradoxically parent parents park parking parks
parliament part partial participants particle particles parties partly partner partners parts party
pass passed passenger passengers passing passion passive password path patience patient patients
pattern patterns pay paying payment payments peace peaceful peak peasants pension pensions people
pepper percentage perched perfect perfectly performance performances performed performers
performing period permanent permission permits persistent person personal personality personally
petrol pets philosopher philosophers philosophy phone phones photo photograph photographer
photographers photographs photography photons photosynthesis phrase physical physically physician
physicians physicist physicists physics piano pickers picture pictures piece pieces pigeons pigs
pilgrims pilot pilots pink pipe pipelines pirates pitch place placed places plain plan plane planes
planet planets planned planners planning plans plant planted planting plants plasma plaster plastic
plate plates platform platinum play played player players playing plays plot poem poems poet poetic
poetry poets point points poison polar pole poles police policies policy policymakers polite
political politically politicians politics pollen polls pollsters pollution pool poor pop popular
popularity population populations port portrait ports position positive possession possible post
postal poster pot potassium potato potatoes potential pottery poverty powder power powered powerful
powers practical practice practitioners praise praised prayer prayers praying precious precise
precisely predators predicting predictions preliminary premier preparation preparations prepared
presence present presented president presidential presidents press pressed pressure pressures
pretty prevention previous price prices pride priest priests primary prime primitive prince princes
princess principal principle principles print printed printers printing prison prisoner prisoners
private prize prizes problem problems procedure proceeds process processes produce produced
producer producers product production productivity products professional professionals professor
professors profit profits program programme programmes programming programs progress prohibition
project projects prominent promise promises promising promoted proof proper properties property
proponents proposal proposals proposed prosecutors prospect prospects prosperity protected
protecting protection protein proteins protest protesters protesting protests protons proud
provided public publication publications published publisher publishers publishing pulled pumps
punishment pupils purchase pure purely purple purpose pushed pushing put putting pyramids quality
quantum quarter queen queens question questioned questions quick quickly quiet quietly rabbits race
races racial racing racism radar radiation radical radio rail railway railways rain rainfall
rainforests raised raising rallies rallying ran random range ranging ranked rapid rapidly rare
rarely rate rated rates rather ratings ratio raw reach reached reaching reaction reactions reactors
read reader readers reading ready real reality realizing really reason reasons rebel rebels
rebuilding recalled recalling received receiving receptors recession recipes recognised recognition
recognized record recorded recording recordings records recovery recruiting red reduced reducing
reduction reefs referees reference referendum reflecting reform reformers reforms refugees
regardless region regional regions registered registration regular regularly regulation regulations
regulators rehearsals reign reindeer rejected related relations relationship relationships relative
relatively relatives release released relief religion religions religious remaining remarkable
remarkably remember remote removed removing renewable renowned rent rents repair repairs repeated
repeatedly replaced replacing reply report reported reportedly reporter reporters reporting reports
representatives represented representing reptiles republic republican republicans reputation
required requirements rescue rescued rescuers research researcher researchers reserve reserves
reservoirs residence resident residents resistance resolution resource resources respect response
responses responsibility rest restaurant restaurants restoration restored result resulting results
retail retailers retired retirement retiring return returned returning revealed revenge revenue
revenues reverse review reviewers reviews revised revolution revolutionary reward rhythm rice rich
riders riding rifles rightly rights riots rise rising risk risks ritual rituals rival rivals river
rivers road roads robots rock rockets rocks role rolling romance romantic roof room rooms roots
roses rotating rough routes royal royalties rubber rugby ruins rule ruled rulers rules ruling
rumors rumours run runners running rural sad sadly safe safely safety said sailing sailors sale
sales salmon salt sample samples sanctions sand sandstone satellite satellites saturated save
saving savings say saying scale scandal scared scattered scenes scenic scheduled scheme schemes
scholar scholars school schools science sciences scientific scientist scientists score scored
scores scoring scouts screening screens sculptor sculptors sculpture sculptures sea seafood sealed
seals search searches searching seas season seasons seat seated seating seats secondary secret
secretaries secretary section sections sector security sediment sediments see seed seeds seeing
seeking seems seen seismologists self seller sellers selling senate senator senators send senior
sensitive sensors sent sentence sentences separate separately sequels series serious seriously
servants serve served service services serving session set setting settlement settlements settlers
seven seventeen seventy severe sewage sex sexual shadow shadows shaken shallow shame shape shaped
share shared shareholders shares sharks sharp sheep sheets shelter shelters sheriff shift shining
ship shipbuilding shipping ships shipwrecks shock shoes shoot shooting shop shoppers shopping shops
shore short shortages shortly shot shots should shoulders show showed shower showing shows shut
siblings sick sickness side sides sight sign signals signature signed significant significantly
signs silence silent silk silver similar simple simultaneous simultaneously sin sing singer singers
singing single sir sister sisters sit site sites sitting situated situation six sixteen sixty
sizable size skating skeletons sketches skiers skies skiing skill skills skin skull sky slavery
slaves sleep sleeping slight slightly slow slower slowly small smaller smart smell smiling smoke
smoking smooth snakes snow snowfall soap soccer social socialist socialists society sociologists
sodium soft software soil soils solar sold soldier soldiers sole solid solo solution solutions
solving son song songs songwriters sons sophisticated soul souls sound sounds soup source sources
south southern sovereign space spacecraft spam spanning speaker speakers speaking special
specialist specialists species specific spectators spectrum speculation speech speeches speed
speeding spending spices spider spiders spies spirit spirits spiritual split spoken sponsors sport
sporting sports spots spread spring stability stable staff stage stages stairs stamps stand
standard standards standing star stars start started starting startups state statements states
static station stations statistical statistics statue statues status stay steady steam steel steep
stem steps stick stock stocks stolen stomach stone stones stood stop stopped stopping storage store
stores stories storm storms story straight strange strangely stranger strangers strategic strategy
stream streams street streets strength stress strict strictly strike strikers strikes striking
string strings strong stronger structural structure structures struggle struggling stubborn student
students studies studio studios study studying stuff stunned style styles subject subjects
substance substantial substitute subtle suburbs success successful successive sudden suddenly
suffering sugar suggestions suicide suitable summer sun sunlight sunset sunshine superior
supermarkets supplied suppliers supplies supply support supported supporter supporters supporting
supposedly supreme surely surface surfers surgeon surgeons surgery surprise surprised surprising
surprisingly surrounded surrounding survey surveys survival surviving survivor survivors suspect
suspected suspects suspicion sustainable sweat sweet swimmers swimming swords symbol symbols
symptoms synthetic system systems table tables tactics take taken takes taking tale talent talented
tales talk talking talks tall tanks tap target targeted targets tariffs task taste tax taxation
taxes taxi taxpayers tea teach teacher teachers teaching team teams tears technical technically
technicians technique techniques technological technologies technology teenage teenagers teeth
telecommunications telephone telescope telescopes television tell telling temperature temperatures
temple temples temporary ten tenants tennis tens tension tensions tentative term terminal terms
terrible territory terror terrorism terrorists test testimony testing tests text textbooks textile
texts thankfully theater theatre theft theme themes theology theorists theory thermal thick thin
thing things think thinkers thinking third thirteen thirty thoroughly thought thousand thousands
threat threatened threats three thunder ticket tickets tide tides tigers tight timber time times
tin tiny tired tissue title titles tobacco toilet tomatoes ton tone tongue tool tools top topics
tornadoes tortoises total totally touch tough tour touring tourism tourist tourists tournament
towers town towns townspeople toxic toys trace traces track tracking tracks trade traders trades
trading tradition traditional traditionally traditions traffic tragedy tragic trail train trained
trainers training trains transfer translated translation translations translator transport
transportation trapped travel traveler travelers traveling travelled travellers travelling treasure
treaties treating treatment treatments tree trees trial trials tribal tribes tribute tricks trilogy
tropical trouble troubled truck trucks true truly trust truth try trying tuberculosis tunnels turn
turned turning turnout tv twelve twenty twins two type types typical ugly umpires unable uncertain
uncertainty uncle uncommon underground understandably understanding undoubtedly unemployed
unemployment unexpected unexpectedly unhappy uniform union unions unique unit united units
universities university unknown unsurprisingly unusual unusually upper urban urgent use used useful
user users using utilities utility vaccination vaccine vaccines valley valleys valuable value
values vampires van vandals variable variation variations vast vegetables vegetarian vegetation
vehicle vehicles vendors venue veteran veterans vibrations vice victim victims victories victory
video videos viewers views village villagers villages violence violent violin virtual virtually
virus viruses visibility visible vision visit visited visiting visitor visitors visits visual
vitamin vitamins voice voices volcanic volcanoes voltage volume volumes volunteer volunteers vote
voted voter voters votes voting vowels voyages vulnerable wages wait waiters waiting wake walk
walked walkers walking wall walls want wanted war warm warmer warming warned warning warnings
warriors wars warships wartime washing waste watch watched watching water waters wave waves weak
weaker weakness wealth wealthy weapons wearing weather weaving wedding weddings weed week weekly
weeks weight weird welcome welfare west western wet whale whales whaling wheat wheels when whiskey
whisky whisper whispers white wholesale wicked wide widely wider widespread widows wife wild
wildfires wildlife willing win wind window windows winds wine winner winners winning winter wire
wise wishing witch witches witness witnesses wives wolf wolves woman women wonder wonderful
wondering wood wooden woods wool word words work worked worker workers workforce working works
workshops world worldwide worms worried worries worse worship worst worth worthy wounded wounds
writer writers writing writings written wrong yard year years yeast yellow yield yields young
younger youngest youth zero zinc zones zoo zoologists
""".split()
)
