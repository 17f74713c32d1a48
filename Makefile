# make demo   environment, install, then a blurry clip made, deblurred and compared
# make test   environment, install, then lint, types and tests
# make test-web        install chromium (Debian, Ubuntu), then test the web page in it
# make test-web-hard   kill servers and workers, hundreds of jobs, a huge upload: some minutes
# make web-pictures    pictures of the page in all its states, and docs/images/web.png
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-web test-web-hard web-pictures browser lint types tests format clean

demo: $(VENV)/.installed
	$(BIN)/pahs demo -o demo

test: lint types tests

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests

types: $(VENV)/.installed-dev
	$(BIN)/mypy

tests: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term

test-web: $(VENV)/.installed-dev browser
	$(BIN)/pytest tests/test_web_*.py

test-web-hard: $(VENV)/.installed-dev
	PAHS_WEB_HARD=1 $(BIN)/pytest -s tests/test_web_hard.py

web-pictures: $(VENV)/.installed-dev browser
	test -f demo/blurry.mp4 || $(BIN)/pahs demo -o demo
	$(BIN)/python tests/web_pictures.py demo/blurry.mp4 demo/pages --readme docs/images/web.png

browser:
	command -v chromium >/dev/null || { apt-get update -q && apt-get install -y -q chromium; }

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix src tests
	$(BIN)/ruff format src tests

clean:
	rm -rf $(VENV) demo .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch goes first and alone: its pin decides the build that everything else must accept.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) torch
	$(INSTALL) -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) -e '.[dev]'
	touch $@
