# PIP_ARGS reaches pip: make install PIP_ARGS="--extra-index-url URL", e.g. for PyTorch's CPU builds.
# JOBS stages of the quickstart run at a time; by default as many as suit the machine.
PYTHON ?= python3
PIP_ARGS ?=
JOBS ?=
BIN := .venv/bin

.PHONY: install quickstart english findings test test-all test-cluster soak lint gallery pictures docs

install: .venv/.installed

.venv/.installed: setup.cfg setup.py pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt $(PIP_ARGS) -e '.[dev]'
	touch $@

quickstart: install
	$(BIN)/maskpolicy run quickstart $(if $(JOBS),--jobs $(JOBS))

# the four boards of docs/english.md; DATA is the folder with the texts, MODEL a name on the Hub or a folder
DATA = english
MODEL = sentence-transformers/all-MiniLM-L6-v2
english: install
	for name in scratch bart; do $(BIN)/maskpolicy run english/$$name data=$(DATA) || exit; done
	for name in checkpoint glue; do \
		$(BIN)/maskpolicy run english/$$name data=$(DATA) model=$(MODEL) || exit; \
	done

# the findings of both papers: an hour on two cores, RUNS=15 a night; efficiency first, whose models closed-book uses. The two longest
# analyses run at a time, with a thread each; analyze findings then takes their results from the store.
FINDINGS := efficiency closed-book knowledge-intensive long-answers zsre multiple-choice mae-lm
RUNS ?= 5
findings: install
	for name in $(FINDINGS); do \
		$(BIN)/maskpolicy run experiments/findings/$$name.yaml --out runs/findings/$$name \
			"seeds=[$$(seq -s, 0 $$(($(RUNS) - 1)))]" intermediate_seeds=$(RUNS) general_seeds=$(RUNS) \
			$(if $(JOBS),--jobs $(JOBS)) || exit; \
	done
	for name in rank probe; do OMP_NUM_THREADS=1 $(BIN)/maskpolicy analyze $$name runs/findings/mae-lm > /dev/null & done; wait
	$(BIN)/maskpolicy analyze findings $(FINDINGS:%=runs/findings/%) --out runs/findings
	cp runs/findings/findings.md docs/development/findings.md

# a process for each core, one thread in each: threads of several processes wait for each other
test: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile -m "not slow"

test-all: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -m "not cluster"

# kills nodes of a Ray cluster of this machine; alone, because Ray's own time limits need idle cores. Then a bucket is lost for a minute
test-cluster: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -m cluster
	OUTAGE=60 OMP_NUM_THREADS=1 $(BIN)/pytest tests/pipeline/test_bucket.py -k outage

# kills, damages and fuzzes for an hour at most; its figures go to docs/development/reliability.md. SOAK="--minutes 120" for slow cores
SOAK ?=
soak: install
	OMP_NUM_THREADS=1 PYTHONPATH=.:tests $(BIN)/python -m faults.soak --write docs/development/reliability.md $(SOAK)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.house
	$(BIN)/pre-commit run --all-files english

# one passage masked by every policy, and by some with other settings
ROWS := "salient-span policy.spans=2" \
	"regex 'policy.pattern=\b\d{4}\b'" \
	"random 'policy.ratio={start: 0.3, end: 0.15}'" \
	"mixture 'policy.members=[mass, {name: salient-span, target: full}]'"
gallery: install
	$(BIN)/maskpolicy gallery $(ROWS) > docs/development/gallery.md

# the pictures of README.md: one passage under six policies, and the quickstart with five seeds (11 minutes)
BROWSER ?= chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1000,900
PASSAGE := Himan Kendal was known as a weaver. His first loom was a Quarkstone of 1854. He died in Trevatek in 1893.
pictures: install
	$(BIN)/maskpolicy gallery --alone --text "$(PASSAGE)" --picture docs/pictures/masks.svg \
		random whole-word span gap-sentences pmi salient-span > /dev/null
	$(BIN)/maskpolicy run quickstart seeds=[0,1,2,3,4] intermediate_seeds=5 --out runs/pictures
	cp runs/pictures/leaderboard.html docs/pictures/
	$(BROWSER) --screenshot=docs/pictures/leaderboard.png file://$(CURDIR)/docs/pictures/leaderboard.html

# the documentation as a site, site/index.html. Broken links are errors, and so is a page that loads something from another
# host. In the code of a table, GitHub needs \| where the site shows it as it stands
docs: .venv/.docs
	sed 's,(docs/,(,g' CHANGELOG.md > docs/changelog.md
	$(BIN)/maskpolicy gallery $(ROWS) --picture docs/pictures/gallery.svg > /dev/null
	$(BIN)/zensical build --strict --clean
	find site -name '*.html' | xargs perl -pi -e 's/\\\|(?=[^<]*<\/code>)/|/g'
	! grep -rE '<(script|img|link rel="stylesheet")[^>]*(src|href)="https?:' site --include='*.html'

.venv/.docs: .venv/.installed
	$(BIN)/pip install --disable-pip-version-check -c constraints.txt $(PIP_ARGS) -e '.[docs]'
	touch $@
