# Everything runs in .venv, which the first call creates.
PYTHON ?= python3
# Run two test files at once, because most tests wait for processes. Long files start first.
SIDE_BY_SIDE = -n 2 --dist loadfile --no-loadscope-reorder
PURE = $(addprefix tests/unit/, schemas common curation models/families learning/planning)
export OMP_WAIT_POLICY = PASSIVE
# If this is set, as in many containers, every process that a test starts compiles the project again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-slow t test-lists test-pure test-lake test-real test-gpu test-nightly check docs bench setup clean

.venv/ready: requirements.lock pyproject.toml
	@PYTHON=$(PYTHON) sh scripts/setup.sh

setup: .venv/ready

run: .venv/ready
	@.venv/bin/flywheel run
	@command -v flywheel >/dev/null || echo "More commands: .venv/bin/flywheel --help (or activate first: . .venv/bin/activate)"

# Everything but the slow and nightly tests.
test: .venv/ready
	@FLYWHEEL_SLOW=0 .venv/bin/python -m pytest $(SIDE_BY_SIDE)

# Tests that take seconds each: whole runs, kills, servers, trainings of several processes.
test-slow: .venv/ready
	@.venv/bin/python -m pytest $(SIDE_BY_SIDE) -m slow

# The tests of one package, with the last failures first: make t DIR=curation/gates
t: .venv/ready
	@.venv/bin/python -m pytest --failed-first tests/unit/$(DIR)

# Lists, docs, generated pages and schemas: most additions change these.
test-lists: .venv/ready
	@.venv/bin/python -m pytest $(SIDE_BY_SIDE) tests/unit/test_*.py tests/unit/schemas tests/unit/apps/test_reference.py \
		tests/unit/learning/engines/test_choice.py

# Only the tests that need no lake, process or training.
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

# All tests at full size.
test-nightly: .venv/ready
	@FLYWHEEL_NIGHTLY=1 .venv/bin/python -m pytest $(SIDE_BY_SIDE)

# Run every check, also after a failure. AUDIT=--complete fails unless every package was checked for vulnerabilities.
CHECKS = "ruff check ." "ruff format --check ." pyright lint-imports "python scripts/words.py" "python scripts/audit.py $(AUDIT)"
check: .venv/ready
	@failed=0; for one in $(CHECKS); do .venv/bin/$$one || failed=1; done; exit $$failed

# Build the documentation as local HTML: site/index.html.
docs: .venv/ready
	@.venv/bin/python -m sphinx -q -W --keep-going -b html docs site

bench: .venv/ready
	@.venv/bin/python -m benchmarks.sandbox --short && .venv/bin/python -m benchmarks.wheel --short && .venv/bin/python -m benchmarks.wire --short
