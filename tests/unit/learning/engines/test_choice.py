"""Which learning rate and which options a training gets: no optimiser gets another's rate, nothing is ignored."""

from pathlib import Path
from typing import Any

import pytest

from learning.algorithms.method import LORA_RATE, METHODS, Method, method_of
from learning.data.sample import read_samples
from learning.engines.choice import SMALL_ONLY, check_options, check_training, without_ignored
from models.random_vlm import build_random
from schemas.config.hub import SMALL
from schemas.config.policy import BASE
from schemas.config.training import StepSection, TrainConfig
from schemas.failure import CheckpointError, UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.learning import samples

RATES = {
    "sft": (2e-3, 1e-5), "rft": (2e-3, 1e-5), "ct": (1e-3, 1e-5),
    "grpo": (5e-4, 1e-6), "ppo": (5e-4, 1e-6), "dpo": (2e-4, 5e-7),
}  # fmt: skip
"""By method: Muon's, which trains the small policy, and AdamW's."""


def train(**fields: Any) -> TrainConfig:
    return TrainConfig.model_validate(fields)


def muon_alone(**record: Any) -> Method:
    return Method(source="accepted", read=read_samples, objective=None, rates={"muon": 1e-3}, **record)  # type: ignore[arg-type]


BARE = muon_alone(options=StepSection)
SECTION = muon_alone(section="group")


def test_every_method_of_ours_is_in_the_table() -> None:
    assert {*RATES, "pretrain", "opd"} == set(METHODS.names)  # a base is always the small policy, and opd never


def test_a_method_that_the_small_policy_does_not_have_has_no_rate_for_it() -> None:
    config = train(method="opd")
    assert method_of(config).rate(config, "adamw") == 1e-6
    with pytest.raises(UsageError, match=r"train\.method=opd"):
        check_training(config, "tiny")


@pytest.mark.parametrize(("method", "rates"), RATES.items())
def test_each_optimiser_has_a_rate_of_its_own(method: str, rates: tuple[float, float]) -> None:
    config = train(method=method)
    assert (method_of(config).rate(config, "muon"), method_of(config).rate(config, "adamw")) == rates


@pytest.mark.parametrize("method", RATES)
def test_adapters_take_ten_times_the_rate_of_all_weights(method: str) -> None:
    config = train(method=method, lora={"rank": 4})
    assert method_of(config).rate(config, "adamw") == pytest.approx(LORA_RATE * RATES[method][1])


@pytest.mark.parametrize(
    ("fields", "rate"),
    [
        ({"learning_rate": 3e-4}, 3e-4),
        ({"method": "rft", "learning_rate": 3e-4}, 3e-4),
        ({"method": "grpo", "group": {"learning_rate": 4e-4}, "learning_rate": 3e-4}, 4e-4),
        ({"method": "ppo", "ppo": {"learning_rate": 4e-4}, "group": {"learning_rate": 5e-4}}, 4e-4),
        ({"method": "dpo", "preference": {"learning_rate": 4e-4}}, 4e-4),
        ({"method": "ct", "ct": {"learning_rate": 4e-4}}, 4e-4),
        ({"learning_rate": 3e-4, "lora": {"rank": 4}}, 3e-4),
    ],
)
def test_a_configured_rate_is_taken_as_it_is_from_the_methods_own_section(fields: dict[str, Any], rate: float) -> None:
    config = train(**fields)
    assert all(method_of(config).rate(config, optimizer) == rate for optimizer in ("muon", "adamw"))


@pytest.mark.parametrize(
    ("record", "key"), [("BARE", "train.options.learning_rate"), ("SECTION", "train.group.learning_rate")]
)
def test_a_rate_that_was_tuned_for_one_optimiser_is_never_handed_to_another(
    record: str, key: str, sentence: Sentences
) -> None:
    config = train(method=f"{__name__}:{record}")
    assert method_of(config).rate(config, "muon") == 1e-3
    with sentence.raises(UsageError, key):
        method_of(config).rate(config, "adamw")


@pytest.mark.parametrize(
    ("optimizer", "fields", "steps", "rate"),
    [
        ("muon", {}, 520, 3e-3),
        ("muon", {"steps_first": 7, "learning_rate_first": 1e-2}, 7, 1e-2),
        ("muon", {"learning_rate": 1e-3}, 520, 3e-3),
        ("adamw", {}, 300, 1e-5),
    ],
)
def test_only_the_small_policys_first_training_is_another_one(
    optimizer: Any, fields: dict[str, Any], steps: int, rate: float
) -> None:
    found = method_of(train(**fields)).schedule(train(**fields), 10, optimizer, first=True, random=True)
    assert (found.steps, found.learning_rate) == (steps, rate)


def test_the_first_training_of_a_base_has_the_steps_of_a_first_one_and_the_usual_rate() -> None:
    found = method_of(train()).schedule(train(learning_rate_first=1e-2), 10, "muon", first=True)
    assert (found.steps, found.learning_rate) == (520, 2e-3)


OF_THE_SMALL_POLICY: dict[str, Any] = {
    "grounding": 1, "reading": 1, "copying": 0.5, "words": 0.5, "soft_bins": 1.0, "shift": 1,
    "steps_first": 7, "learning_rate_first": 1e-2,
}  # fmt: skip
OF_THE_OTHERS: dict[str, Any] = {
    "lora.rank": {"lora": {"rank": 4}}, "token_cap": {"token_cap": 64},
    "activation_checkpointing": {"activation_checkpointing": True}, "precision": {"precision": "bfloat16"},
    "device": {"device": "cuda"}, "memory.moments": {"memory": {"moments": "8bit"}},
}  # fmt: skip
VAIN = [
    *((False, name, {name: value}) for name, value in OF_THE_SMALL_POLICY.items()),
    *((True, name, fields) for name, fields in OF_THE_OTHERS.items()),
]


def test_every_option_of_the_small_policy_alone_is_tried() -> None:
    assert set(OF_THE_SMALL_POLICY) == set(SMALL_ONLY)


@pytest.mark.parametrize(("small", "name", "fields"), VAIN)
def test_an_option_that_the_model_does_not_have_is_refused_by_name_and_reset_where_it_was_stored(
    small: bool, name: str, fields: dict[str, Any]
) -> None:
    config = train(**fields, steps=5)
    check_options(config, not small)
    with pytest.raises(UsageError, match=rf"`train\.{name}`"):
        check_options(config, small)
    assert without_ignored(config, small) == train(steps=5)
    assert without_ignored(config, not small) == config


def test_the_small_policy_freezes_its_vision_tower_unless_its_weights_are_random() -> None:
    frozen = train(memory={"freeze_vision": True})
    assert check_training(frozen, str(BASE)) == 2e-3
    with pytest.raises(UsageError, match=r"`policy\.base=tiny` has random weights"):
        check_training(frozen, SMALL)


def test_a_base_is_known_by_its_architecture(tmp_path: Path) -> None:
    build_random("qwen3_vl", ["Click."] * 8, 0, tmp_path / "large")
    config = train(grounding=0)
    assert check_training(config, "tiny") == check_training(config, str(samples.parent(tmp_path))) == 2e-3
    assert check_training(train(), str(tmp_path / "large")) == 1e-5
    with pytest.raises(UsageError, match=r"train\.grounding"):
        check_training(config, str(tmp_path / "large"))
    with pytest.raises(CheckpointError, match=r"nowhere"):
        check_training(config, str(tmp_path / "nowhere"))


def test_options_for_a_method_without_any_are_refused() -> None:
    with pytest.raises(UsageError, match=r"train\.options"):
        check_training(train(options={"focus": 1}), "tiny")
