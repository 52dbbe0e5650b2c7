"""Merges specialists by parameter interpolation (UI-TARS-2, arXiv 2509.02544).

    theta = sum_k alpha_k theta_k,    alpha_k >= 0,    sum alpha_k = 1

Policies that were trained separately from the same trained start are in one basin of the loss, so their mean is still a
good policy (linear mode connectivity). Policies with different starts are not. The paper publishes no weights alpha_k,
so a grid search chooses them by held-out success.
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.safe import SINGLE, weights_of, write_index
from models.tiny.layout import OWN, read_config
from schemas.failure import CheckpointError, UsageError

_IGNORED = ("transformers_version", "_name_or_path")
"""Keys of `config.json` that may differ between equal architectures."""


def interpolate(states: Sequence[Mapping[str, Tensor]], shares: Sequence[float]) -> dict[str, Tensor]:
    """Computes the weighted mean of policies' tensors, in the first policy's number types.

    With a share of 1, the result equals that policy bit for bit.

    Raises:
        CheckpointError: a policy lacks a tensor or has it in another shape.
        UsageError: the shares are negative, do not add up to 1, or differ in number from the policies.
    """
    check_shares(shares, len(states))
    first = states[0]
    for number, state in enumerate(states[1:], 2):
        if odd := sorted(first.keys() ^ state.keys()):
            raise CheckpointError(f"Policy {number} and policy 1: only one of them has {odd[0]!r}.", _UNLIKE)
        for name, tensor in state.items():
            if tensor.shape != first[name].shape:
                shapes = f"{tuple(tensor.shape)}, not {tuple(first[name].shape)}"
                raise CheckpointError(f"Policy {number}: {name!r} is {shapes} as in policy 1.", _UNLIKE)
    used = [(state, share) for state, share in zip(states, shares, strict=True) if share > 0]
    if len(used) == 1:
        return {name: tensor.clone() for name, tensor in used[0][0].items()}
    return {
        name: torch.stack([share * state[name].double() for state, share in used]).sum(0).to(first[name].dtype)
        for name in first
    }


def check_shares(shares: Sequence[float], policies: int) -> None:
    """Raises `UsageError` unless there is one share per policy, no share is negative, and the shares add up to 1."""
    if len(shares) != policies or min(shares) < 0 or not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
        listed = ", ".join(f"{share:g}" for share in shares)
        raise UsageError(
            f"`--weights {listed}`: {policies} policies need {policies} weights of at least 0 that add up to 1.",
            "Write, for example, --weights 0.6,0.4.",
        )


def check_alike(folders: Sequence[Path]) -> None:
    """Raises `CheckpointError` unless all checkpoints have one architecture and one tokeniser."""
    first = folders[0]
    for folder in folders[1:]:
        one, other = _architecture(first), _architecture(folder)
        if differing := sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key)):
            raise CheckpointError(f"{folder.name} and {first.name} differ in config.json: {differing[0]}.", _UNLIKE)
        if _json(first / "tokenizer.json") != _json(folder / "tokenizer.json"):
            raise CheckpointError(f"{folder.name} and {first.name} have different tokenisers.", _UNLIKE)


def merge_checkpoints(folders: Sequence[Path], shares: Sequence[float], out: Path) -> None:
    """Writes the weighted mean of checkpoints, with the other files of the first, to a new folder.

    Raises:
        CheckpointError: the checkpoints do not fit together, one cannot be read, or `out` exists already.
        UsageError: the shares are invalid, as in `interpolate`.
    """
    if out.exists():
        raise CheckpointError(f"{out} is already there.", "Name another folder; nothing is overwritten.")
    check_alike(folders)
    merged = interpolate([_read(folder) for folder in folders], shares)
    making = out.with_name(f"{out.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(folders[0], making, ignore=shutil.ignore_patterns(*OWN))
    save_file({name: tensor.contiguous() for name, tensor in merged.items()}, making / SINGLE, {"format": "pt"})
    write_index(making)
    making.rename(out)


def grid(policies: int, parts: int) -> list[tuple[float, ...]]:
    """Lists all C(parts + policies - 1, parts) distributions of `parts` equal parts over the policies, as shares."""
    slots = parts + policies - 1
    points = []
    for bars in combinations(range(slots), policies - 1):
        edges = (-1, *bars, slots)
        points.append(tuple((right - left - 1) / parts for left, right in pairwise(edges)))
    return points


_UNLIKE = "Only checkpoints of one architecture and one tokeniser, trained from one start, can be merged."


def _architecture(folder: Path) -> dict[str, Any]:
    return {key: value for key, value in read_config(folder).items() if key not in _IGNORED}


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}.", "The checkpoint is broken.") from error


def _read(folder: Path) -> dict[str, Tensor]:
    files = {*weights_of(folder).values()}
    try:
        return {name: tensor for file in files for name, tensor in load_file(file).items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: {error}.", "The checkpoint is broken.") from error
