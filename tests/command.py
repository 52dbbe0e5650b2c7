"""The command line in the process of the tests."""

from collections.abc import Callable

Call = Callable[..., tuple[int, str, str]]
"""Words of a command to its status, its output and its errors; the fixture `flywheel`."""
