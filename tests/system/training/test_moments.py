"""Moments of a byte on real gloo ranks: ranks share rows and no block, so any number of them holds the same."""

from pathlib import Path

import pytest
import torch

from learning.checkpoint import Checkpoints
from learning.engines.fsdp.moments import AdamW8bit
from tests.system.parts.moments_ranks import STEPS, drawn, state_of, stepped
from tests.system.parts.ranks import run


@pytest.mark.nightly
def test_what_three_ranks_kept_one_goes_on_with_bit_for_bit(tmp_path: Path) -> None:
    run("tests.system.parts.moments_ranks", tmp_path / "steps", ranks=3)
    alone, taken = ([torch.nn.Parameter(one) for one in drawn(0)] for _ in range(2))
    adam, other = AdamW8bit(alone, lr=1e-2), AdamW8bit(taken, lr=1e-2)
    for step in range(1, STEPS + 1):
        stepped(adam, alone, step)
    found = state_of(other, taken)
    with Checkpoints(tmp_path / "steps") as checkpoints:
        checkpoints.load(found)
    for weight in taken:
        other.state[weight]["step"].fill_(STEPS)
    for _ in range(2):
        wanted, found = state_of(adam, alone), state_of(other, taken)
        assert wanted.keys() == found.keys()
        assert all(torch.equal(wanted[name], found[name]) for name in wanted)  # type: ignore[arg-type]
        stepped(adam, alone, STEPS + 1)
        stepped(other, taken, STEPS + 1)
