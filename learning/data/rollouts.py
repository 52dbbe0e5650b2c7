"""Reads and writes rollouts as a file: replies that a training makes more or less likely.

One rollout is one step of one trajectory. The policy's own family builds its chat (`learning.data.documents`), and the
reply is the sampled tokens. So the log probabilities of training and of serving belong to the same tokens.
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
    """sha256 of the prompt's screenshots, oldest first; the current one is the last."""
    instruction: str
    past_replies: tuple[str, ...]
    """Replies of all past steps in the notation of the policy's family, oldest first."""
    reply: str
    """The reply as text, in the notation of the policy's family, without an end token."""
    token_ids: tuple[int, ...] = ()
    """The sampled tokens of the reply, including its end token; empty if no model generated the reply, and the text is
    then encoded."""
    logprobs: tuple[float, ...] = ()
    """Behaviour log probabilities of the tokens; empty if unknown."""
    temperature: float = 1.0
    """Sampling temperature; log probabilities are those of logits divided by it."""
    advantage: float = 0.0
    age: int = 0
    """Updates between the weights that sampled the reply and the weights that first train on it
    (`learning.data.stream.staleness`)."""
    group_id: str = ""
    """Group of the trajectories of the same task and seed."""
    reward: float = 0.0
    """Reward of the reply's last token; only methods with a critic read it."""
    correct: bool = False
    """Whether the trajectory succeeded."""
    weight: float = 1.0
    """Relative frequency in the training; 0 for never."""
    ended: bool = True
    """Whether a reply that no model generated ends with the token that ends a turn."""


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
    """Writes rollouts, in order; returns the sha256 of their screenshots."""
    return write_rows(path, _SCHEMA, rollouts)


def read_rollouts(path: Path) -> FileRows[Rollout]:
    """Opens the rollouts of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return FileRows(path, Rollout)
