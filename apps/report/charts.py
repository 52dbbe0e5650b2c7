"""Build the charts of the report and the dashboard: each takes a frame and gives a Vega-Lite specification, or None
without data."""

from collections.abc import Callable
from typing import Any

import altair as alt
import polars as pl

from flywheel.comparison import HistoryComparison
from schemas.tables.policy import MEASURES
from tasks.running.curve import (
    EXPLORED,
    EXPLORER,
    POLICY,
    SHARE,
    Spec,
    iteration_axis,
    label,
    label_order,
    specification,
)
from tasks.shared.trajectories import SHORT_ID

SUFFIXES = {"synthesized": " (made)", "held_out": " (never trained on)"}
"""Suffixes of tasks by suite, in the order of the rows."""
KINDS = {"policy": POLICY, "policy, same tasks": "#3f9d6b", "relay": "#d08a2e", "explorer": EXPLORED}
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
LEGEND = alt.Legend(columns=alt.ExprRef("width < 400 ? 3 : 5"))
"""Legend of stacked bars, which would be cut if it were wider than the chart."""
FEW = 20
"""Maximum points of a training's line that is drawn with its points, because a single point is not a line."""
_TITLES = {
    "grad_norm": "gradient norm",
    "kl": "KL to parent",
    "clipped": "clip share",
    "advantage_std": "advantage spread",
    "truncated": "truncated share",
    "samples_per_s": "samples a second",
    "tokens_per_s": "tokens a second",
    "mfu": "MFU",
    "peak_memory_gb": "peak memory, GB",
}


def collected(rows: pl.DataFrame) -> Spec | None:
    """Draws P(V=1) of collected trajectories, by kind of policy (`OpenLake.collected`)."""
    if rows.is_empty():
        return None
    values = _labelled(rows)
    kinds = alt.Color("kind:N", title=None, scale=alt.Scale(domain=list(KINDS), range=list(KINDS.values())))
    base = alt.Chart(alt.Data(values=values)).encode(
        x=iteration_axis([row["iteration"] for row in values]), color=kinds
    )
    shares = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("success", "low", "high")]
    line = base.mark_line(point=True).encode(
        y=alt.Y("success:Q", scale=SHARE, title="P(V=1)"), tooltip=["iteration:O", "kind:N", "n:Q", *shares]
    )
    return specification(base.mark_rule(opacity=0.5).encode(y="low:Q", y2="high:Q") + line)


def curves(found: HistoryComparison) -> Spec | None:
    """Draws the success of two lakes or runs by the number of the iteration in each, with 95 % intervals."""
    names = [found.a.name[:SHORT_ID], found.b.name[:SHORT_ID]]
    values = [
        {"at": at, "name": name, "success": row.success, "low": row.ci[0], "high": row.ci[1], "policy": row.policy}
        for name, side in zip(names, (found.a, found.b), strict=True)
        for at, row in enumerate(side.curve, 1)
        if row.ci is not None
    ]
    if not values:
        return None
    colour = alt.Color("name:N", title=None, scale=alt.Scale(domain=names, range=[POLICY, "#d08a2e"]))
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("at:O", title="iteration of the run", axis=alt.Axis(labelAngle=0)), color=colour
    )
    shares = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("success", "low", "high")]
    line = base.mark_line(point=True).encode(
        y=alt.Y("success:Q", scale=SHARE, title="success"), tooltip=["name:N", "at:O", "policy:N", *shares]
    )
    return specification(base.mark_rule(opacity=0.5).encode(y="low:Q", y2="high:Q") + line)


def heat(rows: pl.DataFrame, link: Callable[[dict[str, Any]], str] | None = None) -> Spec | None:
    """Draws success by task and actor, the explorer first, then made tasks, and tasks never trained on last; `link` is
    the link target of a cell."""
    if rows.is_empty():
        return None
    suffix = pl.col("suite").replace_strict(SUFFIXES, default="")
    named = rows.with_columns(task=pl.col("task") + suffix)
    own = pl.col("by") != EXPLORER
    latest = named.group_by("task").agg(
        pl.col("suite").filter(own).last().replace_strict(list(SUFFIXES), [1, 2], default=0).fill_null(0),
        pl.col("success").filter(own).last(),
    )
    tasks = latest.sort("suite", pl.col("success").fill_null(0.0), "task")["task"].to_list()
    columns = sorted(named["by"].unique(), key=label_order)
    values = [row | ({"link": link(row)} if link else {}) for row in named.to_dicts()]
    base = alt.Chart(alt.Data(values=values)).encode(
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
    return specification(base.mark_rect(stroke=None).encode(color=colour) + text, height=22 * len(tasks))


def funnel(rows: pl.DataFrame) -> Spec | None:
    """Draws the routes of each iteration's trajectories."""
    parts = rows.unpivot(list(ROUTES), index="iteration", variable_name="route", value_name="trajectories")
    order = pl.col("route").replace_strict({route: at for at, route in enumerate(ROUTES)}, return_dtype=pl.Int64)
    parts = parts.filter(pl.col("trajectories") > 0).with_columns(order=order).sort("iteration", "order")
    return _stack(_labelled(parts), "route", "trajectories", list(ROUTES), list(ROUTES.values()))


def weights(rows: pl.DataFrame) -> Spec | None:
    """Draws the curriculum's shares of trajectories."""
    if rows.is_empty():
        return None
    values = rows.select("iteration", "task", "weight", "pool", "reason").to_dicts()
    marks = (
        alt.Chart(alt.Data(values=values))
        .mark_rect()
        .encode(
            x=alt.X("iteration:O", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("task:N", title=None, axis=alt.Axis(labelLimit=260)),
            color=alt.Color(
                "weight:Q",
                scale=alt.Scale(range=["#ece8e0", "#d08a2e"], domainMin=0),
                legend=alt.Legend(format=".0%", title="share"),
            ),
            tooltip=["task:N", "iteration:O", "pool:N", alt.Tooltip("weight:Q", format=".1%"), "reason:N"],
        )
    )
    return specification(marks, height=20 * rows["task"].n_unique())


def stages(rows: pl.DataFrame) -> Spec | None:
    """Draws the wall time of each iteration by stage."""
    names = rows.sort("order", maintain_order=True)["stage"].unique(maintain_order=True).to_list()
    colours = [STAGE_COLOURS.get(name, EXPLORED) for name in names]
    return _stack(_labelled(rows), "stage", "seconds", names, colours)


def training(points: pl.DataFrame) -> Spec | None:
    """Draws trainings' measures (`OpenLake.training`): a small chart for each measure, a line for each policy."""
    if points.is_empty():
        return None
    known = {name: at for at, name in enumerate(MEASURES)}
    measures = sorted(points["measure"].unique(), key=lambda name: (known.get(name, len(known)), name))
    few = pl.len().over("policy", "measure") <= FEW
    titles = {name: _title(name) for name in measures}
    shown = points.with_columns(measure=pl.col("measure").replace_strict(titles), few=few)
    values = [row | {"value": float(f"{row['value']:.5g}")} for row in shown.to_dicts()]
    lines = points["policy"].n_unique()
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("step:Q", title=None, axis=alt.Axis(tickCount=4)),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4, format=".3~g")),
        color=alt.Color("policy:N", title=None, legend=alt.Legend() if lines > 1 else None),
        tooltip=["policy:N", "measure:N", "step:Q", alt.Tooltip("value:Q", format=".4g")],
    )
    # Not filtered: Vega has no extent for a chart without a dot.
    dots = base.mark_circle(size=24).encode(opacity=alt.condition("datum.few", alt.value(1), alt.value(0)))
    chart = alt.layer(base.mark_line(strokeWidth=1.5), dots).properties(width=250, height=110)
    facet = alt.Facet("measure:N", title=None, sort=list(titles.values()))
    return chart.facet(facet=facet, columns=3).resolve_scale(y="independent").to_dict()


def _stack(rows: list[dict[str, Any]], part: str, amount: str, domain: list[str], colours: list[str]) -> Spec | None:
    if not rows:
        return None
    scale = alt.Scale(domain=domain, range=colours)
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(size=26)
        .encode(
            x=iteration_axis([row["iteration"] for row in rows]),
            y=alt.Y(f"{amount}:Q"),
            color=alt.Color(f"{part}:N", title=None, sort=domain, legend=LEGEND, scale=scale),
            order="order:Q",
            tooltip=["iteration:O", f"{part}:N", alt.Tooltip(f"{amount}:Q", format=",.1f")],
        )
    )
    return specification(chart)


def _labelled(rows: pl.DataFrame) -> list[dict[str, Any]]:
    """Returns the rows with the labels of their iterations."""
    return [row | {"iteration": label(row["iteration"])} for row in rows.to_dicts()]


def _title(measure: str) -> str:
    return _TITLES.get(measure, measure.replace("_", " "))
