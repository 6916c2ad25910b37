# Two commands do all their own set-up on a fresh machine: `make tune` and `make test`.
SHELL := /bin/bash
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready-test $(VENV)-adapters/.ready $(VENV)-openbox/.ready $(VENV)-trackers/.ready $(VENV)-llama-server/.ready
SET_UP := pyproject.toml scripts/setup scripts/setup-deepspeed scripts/constraints.txt

.PHONY: help tune test release-check test-autoscout test-autosched test-lab test-training test-vllm test-sglang check-engines test-llama-server check docs fast soak bench clean environments

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | column -t -s "$$(printf '\t')"

$(VENV)/.ready-tune: $(SET_UP)
	PYTHON=$(PYTHON) scripts/setup $(VENV) llamacpp
	@touch $@

$(VENV)/.ready-test: $(SET_UP)
	PYTHON=$(PYTHON) scripts/setup $(VENV) dev,llamacpp,postgres,sched,bench,control,web,pandas
	@touch $@ $(VENV)/.ready-tune

$(VENV)-adapters/.ready: $(SET_UP) # Ax brings torch, so that DeepSpeed and megatron-core are little more
	PYTHON=$(PYTHON) scripts/setup $(VENV)-adapters test,optuna,smac,ax,ray,aiconfigurator,megatron
	scripts/setup-deepspeed $(VENV)-adapters
	@touch $@

$(VENV)-openbox/.ready: $(SET_UP) # OpenBox needs older packages than SMAC and Ax
	PYTHON=$(PYTHON) scripts/setup $(VENV)-openbox test,openbox
	@touch $@

$(VENV)-trackers/.ready: $(SET_UP) # 0.8 GB: MLflow's server, which its extra does not bring, pins what others need newer
	PYTHON=$(PYTHON) scripts/setup $(VENV)-trackers test,mlflow,wandb,trackio,tensorboard,optuna-db
	$(VENV)-trackers/bin/python -m pip install --quiet --no-compile --disable-pip-version-check mlflow optuna-dashboard
	@touch $@

$(VENV)-training/.ready: $(SET_UP) # made on request only
	PYTHON=$(PYTHON) scripts/setup $(VENV)-training test,torch,finetune,megatron
	$(VENV)-training/bin/python -m pip install --quiet "lightning>=2.4"
	scripts/setup-deepspeed $(VENV)-training
	@touch $@

$(VENV)-llama-server/.ready: scripts/setup-llama-server # 13 MB from Debian, unpacked only; without it a few tests skip
	scripts/setup-llama-server $(VENV)-llama-server
	@[ ! -x $(VENV)-llama-server/llama-server ] || touch $@

environments: $(READY)

tune: $(VENV)/.ready-tune ## tune real llama.cpp on this machine, about six minutes
	$(BIN)/autoscout tune llamacpp --experiment-name llamacpp --budget 6m

test: ## everything CI runs: lint, types, import contract, all tests
	@export TEST_REPORT=$$(mktemp -d) && . scripts/timed && \
	  timed "system packages" scripts/system-packages && \
	  timed "set-up and checks" $(MAKE) --no-print-directory -j3 environments check && \
	  scripts/test $(VENV)

test-autoscout: $(VENV)/.ready-test ## the tests of one house: the tuner
	scripts/test $(VENV) tests/autoscout

test-autosched: $(VENV)/.ready-test ## the scheduler house
	scripts/test $(VENV) tests/autosched

test-lab: $(VENV)/.ready-test ## the laboratory
	scripts/test $(VENV) tests/lab

check: $(VENV)/.ready-test ## lint, types, import contract, sizes, structure
	scripts/check $(VENV)

release-check: $(VENV)/.ready-test ## build the package, try it in an empty environment; refuses while something is undecided
	$(BIN)/python scripts/release_check.py

docs: $(VENV)/.ready-test ## the documentation as a site, in site/; every warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

fast: $(VENV)/.ready-test ## the tests that take seconds
	$(BIN)/pytest -q -n auto --dist worksteal -m "not slow and not adapters and not training and not soak"

test-training: $(VENV)-training/.ready ## real runs of DeepSpeed, megatron-core and fine-tuning, in an environment of their own
	OMP_NUM_THREADS=1 $(VENV)-training/bin/python -m pytest -q -n 0 -m training tests/autoscout/backends/test_training_extras.py tests/autoscout/backends/test_megatron_core.py tests/autoscout/backends/test_training_callback.py

$(VENV)-vllm/.ready: scripts/setup-vllm # 4.4 GB, and minutes
	PYTHON=$(PYTHON) scripts/setup-vllm $(VENV)-vllm
	@touch $@

$(VENV)-clients/.ready: Makefile # load generators of others, 2.1 GB
	$(PYTHON) -m venv $(VENV)-clients
	$(VENV)-clients/bin/python -m pip install --quiet torch==2.13.0 guidellm==0.8.1 aiperf==0.13.0
	@touch $@

test-vllm: $(VENV)/.ready-test $(VENV)-vllm/.ready $(VENV)-clients/.ready ## tune real vLLM on the CPU; ask engines' own parsers and clients
	AUTOSCOUT_VLLM_PYTHON=$(CURDIR)/$(VENV)-vllm/bin/python AUTOSCOUT_WHEELS=$(CURDIR)/$(VENV)-vllm/wheels \
	  AUTOSCOUT_CLIENTS=$(CURDIR)/$(VENV)-clients/bin $(BIN)/python -m pytest -q -n 0 -m engines tests/autoscout/backends

$(VENV)-sglang/.ready: scripts/setup-sglang # 3.4 GB, and minutes
	PYTHON=$(PYTHON) scripts/setup-sglang $(VENV)-sglang
	@touch $@

test-sglang: $(VENV)/.ready-test $(VENV)-sglang/.ready ## tune real SGLang on the CPU, with torch's kernels in the place of its own
	AUTOSCOUT_SGLANG_PYTHON=$(CURDIR)/$(VENV)-sglang/bin/python $(BIN)/python -m pytest -q -n 0 -m engines tests/autoscout/backends/test_sglang_real.py

check-engines: $(VENV)/.ready-test ## say when a newer wheel of an engine changes flags or defaults; skips without a package index
	$(BIN)/python scripts/engine_news.py

test-llama-server: $(VENV)/.ready-test $(VENV)-llama-server/.ready ## tune the real llama-server program; part of `make test` too
	$(BIN)/python -m pytest -q -n 0 tests/autoscout/backends/test_llamacpp_program.py tests/autoscout/backends/test_llamacpp_launch.py

soak: $(READY) ## the tests that take many minutes or hours: long fuzzing, every adapter on every space
	scripts/soak $(VENV)

bench: $(VENV)/.ready-test ## figures of speed, compared with peers
	$(BIN)/python -m benchmarks.space

clean: ## remove the virtual environments and caches
	rm -rf $(VENV) $(VENV)-adapters $(VENV)-openbox $(VENV)-trackers $(VENV)-llama-server $(VENV)-training $(VENV)-vllm $(VENV)-sglang $(VENV)-clients .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
