"""Read the verdict of a bundle's check, and prove each bundle once; for all kinds that play bundles."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import cast

from environments.desktop.uda.bundles import CHECK
from schemas.failure import TrajectoryFailure

WORKSPACE = "/tmp_workspace"
"""Folder of a bundle's files in the sandbox, as in UDA-Gym."""
STATE = ".uda_state"
"""Folder below `WORKSPACE` that `$UDA_GYM_HARNESS_STATE_DIR` names."""
NO_VERDICT = "no verdict"
PYTHON_SAFE = ("PYTHONNOUSERSITE=1", "PYTHONSAFEPATH=1")
"""Variables of the setup and the check: Python imports nothing that the policy wrote."""


def score_of(output: str) -> float:
    """Returns the score in the last line of a check's output.

    Raises:
        TrajectoryFailure: of boundary `verifier`: the line is no JSON object with a finite `overall_score` from 0 to 1.
    """
    lines = output.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        found = None
    score = cast(dict[str, object], found).get("overall_score") if isinstance(found, dict) else None
    if isinstance(score, bool) or not isinstance(score, int | float):
        last = f"its last line is {lines[-1][:80]!r}" if lines else "it prints nothing"
        raise no_verdict(f"{last}, not JSON with a number `overall_score`")
    if not math.isfinite(score) or not 0 <= score <= 1:
        raise no_verdict(f"its overall_score is {score}, not a number from 0 to 1")
    return float(score)


def no_verdict(why: str) -> TrajectoryFailure:
    """Makes the failure of a check without a verdict."""
    return TrajectoryFailure("verifier", f"{CHECK}: {why}")


class Proofs:
    """Proofs of bundles, each made once for all sandboxes."""

    def __init__(self) -> None:
        self._made: dict[str, asyncio.Future[None]] = {}

    async def once(self, name: str, make: Callable[[], Awaitable[None]]) -> None:
        """Proves a bundle once for all sandboxes; a failed proof is tried again."""
        waiting = self._made.get(name)
        failed = waiting is not None and waiting.done() and (waiting.cancelled() or waiting.exception() is not None)
        if waiting is None or failed or waiting.get_loop() is not asyncio.get_running_loop():
            waiting = self._made[name] = asyncio.ensure_future(make())
        await asyncio.shield(waiting)
