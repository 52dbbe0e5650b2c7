"""Which tier of the slow tests runs."""

import os

import pytest

FULL = os.environ.get("FLYWHEEL_SLOW") == "full"
"""Whether slow tests run in full (`make test-slow`), or reduced."""
IN_FULL = pytest.mark.skipif(not FULL, reason="runs with `make test-slow`; a lighter test of the same runs always")
"""For tests that only repeat at length what a lighter one shows."""
