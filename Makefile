# make demo | make test | make check | make docs (also: test-all, test-frameworks,
# test-frameworks-all, coverage, format). Each makes the environment it needs
# first: Python 3.11 or newer with venv, and a C compiler, are enough.
#   PYTHON  what makes the environment            (default python3)
#   VENV    where it stands; may exist already    (default .venv)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.hf-guided-ready
DOCS_READY := $(VENV)/.hf-guided-docs-ready

FRAMEWORKS := $(VENV)-frameworks

.PHONY: demo test test-all test-frameworks test-frameworks-all coverage check format docs

demo: $(READY)
	$(BIN)/hf-guided demo

# Two processes with one thread each: the models are tiny, and threads that wait for one another make them crawl. A file's
# tests run in one process, which makes what they share once. Bytecode is kept: many tests start an interpreter.
ON_TWO_CORES := -m pytest -n 2 --dist loadfile
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python $(ON_TWO_CORES)

test: $(READY)
	$(PYTEST)

# Those too that take minutes.
test-all: $(READY)
	$(PYTEST) -m "slow or not slow"

# Ray, LangChain, LlamaIndex, TRL, Gradio, an S3 server: they pin many packages, so they are in an environment of their
# own, on top of the other one. Gradio leaves event loops and their sockets to the garbage collector, which may run in any later test,
# and its count of events uses an argument that pandas 3 no longer wants: an error there would lose the event.
FRAMEWORK_TESTS := tests/unit/test_readme.py \
	$(patsubst %,tests/integration/test_%.py,batch_s3 gradio langchain llamaindex notebooks ray trl)
PYTEST_FRAMEWORKS := OMP_NUM_THREADS=1 $(FRAMEWORKS)/bin/python $(ON_TWO_CORES) -o asyncio_mode=auto \
	-o asyncio_default_fixture_loop_scope=function --benchmark-disable \
	-W "ignore:unclosed event loop:ResourceWarning" -W "ignore:unclosed <socket:ResourceWarning" \
	-W "ignore:The copy keyword is deprecated" $(FRAMEWORK_TESTS) \
	-k "s3 or gradio or langchain or llamaindex or ray or trl or ui.md or 08_train"
test-frameworks: $(FRAMEWORKS)/.hf-guided-ready
	$(PYTEST_FRAMEWORKS)

# With the notebook that trains a model.
test-frameworks-all: $(FRAMEWORKS)/.hf-guided-ready
	$(PYTEST_FRAMEWORKS) -m "slow or not slow"

# The lines and branches that the tests of both environments cover, and which of the first cover them: for
# python -m tests.mutation.
coverage: $(READY) $(FRAMEWORKS)/.hf-guided-ready
	$(PYTEST) -p tests.mutation.durations --cov --cov-context=test --cov-report= --cov-fail-under=0
	$(PYTEST_FRAMEWORKS) --cov --cov-append

check: $(READY)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# The site, in docs/_build/html, from nothing (-E), so that every warning comes. Warnings are errors.
docs: $(DOCS_READY)
	$(BIN)/python -m sphinx -b html -E -W --keep-going -q docs docs/_build/html
	@echo "docs/_build/html/index.html"

# Installed again whenever the project's dependencies, the tested versions or what is compiled change.
$(READY): pyproject.toml constraints.txt $(wildcard hf_guided/automaton/c/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev]"
	touch $@

$(DOCS_READY): $(READY)
	$(BIN)/python -m pip install -c constraints.txt -e ".[docs]"
	touch $@

SITE = $(shell $(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
$(FRAMEWORKS)/.hf-guided-ready: $(READY)
	$(BIN)/python -m venv $(FRAMEWORKS)
	echo "import site; site.addsitedir('$(SITE)')" > $$($(FRAMEWORKS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/base.pth
	$(FRAMEWORKS)/bin/python -m pip install -c constraints.txt -e ".[frameworks]"
	touch $@
