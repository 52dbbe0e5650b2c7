"""Chooses the fastest of a GPU's kernels for attention over packed sequences, by timing them once for similar packings.

Which kernel is fastest depends on the GPU, the heads and the lengths. On an H200, forward and backward, cuDNN's kernel
takes about half the time of PyTorch's kernel for variable lengths on a few documents of thousands of tokens. With many
short documents, one call for all of them wins. A choice is made before a forward pass, from the planned lengths, so
that no pass waits for the GPU and no compiled block times anything.
"""

import importlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from itertools import pairwise
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from models.attention import attend, variable_length

LOG = logging.getLogger(__name__)
FLASH, DOCUMENTS, FLASH_3 = "flash", "documents", "flash 3"
HOPPER = (9, 0)
"""Compute capability of the GPUs for which FlashAttention 3 is written."""
FLASH_3_WIDTHS = (64, 96, 128, 192, 256)
"""Widths of heads for which FlashAttention 3 has kernels. Other widths, as the 80 of Qwen2.5-VL's tower, are padded."""
MULTIPLE = 128
"""Causal documents are padded to a multiple of so many tokens, since cuDNN plans a kernel for every length."""
MOST_DOCUMENTS = 32
"""Maximum number of documents that are tried one by one."""
MOST_LENGTHS = 64
"""Maximum number of lengths for which a process lets cuDNN plan a kernel."""
ROUNDS = 3
"""Timed runs of a kernel, after one that is not timed; the fastest counts."""


class Edges(Protocol):
    """Edges of packed sequences, known on the host and on the device."""

    edges: tuple[int, ...]
    """Start of each sequence, and the end of the last one."""
    starts: Tensor
    """(sequences + 1,) int32, the edges on the device of the tokens."""
    longest: int
    """Tokens of the longest sequence."""


Kernel = Callable[[Tensor, Tensor, Tensor, Edges, Edges, float | None, bool], Tensor]
"""Attends within packed sequences, (tokens, heads, width).

Its arguments are query, key, value, edges of queries and of keys, factor of the scores, and whether a token attends
only to earlier tokens and itself, with the last query at the last key.
"""


def flash(
    query: Tensor, key: Tensor, value: Tensor, queries: Edges, keys: Edges, scaling: float | None, causal: bool
) -> Tensor:
    """Attends in PyTorch's kernel for variable lengths; a `Kernel`."""
    of_keys = keys.starts, keys.longest
    return variable_length(query, key, value, queries.starts, queries.longest, scaling, causal, of_keys)


def flash_3(
    query: Tensor, key: Tensor, value: Tensor, queries: Edges, keys: Edges, scaling: float | None, causal: bool
) -> Tensor:
    """Attends in FlashAttention 3's kernel for variable lengths; a `Kernel`."""
    attended = importlib.import_module("flash_attn_interface").flash_attn_varlen_func
    ends = queries.starts, keys.starts, queries.longest, keys.longest
    made = attended(query, key, value, *ends, softmax_scale=scaling, causal=causal)
    return made[0] if isinstance(made, tuple) else made  # older versions also return sums of exponentials


def by_document(
    query: Tensor, key: Tensor, value: Tensor, queries: Edges, keys: Edges, scaling: float | None, causal: bool
) -> Tensor:
    """Attends to each document in a call of its own, in cuDNN's kernel if it can; a `Kernel`.

    Documents have as many keys as queries. Padding comes last, so that no token of a causal document attends to it.
    Every document of a length has the same layout, for which cuDNN plans once.
    """
    backends = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    lengths, made = _lengths(queries), list[Tensor]()
    with sdpa_kernel(backends, set_priority=True):
        for parts in zip(*(part.split(lengths) for part in (query, key, value)), strict=True):
            if not (tokens := len(parts[0])):
                continue
            gap = padded(tokens, causal) - tokens
            q, k, v = (F.pad(one, (0, 0, 0, 0, 0, gap)) if gap else one.contiguous() for one in parts)
            q, k, v = (one.transpose(0, 1)[None] for one in (q, k, v))
            seen = attend(q, k, v, scaling, causal)
            made.append(seen[0].transpose(0, 1)[:tokens])
    return torch.cat(made)


def padded(length: int, causal: bool) -> int:
    """Rounds the length of a causal document up; other attention would see the padding."""
    return -(-length // MULTIPLE) * MULTIPLE if causal else length


def _lengths(edges: Edges) -> list[int]:
    return [end - start for start, end in pairwise(edges.edges)]


KERNELS: dict[str, Kernel] = {FLASH: flash, DOCUMENTS: by_document, FLASH_3: flash_3}


@dataclass(frozen=True)
class Heads:
    """Attention of the layers of a phase."""

    phase: str
    """Name of the phase, for the log."""
    queries: int
    """Heads of queries."""
    keys: int
    """Heads of keys and values."""
    width: int
    """Numbers of a head."""
    causal: bool
    dtype: torch.dtype
    device: torch.device


def kernels_for(heads: Heads) -> dict[str, Kernel]:
    """Lists the kernels that this process can try on a GPU, with PyTorch's kernel for variable lengths first."""
    found = {FLASH: flash}
    if heads.device.type == "cuda":
        found[DOCUMENTS] = by_document
        hopper = torch.cuda.get_device_capability(heads.device) == HOPPER
        if hopper and heads.width in FLASH_3_WIDTHS and find_spec("flash_attn_interface"):
            found[FLASH_3] = flash_3
    return found


class KernelChoice:
    """The kernels that were the fastest for some packings in the layers of a phase.

    Args:
        heads: the layers.
        kernels: the candidates by name, of which the first one is used where no other is proved.
        seconds: measures the time of a function on the device.
    """

    def __init__(
        self,
        heads: Heads,
        kernels: Mapping[str, Kernel] | None = None,
        seconds: Callable[[Callable[[], None]], float] | None = None,
    ) -> None:
        self._heads = heads
        self._kernels = dict(kernels_for(heads) if kernels is None else kernels)
        self._seconds = seconds or partial(_seconds, heads.device)
        self._default = next(iter(self._kernels))
        self._chosen: dict[tuple[bool, int, int], str] = {}
        self._planned: set[int] = set()
        """Lengths of documents that ran one by one."""

    def of(self, queries: Edges, keys: Edges) -> str:
        """Returns the name of the kernel for a packing; times the candidates if none was chosen for a similar one.

        Similar packings have about as many sequences, of about the same mean length: to a power of two.

        Args:
            queries: edges of the queries.
            keys: edges of the keys; the same object if every sequence has as many keys as queries.
        """
        lengths = [length for length in _lengths(queries) if length]
        if len(self._kernels) == 1 or not lengths:
            return self._default
        kind = (keys is queries, (len(lengths) - 1).bit_length(), (sum(lengths) // len(lengths)).bit_length())
        if kind not in self._chosen:
            self._chosen[kind] = self._fastest(queries, keys)
        if self._chosen[kind] == DOCUMENTS and not self._plan(lengths):
            return self._default
        return self._chosen[kind]

    def _fastest(self, queries: Edges, keys: Edges) -> str:
        """Times the candidates for a packing, forward and backward."""
        lengths, found = _lengths(queries), dict[str, float]()
        apart = keys is queries and len(lengths) <= MOST_DOCUMENTS and self._plan(lengths)
        for name, kernel in self._kernels.items():
            if name != DOCUMENTS or apart:
                try:
                    found[name] = self._seconds(partial(self._runs(queries, keys), kernel))
                except Exception as error:  # kernels raise many types
                    LOG.debug("the attention kernel %r is not used: %s", name, error)
        best = min(found, key=found.__getitem__, default=self._default)
        times = ", ".join(f"{name} {1e3 * took:.2f} ms" for name, took in found.items())
        LOG.debug(
            "%s: kernel %r for %d sequences of %d tokens (%s)", self._heads, best, len(lengths), sum(lengths), times
        )
        return best

    def _plan(self, lengths: Sequence[int]) -> bool:
        """Runs documents of new lengths once, for which cuDNN plans kernels; returns whether all lengths have run."""
        new = {padded(length, self._heads.causal) for length in lengths if length} - self._planned
        if DOCUMENTS not in self._kernels or len(self._planned | new) > MOST_LENGTHS:
            return False
        for length in sorted(new):
            one = _OneDocument((0, length), torch.tensor([0, length], dtype=torch.int32), length)
            try:
                self._runs(one, one)(self._kernels[DOCUMENTS])
            except Exception as error:  # it is not tried again
                LOG.debug("the attention kernel %r is not used: %s", DOCUMENTS, error)
                del self._kernels[DOCUMENTS]
                return False
            self._planned.add(length)
        return True

    def _runs(self, queries: Edges, keys: Edges) -> Callable[[Kernel], None]:
        """Makes random numbers for a packing; returns a function that runs a kernel on them forward and backward."""
        heads = self._heads
        numbers = torch.Generator(heads.device).manual_seed(0)  # the training's own generator does not change

        def drawn(edges: Edges, count: int) -> Tensor:
            shape = edges.edges[-1], count, heads.width
            return torch.randn(shape, generator=numbers, dtype=heads.dtype, device=heads.device).requires_grad_()

        with torch.inference_mode(False):
            q, k, v = drawn(queries, heads.queries), drawn(keys, heads.keys), drawn(keys, heads.keys)
            slope = torch.ones_like(q, requires_grad=False)

        def run(kernel: Kernel) -> None:
            with torch.inference_mode(False), torch.enable_grad():
                made = kernel(q, k, v, queries, keys, None, heads.causal)
                torch.autograd.grad(made, (q, k, v), slope)

        return run


@dataclass
class _OneDocument:
    """Edges of one document."""

    edges: tuple[int, ...]
    starts: Tensor
    longest: int


def _seconds(device: torch.device, run: Callable[[], None]) -> float:
    """Measures the shortest time of a run, from its first launch to the end of its last kernel."""
    run()
    times = list[float]()
    for _ in range(ROUNDS):
        torch.cuda.synchronize(device)
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begin)
    return min(times)


@cache
def choice_of(heads: Heads) -> KernelChoice:
    """Returns the choices of this process for the layers of a phase."""
    return KernelChoice(heads)
