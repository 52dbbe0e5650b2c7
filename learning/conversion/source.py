"""Defines an opened checkpoint of any trainer: its tensors by kind and name, its step and its parallel layout."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from learning.conversion.stored import RESTORE, StoredTensor, check_whole
from schemas.failure import CheckpointError, DamagedError

WEIGHT, MASTER = "weight", "master weight"
"""Kinds of tensors that are weights: as the network computes with them, and in fp32 as the optimiser keeps them.

Every other kind is optimiser state, such as `exp_avg`."""


@dataclass(frozen=True, slots=True)
class ForeignTensor:
    """A tensor of a checkpoint."""

    name: str
    """Name in the checkpoint."""
    kind: str
    """WEIGHT, MASTER or a kind of optimiser state."""
    weight: str
    """Name of the weight to which the tensor belongs, without prefixes."""
    tensor: StoredTensor


@dataclass(frozen=True, slots=True)
class Source:
    """A checkpoint, opened for reading."""

    place: Path
    """Folder of the checkpoint's files."""
    format: str
    trainer: str
    step: int | None
    layout: Mapping[str, int]
    """Number of ranks by kind of parallelism."""
    entries: tuple[ForeignTensor, ...]
    tied: Mapping[str, str] = field(default_factory=dict)
    """Weights that are the same tensor as another weight, by name."""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """Sizes of the network that the trainer stored, by their names in a Hugging Face config."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Small values of a checkpoint of this project."""
    notes: tuple[str, ...] = ()
    """Parts of the checkpoint that are not read."""

    def of_kind(self, kind: str) -> dict[str, StoredTensor]:
        """Returns the tensors of a kind by the weights' names."""
        return {entry.weight: entry.tensor for entry in self.entries if entry.kind == kind}

    @property
    def kinds(self) -> list[str]:
        """Lists the kinds of tensors."""
        return list(dict.fromkeys(entry.kind for entry in self.entries))


def checked(source: Source) -> Source:
    """Checks that every tensor is whole and every name is unique.

    Raises:
        DamagedError: a tensor has a missing, doubled or misplaced part.
        CheckpointError: two tensors have the same meaning.
    """
    seen: dict[tuple[str, str], str] = {}
    for entry in source.entries:
        check_whole(entry.name, entry.tensor, source.place)
        other = seen.setdefault((entry.kind, entry.weight), entry.name)
        if other != entry.name:
            problem = f"{source.place}: `{other}` and `{entry.name}` are both the {entry.kind} of `{entry.weight}`."
            raise CheckpointError(problem, "Give `--prefix`, which the names of weights begin with.")
    return source


def step_folder(path: Path, pattern: str, latest: str | None, step: int | None) -> Path | None:
    """Finds the folder of a step below a trainer's folder of checkpoints; None if there is none.

    Args:
        path: folder of checkpoints.
        pattern: regular expression of a step's folder, with the step as its only group.
        latest: text file with the last step's folder or number, if the trainer writes one.
        step: step to find; the last one if not given.

    Raises:
        CheckpointError: there are checkpoints, but none of this step.
    """
    found = {int(match[1]): one for one in path.iterdir() if (match := re.fullmatch(pattern, one.name))}
    if not found:
        return None
    if step is None and latest and (path / latest).is_file():
        text = (path / latest).read_text().strip()
        step = next((number for number, one in found.items() if text in (one.name, str(number))), None)
        if step is None:
            raise DamagedError(f"{path / latest} names {text!r}, which is not in the folder.", RESTORE)
    step = max(found) if step is None else step
    if step not in found:
        there = ", ".join(map(str, sorted(found)))
        raise CheckpointError(f"There is no checkpoint of step {step} at {path}.", f"There are: {there}.")
    return found[step]


_PATTERNS = (
    (r"(?:chained_\d+\.)?optimizer\.state\.(?:fp32_)?(param|exp_avg_sq|exp_avg)\.(.+)", 1),
    (r"optim(?:izer)?\.state\.(.+)\.(\w+)", 2),
    (r"optimizer\.(\w+)\.(.+)", 1),
)
"""Names of optimiser state by Megatron, by `torch.distributed.checkpoint.state_dict`, and by this project, with the
group that is the kind."""
_STATE = re.compile(r"(chained_\d+\.)?(optim|adam|lr_scheduler|scheduler|rng|dataloader|train_state)")


def entries_of(tensors: Mapping[str, StoredTensor], prefix: str | None) -> tuple[ForeignTensor, ...]:
    """Finds the kind and the weight of each tensor of a flat state by its name.

    Args:
        tensors: tensors by name.
        prefix: prefix of the weights' names; found by the names if not given: `model.` if every weight begins with it
            and one continues as a Hugging Face model does (`model.model.`, `model.lm_head.`), else nothing.

    Raises:
        CheckpointError: no weight begins with the given prefix.
    """
    states = {name: state for name in tensors if (state := _state(name))}
    weights = [name for name in tensors if name not in states]
    start = _prefix(weights) if prefix is None else prefix
    if prefix and not any(name.startswith(prefix) for name in weights):
        begin = ", ".join(sorted({f"`{name.split('.')[0]}.`" for name in weights})[:8])
        raise CheckpointError(f"No weight's name begins with `{prefix}`.", f"Names begin with {begin}.")
    found = []
    for name, tensor in tensors.items():
        other = ("state", name)  # of no weight, if the prefix is not the weights'
        kind, weight = states.get(name, (WEIGHT, name.removeprefix(start)) if name.startswith(start) else other)
        found.append(ForeignTensor(name, kind, weight, tensor))
    return tuple(found)


def _state(name: str) -> tuple[str, str] | None:
    for pattern, group in _PATTERNS:
        if match := re.fullmatch(pattern, name):
            kind = match[group]
            return (MASTER if kind == "param" else kind), match[3 - group]
    return ("state", name) if _STATE.match(name) else None


def _prefix(weights: Iterable[str]) -> str:
    names = list(weights)
    inner = any(name.startswith(("model.model.", "model.lm_head.")) for name in names)
    return "model." if inner and all(name.startswith("model.") for name in names) else ""
