"""Computes attention over packed documents and screens for any `transformers` model, without padding and masks.

The library knows this function by two names. A model that was loaded with `attn_implementation=NAME` calls `NAME` in
every layer. Its vision tower calls `SCREENS` once per layer for all screens and windows. The keyword `packed` of the
model's forward pass gives the packed documents, and the tower passes the ends of its screens and windows. A call with
neither has one whole sequence. Documents may share their first tokens (`learning.planning.shared_prompts`); a segment
then attends to the segments before it, too. In a sequence-parallel group (`learning.parallel.ulysses`), a rank holds a
stretch of the tokens before and after attention, and whole sequences of some heads during attention.

Gated DeltaNet layers (arXiv 2412.06464) carry a state from token to token, and a short convolution. Both must start
anew with each document (`separate_documents`). A rank holds whole documents of a model with such layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.util import find_spec
from itertools import accumulate, pairwise
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from learning.parallel.delta_rule import DocumentChunks, mix
from learning.parallel.ulysses import attend as attend_together
from learning.planning.shared_prompts import Segment
from models.attention import attend, by_length, has_kernel, in_windows, variable_length
from models.attention_kernels import FLASH, KERNELS
from schemas.failure import PlanError

NAME = "flywheel_packed"
SCREENS = "flywheel_flash_screens"
"""Name of the tower's attention; the library makes one call for all screens if the name contains `flash`."""


@dataclass
class SeenTokens:
    """For each segment, the tokens before it in its documents, and its own."""

    tokens: Tensor
    """(n,) int64, the tokens of one segment after the other."""
    edges: tuple[int, ...]
    """Start of each segment's tokens among these, and the end of the last one's."""
    starts: Tensor
    """(segments + 1,) int32, the edges on the device of the tokens."""
    longest: int
    """Largest number of tokens of a segment."""

    @classmethod
    def of(cls, segments: Sequence[Segment], edges: Sequence[int]) -> "SeenTokens":
        """Finds the tokens of segments with these edges."""
        found = [[*segment.before, at] for at, segment in enumerate(segments)]
        tokens = [torch.cat([torch.arange(edges[one], edges[one + 1]) for one in chain]) for chain in found]
        ends = tuple(accumulate(map(len, tokens), initial=0))
        return cls(torch.cat(tokens), ends, torch.tensor(ends, dtype=torch.int32), max(map(len, tokens)))

    def map(self, moved: Callable[[Tensor], Tensor]) -> "SeenTokens":
        """Moves the tensors to a device or into pinned memory."""
        return replace(self, tokens=moved(self.tokens), starts=moved(self.starts))


@dataclass
class PackedDocuments:
    """Concatenated documents.

    The class is not frozen, since a compiler would then compile again for other values of any field, used or not.
    """

    edges: tuple[int, ...]
    """Start of each document or segment, and end of the last one, in tokens of the whole group."""
    starts: Tensor
    """(documents + 1,) int32, the edges on the device of the tokens."""
    longest: int
    """Tokens of the longest document."""
    group: dist.ProcessGroup | None = None
    """Ranks that share the documents, each with an equal stretch; None for one rank."""
    seen: "SeenTokens | None" = None
    """Tokens to which each segment attends; None if documents share none, so that each attends to its own."""
    chunks: DocumentChunks | None = None
    """Chunks of the documents, for gated DeltaNet layers without kernels."""
    kernel: str = FLASH
    """Name of the kernel with which a GPU attends (`models.attention_kernels`)."""

    @classmethod
    def of(
        cls, edges: tuple[int, ...], group: dist.ProcessGroup | None = None, device: str | torch.device = "cpu"
    ) -> "PackedDocuments":
        """Makes the documents with these edges."""
        longest = max((end - start for start, end in pairwise(edges)), default=0)
        return cls(edges, torch.tensor(edges, dtype=torch.int32, device=device), longest, group)

    @classmethod
    def sharing(cls, segments: Sequence[Segment]) -> "PackedDocuments":
        """Makes the documents of these segments, on one rank."""
        edges = tuple(accumulate((one.end - one.start for one in segments), initial=0))
        return replace(cls.of(edges), seen=SeenTokens.of(segments, edges))

    def map(self, moved: Callable[[Tensor], Tensor]) -> "PackedDocuments":
        """Moves the tensors to a device or into pinned memory."""
        seen, chunks = self.seen and self.seen.map(moved), self.chunks and self.chunks.moved(moved)
        return replace(self, starts=moved(self.starts), seen=seen, chunks=chunks)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Lists, for each document or segment, the tokens before it that it attends to, and its own."""
        own = _lengths(self.edges)
        seen = _lengths(self.seen.edges) if self.seen else own
        return [(whole - here, here) for whole, here in zip(seen, own, strict=True)]


WINDOWED = "flywheel_windowed"
"""Attribute of a tower's attention layer: whether patches attend within their window."""


@dataclass
class PatchWindows:
    """Order in which a tower with windows holds its patches: whole windows of all screens first, then the others.

    The class is not frozen, as `PackedDocuments`.
    """

    order: Tensor
    """(patches,) place of each held patch if each screen's windows are together."""
    places: Tensor
    """(patches,) place among the held patches of each patch in that order."""
    number: int
    """Number of windows of `size` patches."""
    size: int
    starts: Tensor
    """(others + 1,) int32, start of each other window, counted from the first one, and the end of the last one."""
    longest: int
    """Patches of the longest other window; 0 if there is none."""

    @classmethod
    def of(cls, lengths: Tensor) -> tuple["PatchWindows", Tensor]:
        """Chooses the order for windows of these lengths in patches; returns it, and the windows' numbers in it."""
        size = int((lengths.bincount() * torch.arange(int(lengths.max()) + 1)).argmax())
        whole = lengths == size
        ordered = torch.cat([whole.nonzero()[:, 0], (~whole).nonzero()[:, 0]])
        starts = lengths.cumsum(0) - lengths
        order = torch.cat([torch.arange(int(starts[one]), int(starts[one] + lengths[one])) for one in ordered])
        others = lengths[~whole]
        edges = torch.cat([torch.zeros(1, dtype=others.dtype), others.cumsum(0)]).to(torch.int32)
        longest = int(others.max()) if len(others) else 0
        return cls(order, order.argsort(), int(whole.sum()), size, edges, longest), ordered


def name_windowed(tower: Any) -> None:
    """Sets `WINDOWED` of each attention layer of a vision tower whose patches attend within windows in most layers."""
    if (whole := getattr(tower, "fullatt_block_indexes", None)) is not None:
        for number, block in enumerate(tower.blocks):
            setattr(block.attn, WINDOWED, number not in whole)


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    packed: PackedDocuments | None = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    windows: PatchWindows | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Computes attention from (1, heads, tokens, width) to (1, tokens, heads, width).

    The signature is the library's.

    Args:
        module: the layer; its `is_causal` counts unless the call passes one.
        query, key, value: keys and values may have fewer heads than queries.
        attention_mask: never given, as `packed` replaces it.
        scaling: factor of the scores.
        dropout: must be 0, since the gradient would otherwise depend on the plan.
        is_causal: whether a token attends only to earlier tokens and itself.
        packed: the documents, or the screens of the vision tower.
        cu_seq_lens_q: starts of windows or screens, and the end of the last one, for a tower without `packed`.
        max_length_q: length of the longest window or screen.
        windows: order of the windows, for the vision tower of Qwen2.5-VL; it replaces `packed` in layers with windows.
    """
    causal = bool(getattr(module, "is_causal", True)) if is_causal is None else is_causal
    if packed is None and cu_seq_lens_q is None:
        return attend(query, key, value, scaling, causal).transpose(1, 2), None
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    if windows is not None and getattr(module, WINDOWED):
        seen = in_windows if has_kernel(query) else _in_windows
        sizes = windows.number, windows.size, windows.starts, windows.longest
        return seen(q, k, v, *sizes, scaling)[None], None
    if windows is not None:
        q, k, v = (_Permuted.apply(part, windows.places, windows.order) for part in (q, k, v))
        seen = _within(q, k, v, packed, cu_seq_lens_q, max_length_q, scaling, causal)
        return _Permuted.apply(seen, windows.order, windows.places)[None], None
    return _within(q, k, v, packed, cu_seq_lens_q, max_length_q, scaling, causal)[None], None


class _Permuted(torch.autograd.Function):
    """Permutes rows; the gradient is permuted back, where that of an index is summed into zeros."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return rows.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        return slopes[0].index_select(0, ctx.saved_tensors[0]), None, None


class Copied(torch.autograd.Function):
    """Copies rows; the gradients of a row's copies are summed in at least fp32.

    A GPU sums those of an index in the type of the rows, and bf16 loses the 257th of equal gradients.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, chosen: Tensor) -> Tensor:
        """Copies rows (n, ...) by their numbers (m,), to (m, ...)."""
        ctx.save_for_backward(chosen)
        ctx.number = rows.shape[0]
        return rows.index_select(0, chosen)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        """Sums gradients (m, ...) of copies, to (n, ...)."""
        wide = slopes[0].to(torch.promote_types(slopes[0].dtype, torch.float32))
        summed = wide.new_zeros((ctx.number, *wide.shape[1:])).index_add_(0, ctx.saved_tensors[0], wide)
        return summed.to(slopes[0].dtype), None


_in_windows: Any = torch.compiler.disable(in_windows)  # without a kernel, a compiler would compile it for every packing


def _within(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    packed: PackedDocuments | None,
    starts: Tensor | None,
    longest: int | None,
    scaling: float | None,
    causal: bool,
) -> Tensor:
    """Attends within each document or screen, (tokens, heads, width)."""
    if not has_kernel(q) or (packed is not None and packed.group is not None):
        return _without_kernel(q, k, v, packed, starts, scaling, causal)  # type: ignore[call-arg]
    if packed is None:
        assert starts is not None and longest is not None
        return variable_length(q, k, v, starts, longest, scaling, causal)
    return _in_kernel(q, k, v, packed, scaling, causal)


def _in_kernel(
    query: Tensor, key: Tensor, value: Tensor, packed: PackedDocuments, scaling: float | None, causal: bool
) -> Tensor:
    """Attends within each document by a GPU's kernel, (tokens, heads, width)."""
    keys: PackedDocuments | SeenTokens = packed
    if packed.seen is not None:
        keys = packed.seen
        key, value = (Copied.apply(part, keys.tokens) for part in (key, value))
    if packed.kernel != FLASH:
        return _in_chosen_kernel(query, key, value, packed, keys, scaling, causal)  # type: ignore[call-arg]
    return variable_length(
        query, key, value, packed.starts, packed.longest, scaling, causal, (keys.starts, keys.longest)
    )


@torch.compiler.disable  # a compiler would compile it again for every packing
def _in_chosen_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packed: PackedDocuments,
    keys: PackedDocuments | SeenTokens,
    scaling: float | None,
    causal: bool,
) -> Tensor:
    return KERNELS[packed.kernel](query, key, value, packed, keys, scaling, causal)


@torch.compiler.disable  # a compiler would compile it again for every packing
def _without_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packed: PackedDocuments | None,
    starts: Tensor | None,
    scaling: float | None,
    causal: bool,
) -> Tensor:
    """Attends within each document or screen, (tokens, heads, width), on a CPU or with the ranks of a group."""
    if packed is None:
        assert starts is not None
        return by_length(query, key, value, starts.diff().tolist(), scaling, causal)
    documents = partial(_documents, packed=packed, scaling=scaling, causal=causal)
    return (
        documents(query, key, value)
        if packed.group is None
        else attend_together(query, key, value, packed.group, documents)
    )


def _documents(
    query: Tensor, key: Tensor, value: Tensor, packed: PackedDocuments, scaling: float | None, causal: bool
) -> Tensor:
    """Attends within each document, (tokens, heads, width)."""
    if has_kernel(query):
        return _in_kernel(query, key, value, packed, scaling, causal)
    if packed.seen is None:
        return by_length(query, key, value, _lengths(packed.edges), scaling, causal)
    key, value = (Copied.apply(part, packed.seen.tokens) for part in (key, value))
    return by_length(query, key, value, _lengths(packed.edges), scaling, causal, _lengths(packed.seen.edges))


def _lengths(edges: Sequence[int]) -> list[int]:
    return [end - start for start, end in pairwise(edges)]


LINEAR = "linear_attention"
"""Type of a gated DeltaNet layer in the library's `layer_types`."""
_KERNELS = ("fla", "causal_conv1d")
"""Packages whose kernels know the edges of documents; the library's own functions do not."""


def separate_documents(model: Any) -> None:
    """Makes a model's gated DeltaNet layers process each packed document alone."""
    for module in model.modules():
        if isinstance(mixer := getattr(module, "linear_attn", None), torch.nn.Module):
            mixer.__class__ = _packed(type(mixer))


@cache
def _packed(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    """Makes a class of the layer for packed documents; a compiler compiles layers of one class once."""
    return type(f"Packed{kind.__name__}", (_PackedMixer, kind), {})


class _PackedMixer(torch.nn.Module):
    """A gated DeltaNet layer for packed documents, before the library's class among the bases."""

    @torch.compiler.disable  # a compiler would compile it again for every packing
    def forward(  # type: ignore[override]
        self, hidden_states: Tensor, packed: PackedDocuments | None = None, **more: Any
    ) -> Tensor:
        """Maps (1, tokens, width) to the same shape."""
        forward = super().forward
        if packed is None:
            return forward(hidden_states=hidden_states, **more)
        if packed.group is not None:
            raise PlanError("a document of a model with gated DeltaNets is on several ranks.", "Plan one rank each.")
        if hidden_states.is_cuda and all(map(find_spec, _KERNELS)):
            tokens = torch.arange(hidden_states.shape[1], dtype=torch.int32, device=hidden_states.device)
            owners = torch.searchsorted(packed.starts[1:], tokens, right=True, out_int32=True)[None]
            return forward(hidden_states=hidden_states, cu_seq_lens_q=packed.starts, seq_idx=owners)
        if packed.chunks is None:
            gap = cast(Any, self).conv_kernel_size - 1
            packed.chunks = DocumentChunks.of(_lengths(packed.edges), gap).moved(
                lambda one: one.to(hidden_states.device)
            )
        return mix(self, hidden_states[0], packed.chunks)[None]


for _name in (NAME, SCREENS):
    ALL_ATTENTION_FUNCTIONS.register(_name, packed_attention)
