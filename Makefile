# Every command a person types here. Each prepares what it needs, so a fresh clone wants nothing else.

VENV_PYTHON := $(CURDIR)/.venv/bin/python
CODE := $(wildcard storage_core cursus_spark tests benchmarks examples docs/repository_pages.py)
ARCHITECTURE := tests/test_architecture.py tests/test_architecture_rules.py

export PYSPARK_PYTHON := $(VENV_PYTHON)
export PYSPARK_DRIVER_PYTHON := $(VENV_PYTHON)
# Spark starts Python processes by the hundred: without byte code each would compile us again.
export PYTHONDONTWRITEBYTECODE :=
# And numpy's threads for matrices, of which we have none, cost each of them a tenth of a second.
export OPENBLAS_NUM_THREADS := 1

# Looked for each time, because Java may come or go without this folder changing.
WITH_JAVA = JAVA_HOME="$$(.ci/setup java)" && export JAVA_HOME &&

.PHONY: help demo docs dist zip quick test test-matrix test-kafka kafka-data coverage torture torture-long object-servers check lint bench bench-kafka format clean
.DEFAULT_GOAL := help

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: .venv/.stamp ## See it work, step by step
	@$(WITH_JAVA) "$(VENV_PYTHON)" examples/demo.py

QUICK_JVM = SPARK_SUBMIT_OPTS="$$(.ci/quick-jvm)" && export SPARK_SUBMIT_OPTS &&
PYTEST = "$(VENV_PYTHON)" -m pytest -q
# A file stays in one worker, because its tests may share what took long to make.
WORKERS = --dist loadfile --no-loadscope-reorder -n
WHOLE = $(WITH_JAVA) $(QUICK_JVM) $(PYTEST) -m 'not long'
FAST = TORTURE=quick $(PYTEST) $(WORKERS) 2 -m 'not slow and not long and not spark' --ignore=tests/crash

# Shows what takes over a second: see CONTRIBUTING.md.
quick: lint ## For every edit: check and the fast tests, in under two minutes
	@$(FAST) --durations=10 --durations-min=1

# In two runs: Py4J calls back through select(), which takes no descriptor above 1023, and tests that
# let hundreds of stores crash may leave that many open. What only differs between PySparks is
# test-matrix's.
test: .venv/.stamp ## The whole proof: check, then all tests; ARGS="tests/... -k ..." runs only those
ifeq ($(strip $(ARGS)),)
	@.ci/setup browser
	@.ci/setup prometheus
	@$(WITH_JAVA) { .ci/quick-jvm >/dev/null & $(MAKE) --no-print-directory check; status=$$?; wait; exit $$status; }
	@$(WHOLE) --durations=12 $(WORKERS) 3 --ignore=tests/cursus_spark
	@$(WHOLE) --durations=12 $(WORKERS) 2 tests/cursus_spark --ignore=tests/cursus_spark/test_pyspark_versions.py
else
	@$(WHOLE) $(ARGS)
endif

coverage: .venv/.stamp ## Which lines the fast tests run; fails below the floor in pyproject.toml
	@$(FAST) --cov --cov-report=term

test-matrix: .venv/.stamp ## The connector on PySpark 4.1, 4.2 and 4.3, each in its own environment
	@.ci/matrix

# Kafka's clients stand apart from .venv: nothing else may come to need them.
KAFKA_CLIENTS := $(CURDIR)/build/kafka/clients
WITH_KAFKA = @$(WITH_JAVA) PYTHONPATH="$(KAFKA_CLIENTS)"

test-kafka: .venv/.stamp $(KAFKA_CLIENTS)/.stamp ## What a real Kafka broker writes, read as a log directory
	$(WITH_KAFKA) $(PYTEST) tests/kafka $(ARGS)

kafka-data: .venv/.stamp $(KAFKA_CLIENTS)/.stamp ## Write tests/data/kafka again, with a real broker
	$(WITH_KAFKA) "$(VENV_PYTHON)" -m tests.kafka.making

$(KAFKA_CLIENTS)/.stamp: Makefile
	@"$(VENV_PYTHON)" -m pip install --quiet --upgrade --target "$(KAFKA_CLIENTS)" 'confluent-kafka>=2.5,<3' 'aiokafka>=0.12,<1' cramjam
	@touch "$@"

torture: .venv/.stamp ## Crash states, faults and hostile input, for minutes; TORTURE_SEED and others choose
	@$(WITH_JAVA) TORTURE=torture "$(VENV_PYTHON)" -m tests.torture

torture-long: .venv/.stamp ## The same for hours, with Spark's scenarios three times
	@$(WITH_JAVA) TORTURE=torture-long "$(VENV_PYTHON)" -m tests.torture

# MinIO takes some minutes to compile. What cannot be installed is left out, and its tests are skipped.
SERVER_HOME := $(CURDIR)/.object-server
object-servers: ## Install more object stores for make torture: versitygw and MinIO (Go), Azurite (Node), s3s-fs (Rust)
	-GOBIN="$(SERVER_HOME)/bin" go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
	-GOBIN="$(SERVER_HOME)/bin" go install github.com/minio/minio@latest
	-npm install --no-fund --no-audit --prefix "$(SERVER_HOME)" azurite
	-cargo install --quiet --root "$(SERVER_HOME)" --features binary s3s-fs@0.14.1

check: lint ## Format, lint, types and architecture
	@"$(VENV_PYTHON)" -m pytest -q $(ARCHITECTURE)

lint: .venv/.stamp
	@"$(VENV_PYTHON)" -m ruff format --check --quiet .
	@"$(VENV_PYTHON)" -m ruff check --quiet .
	@"$(VENV_PYTHON)" -m mypy --num-workers 2 $(CODE)

bench: .venv/.stamp ## Measure the speed against baselines in the same run
	@$(WITH_JAVA) "$(VENV_PYTHON)" -m benchmarks && "$(VENV_PYTHON)" -m benchmarks.chart

bench-kafka: .venv/.stamp $(KAFKA_CLIENTS)/.stamp ## The same against a real Kafka broker, which this fetches and starts on loopback
	$(WITH_KAFKA) "$(VENV_PYTHON)" -m benchmarks kafka kafka_files && "$(VENV_PYTHON)" -m benchmarks.chart

docs: .venv/.stamp ## Build the documentation site into site/
	@NO_MKDOCS_2_WARNING=1 "$(VENV_PYTHON)" -m mkdocs build --strict --quiet
	@echo "The site is built: open site/index.html, or python3 -m http.server --bind 127.0.0.1 -d site, which searches too"

zip: .venv/.stamp ## Build dist/cursus-spark.zip, for spark-submit --py-files
	@.ci/zip

dist: .venv/.stamp ## Build the source archive and the wheel into dist/, and check them
	@.ci/dist

format: .venv/.stamp ## Fix what ruff can fix, and format
	@"$(VENV_PYTHON)" -m ruff check --fix --quiet .
	@"$(VENV_PYTHON)" -m ruff format .

clean: ## Remove .venv and everything that can be made again
	@rm -rf .venv .venv-matrix .object-server .prometheus build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
	@rm -rf artifacts benchmarks/results derby.log metastore_db spark-warehouse
	@find $(CODE) docs -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamp holds the folder it was made in: a moved or copied .venv points to the old one.
ifneq ($(shell cat .venv/.stamp 2>/dev/null),$(CURDIR))
.PHONY: .venv/.stamp
endif

.venv/.stamp: pyproject.toml .ci/setup
	@.ci/setup venv
	@printf '%s\n' "$(CURDIR)" > $@
