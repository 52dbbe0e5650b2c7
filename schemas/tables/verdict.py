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
    """One gate's verdict on one trajectory, at one version; the newest row of gate `route` is the decision."""

    trajectory_id: Text
    gate: Text
    gate_version: Text
    """Of a gate: its rule and the options it was given; of a judge: its model, prompt and threshold; of a decision: all
    gates with theirs. A second opinion is a second row."""
    iteration: Int32
    passed: Flag
    score: Float32 | None
    error_step: Int32 | None
    """The first step that went wrong, where a rule can find it."""
    reason: Text
    """Why; a decision's begins with the name of the gate that decided."""
    route: Route
    """Route of the data by this gate alone; of a decision, the route it takes."""
    valid_steps: Int32 | None = None
    """Of a decision that turned a trajectory away: how many of its first steps stay usable, those before the error
    (prefix truncation, UI-TARS, arXiv 2501.12326, section 4.5); null where no step is known to be the error. The key
    `filter.prefixes` sets whether they are imitated."""
    created_at: Instant
    """When the filter ran, or the judge answered; of several decisions the newest holds."""


TABLE = Table(
    name="verdicts",
    row=Verdict,
    key=("trajectory_id", "gate", "gate_version"),
    partition_by=("iteration",),
    added={"created_at": "to_timestamp(0)", "valid_steps": "NULL::INTEGER"},
    expectations=(
        unique(("trajectory_id", "gate", "gate_version")),
        *not_null("trajectory_id", "gate", "reason", because="nothing is turned away without a gate's name and reason"),
        one_of("route", ROUTES, because="data without a route is lost in silence"),
        between("error_step", 0, 1000, because="an error step is a step"),
        between("valid_steps", 0, 1000, because="a prefix is some of a trajectory's steps"),
    ),
)
