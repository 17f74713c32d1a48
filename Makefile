# make demo   environment, install, then a blurry clip made, deblurred and compared
# make test   environment, install, then lint, types, tests, and the wheel in an environment of its own
# make dist            wheel and source archive, in dist/
# make test-wheel      the wheel alone in an empty environment: pahs demo
# make test-tools      the same with uv and pipx, by the lines of the README
# make release-check   what must hold before a version is given away
# make test-container  the CPU image of the Dockerfile, built with buildah, and pahs demo in it
# make test-web        install chromium (Debian, Ubuntu), then test the web page in it
# make test-export     every bundled and recurrent network as ONNX graphs, against PyTorch: half an hour
# make test-web-hard   kill servers and workers, hundreds of jobs, a huge upload: some minutes
# make test-nodes-hard kill machines of a training at random moments, pull their cables: some minutes
# make test-cluster-hard  machines as network namespaces, killed at random (as root): many minutes
# make site            the documents as a site in build/site, which loads nothing from another host
# make page            a page in build/page that restores videos inside the browser; make npm-packages fetches its runtime
# make web-pictures    pictures of the page in all its states, and docs/images/web.png
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

BUILDAH ?= buildah
IMAGE ?= pahs

.PHONY: demo test test-export test-web test-web-hard test-nodes-hard test-cluster-hard web-pictures browser lint types tests
.PHONY: format clean page npm-packages site dist test-wheel test-tools release-check
.PHONY: container container-cuda test-container container-base

demo: $(VENV)/.installed
	$(BIN)/pahs demo -o demo

test: lint types tests test-wheel

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples

types: $(VENV)/.installed-dev
	$(BIN)/mypy

tests: $(VENV)/.installed-dev
	$(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term

test-web: $(VENV)/.installed-dev browser
	$(BIN)/pytest tests/test_web_*.py

test-export: $(VENV)/.installed-dev
	PAHS_EXPORT_ALL=1 $(BIN)/pytest -s tests/test_export_all.py

test-web-hard: $(VENV)/.installed-dev
	PAHS_WEB_HARD=1 $(BIN)/pytest -s tests/test_web_hard.py

test-nodes-hard: $(VENV)/.installed-dev
	PAHS_NODES_HARD=1 $(BIN)/pytest -s tests/test_nodes.py

test-cluster-hard: $(VENV)/.installed-dev
	PAHS_CLUSTER_HARD=1 $(BIN)/pytest -s tests/test_cluster_hard.py

web-pictures: $(VENV)/.installed-dev browser
	test -f demo/blurry.mp4 || $(BIN)/pahs demo -o demo
	$(BIN)/python tests/web_pictures.py demo/blurry.mp4 demo/pages --readme docs/images/web.png

browser:
	command -v chromium >/dev/null || { apt-get update -q && apt-get install -y -q chromium; }

page: npm-packages
	$(BIN)/pahs export pahs-t --format browser --runtime build/npm -o build/page --overwrite

npm-packages: $(VENV)/.installed-dev
	$(BIN)/python -c 'from pathlib import Path; from pahs.export.page import fetch; fetch(Path("build/npm"))'

site: $(VENV)/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "open build/site/index.html; to search in it: $(BIN)/python -m http.server -d build/site"

dist: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation >/dev/null
	ls dist/*

test-wheel: dist
	$(BIN)/python tests/wheel.py dist build/wheel

test-tools: $(BIN)/python
	$(BIN)/python tests/tools.py build/tools

release-check: dist test-wheel
	$(BIN)/python tests/release.py dist

container:
	$(BUILDAH) build $(BUILD_FLAGS) --target cpu -t $(IMAGE):cpu .

container-cuda:
	$(BUILDAH) build $(BUILD_FLAGS) --target cuda -t $(IMAGE):cuda .

test-container: container
	name=$$($(BUILDAH) from $(IMAGE):cpu) && trap "$(BUILDAH) rm $$name >/dev/null" EXIT && \
	$(BUILDAH) run $$name -- sh -c 'test "$$(id -u)" != 0 && pahs demo --frames 12 -o demo && timeout 5 pahs serve --no-browser --port 0; test $$? = 124'

# The image that the Dockerfile begins with, made of Debian's packages, for where no registry can be reached.
container-base:
	mmdebstrap --quiet --variant=minbase --include=ca-certificates bookworm build/base.tar
	name=$$($(BUILDAH) from scratch) && trap "$(BUILDAH) rm $$name >/dev/null" EXIT && \
	$(BUILDAH) add --quiet $$name build/base.tar / && \
	$(BUILDAH) commit --quiet $$name docker.io/library/debian:bookworm-slim

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix src tests examples
	$(BIN)/ruff format src tests examples

clean:
	rm -rf $(VENV) build dist demo .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis

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
