"""Define the table `verdicts`: results of gates and decisions about the route of each trajectory's data."""

from typing import get_args

from schemas.table import Flag, Float32, Instant, Int32, Row, Table, Text, between, not_null, one_of, unique
from schemas.tables.trajectory import Route

ROUTES: tuple[Route, ...] = get_args(Route)
"""Routes of data. `sft`: training imitates the trajectory. `ct`: training uses its screens. `rl`: only training on
groups uses it. `quarantine`: no training uses it until a reviewer decides. `none`: it is no evidence about the
policy."""
DECISION = "route"
"""Gate of the rows with a decision of the filter."""
PERSON = "person"
"""Gate of the rows with a reviewer's decision about a whole trajectory.

`gate_version` is the reviewer's name and the revision (`NAME#REVISION`). The newest such decision overrides every gate
except `environment`.
"""


class Verdict(Row):
    """One verdict of one version of a gate on one trajectory. The newest row of the gate `route` is the decision."""

    trajectory_id: Text
    gate: Text
    gate_version: Text
    """For a gate: its rule and options. For a judge: its model, prompt and threshold. For a decision: all gates with
    their versions. Another version adds another row."""
    iteration: Int32
    passed: Flag
    score: Float32 | None
    error_step: Int32 | None
    """Number of the first wrong step; null if unknown."""
    reason: Text
    """Reason of the verdict. The reason of a decision starts with the name of the gate that decided."""
    route: Route
    """Route of the data according to this gate; for a decision, the final route."""
    valid_steps: Int32 | None = None
    """For a rejection: number of usable steps before the error (prefix truncation, UI-TARS, arXiv 2501.12326, section
    4.5); null if the error's step is unknown. `filter.prefixes` decides if training imitates these steps."""
    created_at: Instant
    """Time of the filter or of the judge's answer. The newest decision about a trajectory counts."""


TABLE = Table(
    name="verdicts",
    row=Verdict,
    key=("trajectory_id", "gate", "gate_version"),
    partition_by=("iteration",),
    added={"created_at": "to_timestamp(0)", "valid_steps": "NULL::INTEGER"},
    expectations=(
        unique(("trajectory_id", "gate", "gate_version")),
        *not_null("trajectory_id", "gate", "reason", because="every verdict needs a gate's name and a reason"),
        one_of("route", ROUTES, because="data without a known route would never be used"),
        between("error_step", 0, 1000, because="an error step is the number of a step"),
        between("valid_steps", 0, 1000, because="a prefix has at most a trajectory's steps"),
    ),
)
