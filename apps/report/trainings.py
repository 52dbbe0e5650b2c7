"""Chart the trainings: a small chart for each measure of `training_steps`, a line for each policy."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from apps.report.charts import Spec
from schemas.tables.policy import MEASURES, TRAINING
from storage.lake import Lake

LATEST = 5
"""Number of trainings shown by default."""
POINTS = 200
"""Points of a line at most."""
FEW = 20
"""A line of no more is drawn with its points: one alone is no line."""
WIDTH, HEIGHT, COLUMNS = 250, 110, 3
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


def curves(lake: Lake, policies: Sequence[str] = ()) -> Spec:
    """Builds a Vega-Lite specification; None without trainings.

    Args:
        lake: the lake that holds the points.
        policies: the policies of the trainings; the latest ones if none is named.
    """
    shown = list(policies) or _latest(lake)
    trainings: dict[str, list[dict[str, Any]]] = {name: [] for name in shown}
    rows = lake.read(TRAINING.name, where={"policy_version": shown}).to_pylist() if shown else []
    for row in sorted(rows, key=lambda row: row["step"]):
        trainings[row["policy_version"]].append(row)
    points = [point for rows in trainings.values() for point in _points(rows)]
    if not points:
        return None
    known = [_title(name) for name in MEASURES]
    measures = dict.fromkeys(point["measure"] for point in points)
    order = sorted(measures, key=lambda name: (known.index(name) if name in known else len(known), name))
    of_line = Counter((point["policy"], point["measure"]) for point in points)
    for point in points:
        if of_line[point["policy"], point["measure"]] <= FEW:
            point["few"] = True
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("step:Q", title=None, axis=alt.Axis(tickCount=4)),
        y=alt.Y("value:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4, format=".3~g")),
        color=alt.Color("policy:N", title=None, legend=alt.Legend() if len(shown) > 1 else None),
        tooltip=["policy:N", "measure:N", "step:Q", alt.Tooltip("value:Q", format=".4g")],
    )
    dots = base.transform_filter("datum.few").mark_circle(size=24, opacity=1)
    chart = alt.layer(base.mark_line(strokeWidth=1.5), dots).properties(width=WIDTH, height=HEIGHT)
    facet = alt.Facet("measure:N", title=None, sort=order)
    return chart.facet(facet=facet, columns=COLUMNS).resolve_scale(y="independent").to_dict()


def _latest(lake: Lake) -> list[str]:
    """The policies that were trained last, in that order."""
    found = lake.read(TRAINING.name, ["policy_version", "written_at"])
    ends = found.group_by("policy_version").aggregate([("written_at", "max")]).sort_by("written_at_max")
    return ends["policy_version"].to_pylist()[-LATEST:]


def _points(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One for each measure of some of the rows, the last one among them."""
    every = -(-len(rows) // POINTS) if rows else 1
    for row in rows[::-1][::every][::-1]:
        found = {name: row[name] for name in MEASURES} | json.loads(row["other"])
        for name, value in found.items():
            if value is not None:
                yield {
                    "policy": row["policy_version"],
                    "step": row["step"],
                    "measure": _title(name),
                    "value": float(f"{value:.5g}"),
                }


def _title(name: str) -> str:
    return _TITLES.get(name, name.replace("_", " "))
