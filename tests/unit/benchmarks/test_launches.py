"""The counts of a training step: the host waits for nothing, and weights are cast once."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.launch_mode import Launches
from benchmarks.launches import SIZE, TEXTS, count_token, traced_step
from models.random_vlm import KINDS, build_random
from tests.tiers import NIGHTLY


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS if NIGHTLY else KINDS[:2])
def test_no_micro_batch_and_no_update_waits_and_weights_are_cast_once(kind: Any, tmp_path: Path) -> None:
    build_random(kind, TEXTS, 0, tmp_path / "built", **SIZE)
    counted, net, pieces = traced_step(tmp_path / "built", tmp_path)
    assert pieces > 2 and not counted.waits
    assert counted.gathered == sum(weight.numel() for weight in net.parameters())


def test_a_decoding_step_needs_no_number_on_the_host(tmp_path: Path) -> None:
    build_random("qwen3_vl", TEXTS, 0, tmp_path / "model", **SIZE)
    found = count_token(tmp_path / "model")
    assert found["token_launches"] < 2 < found["token_calls"]


def test_views_and_allocations_are_no_calls_and_copies_from_a_device_are_waits() -> None:
    with Launches("meta") as counted:
        one = torch.empty(4, 4, device="meta")
        made = one.T.reshape(2, 8) + 1
        assert float(made.sum()) == 1.0
        torch.ones(3).to("meta", non_blocking=True)
        assert not counted.waits.total() > 1
        torch.ones(3).to("meta")
    assert counted.waits == {"_local_scalar_dense": 1, "_to_copy": 1}
    assert counted.calls["add"] == counted.calls["sum"] == 1 and counted.calls["empty"] == counted.calls["t"] == 0
