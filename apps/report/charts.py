"""Build the report's charts: each takes typed rows and gives a Vega-Lite specification, or None without data."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import altair as alt

from apps.report.gather import EXPLORER, START, Choice, CollectedSuccess, OnTask, Sieved, StageTime, label
from tasks.shared.status import IterationStatus

Spec = dict[str, Any] | None
"""A specification as Vega-Lite's JSON."""
POLICY, EXPLORED, RELAYED, FIXED = "#3b7dd8", "#9a8f80", "#d08a2e", "#3f9d6b"
ROUTES = {"sft": "#4c9f70", "ct": "#3b7dd8", "rl": "#8a6fc0", "quarantine": "#d08a2e", "none": "#b9b4ac"}
STAGE_COLOURS = {
    "prepare": "#7d8794",
    "import": "#9c6b4e",
    "synthesize": "#e0a3b8",
    "curriculum": "#c9b27c",
    "collect": "#3b7dd8",
    "filter": "#7fc4b8",
    "reflect": "#a7bf6b",
    "think": "#8a6fc0",
    "annotate": "#c94f8a",
    "quality": "#2f7f6f",
    "ct": "#e8c547",
    "train": "#d0632e",
    "evaluate": "#4c9f70",
    "recheck": "#86c5ee",
    "promote": "#b9b4ac",
}
SHARE = alt.Scale(domain=[0, 1])
HEIGHT = 240
LEGEND = alt.Legend(columns=alt.ExprRef("width < 400 ? 3 : 5"))
"""Legend of stacked bars; wider than the chart it would be cut."""


def success(iterations: Sequence[IterationStatus]) -> Spec:
    """Held-out success per iteration with 95 % intervals, and the explorer's line."""
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
    explorer = next((row.explorer for row in iterations if row.explorer is not None), None)
    if not rows:
        return None
    x = _iteration([row["iteration"] for row in rows])
    base = alt.Chart(alt.Data(values=rows)).encode(x=x)
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
    if explorer is not None:
        layers += _explorer_line(explorer)
    return _spec(alt.layer(*layers))


def collected(rows: Sequence[CollectedSuccess]) -> Spec:
    """P(V=1) of collected trajectories, by kind of policy."""
    if not rows:
        return None
    kinds = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(
            domain=["policy", "policy, same tasks", "relay", "explorer"], range=[POLICY, FIXED, RELAYED, EXPLORED]
        ),
    )
    base = alt.Chart(alt.Data(values=[asdict(row) for row in rows])).encode(
        x=_iteration([row.iteration for row in rows]), color=kinds
    )
    tips = [
        "iteration:O",
        "kind:N",
        "n:Q",
        *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("success", "low", "high")),
    ]
    line = base.mark_line(point=True).encode(y=alt.Y("success:Q", scale=SHARE, title="P(V=1)"), tooltip=tips)
    return _spec(base.mark_rule(opacity=0.5).encode(y="low:Q", y2="high:Q") + line)


def heat(rows: Sequence[OnTask], link: Callable[[OnTask], str] | None = None) -> Spec:
    """Success by task and iteration; the explorer first, tasks never trained on last; `link` is the link target of a
    cell."""
    if not rows:
        return None
    latest = {row.task: (row.suite == "held_out", row.success) for row in rows if row.by != EXPLORER}
    named = [{**asdict(row), "task": _named(row)} | ({"link": link(row)} if link else {}) for row in rows]
    ordered = sorted(rows, key=lambda row: (latest.get(row.task, (False, 0)), row.task))
    tasks = list(dict.fromkeys(_named(row) for row in ordered))
    columns = sorted({row.by for row in rows}, key=_column)
    base = alt.Chart(alt.Data(values=named)).encode(
        x=alt.X("by:O", sort=columns, title="iteration", axis=alt.Axis(labelAngle=0, orient="top")),
        y=alt.Y("task:N", sort=tasks, title=None, axis=alt.Axis(labelLimit=260)),
        tooltip=["task:N", "by:O", *(alt.Tooltip(f"{name}:Q", format=".3f") for name in ("success", "reward")), "n:Q"],
    )
    if link:
        base = base.encode(href="link:N")
    colour = alt.Color(
        "success:Q", scale=alt.Scale(domain=[0, 1], range=["#e8e4dc", "#8fc1a3", "#1f7a4a"]), legend=None
    )
    ink = alt.condition("datum.success > 0.75", alt.value("white"), alt.value("#333"))
    text = base.mark_text(fontSize=11).encode(text=alt.Text("success:Q", format=".2f"), color=ink)
    return _spec(base.mark_rect(stroke=None).encode(color=colour) + text, height=alt.Step(22))


def funnel(rows: Sequence[Sieved]) -> Spec:
    """The routes of the trajectories of each iteration."""
    parts = [
        {"iteration": label(row.iteration), "route": route, "trajectories": count, "order": place}
        for row in rows
        for place, route in enumerate(ROUTES)
        if (count := getattr(row, route))
    ]
    return _stack(parts, "route", "trajectories", list(ROUTES), list(ROUTES.values()))


def weights(rows: Sequence[Choice]) -> Spec:
    """The curriculum's shares of the trajectories."""
    if not rows:
        return None
    shown = {"iteration", "task", "weight", "pool", "reason"}
    chart = alt.Chart(alt.Data(values=[row.model_dump(include=shown) for row in rows]))
    marks = chart.mark_rect().encode(
        x=alt.X("iteration:O", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("task:N", title=None, axis=alt.Axis(labelLimit=260)),
        color=alt.Color(
            "weight:Q",
            scale=alt.Scale(range=["#ece8e0", "#d08a2e"], domainMin=0),
            legend=alt.Legend(format=".0%", title="share"),
        ),
        tooltip=["task:N", "iteration:O", "pool:N", alt.Tooltip("weight:Q", format=".1%"), "reason:N"],
    )
    return _spec(marks, height=alt.Step(20))


def stages(rows: Sequence[StageTime]) -> Spec:
    """Wall time of each iteration by stage."""
    names = list(dict.fromkeys(row.stage for row in sorted(rows, key=lambda row: row.order)))
    colours = [STAGE_COLOURS.get(name, EXPLORED) for name in names]
    return _stack([asdict(row) for row in rows], "stage", "seconds", names, colours)


def _stack(rows: list[dict[str, Any]], part: str, amount: str, domain: list[str], colours: list[str]) -> Spec:
    if not rows:
        return None
    scale = alt.Scale(domain=domain, range=colours)
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(size=26)
        .encode(
            x=_iteration([row["iteration"] for row in rows]),
            y=alt.Y(f"{amount}:Q"),
            color=alt.Color(f"{part}:N", title=None, sort=domain, legend=LEGEND, scale=scale),
            order="order:Q",
            tooltip=["iteration:O", f"{part}:N", alt.Tooltip(f"{amount}:Q", format=",.1f")],
        )
    )
    return _spec(chart)


def _explorer_line(share: float) -> list[Any]:
    base = alt.Chart(alt.Data(values=[{"explorer": share}])).encode(y="explorer:Q")
    line = base.mark_rule(color=EXPLORED, strokeDash=[5, 4]).encode(tooltip=[alt.Tooltip("explorer:Q", format=".3f")])
    return [line, base.mark_text(text=f"explorer {share:.2f}", x=4, dy=-7, align="left", color=EXPLORED)]


def _iteration(labels: list[str]) -> alt.X:
    return alt.X("iteration:O", sort=sorted(set(labels), key=_column), axis=alt.Axis(labelAngle=0))


def _column(name: str) -> tuple[int, int]:
    kind, _, number = name.rpartition(" ")
    return {EXPLORER: (0, 0), START: (1, 0)}.get(name, (2 if kind else 3, int(number) if number.isdecimal() else 0))


def _named(row: OnTask) -> str:
    return f"{row.task} (never trained on)" if row.suite == "held_out" else row.task


def _spec(chart: Any, height: Any = HEIGHT) -> Spec:
    return chart.properties(width="container", height=height).to_dict()
