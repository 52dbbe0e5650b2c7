"""Rollouts: replies to be made more or less likely, as a file that the trainer reads.

One rollout is one step of one trajectory. The policy's own family builds its chat (`learning.data.documents`), and its
reply is the tokens that were drawn: log probabilities of training and of serving are then of the same tokens.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from learning.data.files import FileRows, write_rows


@dataclass(frozen=True, slots=True)
class Rollout:
    """One step of a trajectory, with its reward or advantage."""

    trajectory_id: str
    step: int
    task_id: str
    screenshots: tuple[str, ...]
    """sha256 of the screenshots shown, oldest first, the current one last."""
    instruction: str
    past_replies: tuple[str, ...]
    """Replies of all steps before as the policy's family writes them, oldest first."""
    reply: str
    """The reply as text, as the policy's family writes it, without an end."""
    token_ids: tuple[int, ...] = ()
    """The reply as it was drawn, its end included; none if no model generated it: then the text is encoded."""
    logprobs: tuple[float, ...] = ()
    """Behaviour log probabilities of the tokens; empty if unknown."""
    temperature: float = 1.0
    """Sampling temperature; log probabilities are those of logits divided by it."""
    advantage: float = 0.0
    age: int = 0
    """Updates between the weights that drew it and those that first train on it (`learning.data.stream.staleness`)."""
    group_id: str = ""
    """Group of the trajectories of the same task and seed."""
    reward: float = 0.0
    """Reward of its last token; read by methods with a critic."""
    correct: bool = False
    """Whether its trajectory succeeded."""
    weight: float = 1.0
    """How often it is drawn, relative to the others; 0 for never."""
    ended: bool = True
    """Whether a reply that no model drew ends with the token that ends a turn."""


_SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("step", pa.int32()),
        ("task_id", pa.string()),
        ("screenshots", pa.list_(pa.string())),
        ("instruction", pa.string()),
        ("past_replies", pa.list_(pa.string())),
        ("reply", pa.string()),
        ("token_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float32())),
        ("temperature", pa.float64()),
        ("advantage", pa.float64()),
        ("age", pa.int32()),
        ("group_id", pa.string()),
        ("reward", pa.float64()),
        ("correct", pa.bool_()),
        ("weight", pa.float64()),
    ]
)


def write_rollouts(path: Path, rollouts: Iterable[Rollout]) -> set[str]:
    """Writes rollouts, in order; returns sha256 of the screenshots that they show."""
    return write_rows(path, _SCHEMA, rollouts)


def read_rollouts(path: Path) -> FileRows[Rollout]:
    """Opens the rollouts of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return FileRows(path, lambda row: Rollout(**{**row, **{name: tuple(row[name]) for name in _LISTS}}))


_LISTS = ("screenshots", "token_ids", "logprobs", "past_replies")
