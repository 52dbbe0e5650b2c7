"""Checkpoints that DeepSpeed wrote (`tests/golden/checkpoints/save_deepspeed.py`) give its live engine's numbers."""

import shutil
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

from learning.conversion.convert import convert
from learning.conversion.opening import open_checkpoint
from learning.conversion.source import MASTER, WEIGHT
from schemas.failure import CheckpointError, DamagedError
from tests.fixtures.sentences import Sentences
from tests.unit.learning.conversion.networks import same, weights
from tests.unit.learning.conversion.trainers import GOLDEN, save_anew

RANKS = {1: 3, 2: 2, 3: 2}


def check(folder: Path, stage: int, made: Path) -> None:
    """Compares weights, master weights and moments with those of the engine that saved the checkpoint."""
    expected = load_file(folder / "expected.safetensors")
    source = open_checkpoint(folder)
    assert (source.format, source.step) == ("deepspeed", 3)
    assert dict(source.layout) == {"zero stage": stage, "data": RANKS[stage]}
    assert dict(source.tied) == {"head.weight": "embedding.weight"}
    found = {f"{one.kind}:{one.weight}": one.tensor.read(one.tensor.box) for one in source.entries}
    masters = source.of_kind(MASTER)
    if stage == 3:  # it has no other copy of trained weights than the master weights
        expected = {name: one for name, one in expected.items() if name.removeprefix("weight:") not in masters}
    assert {
        "master weight:embedding.weight",
        "exp_avg_sq:up.bias",
        "weight:frozen.bias",
        "weight:scale",
    } <= found.keys()
    assert expected and same({name: found[name] for name in expected}, expected)
    for name in masters:
        assert stage == 3 or torch.equal(found[f"master weight:{name}"].bfloat16(), found[f"weight:{name}"])

    convert(folder, made / "dcp", "dcp", shards=3)
    state = {f"model.{name}": found[f"weight:{name}"] for name in source.of_kind(WEIGHT)}
    state |= {f"model.{name}": found[f"master weight:{name}"] for name in masters}
    for kind in ("exp_avg", "exp_avg_sq"):
        state |= {f"optimizer.{kind}.{name}": found[f"{kind}:{name}"] for name in source.of_kind(kind)}
    loaded = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    dcp.load(loaded, checkpoint_id=made / "dcp")
    assert same(loaded, state)

    convert(folder, made / "hf", "hf")
    for name, tensor in weights(made / "hf").items():
        assert torch.equal(tensor, found.get(f"weight:{name}", found.get(f"master weight:{name}", torch.empty(0))))


@pytest.mark.parametrize("stage", RANKS)
def test_every_stage_gives_the_numbers_of_the_engine(stage: int, tmp_path: Path):
    check(GOLDEN / f"deepspeed-{stage}", stage, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("stage", RANKS)
def test_a_checkpoint_that_the_package_saves_now_gives_its_numbers(stage: int, tmp_path: Path):
    save_anew("deepspeed==0.19.8", "save_deepspeed.py", RANKS[stage], stage, tmp_path / "saved")
    check(tmp_path / "saved", stage, tmp_path)


@pytest.fixture
def copy(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of a stage's checkpoint, to be damaged."""
    shutil.copytree(GOLDEN / f"deepspeed-{request.param}", tmp_path / "copy")
    return tmp_path / "copy/global_step3"


@pytest.mark.parametrize(
    ("copy", "file"),
    [
        (2, "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        (3, "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"),
        (3, "zero_pp_rank_1_mp_rank_00_model_states.pt"),
    ],
    indirect=["copy"],
)
def test_a_missing_file_of_a_rank_is_named(copy: Path, file: str, sentence: Sentences):
    (copy / file).unlink()
    with sentence.raises(DamagedError, file.removeprefix("bf16_")):
        open_checkpoint(copy)


@pytest.mark.parametrize("copy", [1], indirect=True)
def test_other_layouts_are_refused_by_their_file(copy: Path, sentence: Sentences):
    parts = sorted(copy.glob("*optim*"))
    for name, of in (
        ("layer_0_expert_1_mp_rank_00_model_states.pt", "mp_rank_00_model_states.pt"),
        ("mp_rank_01_model_states.pt", "mp_rank_00_model_states.pt"),
        ("", parts[0].name),
    ):
        if name:
            shutil.copyfile(copy / of, copy / name)
        else:
            for part in parts:
                part.unlink()
        with sentence.raises(CheckpointError, name or copy):
            open_checkpoint(copy)
        if name:
            (copy / name).unlink()


@pytest.mark.parametrize("copy", [1], indirect=True)
def test_parts_of_another_length_are_refused(copy: Path, sentence: Sentences):
    names = [f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in (0, 1)]
    shutil.copyfile(GOLDEN / "deepspeed-2/global_step3" / names[0], copy / names[1])
    with sentence.raises(CheckpointError, "group 0"):
        open_checkpoint(copy)
