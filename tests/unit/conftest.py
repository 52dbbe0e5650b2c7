"""What unit tests share."""

from collections.abc import Iterator

import pytest


@pytest.fixture
def no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which bubblewrap is not installed, as whoever asks first finds it."""
    from environments.registry import lack_of

    lack_of.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    yield
    lack_of.cache_clear()
