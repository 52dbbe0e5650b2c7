"""Replies to be made more or less likely, as a file that the trainer reads.

One rollout is one step of one play. Its prompt is written by the very code that the policy was asked with
(`models.families.prompt`, `models.tiny.generator`), and its reply is the tokens that were drawn: log probabilities of
training and of serving are then of the same thing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from learning.data.files import Rows, write_rows
from models.families.dialects import parse_reply
from models.families.prompt import messages_of
from models.policy import Context
from models.tiny.generator import prompt_text
from schemas.observation import Observation, Turn

_BLANK = Observation(b"", 1, 1, "")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One step of a play, with what it is worth."""

    trajectory_id: str
    step: int
    task_id: str
    screenshots: tuple[str, ...]
    """sha256 of the screenshots shown, oldest first, the current one last."""
    prompt: str
    """What the small policy read after its screens."""
    reply: str
    """The reply as text, without an end."""
    token_ids: tuple[int, ...] = ()
    """The reply as it was drawn, its end included; none if no model said it: then the text is encoded."""
    logprobs: tuple[float, ...] = ()
    """Log probabilities that the tokens were drawn with; none if nobody knows them."""
    temperature: float = 1.0
    """Of the drawing; log probabilities are those of logits divided by it."""
    advantage: float = 0.0
    age: int = 0
    """Updates between the weights that drew it and those that first train on it (`learning.data.stream.staleness`)."""
    group_id: str = ""
    """Of the plays of the same task and seed."""
    reward: float = 0.0
    """What stands on its last token; read by methods with a critic."""
    correct: bool = False
    """Whether its play succeeded."""
    weight: float = 1.0
    """How often it is drawn, relative to the others; 0 for never."""
    instruction: str = ""
    said: tuple[str, ...] = ()
    """Raw replies of all steps before, oldest first: with the instruction, what any other model's chat is made of."""
    ended: bool = True
    """Whether a reply that no model drew ends with the token that ends a turn."""


_SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("step", pa.int32()),
        ("task_id", pa.string()),
        ("screenshots", pa.list_(pa.string())),
        ("prompt", pa.string()),
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
        ("instruction", pa.string()),
        ("said", pa.list_(pa.string())),
    ]
)


def prompt_after(instruction: str, said: Sequence[str], dialect: str) -> str:
    """The prompt of the step that follows these replies, as the policy that plays is asked.

    Args:
        instruction: the play's.
        said: raw replies of all steps before, oldest first.
        dialect: the policy's.
    """
    replies = [parse_reply(text) for text in said]
    turns = tuple(Turn(reply.thought, reply.action_text, _BLANK) for reply in replies)
    return prompt_text(messages_of(Context(instruction, turns, _BLANK, 0), 1, dialect))


def write_rollouts(path: Path, rollouts: Iterable[Rollout]) -> set[str]:
    """Writes rollouts, in order; returns sha256 of the screenshots that they show."""
    return write_rows(path, _SCHEMA, rollouts)


def read_rollouts(path: Path) -> Rows[Rollout]:
    """The rollouts of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return Rows(path, lambda row: Rollout(**{**row, **{name: tuple(row[name]) for name in _LISTS}}))


_LISTS = ("screenshots", "token_ids", "logprobs", "said")
