"""Define the table `steps`: screenshots, thoughts and actions of trajectories, and data for training."""

import json

from schemas.table import (
    Float32,
    FloatList,
    Int32,
    IntList,
    Row,
    Table,
    Text,
    TextList,
    between,
    matches,
    not_null,
    unique,
)


class RecordedStep(Row):
    """One step of an episode, collected for data or rolled out for an evaluation."""

    trajectory_id: Text
    step: Int32
    iteration: Int32
    screenshot: Text
    """sha256 of the screenshot before the actions."""
    next_screenshot: Text | None
    """sha256 of the screenshot after the last performed action; null if the sandbox was lost."""
    screen_width: Int32
    screen_height: Int32
    thought: Text
    actions: TextList
    """Canonical JSON of each action of the reply, in order; empty if the text has no action."""
    action_type: Text | None
    """Type of the first action."""
    x: Float32 | None
    """Horizontal position of the first action as a fraction of the screen's width; null without a position."""
    y: Float32 | None
    """Vertical position of the first action as a fraction of the screen's height; null without a position."""
    dialect: Text
    raw_text: Text
    action_error: Text | None
    """Reason why an action was not performed. The later actions of the reply were not performed either."""
    actor: Text
    """Actor of the step: `policy`, `explorer`, `person` or `import`. A relay has steps of `policy` and `explorer`."""
    policy_version: Text
    """Version of the actor. With a stream: the candidate's name, `+` and the number of its updates so far."""
    token_ids: IntList | None
    logprobs: FloatList | None
    elements: Text
    """Canonical JSON list of the page's visible elements before the actions: name, kind, box in [0,1]."""
    observe_ms: Float32
    think_ms: Float32
    act_ms: Float32
    extra: Text | None = None
    """For an imported step: JSON of the record's data that has no column, by format."""
    family: Text | None = None
    """Model family that parsed the reply (`policy.family`); null if no model replied."""
    unused_arguments: Text | None = None
    """Arguments of the reply's call for which the action has no field, such as `time=3`; null if there are none."""
    frames: TextList = []  # noqa: RUF012  (pydantic copies it)
    """sha256 of the screenshot after each action that was tried, except the last, whose screenshot is
    `next_screenshot`."""

    @property
    def first(self) -> str | None:
        """Returns the canonical JSON of the first action; None if the reply has no action."""
        return self.actions[0] if self.actions else None

    @property
    def types(self) -> list[str]:
        """Lists the types of the actions, in order."""
        return [json.loads(action)["type"] for action in self.actions]

    @property
    def pictures(self) -> list[str]:
        """Lists the sha256 of the step's screenshots, in order of time."""
        return [one for one in (self.screenshot, *self.frames, self.next_screenshot) if one]


class Step(RecordedStep):
    """One step of one trajectory: a screen, and the reply to it with all its actions."""


DAY_MS = 86_400_000.0
TABLE = Table(
    name="steps",
    row=Step,
    key=("trajectory_id", "step"),
    partition_by=("iteration",),
    added={
        "extra": "NULL::VARCHAR",
        "family": "NULL::VARCHAR",
        "unused_arguments": "NULL::VARCHAR",
        "actions": "if(action IS NULL, [], [action])",
        "frames": "[]::VARCHAR[]",
    },
    expectations=(
        unique(("trajectory_id", "step")),
        *not_null(
            "trajectory_id", "screenshot", "dialect", because="a step without its pixels or dialect cannot be replayed"
        ),
        *not_null("actions", "frames", because="a reply without an action has an empty list"),
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
