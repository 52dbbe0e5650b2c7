# Everything runs in .venv, made on the first call.
PYTHON ?= python3
# Two files of tests at once: most of them wait for processes that they start. Long ones come first.
SIDE_BY_SIDE = -n 2 --dist loadfile --no-loadscope-reorder
PURE = $(addprefix tests/unit/, schemas common curation models/families learning/planning)
export OMP_WAIT_POLICY = PASSIVE
# Where this is set, as in many containers, every process that a test starts compiles the project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test t test-lists test-pure test-lake test-real test-gpu test-nightly check docs bench setup clean

.venv/ready: requirements.lock pyproject.toml
	@PYTHON=$(PYTHON) sh scripts/setup.sh

setup: .venv/ready

run: .venv/ready
	@.venv/bin/flywheel run
	@command -v flywheel >/dev/null || echo "more: .venv/bin/flywheel --help, or just flywheel after: . .venv/bin/activate"

# Everything but the nightly tests: the three tiers below.
test: .venv/ready
	@.venv/bin/python -m pytest $(SIDE_BY_SIDE)

# The tests of one package, those that failed last first: make t DIR=curation/gates
t: .venv/ready
	@.venv/bin/python -m pytest --failed-first tests/unit/$(DIR)

# Lists, docs, generated pages and schemas, which most additions change.
test-lists: .venv/ready
	@.venv/bin/python -m pytest $(SIDE_BY_SIDE) tests/unit/test_*.py tests/unit/schemas tests/unit/apps/test_reference.py \
		tests/unit/learning/engines/test_choice.py

# No lake, no process, no training.
test-pure: .venv/ready
	@.venv/bin/python -m pytest $(SIDE_BY_SIDE) $(PURE)

# Lakes, commands, trainings and small servers.
test-lake: .venv/ready
	@.venv/bin/python -m pytest $(SIDE_BY_SIDE) tests/unit $(PURE:%=--ignore=%)

# Whole processes with the real parts: browsers, sandboxed shells, desktops, Prefect, S3, PostgreSQL, Ray.
test-real: .venv/ready
	@.venv/bin/python -m pytest $(SIDE_BY_SIDE) tests/flows tests/system

test-gpu: .venv/ready
	@.venv/bin/python -m pytest tests/gpu

# All of them, each at its full size.
test-nightly: .venv/ready
	@FLYWHEEL_NIGHTLY=1 .venv/bin/python -m pytest $(SIDE_BY_SIDE)

# Every check, also after one that fails. AUDIT=--complete fails unless every package was looked up for vulnerabilities.
CHECKS = "ruff check ." "ruff format --check ." pyright lint-imports "python scripts/words.py" "python scripts/audit.py $(AUDIT)"
check: .venv/ready
	@failed=0; for one in $(CHECKS); do .venv/bin/$$one || failed=1; done; exit $$failed

# The documents as a site that opens from the disk: site/index.html.
docs: .venv/ready
	@.venv/bin/python -m sphinx -q -W --keep-going -b html docs site

bench: .venv/ready
	@.venv/bin/python -m benchmarks.sandbox --short && .venv/bin/python -m benchmarks.wheel --short && .venv/bin/python -m benchmarks.wire --short
