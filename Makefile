# Everything runs in .venv, made on the first call.
PYTHON ?= python3
# Two files of tests at once: most of them wait for processes that they start. Long ones come first.
SIDE_BY_SIDE = -n 2 --dist loadfile --no-loadscope-reorder
export OMP_WAIT_POLICY = PASSIVE

.PHONY: run test t test-slow check docs bench setup clean

.venv/ready: requirements.lock pyproject.toml
	@PYTHON=$(PYTHON) sh scripts/setup.sh

setup: .venv/ready

run: .venv/ready
	@.venv/bin/flywheel run
	@command -v flywheel >/dev/null || echo "more: .venv/bin/flywheel --help, or just flywheel after: . .venv/bin/activate"

test: .venv/ready
	@.venv/bin/python -m pytest $(SIDE_BY_SIDE)

# The tests of one package, those that failed last first: make t DIR=curation/gates
t: .venv/ready
	@.venv/bin/python -m pytest --failed-first tests/unit/$(DIR)

test-slow: .venv/ready
	@FLYWHEEL_SLOW=full .venv/bin/python -m pytest $(SIDE_BY_SIDE) -m "slow or not slow"

# AUDIT=--complete fails unless every package was looked up for known vulnerabilities.
check: .venv/ready
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/pyright && .venv/bin/lint-imports && .venv/bin/python scripts/words.py && .venv/bin/python scripts/audit.py $(AUDIT)

# The documents as a site that opens from the disk: site/index.html.
docs: .venv/ready
	@.venv/bin/python -m sphinx -q -W --keep-going -b html docs site

bench: .venv/ready
	@.venv/bin/python -m benchmarks.sandbox --short && .venv/bin/python -m benchmarks.wheel --short && .venv/bin/python -m benchmarks.wire --short
