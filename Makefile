# Every target sets itself up; it needs python3 (3.11 or newer), make and git, nothing else.
PY := .venv/bin/python
SABOTAGE ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint bench prove soak lock

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## make .venv with the locked dependencies
	@scripts/setup

demo: setup ## an agent fails and is put back; SABOTAGE=n breaks something on purpose
	@$(PY) examples/demo.py $(if $(SABOTAGE),--sabotage $(SABOTAGE))

test: ## lint, then all tests but the slow ones
	@scripts/setup --tests
	@$(MAKE) --no-print-directory lint
	$(PY) -m pytest -n 2 tests

lint: setup ## style, format and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy --strict src

bench: setup ## measure
	@$(PY) bench/run.py

prove: ## crash, damage and race it, and check every promise
	@scripts/setup --tests
	@$(PY) prove/run.py

soak: ## the same for long, then the slow tests and LangGraph's own
	@scripts/setup --tests
	@$(PY) prove/run.py --long
	$(PY) -m pytest -n 2 -m slow --hypothesis-profile=soak tests
	@$(PY) tests/langgraph/behaviour/run.py

lock: setup ## lock the dependencies anew, after pyproject.toml changed
	$(PY) -m uv lock
	$(PY) -m uv export --quiet --extra dev --no-emit-project --no-header --no-annotate \
		--format requirements-txt --output-file requirements.lock
	$(PY) -m uv export --quiet --only-group test-servers --no-emit-project --no-header \
		--no-annotate --format requirements-txt --output-file tests/servers.lock
