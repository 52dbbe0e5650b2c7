"""Attention over packed documents, for any `transformers` model: no padding, no mask, no token of another document.

Registered under `NAME` among the library's attention functions; a model loaded with `attn_implementation=NAME` calls it
in every layer. What is packed is given by the keyword `packed` of the model's forward pass; without it a call is one
whole sequence (a screen in the vision tower). Inside a sequence-parallel group (`learning.parallel.ulysses`) a rank
holds a stretch of the tokens on both sides of attention and whole sequences of some heads within it.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from learning.parallel.ulysses import to_heads, to_tokens

NAME = "flywheel_packed"


@dataclass(frozen=True, slots=True)
class Packed:
    """Documents laid one after the other."""

    edges: tuple[int, ...]
    """Where each starts, and where the last ends, in tokens of the whole group."""
    group: dist.ProcessGroup | None = None
    """The ranks that share them, each holding an even stretch; None for one rank."""


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    packed: Packed | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The library's interface: (1, heads, tokens, width) in, (1, tokens, heads, width) out.

    Args:
        module: the layer; its `is_causal` counts unless the call says otherwise.
        query, key, value: keys and values may have fewer heads than queries.
        attention_mask: never given, as `packed` says it all.
        scaling: of the scores.
        dropout: 0, or the gradient would depend on the plan.
        is_causal: whether a token sees those after it.
        packed: the documents.
    """
    causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
    if packed is None:
        return _attend(query, key, value, scaling, causal).transpose(1, 2), None
    parts = [part[0].transpose(0, 1) for part in (query, key, value)]
    if packed.group is not None:
        parts = [to_heads(part, packed.group) for part in parts]
    seen = _documents(parts[0], parts[1], parts[2], packed.edges, scaling, causal)
    if packed.group is not None:
        seen = to_tokens(seen, packed.group)
    return seen[None], None


def _documents(
    query: Tensor, key: Tensor, value: Tensor, edges: tuple[int, ...], scaling: float | None, causal: bool
) -> Tensor:
    """Each document by itself, (tokens, heads, width)."""
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        return _variable_length(query, key, value, edges, scaling, causal)
    seen = []
    for start, end in pairwise(edges):
        q, k, v = (part[start:end].transpose(0, 1)[None] for part in (query, key, value))
        seen.append(_attend(q, k, v, scaling, causal)[0].transpose(0, 1))
    return torch.cat(seen)


def _variable_length(
    query: Tensor, key: Tensor, value: Tensor, edges: tuple[int, ...], scaling: float | None, causal: bool
) -> Tensor:
    """All documents in one call of the GPU's flash kernel."""
    from torch.nn.attention.varlen import varlen_attn

    starts = _starts(edges, query.device)
    # an older torch (2.11) takes fewer keys than queries without being asked
    asked = "enable_gqa" in (varlen_attn.__kwdefaults__ or {})
    grouped: dict[str, Any] = {"enable_gqa": query.shape[1] != key.shape[1]} if asked else {}
    longest = max(end - start for start, end in pairwise(edges))
    made = varlen_attn(
        query,
        key,
        value,
        starts,
        starts,
        longest,
        longest,
        scale=scaling,
        window_size=(-1, 0) if causal else (-1, -1),
        **grouped,
    )
    assert isinstance(made, Tensor)
    return made


@lru_cache(maxsize=8)
def _starts(edges: tuple[int, ...], device: torch.device) -> Tensor:
    """The edges on the GPU: all layers ask for the same, and each copy would wait for the work before it."""
    return torch.tensor(edges, dtype=torch.int32, device=device)


def _attend(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, causal: bool) -> Tensor:
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=scaling, enable_gqa=grouped)


ALL_ATTENTION_FUNCTIONS.register(NAME, packed_attention)
