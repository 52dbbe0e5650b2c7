"""Draw the policies as a graph: a point for each, the edge from its parent, and whether it was champion."""

from collections.abc import Container
from urllib.parse import quote

import altair as alt

from apps.report.charts import Spec
from apps.report.gather import label
from schemas.tables.policy import PolicyVersion
from tasks.promote.events import ROLLED_BACK, standing

LANES = {"initial": 0, "iteration": 0, "intermediate": 1, "retrained": 2, "merged": 3, "adopted": 4}
STATUS = {
    "champion": "#1f7a4a",
    "retired": "#8fc1a3",
    "candidate": "#3b7dd8",
    "held": "#d08a2e",
    "intermediate": "#b9b4ac",
    "rejected": "#b3402e",
    ROLLED_BACK: "#7a3b6b",
}
LATEST = 60
"""Maximum policies of the graph, the newest ones."""


def lineage_graph(policies: list[PolicyVersion], fallen: Container[str] = ()) -> Spec:
    """A Vega-Lite specification; from left to right in the order in which they were made, a row per kind; `fallen`
    are those that were rolled back."""
    shown = sorted(policies, key=lambda one: one.created_at)[-LATEST:]
    if not shown:
        return None
    last = max(LANES.values()) + 1
    places = {one.policy_version: (at, LANES.get(one.kind, last)) for at, one in enumerate(shown)}
    points = [
        {
            "policy": one.policy_version,
            "kind": one.kind,
            "status": standing(one, fallen),
            "method": one.method,
            "iteration": label(one.iteration),
            "link": f"/policies/{quote(one.policy_version, safe='')}",
            **dict(zip(("x", "lane"), places[one.policy_version], strict=True)),
        }
        for one in shown
    ]
    ways = [
        dict(zip(("x", "lane", "x2", "lane2"), places[one.parent] + places[one.policy_version], strict=True))
        for one in shown
        if one.parent in places
    ]
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.5, len(shown) - 0.5], nice=False))
    y = alt.Y("lane:Q", axis=None, scale=alt.Scale(domain=[last + 0.6, -0.6], nice=False))
    line = alt.Chart(alt.Data(values=ways)).mark_rule(color="#9a8f80", strokeWidth=1.5)
    base = alt.Chart(alt.Data(values=points)).encode(
        x=x, y=y, href="link:N", tooltip=["policy:N", "kind:N", "status:N", "method:N", "iteration:N"]
    )
    colour = alt.Color("status:N", title=None, scale=alt.Scale(domain=list(STATUS), range=list(STATUS.values())))
    chart = alt.layer(
        line.encode(x=x, y=y, x2="x2:Q", y2="lane2:Q"),
        base.mark_circle(size=170, opacity=1, cursor="pointer").encode(color=colour),
        base.mark_text(dy=16, fontSize=11, cursor="pointer", color="#7b7f86").encode(text="policy:N"),
    )
    return chart.properties(width="container", height=260).to_dict()
