# Every target sets itself up; it needs python3 (3.11 or newer), make and git, nothing else.
PY := .venv/bin/python
# A third process works while the others wait, for servers, for a process that is killed, for time.
PYTEST := $(PY) -m pytest -n 3 --dist worksteal tests
SABOTAGE ?=
SCRIPTS := scripts/picture scripts/reference scripts/walks scripts/weight # Python without an ending, which ruff must be told of

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint style types reference bench prove soak lock

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## make .venv with the locked dependencies
	@scripts/setup

demo: setup ## an agent fails and is put back; SABOTAGE=n breaks something on purpose
	@$(PY) examples/demo.py $(if $(SABOTAGE),--sabotage $(SABOTAGE))

# Types are checked while the tests run, and told after them. Bytecode is kept, whatever the
# environment says, for the processes that tests start would compile everything anew.
test: export PYTHONDONTWRITEBYTECODE =
test: ## style, then all tests but the slow ones, each in one place, and types beside them
	@scripts/setup --tests
	@$(MAKE) --no-print-directory style
	@nice $(MAKE) --no-print-directory types >.venv/types.txt 2>&1 & types=$$!; \
	echo "$(PYTEST)"; $(PYTEST); tests=$$?; \
	wait $$types; types=$$?; cat .venv/types.txt; \
	[ $$tests = 0 ] && [ $$types = 0 ]

lint: style types ## style, format, types and weight
	@$(PY) scripts/weight

style: setup
	$(PY) -m ruff check . $(SCRIPTS)
	$(PY) -m ruff format --check . $(SCRIPTS)

types: setup
	$(PY) -m mypy --strict src

reference: setup ## write docs/reference, the lists of docs/architecture.md and the picture anew
	@$(PY) scripts/reference
	@$(PY) scripts/walks
	@$(PY) scripts/picture

bench: ## measure
	@scripts/setup --bench
	@$(PY) bench/run.py

prove: ## crash, damage and race it, and check every promise
	@scripts/setup --tests
	@$(PY) prove/run.py

soak: ## the same for long, then all tests in all places, the slow ones and LangGraph's own
	@scripts/setup --tests
	@$(PY) prove/run.py --long
	$(PYTEST) --all-places
	$(PY) -m pytest -n 2 -m slow --all-places --hypothesis-profile=soak tests
	@$(PY) tests/langgraph/behaviour/run.py

lock: setup ## lock the dependencies anew, after pyproject.toml changed
	$(PY) -m uv lock
	$(PY) -m uv export --quiet --extra dev --no-emit-project --no-header --no-annotate \
		--format requirements-txt --output-file requirements.lock
	$(PY) -m uv export --quiet --only-group test-servers --no-emit-project --no-header \
		--no-annotate --format requirements-txt --output-file tests/servers.lock
	$(PY) -m uv export --quiet --only-group bench --no-emit-project --no-header \
		--no-annotate --format requirements-txt --output-file bench/peers.lock
