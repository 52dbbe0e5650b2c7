"""Environments that many tests act in."""

from environments.fake import FakeConfig, FakeEnvironment
from environments.miniwob.environment import MiniwobConfig, MiniwobEnvironment

FAKE = FakeEnvironment("fake", FakeConfig(sandboxes=3))


def miniwob(browsers: int = 1, pages: int = 2, step_timeout_s: float = 20.0) -> MiniwobEnvironment:
    """MiniWoB++ in so many browsers of so many pages each."""
    return MiniwobEnvironment("miniwob", MiniwobConfig(browsers=browsers, pages=pages, step_timeout_s=step_timeout_s))
