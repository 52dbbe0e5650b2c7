"""`flywheel plan`, as a person and a program meet it."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.config import load_config
from tests.command import Call
from tests.fixtures.sentences import Sentences
from tests.unit.learning.engines.fsdp.test_census import SEVEN


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A directory with nothing but the config of seven billion weights."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SEVEN))
    return str(tmp_path / "model")


def found(flywheel: Call, model: str, *more: str) -> dict[str, Any]:
    status, out, err = flywheel("plan", "--model", model, "--json", *more)
    assert status in (0, 1), err
    return json.loads(out) | {"status": status}


def test_a_plan_is_written_as_a_config_that_is_read(flywheel: Call, model: str, tmp_path: Path) -> None:
    file = tmp_path / "seven.toml"
    plan = found(flywheel, model, "--gpus", "8x80", "--method", "grpo", "--write", str(file))
    assert plan["status"] == 0 and plan["fits"] and plan["weights"] == 8_292_166_656
    assert plan["gib"] == pytest.approx(sum(plan["parts_gib"].values())) and plan["gib"] < plan["room_gib"]
    config = load_config(file, [], {})
    assert config.policy.base == model and config.train.method == "grpo" and config.train.processes == 8
    assert config.train.activation_checkpointing and config.train.token_cap == 16_384
    status, _, err = flywheel("plan", "--model", model, "--gpus", "8x80", "--write", str(file))
    assert status == 2 and "already" in err


def test_adapters_leave_the_weights_beside_them_in_bf16(flywheel: Call, model: str, tmp_path: Path) -> None:
    file = tmp_path / "seven.toml"
    plan = found(flywheel, model, "--gpus", "1x80", "--lora", "--write", str(file))
    assert plan["parts_gib"]["frozen weights"] == pytest.approx(15.4, abs=0.1)
    train = load_config(file, [], {}).train
    assert train.lora.rank == 16 and train.memory.frozen == "bfloat16"


def test_a_streaming_training_leaves_room_for_the_model_that_rolls_out(flywheel: Call, model: str) -> None:
    asked = ("--gpus", "1x192", "--method", "grpo", "train.memory.moments=8bit")
    alone, beside = found(flywheel, model, *asked), found(flywheel, model, *asked, "train.stream.on=true")
    assert "generator" not in alone["parts_gib"] and beside["parts_gib"]["generator"] == pytest.approx(21.7, abs=0.5)
    served = found(flywheel, model, *asked, "train.stream.on=true", "policy.server.url=http://localhost:1")
    assert "generator" not in served["parts_gib"]


def test_a_number_of_blocks_that_does_not_suffice_is_raised_with_a_word(flywheel: Call, model: str) -> None:
    status, out, _ = flywheel("plan", "--model", model, "--gpus", "1x80", "train.activation_checkpointing=4")
    assert status == 0 and "4 of your config do not suffice" in " ".join(out.split())


@pytest.mark.slow
def test_4_bits_fit_where_bf16_does_not_and_8_bit_moments_take_a_quarter(flywheel: Call, model: str) -> None:
    four = found(flywheel, model, "--gpus", "1x16", "--lora", "train.memory.frozen=nf4")
    assert four["status"] == 0 and four["parts_gib"]["frozen weights"] == pytest.approx(6.7, abs=0.1)
    full, eight = (
        found(flywheel, model, "--gpus", "8x80", f"train.memory.moments={moments}") for moments in ("float32", "8bit")
    )
    (named,) = found(flywheel, model, "--gpus", "2x64")["would_fit"]
    assert named.startswith("train.memory.moments=8bit")
    assert eight["parts_gib"]["moments"] / full["parts_gib"]["moments"] == pytest.approx(0.254, abs=0.001)


def test_a_separate_critic_is_a_second_network(flywheel: Call, model: str) -> None:
    shared, alone = (
        found(flywheel, model, "--gpus", "8x80", "--method", "ppo", f"train.ppo.critic={critic}")["parts_gib"]
        for critic in ("shared", "alone")
    )
    assert alone["moments"] == pytest.approx(2 * shared["moments"], rel=0.01)


@pytest.mark.slow
def test_what_does_not_fit_says_what_would_and_writes_nothing(
    flywheel: Call, model: str, tmp_path: Path, sentence: Sentences
) -> None:
    file = tmp_path / "seven.toml"
    plan = found(flywheel, model, "--gpus", "1x16", "--lora", "--write", str(file))
    assert plan["status"] == 1 and not plan["fits"] and not file.exists()
    sentence("\n".join(list(plan["would_fit"])))
    status, out, _ = flywheel("plan", "--model", model, "--gpus", "1x16", "--lora")
    assert status == 1 and "does not fit" in out and "would fit: --gpus 2x16" in out


@pytest.mark.parametrize(
    ("where", "gpus", "status", "message"),
    [
        ("nowhere", "8x80", 2, "config.json"), ("model", "8", 2, "--gpus"), ("model", "0x80", 2, "--gpus"),
        ("other", "8x80", 1, "other"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(
    flywheel: Call, model: str, tmp_path: Path, where: str, gpus: str, status: int, message: str
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "no_such_model"}')
    code, _, err = flywheel("plan", "--model", str(tmp_path / where), "--gpus", gpus)
    assert code == status and message in err
