"""Reads and writes memory-mapped Arrow files of rows: written batch by batch, read one row at a time.

Ranks that read the same file share its pages in memory. Neither the writer nor the trainer holds more than the rows in
use.

Rollouts are such rows: replies that a training makes more or less likely. One rollout is one step of one trajectory.
The policy's own family builds its chat (`learning.data.documents`), and the reply is the sampled tokens. So the log
probabilities of training and of serving belong to the same tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import pyarrow as pa

Row = TypeVar("Row")
TOGETHER = 1024
"""Rows that are written at once."""


def write_batches(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> set[str]:
    """Writes batches, in order; returns the values of their column `screenshots`, if they have one."""
    shown: set[str] = set()
    with pa.ipc.new_file(path, schema) as file:
        for batch in batches:
            file.write_batch(batch.cast(schema))
            if "screenshots" in schema.names:
                shown.update(batch["screenshots"].flatten().unique().to_pylist())
    return shown


def write_rows(path: Path, schema: pa.Schema, rows: Iterable[Any]) -> set[str]:
    """Writes dataclasses, in order; returns the same value as `write_batches`."""
    coming = iter(rows)
    chunks = iter(lambda: [asdict(row) for row in islice(coming, TOGETHER)], [])
    return write_batches(path, schema, (pa.RecordBatch.from_pylist(chunk, schema) for chunk in chunks))


def mapped(path: Path) -> pa.Table:
    """Maps a file's rows into memory without a copy. Raises OSError or `pyarrow.ArrowInvalid` for an unreadable or
    other file."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


class FileRows(Sequence[Row], Generic[Row]):
    """The rows of a file, in order.

    Args:
        path: path of the file.
        make: makes a row from its columns by name; lists come as tuples.
    """

    def __init__(self, path: Path, make: Callable[..., Row]) -> None:
        self.table, self._make = mapped(path), make

    def __len__(self) -> int:
        return self.table.num_rows

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        (row,) = self.table.slice(range(len(self))[index], 1).to_pylist()
        return self._make(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})


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
    """The sampled tokens of the reply, including its end token; empty if they are unknown or no model generated the
    reply, and the text is then encoded."""
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
    """Whether a reply without sampled tokens ends with the token that ends a turn."""
    past_errors: tuple[str, ...] = ()
    """Reason why an action of each past reply was not performed, or an empty text; empty if all were performed."""


@dataclass(frozen=True, slots=True)
class ScoredReply(Rollout):
    """A step of the policy with a teacher's log probabilities of its tokens."""

    teacher: tuple[float, ...] = ()
    """Log probabilities of the tokens under the teacher, at temperature 1."""


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
        ("ended", pa.bool_()),
        ("past_errors", pa.list_(pa.string())),
    ]
)


def write_rollouts(path: Path, rollouts: Iterable[Rollout]) -> set[str]:
    """Writes rollouts, in order; returns the sha256 of their screenshots."""
    return write_rows(path, _SCHEMA, rollouts)


def read_rollouts(path: Path) -> FileRows[Rollout]:
    """Opens the rollouts of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return FileRows(path, Rollout)


_SCORED = _SCHEMA.append(pa.field("teacher", pa.list_(pa.float32())))


def write_scored(path: Path, replies: Iterable[ScoredReply]) -> set[str]:
    """Writes scored replies, in order; returns the sha256 of their screenshots."""
    return write_rows(path, _SCORED, replies)


def read_scored(path: Path) -> FileRows[ScoredReply]:
    """Opens the scored replies of a file, in order; raises OSError or `pyarrow.ArrowInvalid` for another file."""
    return FileRows(path, ScoredReply)
