"""A key that is set and that nothing reads is refused by its name; what is read, or set to its default, is not."""

import json
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from environments.catalog import catalog
from schemas.config import Config, load_config
from schemas.config.section import ReadIf, Section
from schemas.failure import FlywheelError, UsageError
from tasks.preflight.preflight import probes
from tasks.preflight.unused_keys import for_other_methods, for_others, refuse_unused_keys
from tests.fixtures.sentences import Sentences

FAKE = ('environments={"fake":{}}', 'suite.tasks=["click-target"]', "suite.hard=[]", "suite.practice=[]",
        "suite.held_out=[]")  # fmt: skip
NOT_PPO = ("ratio=sequence", "refill=3", "entropy_share=0.5", "kl=0.1", "spread=0.2", "inject=true", "k=1")
WEIGHED = ("train.perception=0.2", "train.practice=0.3", "train.task_balance=0.5", "train.task_floor=0.3",
           "train.grounding_share=0.4")  # fmt: skip
UNJUDGED = 'filter.gates=["environment","loops","verifier"]'
ALONE = (
    "collect.policy_share=0.25", "collect.relay_share=0.5", "collect.practice_trajectories=3",
    "curriculum.hopeless_share=0.5", "train.learning_rate=0.01",
)  # fmt: skip
"""What a method does not read whose policy makes all trajectories."""


def config(*overrides: str) -> Config:
    return load_config("configs/laptop.toml", [*FAKE, *overrides], {})


@pytest.fixture
def base(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_vl", "architectures": ["Other"]}))
    return f"policy.base={tmp_path}"


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["lake.endpoint=http://host:9000"], "lake.endpoint"),
        (["lake.region=eu-west-1"], "lake.region"),
        (["annotate.perception=[]", "train.perception=0.2"], "train.perception"),
        (["policy.device=cuda"], "policy.device"),
        (["policy.batch=4"], "policy.batch"),
        (["policy.prefix_mb=4"], "policy.prefix_mb"),
        (["policy.server.retries=1"], "policy.server.retries"),
        (["policy.server.url=http://host/v1", "policy.precision=int8"], "policy.precision"),
        (["policy.server.url=http://host/v1", "policy.device=cuda"], "policy.device"),
        (["policy.server.url=http://host/v1", "policy.server.in_flight=drop"], "policy.server.in_flight"),
        (["policy.server.url=http://host/v1", "policy.server.start_timeout_s=9"], "policy.server.start_timeout_s"),
        (["judge.kind=fake", UNJUDGED], "judge.kind"),
        (["judge.threshold=0.7", UNJUDGED], "judge.threshold"),
        (["judge.screens=3"], "judge.screens"),
        (["cluster.address=foo"], "cluster.address"),
        (["openlineage.timeout_s=1"], "openlineage.timeout_s"),
        (["train.lora.alpha=8"], "train.lora.alpha"),
        (["train.lora.vision=true"], "train.lora.vision"),
        (["train.stream.stale=2"], "train.stream.stale"),
        (["train.method=grpo", "train.group.ratio=soft", "train.group.clip_low=0.1"], "train.group.clip_low"),
        (["train.method=grpo", "train.group.gate_negative=2"], "train.group.gate_negative"),
        (['train.machines.hosts=["a"]'], "train.machines.hosts"),
        (["train.machines.nodes=2"], "train.machines.nodes"),
        (["train.machines.store=s3://bucket"], "train.machines.store"),
        (["train.method=grpo", "train.stream.on=true", "train.group.refill=3"], "train.group.refill"),
        (["curriculum.method=uniform", "curriculum.hopeless_below=0.1"], "curriculum.hopeless_below"),
        (["curriculum.method=uniform", "curriculum.floor=0.1"], "curriculum.floor"),
        (["curriculum.method=uniform", "curriculum.hopeless_share=0.1"], "curriculum.hopeless_share"),
        (["policy.context=fold", "policy.history_images=3"], "policy.history_images"),
        (["policy.live_images=30"], "policy.live_images"),
        (["policy.fold_images=5"], "policy.fold_images"),
        (["train.video=0.2"], "train.video"),
        (["train.ct.video=0.2"], "train.ct.video"),
        (["video.questions=0", "train.video=0.2"], "train.video"),
        (["video.questions=0", "video.clip_s=9"], "video.clip_s"),
    ],
)
def test_a_key_that_nothing_reads_is_refused_by_its_name(overrides: list[str], key: str, sentence: Sentences) -> None:
    with sentence.raises(UsageError, key) as refused:
        refuse_unused_keys(config(*overrides))
    assert refused.value.hint


@pytest.mark.parametrize("key", ["hidden", "layers", "vision_hidden", "vision_layers", "patch", "merge"])
def test_the_small_policys_shape_is_refused_where_the_network_is_a_folders(
    base: str, key: str, sentence: Sentences
) -> None:
    with sentence.raises(UsageError, "policy.base", key, hint="policy.base"):
        refuse_unused_keys(config(base, f"policy.{key}=64"))


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["lake.uri=s3://bucket/lake", "lake.endpoint=http://host:9000"],
        ["policy.device=cpu", "policy.base=none", "policy.hidden=96"],
        ["policy.device=cuda", "policy.backend=transformers"],
        ["policy.batch=4", "policy.backend=transformers"],
        ["policy.server.url=http://host/v1", "policy.server.retries=1"],
        ["policy.server.command=serve {checkpoint} {port}", "policy.server.start_timeout_s=9"],
        ["policy.server.url=http://host/v1", "policy.server.update=sglang", "policy.server.in_flight=drop"],
        ["train.method=ppo", "train.ppo.alpha=0.1"],
        ["train.method=dpo", "train.preference.beta=0.5"],
        ["train.ppo.alpha=0.05", "policy.device=auto"],
        ["train.method=grpo", "train.group.refill=3"],
        ["train.launch=torchrun", 'train.machines.hosts=["a", "b"]', "train.machines.least=1"],
        ["train.launch=command", "train.machines.command=srun {node}", "train.machines.nodes=2"],
        ["curriculum.method=uniform", "curriculum.forgetting=0.1"],
        ["judge.kind=fake"],
        ['suite.tasks=["note"]', "judge.kind=fake", UNJUDGED],
        ["policy.context=fold", "policy.live_images=30", "policy.fold_images=5"],
    ],
)
def test_what_is_read_or_set_to_its_default_passes(overrides: list[str]) -> None:
    refuse_unused_keys(config(*overrides))


@pytest.mark.parametrize(
    ("overrides", "named", "unnamed"),
    [
        (["train.method=grpo", "train.learning_rate=0.01"], ["train.learning_rate"], ["train.group"]),
        (["train.method=ppo", "train.steps=7", "train.batch=8"], ["train.steps", "train.batch"], []),
        (["train.ppo.alpha=0.1", "train.learning_rate=0.01"], ["train.ppo.alpha", "train.group.size"], ["train.lear"]),
        (["train.method=dpo", "train.preference.beta=0.5"], [], ["train.preference", "train.group.size"]),
        (
            ["train.method=ppo", *(f"train.group.{one}" for one in NOT_PPO)],
            [f"train.group.{one.partition('=')[0]}" for one in NOT_PPO],
            ["train.group.size", "train.group.temperature"],
        ),
        (
            [
                "train.method=rft",
                "train.group.learning_rate=0.1",
                "train.group.batch=7",
                "train.group.epochs=9",
                "train.group.rise=0.2",
                "train.group.rising=0.1",
                "train.group.highest=0.9",
            ],
            ["train.group.learning_rate", "train.group.batch", "train.group.epochs"],
            ["train.group.ris", "train.group.highest"],
        ),
        (["train.method=ppo", "train.group.advantage=combined"], [], ["train.group.advantage"]),
        (["train.method=dpo", "train.group.advantage=combined"], ["train.group.advantage"], []),
        (["train.method=dpo", "train.group.size=2", "train.group.k=1"], ["train.group.epochs"], ["train.group.k"]),
        (["train.method=grpo", *WEIGHED], [one.partition("=")[0] for one in WEIGHED], []),
        (["train.method=dpo", *WEIGHED], [one.partition("=")[0] for one in WEIGHED], []),
        (["train.method=rft", *WEIGHED], [], [one.partition("=")[0] for one in WEIGHED]),
        (["train.method=rft", "curriculum.saturated=0.3"], ["curriculum.saturated"], []),
        (["train.method=rft", "curriculum.forgetting=0.3"], [], ["curriculum.forgetting"]),
        (["train.method=ct", "train.steps=7", "train.batch=8"], ["train.steps"], ["train.batch"]),
        (["train.opd.epochs=2"], ["train.opd.epochs"], []),
        (["train.method=opd", "train.opd.epochs=2", *ALONE], [one.partition("=")[0] for one in ALONE], ["train.opd"]),
    ],
)
def test_what_only_other_methods_read_may_stand_and_is_named(
    overrides: list[str], named: list[str], unnamed: list[str]
) -> None:
    found = refuse_unused_keys(config(*overrides))
    assert all(key in found for key in named) and not any(key in found for key in unnamed), found


def test_a_run_names_only_what_does_not_say_whose_it_is(sentence: Sentences) -> None:
    assert for_other_methods(config("train.ppo.alpha=0.1"), sections=False) == ""
    named = for_other_methods(config("train.method=grpo", "train.learning_rate=0.01"), sections=False)
    sentence(named, "train.learning_rate")


def test_conditions_name_keys_that_there_are() -> None:
    default = config()

    def rules(section: Section) -> Iterator[tuple[Section, ReadIf]]:
        yield from ((section, rule) for rule in section.read_if)
        for _, inner in section:
            if isinstance(inner, Section):
                yield from rules(inner)

    found = list(rules(default))
    assert len(found) > 15
    for section, rule in found:
        assert set(rule.keys) <= set(type(section).model_fields)
        assert reduce(getattr, rule.key.split("."), default) is not None


def test_another_models_device_is_read(base: str) -> None:
    refuse_unused_keys(config(base, "policy.device=cuda"))


@pytest.mark.parametrize(
    ("suite", "problem"),
    [
        ({"tasks": "[]"}, r"`suite\.tasks` names no task"),
        ({"tasks": '["click-target","fake/click-target"]'}, r"`suite\.tasks` names fake/click-target twice"),
        ({"held_out": '["click-one","click-one"]'}, r"`suite\.held_out` names click-one twice"),
    ],
)
def test_an_empty_suite_and_a_task_that_is_named_twice_are_refused(suite: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        catalog(config(*(f"suite.{key}={names}" for key, names in suite.items())))


def test_a_lake_that_is_a_file_is_called_one(tmp_path: Path, sentence: Sentences) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    for place in ("letter.txt", "letter.txt/lake"):
        (storage,) = (one for one in probes(config(f"lake.uri={tmp_path / place}")) if one.name == "storage")
        with sentence.raises(FlywheelError, "letter.txt"):
            storage.examine()


def test_the_default_config_sets_nothing_in_vain() -> None:
    plain: dict[str, Any] = load_config("configs/laptop.toml", [], {}).model_dump()
    assert plain["policy"]["device"] == "auto"
    refuse_unused_keys(load_config("configs/laptop.toml", [], {}))


def test_a_judge_that_is_only_asked_for_evidence_is_looked_at_before_anything_is_spent(tmp_path: Path) -> None:
    missing = config("judge.kind=local", f'judge.options={{"checkpoint":"{tmp_path / "none"}"}}')
    with pytest.raises(FlywheelError, match=r"judge\.options\.checkpoint"):
        (judge,) = (one for one in probes(missing) if one.name == "judge")
        judge.examine()
    away = config("judge.kind=endpoint", 'judge.options={"url":"http://127.0.0.1:9/v1","model":"m"}')
    (judge,) = (one for one in probes(away) if one.name == "judge")
    with pytest.raises(FlywheelError, match=r"127\.0\.0\.1:9"):
        judge.examine()


def test_keys_of_continual_training_are_read_where_it_is_every_nth_iteration() -> None:
    assert "train.ct" not in for_other_methods(config("train.ct_every=2", "train.ct.form=trajectories"))
    assert "train.ct.form" in for_other_methods(config("train.ct.form=trajectories"))


def test_keys_of_a_part_that_is_off_are_named(sentence: Sentences) -> None:
    idle = for_others(
        config("synthesis.proposals=7", "reflect.steps=90", "train.learning_rate_first=0.1"), sections=False
    )
    sentence(idle, "synthesis.proposals", "reflect.steps")
    assert "reflect" not in for_others(config("reflect.on=true", "reflect.steps=90"))
