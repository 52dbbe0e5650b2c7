"""A verdict: what one gate said of one trajectory, and the route its data takes."""

from schemas.table import Flag, Float32, Int32, Row, Table, Text, between, not_null, one_of, unique
from schemas.trajectory import Route

ROUTES: tuple[str, ...] = ("sft", "ct", "rl", "none")


class Verdict(Row):
    """One gate's word on one trajectory; the row of gate `route` is the decision."""

    trajectory_id: Text
    gate: Text
    gate_version: Text
    iteration: Int32
    passed: Flag
    score: Float32 | None
    error_step: Int32 | None
    """The first step that went wrong, where a rule can tell."""
    reason: Text
    route: Route


TABLE = Table(
    name="verdicts",
    row=Verdict,
    key=("trajectory_id", "gate", "gate_version"),
    partition_by=("iteration",),
    expectations=(
        unique(("trajectory_id", "gate", "gate_version")),
        *not_null("trajectory_id", "gate", "reason", because="nothing is turned away without a gate's name and reason"),
        one_of("route", ROUTES, because="data without a route is lost in silence"),
        between("error_step", 0, 1000, because="an error step is a step"),
    ),
)
