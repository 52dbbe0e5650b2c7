"""Weights read by real gloo ranks, each its own shard."""

from pathlib import Path

import pytest

from models.random_vlm import KINDS, Kind
from schemas.config.memory import MemoryConfig
from schemas.config.training import LoraConfig
from tests.system.parts.ranks import run
from tests.unit.learning.chats import job


@pytest.mark.parametrize("kind", KINDS)
def test_three_ranks_hold_a_part_each_and_together_what_is_stored(kind: Kind, tmp_path: Path) -> None:
    lora = kind == "qwen2_5_vl"
    more = {"lora": LoraConfig(rank=4), "memory": MemoryConfig(frozen="bfloat16")} if lora else {}
    (tmp_path / "job.json").write_text(job(tmp_path, kind, **more).model_dump_json())
    assert " of " in run("tests.system.parts.loading_ranks", tmp_path, ranks=3)
