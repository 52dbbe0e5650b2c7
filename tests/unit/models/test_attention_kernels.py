"""The fastest kernel is found by timing, and every kernel computes the same attention."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pytest
import torch
from torch import Tensor

from models.attention import by_length
from models.attention_kernels import (
    DOCUMENTS,
    FLASH,
    FLASH_3,
    MOST_DOCUMENTS,
    MOST_LENGTHS,
    Heads,
    Kernel,
    KernelChoice,
    by_document,
    kernels_for,
)

CPU = torch.device("cpu")
LANGUAGE = Heads("language model", 4, 2, 8, True, torch.float32, CPU)
TOWER = Heads("vision tower", 4, 4, 8, False, torch.float32, CPU)


@dataclass
class Packed:
    edges: tuple[int, ...]
    starts: Tensor
    longest: int


def packed(*lengths: int) -> Packed:
    edges = tuple(accumulate(lengths, initial=0))
    return Packed(edges, torch.tensor(edges, dtype=torch.int32), max(lengths))


@pytest.mark.parametrize("heads", [LANGUAGE, TOWER])
@pytest.mark.parametrize("lengths", [(5,), (130, 128, 0, 3), (300, 7, 7)])
def test_documents_one_by_one_are_attention_by_length_with_equal_gradients(
    heads: Heads, lengths: Sequence[int]
) -> None:
    numbers = torch.Generator().manual_seed(0)
    edges = packed(*lengths)
    parts = [
        torch.randn(edges.edges[-1], count, 8, generator=numbers, dtype=torch.float64, requires_grad=True)
        for count in (heads.queries, heads.keys, heads.keys)
    ]
    made = by_document(*parts, edges, edges, 0.3, heads.causal)
    wanted = by_length(*parts, lengths, 0.3, heads.causal)
    torch.testing.assert_close(made, wanted, rtol=1e-12, atol=1e-12)
    slope = torch.randn(made.shape, generator=numbers, dtype=torch.float64)
    found, right = (torch.autograd.grad(one, parts, slope) for one in (made, wanted))
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


class Bench:
    """Kernels of set times, a clock that reads them, and the runs of each kernel."""

    def __init__(self, **milliseconds: float | None) -> None:
        self.runs: list[tuple[str, tuple[int, ...]]] = []
        self.timed: list[str] = []
        self._times = milliseconds
        self.kernels: dict[str, Kernel] = {name: self._kernel(name) for name in milliseconds}

    def _kernel(self, name: str) -> Kernel:
        def run(
            q: Tensor, k: Tensor, v: Tensor, queries: Packed, keys: Packed, scaling: object, causal: bool
        ) -> Tensor:
            self.runs.append((name, queries.edges))
            if self._times[name] is None:
                raise RuntimeError("No available kernel.")
            return q * (k.sum() + v.sum())

        return run  # type: ignore[return-value]

    def seconds(self, run: Callable[[], None]) -> float:
        run()
        name = self.runs[-1][0]
        self.timed.append(name)
        return 1e-3 * (self._times[name] or 0.0)

    def choice(self, heads: Heads = LANGUAGE) -> KernelChoice:
        return KernelChoice(heads, self.kernels, self.seconds)


def test_the_fastest_kernel_is_chosen_once_for_similar_packings(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(flash=2.0, documents=1.0, third=3.0)
    choice, long = bench.choice(), packed(4000, 4100)
    with caplog.at_level(logging.DEBUG, "models.attention_kernels"):
        assert choice.of(long, long) == DOCUMENTS
        assert sorted(bench.timed) == [DOCUMENTS, FLASH, "third"]
        assert choice.of(other := packed(3900, 3950), other) == DOCUMENTS and len(bench.timed) == 3
        assert choice.of(many := packed(*[60] * 90), many) == FLASH and len(bench.timed) == 5
    assert [record.levelname for record in caplog.records] == ["DEBUG"] * 2
    assert "'documents' for 2 sequences of 8100 tokens" in caplog.messages[0]
    assert all(f"{name} {took}.00 ms" in caplog.messages[0] for name, took in ((FLASH, 2), (DOCUMENTS, 1)))


def test_a_kernel_that_raises_is_dropped() -> None:
    bench = Bench(flash=2.0, third=None)
    edges = packed(100, 100)
    assert bench.choice().of(edges, edges) == FLASH and bench.timed == [FLASH]
    bench = Bench(flash=2.0, documents=None)
    choice = bench.choice()
    assert choice.of(edges, edges) == FLASH
    assert choice.of(longer := packed(4000, 4000), longer) == FLASH
    assert [name for name, _ in bench.runs].count(DOCUMENTS) == 1
    bench = Bench(flash=None, third=None)
    assert bench.choice().of(edges, edges) == FLASH, "without any time the first one stays"


def test_documents_run_one_by_one_only_in_lengths_that_ran_before_a_pass() -> None:
    bench = Bench(flash=2.0, documents=1.0)
    choice = bench.choice()
    for first in (1100, 1150, 1300):
        edges = packed(first, 1000)
        assert choice.of(edges, edges) == DOCUMENTS
    alone = [edges for name, edges in bench.runs if name == DOCUMENTS and len(edges) == 2]
    assert alone == [(0, 1024), (0, 1152), (0, 1408)], "causal documents are rounded up, and each length runs once"

    bench = Bench(flash=2.0, documents=1.0)
    choice = bench.choice(TOWER)
    for at in range(MOST_LENGTHS):
        edges = packed(1100 + at)
        assert choice.of(edges, edges) == DOCUMENTS
    assert choice.of(edges := packed(1999), edges) == FLASH, "further lengths would need further plans"
    assert choice.of(edges := packed(1100), edges) == DOCUMENTS


def test_more_keys_than_queries_and_many_documents_are_not_tried_one_by_one() -> None:
    bench = Bench(flash=2.0, documents=1.0)
    queries, keys = packed(100, 100), packed(150, 200)
    assert bench.choice().of(queries, keys) == FLASH
    edges = packed(*[500] * (MOST_DOCUMENTS + 1))
    assert bench.choice().of(edges, edges) == FLASH
    assert all(name == FLASH for name, _ in bench.runs)


def test_only_a_gpu_has_several_kernels_and_flash_3_only_on_hopper_in_its_widths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (
        [*kernels_for(LANGUAGE)]
        == [FLASH]
        == [*kernels_for(Heads("", 4, 4, 64, True, torch.half, torch.device("meta")))]
    )
    monkeypatch.setattr("models.attention_kernels.find_spec", lambda _: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    gpu = torch.device("cuda")
    assert [*kernels_for(Heads("", 4, 4, 128, True, torch.bfloat16, gpu))] == [FLASH, DOCUMENTS, FLASH_3]
    assert [*kernels_for(Heads("", 16, 16, 80, False, torch.bfloat16, gpu))] == [FLASH, DOCUMENTS]
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    assert [*kernels_for(Heads("", 4, 4, 128, True, torch.bfloat16, gpu))] == [FLASH, DOCUMENTS]


def test_timing_changes_no_random_numbers_of_the_process_and_needs_no_gradient_mode() -> None:
    bench = Bench(flash=2.0, third=1.0)
    edges = packed(100, 100)
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    with torch.inference_mode():
        assert bench.choice().of(edges, edges) == "third"
    assert torch.equal(torch.random.get_rng_state(), before)
