"""Computes a gated DeltaNet layer (arXiv 2412.06464) over packed documents in one pass, without its GPU kernels.

The rule carries a state from chunk to chunk of a document. The functions of `transformers` know no documents, so each
document, or each group of equal length, would be a pass of its own. Here the chunks of all documents lie in one batch:
first the first chunks of all documents, then the second ones, and so on, longest document first. All work within a
chunk is one call for all chunks, and a step from chunk to chunk is one for all documents that are long enough.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from learning.planning.memory import CHUNK

EPSILON = 1e-6
"""Added to the squared length of queries and keys, as in `transformers`."""


@dataclass
class DocumentChunks:
    """Packed documents, cut into chunks.

    The class is not frozen, since a compiler would then compile again for other values of any field, used or not.
    """

    convolved: Tensor
    """(tokens + documents * gap,) token of each place of the convolution's input, where documents have a gap before
    them; the number of tokens for a place of a gap."""
    tokens: Tensor
    """(chunks * CHUNK,) place among the convolution's outputs of each token of the chunks; any for padding."""
    real: Tensor
    """(chunks * CHUNK,) token of each place of the chunks; the number of tokens for padding."""
    places: Tensor
    """(tokens,) place in the chunks of each token."""
    rows: tuple[int, ...]
    """Number of documents that have a first chunk, a second chunk, and so on."""

    def moved(self, by: Callable[[Tensor], Tensor]) -> "DocumentChunks":
        """Moves all tensors, such as to a device."""
        return DocumentChunks(by(self.convolved), by(self.tokens), by(self.real), by(self.places), self.rows)

    @classmethod
    def of(cls, lengths: Sequence[int], gap: int) -> "DocumentChunks":
        """Cuts documents of these lengths; the convolution reads `gap` tokens before each one."""
        filled = [length for length in lengths if length]
        total, starts = sum(filled), torch.tensor([0, *filled]).cumsum(0)
        convolved = torch.cat(
            [
                torch.cat([torch.full((gap,), total), torch.arange(int(start), int(start) + length)])
                for start, length in zip(starts, filled, strict=False)
            ]
        )
        longest_first = sorted(range(len(filled)), key=lambda one: -filled[one])
        counts = [-(-filled[one] // CHUNK) for one in longest_first]
        rows = tuple(sum(count > number for count in counts) for number in range(counts[0]))
        real = torch.full((sum(rows), CHUNK), total)
        tokens = torch.zeros(sum(rows), CHUNK, dtype=torch.long)
        at = 0
        for number, held in enumerate(rows):
            for document in longest_first[:held]:
                first = int(starts[document]) + number * CHUNK
                size = min(CHUNK, filled[document] - number * CHUNK)
                real[at, :size] = torch.arange(first, first + size)
                tokens[at, :size] = real[at, :size] + gap * document  # an output is at the first token that it reads
                at += 1
        places = torch.empty(total, dtype=torch.long)
        inside = real.flatten() < total
        places[real.flatten()[inside]] = inside.nonzero()[:, 0]
        return cls(convolved, tokens.flatten(), real.flatten(), places, rows)


def mix(layer: Any, hidden: Tensor, chunks: DocumentChunks) -> Tensor:
    """Computes a layer of Qwen3.5 over packed documents, (tokens, width) to the same shape."""
    tokens, kernel = len(hidden), layer.conv1d.weight.shape[-1]
    assert kernel == layer.conv_kernel_size
    read = F.pad(layer.in_proj_qkv(hidden), (0, 0, 0, 1)).index_select(0, chunks.convolved)
    made = F.conv1d(read.T[None], layer.conv1d.weight, layer.conv1d.bias, groups=layer.conv_dim)[0].T
    made = F.silu(made).index_select(0, chunks.tokens).unflatten(0, (-1, CHUNK))
    sizes = [layer.key_dim, layer.key_dim, layer.value_dim]
    widths = [layer.head_k_dim, layer.head_k_dim, layer.head_v_dim]
    query, key, value = (
        part.unflatten(-1, (-1, width)).transpose(1, 2).float()
        for part, width in zip(made.split(sizes, dim=-1), widths, strict=True)
    )
    beta = layer.in_proj_b(hidden).sigmoid().float()
    decay = -layer.A_log.float().exp() * F.softplus(layer.in_proj_a(hidden).float() + layer.dt_bias)
    decay = decay.float()  # as all of the rule, whatever the type of the layer
    # padding neither changes the state nor lets it decay
    steps = F.pad(torch.cat([beta, decay], dim=1), (0, 0, 0, 1)).index_select(0, chunks.real)
    beta, decay = steps.unflatten(0, (-1, CHUNK)).transpose(1, 2).chunk(2, dim=1)
    seen = _chunked(query, key, value, decay, beta, chunks.rows)
    seen = seen.transpose(1, 2).flatten(0, 1).index_select(0, chunks.places).to(hidden.dtype)
    gates = layer.in_proj_z(hidden).reshape(-1, layer.head_v_dim)
    return layer.out_proj(layer.norm(seen.reshape(-1, layer.head_v_dim), gates).reshape(tokens, -1))


def _chunked(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, rows: Sequence[int]) -> Tensor:
    """Computes the gated delta rule as `transformers.models.qwen3_5.torch_chunk_gated_delta_rule` does.

    Args:
        query, key: (chunks, key heads, CHUNK, width) fp32.
        value: (chunks, heads, CHUNK, width) fp32.
        decay, beta: (chunks, heads, CHUNK).
        rows: as in `DocumentChunks`.

    Returns:
        (chunks, heads, CHUNK, width of values).
    """
    heads = value.shape[1]
    query, key = (part * torch.rsqrt((part * part).sum(-1, keepdim=True) + EPSILON) for part in (query, key))
    query = query * query.shape[-1] ** -0.5
    if (share := heads // key.shape[1]) > 1:
        query, key = (part.repeat_interleave(share, dim=1) for part in (query, key))
    summed = decay.cumsum(-1)
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=value.device).triu(1)
    between = (summed[..., :, None] - summed[..., None, :]).masked_fill(later, float("-inf")).exp()
    scaled = key * beta[..., None]
    grown = summed.exp()[..., None]
    system = (scaled @ key.transpose(-1, -2)) * between
    within = (query @ key.transpose(-1, -2)) * between
    both = torch.cat([value * beta[..., None], -grown * scaled], dim=-1)
    solved = torch.linalg.solve_triangular(system, both, upper=False, unitriangular=True)
    query, key = query * grown, key * (summed[..., -1:] - summed).exp()[..., None]
    wanted, meets = solved.split([value.shape[-1], key.shape[-1]], dim=-1)
    parts = wanted, meets, key, summed[..., -1].exp()[..., None, None]
    steps = zip(*(part.flatten(0, 1).split([heads * row for row in rows]) for part in parts), strict=True)
    states = [value.new_zeros(heads * rows[0], key.shape[-1], value.shape[-1])]
    news = list[Tensor]()
    for own, reads, keys, keep in steps:
        state = states[-1] if len(states[-1]) == len(own) else states[-1][: len(own)]
        states[-1] = state
        news.append(torch.baddbmm(own, reads, state) if len(states) > 1 else own)  # nothing to read before the first
        if len(states) < len(rows):
            added = keys.transpose(-1, -2), news[-1]
            states.append(torch.baddbmm(state * keep, *added) if len(states) > 1 else torch.bmm(*added))
    seen = torch.baddbmm(query.flatten(0, 1) @ torch.cat(states), within.flatten(0, 1), torch.cat(news))
    return seen.unflatten(0, (-1, heads))
