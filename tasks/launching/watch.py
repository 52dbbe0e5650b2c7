"""Detect that a start of a training hangs, from its ranks' heartbeats."""

from collections.abc import Mapping

from learning.heartbeat import ENDED, StallTimer, every
from learning.status_folder import Heartbeat

SLOWER = 10.0
"""Multiple of the longest step so far that a step may take."""


class Watch:
    """Checks the heartbeats of one start.

    Args:
        hung_s: `train.hung_s`.
    """

    def __init__(self, hung_s: float) -> None:
        self._hung_s, self._longest_look = hung_s, 2 * every(hung_s)
        self._heard: dict[int, StallTimer] = {}
        self._steps = StallTimer(self._longest_look)
        self._longest_s = 0.0
        self._stepping = False

    def look(self, beats: Mapping[int, Heartbeat]) -> str | None:
        """Return the problem in a sentence; None while there is none.

        A silent rank is stopped, or its machine is gone. If all ranks are heard of and no step ends, they wait for each
        other in vain. Work outside of steps, such as reading or writing a model, has no time limit.
        """
        there = {rank: beat for rank, beat in beats.items() if beat.doing != ENDED}
        self._heard = {rank: self._heard.get(rank, StallTimer(self._longest_look)) for rank in there}
        for rank, heard in self._heard.items():
            heard.look(there[rank].count)
        silent = max(there, key=lambda rank: self._heard[rank].idle_s, default=None)
        if silent is not None and (idle_s := self._heard[silent].idle_s) > self._hung_s:
            return f"{_named(silent, there)} was not heard of for {idle_s:.0f} s"
        return self._at_a_step(there)

    def _at_a_step(self, there: Mapping[int, Heartbeat]) -> str | None:
        stepping = any(not beat.doing for beat in there.values())
        stood_s = self._steps.look((stepping, max((beat.step for beat in there.values()), default=0)))
        if stepping and self._stepping:
            self._longest_s = max(self._longest_s, stood_s)
        self._stepping = stepping
        idle_s = self._steps.idle_s
        if not stepping or idle_s <= max(self._hung_s, SLOWER * self._longest_s):
            return None
        last = min(there, key=lambda rank: there[rank].step)
        return (
            f"no step has ended for {idle_s:.0f} s, and the longest took {self._longest_s:.1f} s; "
            f"{_named(last, there)} has come to step {there[last].step}"
        )


def _named(rank: int, beats: Mapping[int, Heartbeat]) -> str:
    beat = beats[rank]
    return f"rank {rank} (process {beat.process} on {beat.host})"
