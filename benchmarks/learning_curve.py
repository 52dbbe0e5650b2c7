"""Compute success by collected trajectories from a lake, and draw it.

After n trajectories, the success is that of the champion whose iterations collected at most n. The curve has a row per
1,000 trajectories, so curves of runs with iterations of different sizes can be compared.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import altair as alt

from curation.intervals import Interval
from storage.lake import Lake
from tasks.running.curve import POLICY, SHARE, Spec, specification
from tasks.shared.status import iterations, success_of

EVERY = 1000
SuccessOf = Callable[[str], Interval | None]
"""Function that measures a policy version; None if it cannot."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Success of the champion after a number of trajectories."""

    trajectories: int
    policy: str
    success: float
    low: float
    """Lower end of the 95 % interval over trajectories, with tasks as strata."""
    high: float
    n: int
    """Number of measured trajectories."""


def learning_curve(lake: Lake, measured: SuccessOf | None = None, every: int = EVERY) -> list[CurvePoint]:
    """Return the curve up to the newest champion, with a point per `every` trajectories.

    Args:
        lake: the lake of a run.
        measured: returns the success of a policy, such as on test seeds. If not given, the lake's evaluations on
            validation seeds are used, which also decided about promotion.
        every: trajectories between two points, at least 1.
    """
    found = [
        (count, version, at) for count, version in _champions(lake) if (at := (measured or _stored(lake))(version))
    ]
    points = list[CurvePoint]()
    for index, (count, version, at) in enumerate(found):
        first = -(-count // every) * every
        end = found[index + 1][0] if index + 1 < len(found) else first + 1
        points += [CurvePoint(n, version, at.mean, at.low, at.high, at.n) for n in range(first, end, every)]
    return points


def learning_chart(points: list[CurvePoint]) -> Spec | None:
    """Draw a curve with its 95 % interval; None without points."""
    if not points:
        return None
    base = alt.Chart(alt.Data(values=[asdict(one) for one in points])).encode(
        x=alt.X("trajectories:Q", title="trajectories", axis=alt.Axis(format="~s")),
        tooltip=[
            "trajectories:Q",
            "policy:N",
            *(alt.Tooltip(f"{one}:Q", format=".3f") for one in ("success", "low", "high")),
        ],
    )
    band = base.mark_area(color=POLICY, opacity=0.2, interpolate="step-after").encode(
        y=alt.Y("low:Q", scale=SHARE, title="success"), y2="high:Q"
    )
    return specification(
        band + base.mark_line(color=POLICY, interpolate="step-after", point=len(points) == 1).encode(y="success:Q")
    )


def _champions(lake: Lake) -> Iterator[tuple[int, str]]:
    """Yield each champion with the number of trajectories that were collected before it."""
    collected = 0
    for row in iterations(lake):
        collected += row.trajectories
        if row.promoted and row.policy is not None:
            yield collected, row.policy


def _stored(lake: Lake) -> SuccessOf:
    def success(version: str) -> Interval | None:
        found = success_of(lake, version)
        return found and Interval(found.success, *found.ci, found.n)

    return success
