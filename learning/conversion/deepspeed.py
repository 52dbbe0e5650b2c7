"""Opens checkpoints of DeepSpeed's ZeRO, stages 1 to 3.

Stages 1 and 2 concatenate the weights of a parameter group and cut the whole at equal lengths, a part per rank. Stage 3
cuts each weight by itself, and each rank concatenates its parts. Both become flat stretches of the weights.

Source: `deepspeed/utils/zero_to_fp32.py` of DeepSpeed 0.19.8 reads the same files.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learning.checkpoint.state import Shape, flat_boxes
from learning.conversion.archive import Record, read_archive
from learning.conversion.source import MASTER, WEIGHT, ForeignTensor, Source, step_folder
from learning.conversion.stored import RESTORE, Piece, StoredTensor, row_major
from schemas.failure import CheckpointError, DamagedError

_MODEL, _OPTIMIZER = "model_states.pt", "optim_states.pt"
_FILE = re.compile(r"(?:(?:bf16_|fp16_)?zero_pp_rank_(\d+)_)?mp_rank_(\d+)_(?:model|optim)_states\.pt")
_GROUPS = {1: "single_partition_of_fp32_groups", 2: "single_partition_of_fp32_groups", 3: "fp32_flat_groups"}
_AGAIN = "Save it again with DeepSpeed's defaults, or write it with `ds_to_universal.py` and convert its weights."


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Numbers [low, high) of a flat buffer of one rank, or of all ranks, and their tensor of one dimension."""

    low: int
    tensor: StoredTensor

    @property
    def high(self) -> int:
        return self.low + self.tensor.shape[0]


def open_deepspeed(path: Path, step: int | None) -> Source | None:
    """Opens a checkpoint of ZeRO; None if the folder is none.

    Raises:
        CheckpointError: a rank's file is missing or damaged, an object could run code, or weights are cut by tensor or
            pipeline parallelism, or are experts.
    """
    if not any(path.glob(f"*mp_rank_*_{_MODEL}")):
        folder = step_folder(path, r"global_step(\d+)", "latest", step)
        if folder is None or not any(folder.glob(f"*{_MODEL}")):
            return None
        path = folder
    models, optimizers = _files(path, _MODEL), _files(path, _OPTIMIZER)
    _refuse_other_layouts(path)
    main = _loaded(models.get(0) or next(iter(models.values())), "module")
    if not optimizers:
        raise CheckpointError(f"{path} has no file *_{_OPTIMIZER}.", "Only checkpoints of ZeRO 1 to 3 are read.")
    parts = {rank: _loaded(file, "optimizer_state_dict") for rank, file in optimizers.items()}
    states = {rank: part["optimizer_state_dict"] for rank, part in parts.items()}
    first = next(iter(states.values()))
    stage, ranks = _number(first.get("zero_stage")), _ranks(first)
    if stage not in _GROUPS:
        raise CheckpointError(f"{path} is of ZeRO's stage {stage}.", "Stages 1 to 3 are read.")
    for rank in range(ranks):
        if rank not in states or (stage == 3 and rank not in models):
            lost = _MODEL if rank in states else _OPTIMIZER
            problem = (
                f"{path} has no file of rank {rank} (*zero_pp_rank_{rank}_mp_rank_00_{lost}); {ranks} ranks saved."
            )
            raise DamagedError(problem, RESTORE)
    opened = [_loaded(models[rank], "module") for rank in range(ranks)] if stage == 3 else [main]
    shapes = [{name: tuple(shape) for name, shape in group.items()} for group in main["param_shapes"]]
    tied = dict(main.get("shared_params") or {})
    found: list[ForeignTensor] = []
    for kind, buffers in _kinds([states[rank] for rank in range(ranks)], stage, path):
        cut = _of_stage_3(buffers, shapes, ranks) if stage == 3 else _of_stage_2(buffers, shapes, first, ranks, path)
        found += [ForeignTensor(f"{kind}:{name}", kind, name, tensor) for name, tensor in cut.items()]
    found += [ForeignTensor(name, WEIGHT, name, tensor) for name, tensor in _of_the_module(opened, stage, path).items()]
    by_key = {(entry.kind, entry.weight): entry for entry in found}
    for name, other in tied.items():
        for kind in (WEIGHT, MASTER):
            if (kind, other) in by_key and (kind, name) not in by_key:
                found.append(ForeignTensor(f"{kind}:{name}", kind, name, by_key[kind, other].tensor))
    layout = {"zero stage": stage, "data": ranks}
    saved = main.get("global_steps")
    return Source(
        path, "deepspeed", f"deepspeed {main.get('ds_version', '')}".strip(), saved, layout, tuple(found), tied
    )


def _files(path: Path, end: str) -> dict[int, Path]:
    """Finds the files of each data-parallel rank."""
    return {int(_match(one)[1] or 0): one for one in sorted(path.glob(f"*mp_rank_*_{end}"))}


def _match(file: Path) -> re.Match[str]:
    match = _FILE.fullmatch(file.name)
    if match is None:
        raise CheckpointError(f"{file} is not a file of ZeRO 1 to 3.", "Experts and pipelines are not read.")
    return match


def _refuse_other_layouts(path: Path) -> None:
    for file in sorted(path.glob("*mp_rank_*_states.pt")):
        if int(_match(file)[2]):
            problem = f"{file} is of a second rank of tensor parallelism, whose cuts DeepSpeed does not store."
            raise CheckpointError(problem, "Merge it with the trainer that cut the weights.")
    if layers := sorted(path.glob("layer_*.pt")):
        raise CheckpointError(f"{layers[0]} is of a pipeline or of experts, which are not read.", _AGAIN)


def _loaded(file: Path, key: str) -> dict[str, Any]:
    found = read_archive(file)
    if not isinstance(found, dict) or key not in found:
        raise DamagedError(f"{file} has no `{key}`.", RESTORE)
    return found


def _number(value: Any) -> int:
    """Returns an integer that may be stored as an enum."""
    return int(value.arguments[0]) if isinstance(value, Record) else int(value or 0)


def _ranks(state: Mapping[str, Any]) -> int:
    count = state["partition_count"]
    return max(map(int, count)) if isinstance(count, list) else int(count)


def _kinds(
    states: Sequence[Mapping[str, Any]], stage: int, path: Path
) -> Iterator[tuple[str, list[list[StoredTensor]]]]:
    """Yields the master weights and each kind of moments: for each rank, a flat tensor per group."""
    masters = [list(state[_GROUPS[stage]]) for state in states]
    yield MASTER, masters
    optimizers = [state["optimizer_state_dict" if stage == 3 else "base_optimizer_state"] for state in states]
    if any(not isinstance(one, dict) or "state" not in one for one in optimizers):
        raise CheckpointError(f"{path} has optimiser state by `elastic_checkpoint`.", _AGAIN)
    moments = [one["state"] for one in optimizers]
    kinds = [name for name, value in moments[0].get(0, {}).items() if _is_flat(value, masters[0][0])]
    for kind in kinds:
        yield kind, [[rank[group][kind] for group in range(len(masters[0]))] for rank in moments]


def _is_flat(value: Any, master: StoredTensor) -> bool:
    return isinstance(value, StoredTensor) and value.shape == master.shape


def _of_stage_2(
    buffers: list[list[StoredTensor]],
    shapes: list[dict[str, Shape]],
    first: Mapping[str, Any],
    ranks: int,
    path: Path,
) -> dict[str, StoredTensor]:
    """Cuts the concatenated parts of all ranks into weights, group by group."""
    paddings = first.get("param_alignment_paddings") or [[0] * len(group) for group in shapes]
    found: dict[str, StoredTensor] = {}
    for number, group in enumerate(shapes):
        whole = list(_laid_out(rank[number] for rank in buffers))
        at = 0
        for (name, shape), padding in zip(group.items(), paddings[number], strict=True):
            count = math.prod(shape)
            found[name] = StoredTensor(whole[0].tensor.dtype, shape, tuple(_cut(whole, shape, 0, at, count)))
            at += count + padding
        unit, end = 2 * ranks, whole[-1].high  # parts are padded to this length
        if -(-at // unit) != -(-end // unit):
            problem = f"{path}: the weights of group {number} have {at} numbers, and its parts {end}."
            raise DamagedError(problem, RESTORE)
    return found


def _of_stage_3(
    buffers: list[list[StoredTensor]], shapes: list[dict[str, Shape]], ranks: int
) -> dict[str, StoredTensor]:
    """Joins the parts of each weight, which are at the same place in every rank's concatenated groups."""
    whole = [list(_laid_out(rank)) for rank in buffers]
    found: dict[str, StoredTensor] = {}
    at = 0
    for name, shape in ((name, shape) for group in shapes for name, shape in group.items()):
        count = math.prod(shape)
        share = -(-count // ranks)
        pieces: list[Piece] = []
        for rank, stretches in enumerate(whole):
            low, high = min(count, rank * share), min(count, (rank + 1) * share)
            pieces += _cut(stretches, shape, low, at, high - low)
        found[name] = StoredTensor(whole[0][0].tensor.dtype, shape, tuple(pieces))
        at += share
    return found


def _of_the_module(opened: list[dict[str, Any]], stage: int, path: Path) -> dict[str, StoredTensor]:
    """Finds weights as the network computes with them: all of them in stages 1 and 2, else buffers and frozen ones."""
    main = opened[0]
    module: dict[str, StoredTensor] = main["module"]
    if stage < 3:
        return dict(module)
    found = {name: module[name] for name in main.get("buffer_names") or () if name in module}
    for name, shape in (main.get("frozen_param_shapes") or {}).items():
        parts = [one["frozen_param_fragments"][name] for one in opened]
        if any(part.dtype != parts[0].dtype for part in parts):
            raise DamagedError(f"{path}: the ranks have different types of `{name}`.", RESTORE)
        pieces = _cut(list(_laid_out(parts)), tuple(shape), 0, 0, math.prod(shape))
        found[name] = StoredTensor(parts[0].dtype, tuple(shape), tuple(pieces))
    return found


def _laid_out(tensors: Iterable[StoredTensor]) -> Iterator[_Stretch]:
    """Concatenates flat tensors."""
    at = 0
    for tensor in tensors:
        yield _Stretch(at, tensor)
        at += tensor.shape[0]


def _cut(stretches: Sequence[_Stretch], shape: Shape, first: int, begin: int, count: int) -> Iterator[Piece]:
    """Yields a flat range of a weight as boxes.

    Args:
        stretches: parts of the buffer that holds the range.
        shape: shape of the weight.
        first: index of the range's first number in the weight.
        begin: its index in the buffer.
        count: length of the range.
    """
    for one in stretches:
        low, high = max(begin, one.low), min(begin + count, one.high)
        if low < high:
            (stored,) = one.tensor.pieces
            size = one.tensor.dtype.itemsize
            at = stored.start + (low - one.low) * size
            for box in flat_boxes(shape, first + low - begin, first + high - begin):
                yield Piece(box, stored.file, at, row_major(box.sizes))
                at += box.numel * size
