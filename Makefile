# python3 (3.11 or newer) and make are all this needs; `make setup` brings the rest into .venv.
SHELL := /bin/sh
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.made-from-lock

.PHONY: setup demo up test drill check format bench lock wheel clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "perdure needs Python 3.11 or newer; say which: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP)
	$(BIN)/python -m examples.refund.demo $(if $(KEEP),--keep)

up: $(STAMP)
	@$(BIN)/python stack.py up

test: $(STAMP)
	$(BIN)/python -m pytest $(ARGS)

drill: $(STAMP)
	$(BIN)/python -m pytest -m slow $(ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/perdure route check examples/refund/route.yaml --tools examples/refund/tools.yaml

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/python -m pytest -m bench tests/benchmarks $(ARGS)

# Needs uv; run after a change of dependencies.
lock:
	uv pip compile pyproject.toml --group service --group dev --group bench --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --quiet --output-file requirements.lock

wheel: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean:
	rm -rf .venv dist build
