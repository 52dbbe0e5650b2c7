"""The export of a checkpoint in the middle of a training is what a training that ended there writes."""

from pathlib import Path

import pytest
import torch

from learning.checkpoint import open_store
from learning.export import export
from learning.job import Job, steps_folder
from learning.trainer import train
from models.tiny.layout import TRAINING
from models.weights import ADAPTER
from schemas.config.training import LoraConfig
from schemas.failure import CheckpointError
from tests.fixtures.sentences import Sentences
from tests.unit.learning import chats, samples

LORA = LoraConfig(rank=4, alpha=16.0, targets=("q_proj", "v_proj"))


def job(kind: str, folder: Path, lora: LoraConfig) -> Job:
    settings = {"warmup": 0, "decay": 0.0, "batch": 4, "checkpoint_every": 1}
    if kind == "small":
        samples.parent(folder)
        return samples.job(folder, steps=3, **settings)
    return chats.job(folder, kind, steps=3, lora=lora, **settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "rank"), [("small", 0), ("qwen2_5_vl", 0), ("qwen2_5_vl", 4), ("qwen3_vl", 0), ("qwen3_vl", 4)]
)
def test_plain_transformers_loads_the_weights_that_a_training_of_as_many_steps_writes(
    kind: str, rank: int, tmp_path: Path
) -> None:
    from transformers import AutoModelForImageTextToText

    plan = job(kind, tmp_path, LORA.model_copy(update={"rank": rank}))
    train(plan)
    shorter = plan.model_copy(update={"steps": 2, "out": tmp_path / "two"})
    train(shorter)
    made = export(open_store(steps_folder(plan)), plan.parent, tmp_path / "exported", most=200_000)
    assert made.step == 2 and made.files > 1
    expected, found, start = (
        dict(AutoModelForImageTextToText.from_pretrained(folder).named_parameters())
        for folder in (shorter.out, tmp_path / "exported", plan.parent)
    )
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        assert weight.dtype == expected[name].dtype and torch.equal(weight, expected[name]), name
    assert any(not torch.equal(weight, start[name]) for name, weight in found.items())
    own = {"job.json", "trained.json", "model.safetensors", TRAINING, ADAPTER}
    named = {path.name for path in shorter.out.iterdir()} - own
    assert named <= {path.name for path in (tmp_path / "exported").iterdir()}


def test_adapters_of_an_unknown_scale_are_refused(tmp_path: Path, sentence: Sentences) -> None:
    from learning.checkpoint import Checkpoints

    plan = job("qwen3_vl", tmp_path, LORA)
    with Checkpoints(tmp_path / "place") as checkpoints:
        checkpoints.save({"model.x.lora_A.default.weight": torch.zeros(4, 8)}, 1)
    with sentence.raises(CheckpointError):
        export(open_store(tmp_path / "place"), plan.parent, tmp_path / "out")
