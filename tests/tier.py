"""Which tier of the slow tests runs."""

import os

FULL = os.environ.get("FLYWHEEL_SLOW") == "full"
"""Whether slow tests run in full (`make test-slow`), or reduced."""
