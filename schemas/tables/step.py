"""Define the table `steps`: screenshots, thoughts and actions of trajectories, and data for training."""

from schemas.table import Float32, FloatList, Int32, IntList, Row, Table, Text, between, matches, not_null, unique


class Step(Row):
    """One step of one trajectory."""

    trajectory_id: Text
    step: Int32
    iteration: Int32
    screenshot: Text
    """sha256 of the screenshot before the action."""
    next_screenshot: Text | None
    """sha256 of the screenshot after the action; null if the sandbox was lost."""
    screen_width: Int32
    screen_height: Int32
    thought: Text
    action: Text | None
    """Canonical JSON of the action; null if the text has no action."""
    action_type: Text | None
    x: Float32 | None
    y: Float32 | None
    dialect: Text
    raw_text: Text
    action_error: Text | None
    actor: Text
    """Actor of the step: `policy`, `explorer`, `person` or `import`. A relay has steps of `policy` and `explorer`."""
    policy_version: Text
    """Version of the actor. With a stream: the candidate's name, `+` and the number of its updates so far."""
    token_ids: IntList | None
    logprobs: FloatList | None
    elements: Text
    """Canonical JSON list of the page's visible elements before the action: name, kind, box in [0,1]."""
    observe_ms: Float32
    think_ms: Float32
    act_ms: Float32
    extra: Text | None = None
    """For an imported step: JSON of the record's data that has no column, by format."""
    family: Text | None = None
    """Model family that parsed the reply (`policy.family`); null if no model replied."""
    unused_arguments: Text | None = None
    """Arguments of the reply's call for which the action has no field, such as `time=3`; null if there are none."""


DAY_MS = 86_400_000.0
TABLE = Table(
    name="steps",
    row=Step,
    key=("trajectory_id", "step"),
    partition_by=("iteration",),
    added={"extra": "NULL::VARCHAR", "family": "NULL::VARCHAR", "unused_arguments": "NULL::VARCHAR"},
    expectations=(
        unique(("trajectory_id", "step")),
        *not_null(
            "trajectory_id", "screenshot", "dialect", because="a step without its pixels or dialect cannot be replayed"
        ),
        matches("screenshot", r"^[0-9a-f]{64}$", because="screenshots are found by their sha256"),
        between("x", 0.0, 1.0, because="coordinates are fractions of the screen"),
        between("y", 0.0, 1.0, because="coordinates are fractions of the screen"),
        between("screen_width", 1, 16384, because="a screen has at least one pixel"),
        between("screen_height", 1, 16384, because="a screen has at least one pixel"),
        between("step", 0, 1000, because="a trajectory has at most 1,000 steps"),
        *(
            between(name, 0.0, DAY_MS, because="a step takes less than a day", severity="warning")
            for name in ("observe_ms", "think_ms", "act_ms")
        ),
    ),
)
