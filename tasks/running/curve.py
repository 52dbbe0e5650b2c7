"""Draw success by iteration as a Vega-Lite chart, for reports and for Prefect's page of a run."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import vl_convert

from schemas.tables.stage import PREPARE, label_of
from tasks.shared.status import IterationStatus

Spec = dict[str, Any]
"""A chart as JSON of Vega-Lite."""
START, EXPLORER = "start", "explorer"
POLICY, EXPLORED = "#3b7dd8", "#9a8f80"
SHARE = alt.Scale(domain=[0, 1])
HEIGHT = 240
SVG_WIDTH = 640
"""Width of an SVG in pixels. On a page, a chart is as wide as its container."""


def success_chart(iterations: Sequence[IterationStatus]) -> Spec | None:
    """Draw held-out success per iteration with 95 % intervals, and the explorer's line; None without data."""
    rows = [
        {
            "iteration": label(row.iteration),
            "success": row.success,
            "low": row.ci[0],
            "high": row.ci[1],
            "policy": row.policy,
        }
        for row in iterations
        if row.ci is not None
    ]
    explored = next((row for row in iterations if row.explorer is not None), None)
    if not rows:
        return None
    base = alt.Chart(alt.Data(values=rows)).encode(x=iteration_axis([row["iteration"] for row in rows]))
    tips = ["iteration:O", "policy:N", *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("success", "low", "high"))]
    layers: list[Any] = [
        base.mark_rule(color=POLICY, strokeWidth=2, opacity=0.6).encode(
            y=alt.Y("low:Q", scale=SHARE, title="success"), y2="high:Q"
        ),
        base.mark_line(color=POLICY, point=alt.OverlayMarkDef(size=70, color=POLICY)).encode(
            y="success:Q", tooltip=tips
        ),
        base.mark_text(dx=-8, dy=-8, align="right", color=POLICY).encode(
            y="success:Q", text=alt.Text("success:Q", format=".2f")
        ),
    ]
    if explored is not None and explored.explorer is not None:
        layers += _explorer_line(explored.explorer, explored.explorer_name)
    return specification(alt.layer(*layers))


def svg(spec: Spec) -> str:
    """Draw a chart as an SVG."""
    return vl_convert.vegalite_to_svg({**spec, "width": SVG_WIDTH, "background": "white"})


def specification(chart: Any, height: Any = HEIGHT) -> Spec:
    """Return the specification of a chart that is as wide as its container."""
    return chart.properties(width="container", height=height).to_dict()


def label(iteration: int) -> str:
    """Return the label of an iteration on an axis."""
    return START if iteration == PREPARE else label_of(iteration).removeprefix("iteration ")


def iteration_axis(labels: Sequence[str]) -> alt.X:
    """Return the axis of iterations with these labels."""
    return alt.X("iteration:O", sort=sorted(set(labels), key=label_order), axis=alt.Axis(labelAngle=0))


def label_order(name: str) -> tuple[int, int]:
    """Return the sort key of a label: the explorer, the start, imports, then iterations."""
    kind, _, number = name.rpartition(" ")
    return {EXPLORER: (0, 0), START: (1, 0)}.get(name, (2 if kind else 3, int(number) if number.isdecimal() else 0))


def _explorer_line(share: float, name: str) -> list[Any]:
    base = alt.Chart(alt.Data(values=[{"explorer": share}])).encode(y="explorer:Q")
    line = base.mark_rule(color=EXPLORED, strokeDash=[5, 4]).encode(tooltip=[alt.Tooltip("explorer:Q", format=".3f")])
    return [line, base.mark_text(text=f"{name} {share:.2f}", x=4, dy=-7, align="left", color=EXPLORED)]
