"""Figures as PNG: points or curves with their 95 % intervals."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt


def save_points(
    rows: Sequence[dict[str, Any]], path: Path, x: str, panel: str, title: str, success: bool = True
) -> None:
    """One panel per value of `panel`, a point with its interval for every row (`mean`, `low`, `high`) at its `x`.

    The panels show success on one scale; or, if not, each something of its own.
    """
    shown = [{**row, **{end: _within(row[end]) for end in ("low", "high")}} for row in rows]
    ordinal = not all(isinstance(row[x], int | float) for row in rows)
    axis = alt.X(f"{x}:{'N' if ordinal else 'Q'}", sort=None, axis=alt.Axis(labelAngle=0))
    most = max(len({row[x] for row in rows if row[panel] == name}) for name in {row[panel] for row in rows})
    width = max(320, 120 * most) if ordinal else 320
    base = alt.Chart().encode(x=axis)
    points = base.mark_point(filled=True, size=70).encode(y=alt.Y("mean:Q", title="success" if success else None))
    bars = base.mark_rule().encode(y=alt.Y("low:Q"), y2="high:Q")
    chart = alt.layer(bars, points, data=alt.Data(values=shown)).properties(width=width, height=240)
    path.parent.mkdir(parents=True, exist_ok=True)
    panels = chart.facet(column=alt.Column(f"{panel}:N", title=None)).properties(title=title)
    if not success:
        panels = panels.resolve_scale(x="independent", y="independent")
    panels.save(str(path), scale_factor=2)


def save_curves(rows: Sequence[dict[str, Any]], path: Path, x: str, arm: str, title: str) -> None:
    """One curve of success per value of `arm`, with its interval (`mean`, `low`, `high`), over `x`, in one panel."""
    shown = [{**row, **{end: _within(row[end]) for end in ("low", "high")}} for row in rows]
    base = alt.Chart(alt.Data(values=shown)).encode(x=alt.X(f"{x}:Q"), color=alt.Color(f"{arm}:N", title=None))
    scale = alt.Scale(zero=False)
    bands = base.mark_area(opacity=0.2).encode(y=alt.Y("low:Q", title="success", scale=scale), y2="high:Q")
    curves = base.mark_line(point=True).encode(y="mean:Q")
    path.parent.mkdir(parents=True, exist_ok=True)
    alt.layer(bands, curves).properties(width=640, height=320, title=title).save(str(path), scale_factor=2)


def _within(value: float) -> float | None:
    return value if math.isfinite(value) else None
