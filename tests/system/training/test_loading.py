"""Weights read by real gloo ranks, each its own shard."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learning.engines.fsdp.model import load_model
from models.random_vlm import KINDS, Kind
from schemas.config.training import LoraConfig, MemoryConfig
from tests.system.parts.ranks import run
from tests.unit.learning.chats import job


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_three_ranks_hold_a_part_each_and_together_what_is_stored(kind: Kind, tmp_path: Path) -> None:
    """Of one architecture the language model's blocks in 4 bits, beside adapters."""
    lora = kind == "qwen2_5_vl"
    more = {"lora": LoraConfig(rank=4), "memory": MemoryConfig(frozen="nf4")} if lora else {}
    (tmp_path / "job.json").write_text(job(tmp_path, kind, **more).model_dump_json())
    assert " of " in run("tests.system.parts.loading_ranks", tmp_path, ranks=3)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_that_three_ranks_wrote_is_the_one_that_they_read(kind: Kind, tmp_path: Path) -> None:
    plan = job(tmp_path, kind)
    (tmp_path / "job.json").write_text(plan.model_dump_json())
    run("tests.system.parts.writing_ranks", tmp_path, ranks=3)
    files = sorted(path.name for path in (tmp_path / "parts").glob("model*"))
    assert len(files) > 4 and files[-1] == "model.safetensors.index.json"
    stored = {name: one for path in plan.parent.glob("*.safetensors") for name, one in load_file(path).items()}
    parts = {name: one for path in (tmp_path / "parts").glob("*.safetensors") for name, one in load_file(path).items()}
    assert parts.keys() == stored.keys() and all(torch.equal(parts[name], stored[name]) for name in stored)
    one, other = (load_model(folder).state_dict() for folder in (plan.parent, tmp_path / "parts"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
