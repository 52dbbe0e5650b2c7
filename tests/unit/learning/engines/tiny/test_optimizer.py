"""The optimiser: orthogonal updates, shared over ranks, and nothing moves on an unsound gradient."""

import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from learning.engines.optimizer import learning_rate
from learning.engines.tiny.optimizer import BETAS, Adam, FlatOptimizer, _blocks, orthogonal, stretches
from models.precision import compute_dtype
from models.tiny.network import TinyNet
from tests.unit.learning.samples import TRAIN, parent


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> TinyNet:
    return TinyNet.load(parent(tmp_path_factory.mktemp("policy")))


@pytest.mark.parametrize("shape", [(2, 8, 24), (1, 24, 8)])
def test_singular_values_end_near_one(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)).float())
    assert float(values.min()) > 0.5 and float(values.max()) < 1.4


def test_every_matrix_is_covered_once_whatever_the_number_of_ranks(net: TinyNet) -> None:
    blocks = _blocks(net)
    assert sum(block.rows * block.columns for block in blocks) == net.sections[0]
    edges = stretches(blocks, 3)
    assert edges[0][0] == 0 and edges[-1][1] == net.sections[0]
    assert all(before[1] == after[0] for before, after in pairwise(edges))
    assert {start for start, _ in edges} <= {block.start for block in blocks}


def test_a_rank_has_at_most_one_block_more_than_its_even_share(net: TinyNet) -> None:
    blocks = _blocks(net)
    work = [sum(block.cost for block in blocks if start <= block.start < end) for start, end in stretches(blocks, 2)]
    assert max(work) <= sum(work) / 2 + max(block.cost for block in blocks) / 2


def test_a_step_moves_every_section_against_the_gradient(net: TinyNet) -> None:
    optimizer = FlatOptimizer(net, TRAIN.model_copy(update={"weight_decay": 0.0}))
    before = optimizer.master.clone()
    torch.manual_seed(0)
    gradient = torch.randn(len(net.flat))
    optimizer.step(gradient.clone(), 1e-3)
    for moved, slope in zip(
        (optimizer.master - before).split(list(net.sections)), gradient.split(list(net.sections)), strict=True
    ):
        assert float((moved * slope).sum()) < 0


def test_weight_decay_leaves_a_frozen_vision_tower_as_it_is(net: TinyNet) -> None:
    optimizer = FlatOptimizer(net, TRAIN.model_copy(update={"weight_decay": 0.5}), freeze_vision=True)
    before, frozen = optimizer.master.clone(), torch.zeros(len(net.flat), dtype=torch.bool)
    for part in net.vision_ranges():
        frozen[part] = True
    assert 0 < int(frozen.sum()) < len(frozen)
    optimizer.step(torch.ones(len(net.flat)), 1e-3)
    assert torch.equal(optimizer.master[frozen], before[frozen])
    assert float((optimizer.master[~frozen] != before[~frozen]).float().mean()) > 0.9


def test_adamw_moves_a_weight_as_torch_s_own_does() -> None:
    torch.manual_seed(0)
    one = torch.randn(100)
    other = one.clone()
    ours = Adam(one, 0.1)
    theirs = torch.optim.AdamW([other], lr=0.0, betas=BETAS, weight_decay=0.1, fused=True)
    for rate in (1e-2, 3e-3, 0.0, 1e-3):
        gradient = torch.randn(100)
        ours.step(gradient, rate)
        other.grad, theirs.param_groups[0]["lr"] = gradient, rate
        theirs.step()
        assert torch.equal(one, other)
    kept = theirs.state[other]
    assert torch.equal(ours.mean, kept["exp_avg"]) and torch.equal(ours.square, kept["exp_avg_sq"])
    assert ours.steps == kept["step"] == 4


def test_an_unsound_gradient_moves_nothing(net: TinyNet) -> None:
    optimizer = FlatOptimizer(net, TRAIN)
    before = net.flat.clone()
    gradient = torch.zeros(len(net.flat))
    gradient[3] = float("nan")
    assert not optimizer.step(gradient, 0.1) < float("inf")
    assert torch.equal(net.flat, before)


def test_the_rate_warms_up_stays_and_falls_at_the_end() -> None:
    train = TRAIN.model_copy(update={"warmup": 10, "decay": 0.3})
    rates = [learning_rate(step, 100, 1.0, train) for step in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[-1] == pytest.approx(0.05)
    assert rates[9:69] == [1.0] * 60
    assert rates[69:] == sorted(rates[69:], reverse=True)


def test_a_rate_without_decay_stays_to_the_last_step() -> None:
    train = TRAIN.model_copy(update={"warmup": 2, "decay": 0.0})
    assert [learning_rate(step, 4, 1.0, train) for step in range(4)] == [0.5, 1.0, 1.0, 1.0]
    assert learning_rate(0, 1, 1.0, train.model_copy(update={"warmup": 0})) == 1.0


def test_a_cosine_over_all_steps_begins_after_the_warmup_and_ends_at_its_floor() -> None:
    train = TRAIN.model_copy(update={"warmup": 10, "decay": 1.0, "shape": "cosine", "floor": 0.1})
    rates = [learning_rate(step, 110, 2e-5, train) for step in range(110)]
    expected = [2e-6 + 1.8e-5 * (1 + math.cos(math.pi * (step - 9) / 100)) / 2 for step in range(10, 110)]
    assert rates[10:] == pytest.approx(expected) and rates[9] == pytest.approx(2e-5)
    assert rates[-1] == pytest.approx(2e-6)


def test_the_weights_of_the_network_are_those_that_are_written_whatever_it_computes_in(tmp_path: Path) -> None:
    written = parent(tmp_path)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        net = TinyNet.load(written, dtype)
        optimizer = FlatOptimizer(net, TRAIN)
        optimizer.step(torch.linspace(-1, 1, len(net.flat)), 1e-3)
        assert torch.equal(net.flat.float(), optimizer.master.bfloat16().float())
        assert not torch.equal(net.flat.float(), optimizer.master)
        found.append(net.flat.float())
    assert torch.equal(*found)


def test_only_a_processor_that_has_instructions_for_bf16_computes_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, expected in (("avx2", torch.float32), ("avx512_bf16", torch.bfloat16), ("amx_bf16", torch.bfloat16)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda name=name: {"amx_bf16": False, name: True})
        assert compute_dtype.__wrapped__() == expected
