"""Computes attention over packed sequences, without padding: in one kernel on a GPU, by equal lengths on a CPU."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

_ASKS_FOR_GROUPS = "enable_gqa" in (varlen_attn.__kwdefaults__ or {})
"""Whether fewer heads of keys than of queries need an argument, which torch 2.11 lacks."""
SHORT = 320
"""Maximum patches of a screen for which matrix products in bf16 are faster on a CPU than the flash kernel."""


FLASH = (8, 0)
"""Smallest compute capability of a GPU with PyTorch's flash kernels."""
_missing = ""
"""Why the GPU of this process has no kernel for variable lengths; empty if it has one. A compiler guards on it."""


def find_kernel(device: torch.device) -> str:
    """Looks for a GPU's kernel for variable lengths, without which attention runs once for each length.

    Returns:
        why there is none and which kernel runs instead, for the log; empty if there is one, or for a CPU.
    """
    global _missing
    _missing = ""
    if device.type == "cuda" and (found := torch.cuda.get_device_capability(device)) < FLASH:
        _missing = f"its compute capability is {found[0]}.{found[1]}, and {FLASH[0]}.{FLASH[1]} is needed"
    elif device.type == "cuda" and not torch.backends.cuda.is_flash_attention_available():
        _missing = "this build of PyTorch lacks it"
    instead = "attention runs once for each length of document, in the fastest kernel that PyTorch has"
    return _missing and f"The GPU has no flash kernel for packed documents ({_missing}): {instead}."


def has_kernel(query: Tensor) -> bool:
    """Checks for a GPU's kernel for variable lengths; the meta device has a GPU's branches, for counts of calls."""
    half = query.dtype in (torch.bfloat16, torch.float16)
    return query.device.type in ("cuda", "meta") and half and not _missing


def by_length(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Sequence[int],
    scaling: float | None,
    causal: bool,
    keys: Sequence[int] | None = None,
) -> Tensor:
    """Attends without a kernel for variable lengths, (tokens, heads, width).

    Args:
        query, key, value: keys and values may have fewer heads than queries.
        lengths: tokens of each sequence.
        scaling: factor of the scores.
        causal: whether a token attends only to earlier tokens and itself; the last query is at the last key.
        keys: number of keys of each sequence, if sequences have more keys than queries.
    """

    def attended(*parts: Tensor) -> Tensor:
        q, k, v = (part.transpose(1, 2) for part in parts)
        return attend(q, k, v, scaling, causal).transpose(1, 2)

    return apart(attended, (query, key, value), lengths, None if keys is None else (lengths, keys, keys))


def apart(
    function: Callable[..., Tensor],
    parts: Sequence[Tensor],
    lengths: Sequence[int],
    each: Sequence[Sequence[int]] | None = None,
) -> Tensor:
    """Applies a function of (sequences, length, ...) to packed (tokens, ...), by one call for all of equal length.

    Args:
        function: makes as many tokens as its first argument has.
        parts: the packed arguments.
        lengths: tokens of each sequence.
        each: the same for each argument, if they differ.
    """
    each = each or [lengths] * len(parts)
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, sizes in enumerate(zip(*each, strict=True)):
        if sizes[0]:
            alike.setdefault(sizes, []).append(place)
    pieces = [part.split(list(sizes)) for part, sizes in zip(parts, each, strict=True)]
    seen: list[Tensor] = [parts[0][:0]] * len(lengths)
    for places in alike.values():
        stacked = (torch.stack([part[place] for place in places]) for part in pieces)
        for place, made in zip(places, function(*stacked).unbind(), strict=True):
            seen[place] = made
    return torch.cat(seen)


def variable_length(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    longest: int,
    scaling: float | None,
    causal: bool,
    keys: tuple[Tensor, int] | None = None,
) -> Tensor:
    """Attends within each sequence in one call of a GPU's flash kernel, (tokens, heads, width).

    Args:
        query, key, value: keys and values may have fewer heads than queries.
        starts: (sequences + 1,) int32, start of each sequence, and the end of the last one.
        longest: tokens of the longest sequence.
        scaling: factor of the scores.
        causal: whether a token attends only to earlier tokens and itself; the last query is at the last key.
        keys: starts and longest of the keys, if sequences have more keys than queries.
    """
    key_starts, longest_keys = keys or (starts, longest)
    grouped: dict[str, Any] = {"enable_gqa": query.shape[1] != key.shape[1]} if _ASKS_FOR_GROUPS else {}
    made = varlen_attn(
        query,
        key,
        value,
        starts,
        key_starts,
        longest,
        longest_keys,
        scale=scaling,
        window_size=(-1, 0) if causal else (-1, -1),
        **grouped,
    )
    assert isinstance(made, Tensor)
    return made


def in_windows(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    number: int,
    size: int,
    starts: Tensor,
    longest: int,
    scaling: float | None,
) -> Tensor:
    """Attends within windows, (tokens, heads, width): in one dense batch within those of one size, which come first.

    A dense batch takes half the time of a kernel for variable lengths. Source: measured on an H200.

    Args:
        query, key, value: all have the same heads.
        number: windows of `size` tokens.
        size: tokens of such a window.
        starts: (others + 1,) int32, start of each other window from the first of them on, and the end of the last one.
        longest: tokens of the longest other window; 0 if there is none.
        scaling: factor of the scores.
    """
    parts = [part.split([number * size, len(part) - number * size]) for part in (query, key, value)]
    q, k, v = (part[0].unflatten(0, (number, size)).transpose(1, 2) for part in parts)
    if has_kernel(query):
        dense = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, False, scale=scaling)[0]
    else:
        dense = attend(q, k, v, scaling, causal=False)
    seen = dense.transpose(1, 2).flatten(0, 1)
    if not longest:
        return seen
    q, k, v = (part[1] for part in parts)
    if has_kernel(query):
        return torch.cat([seen, variable_length(q, k, v, starts, longest, scaling, causal=False)])
    return torch.cat([seen, by_length(q, k, v, starts.diff().tolist(), scaling, causal=False)])


def attend(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, causal: bool) -> Tensor:
    """Attends over whole sequences, (sequences, heads, length, width); keys and values may have fewer heads.

    With more keys than queries, the last query is at the last key if attention is causal.
    """
    grouped, mask = query.shape[1] != key.shape[1], None
    if causal and query.shape[2] < key.shape[2]:
        queries, keys = query.shape[2], key.shape[2]
        mask = torch.ones(queries, keys, dtype=torch.bool, device=query.device).tril(keys - queries)
    rounded = query.device.type == "cpu" and query.dtype == torch.bfloat16
    if rounded and not causal and not grouped and query.shape[2] <= SHORT:
        scores = query @ key.transpose(2, 3)
        return scores.mul_(scaling or query.shape[3] ** -0.5).softmax(dim=3) @ value
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal and mask is None, scale=scaling, enable_gqa=grouped
    )
