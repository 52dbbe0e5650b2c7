"""A verdict: the finding of one gate on one trajectory, and the route of its data."""

from typing import get_args

from schemas.table import Flag, Float32, Instant, Int32, Row, Table, Text, between, not_null, one_of, unique
from schemas.tables.trajectory import Route

ROUTES: tuple[str, ...] = get_args(Route)
"""`sft`: imitated. `ct`: its screens are learned from. `rl`: for groups alone. `quarantine`: excluded from every
training until a person has reviewed it. `none`: no evidence about the policy."""
DECISION = "route"
"""The gate of the rows that hold a filter's decision."""
PERSON = "person"
"""Gate of the rows with a person's decision on a whole trajectory.

`gate_version` names the person and the decision (`NAME#REVISION`). The newest decides over every gate but
`environment`, whenever the filter runs.
"""


class Verdict(Row):
    """One gate's verdict on one trajectory, at one version. The newest row of gate `route` is the decision."""

    trajectory_id: Text
    gate: Text
    gate_version: Text
    """For a gate: its rule and options. For a judge: its model, prompt and threshold. For a decision: all gates with
    their versions. A second opinion is a second row."""
    iteration: Int32
    passed: Flag
    score: Float32 | None
    error_step: Int32 | None
    """The first wrong step, if a rule can find it."""
    reason: Text
    """Reason; a decision's reason starts with the name of the gate that decided."""
    route: Route
    """Route of the data by this gate alone; for a decision, the final route."""
    valid_steps: Int32 | None = None
    """For the rejection of a trajectory: number of usable steps before the error (prefix truncation, UI-TARS, arXiv
    2501.12326, section 4.5); null if the error's step is unknown. `filter.prefixes` sets whether they are imitated."""
    created_at: Instant
    """Time of the filter or of the judge's answer. A trajectory's newest decision counts."""


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
