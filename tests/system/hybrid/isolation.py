"""Whether a shell can be isolated on this machine, found out once; tests that need one say why they are skipped."""

import asyncio
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

import pytest

from environments.hybrid.environment import HybridConfig, HybridEnvironment
from tests.tiers import lacks

T = TypeVar("T")


def hybrid(browsers: int = 1, pages: int = 2, **more: Any) -> HybridEnvironment:
    """The environment in so many browsers of so many pages each."""
    return HybridEnvironment("hybrid", HybridConfig(kind="hybrid", browsers=browsers, pages=pages, **more))


@cache
def missing() -> str:
    """Why no shell can be isolated here; empty where it can."""
    check = hybrid().probes()[0].check()
    return "" if check.ok else lacks(f"no sandboxed shell ({check.detail})", check.hint)


NEEDS_A_JAIL = pytest.mark.skipif(bool(missing()), reason=missing())


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine."""
    return asyncio.run(work)
