"""LoRA: only adapters are trained, the checkpoint is a plain directory with them merged, a killed training goes on."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from learning.algorithms.method import method_of
from learning.engines.fsdp.adapters import add_adapters, merged
from learning.engines.fsdp.census import sizes_at
from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.model import load_model
from learning.job import Job
from learning.learner import Learner
from learning.trainer import train
from models.policy import Context
from models.vlm import VlmPolicy
from models.weights import adapter_of, fingerprint
from schemas.config.training import LoraConfig, MemoryConfig
from schemas.failure import FlywheelError, UsageError
from schemas.observation import Observation
from tests.fixtures.sentences import Sentences
from tests.unit.learning import samples
from tests.unit.learning.chats import POLICY
from tests.unit.learning.chats import job as supervised_job
from tests.unit.learning.replies import job, model

LORA = LoraConfig(rank=4, alpha=16.0, targets=("q_proj", "v_proj"))


def plan_of(folder: Path, kind: str, method: str, **train: Any) -> Job:
    if method == "sft":
        return supervised_job(folder, kind, lora=LORA, **train)
    return job(folder, kind, method, lora=LORA, **train)


def changed(plan: Job) -> set[str]:
    """Names of the tensors that a training changed, of those that both checkpoints have."""
    before, after = (load_file(path / "model.safetensors") for path in (plan.parent, plan.out))
    assert before.keys() == after.keys()
    assert all(before[name].dtype == after[name].dtype for name in before)
    return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.mark.parametrize(("kind", "method"), [("qwen2_5_vl", "sft"), ("qwen3_vl", "grpo"), ("qwen3_vl_moe", "dpo")])
def test_only_adapters_are_trained_and_the_checkpoint_is_a_plain_one(kind: str, method: str, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, kind, method)
    learner = Learner(plan, method_of(plan.train).read(plan.samples), 0, 1)
    learned = [name for name in learner.state() if name.startswith("model.")]
    assert learned and all(".lora_" in name for name in learned)
    learner.close()
    train(plan)
    moved = changed(plan)
    assert moved and all(name.endswith(("q_proj.weight", "v_proj.weight")) for name in moved)
    observation = Observation(samples.screen(0)[0], samples.WIDTH, samples.HEIGHT, "")
    (reply,) = VlmPolicy(plan.out, POLICY).act([Context("Click it.", (), observation, 0)])
    assert reply.token_ids


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl"])
def test_the_adapter_alone_is_read_by_peft_beside_the_parent_and_says_what_the_merged_weights_say(
    kind: str, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    plan = plan_of(tmp_path, kind, "sft")
    train(plan)
    adapter = adapter_of(plan.out)
    assert adapter is not None and adapter.parent == plan.parent
    assert adapter.fingerprint == fingerprint(plan.parent) != fingerprint(plan.out)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # peft warns of weights that it misses
        beside = peft.PeftModel.from_pretrained(load_model(plan.parent).float(), adapter.directory)
    config = json.loads((adapter.directory / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], set(config["target_modules"])) == (4, 16, {"q_proj", "v_proj"})
    merged_in = load_model(plan.out).float()
    ids = torch.arange(300, 320)[None]
    with torch.no_grad():
        one, two = beside(input_ids=ids).logits, merged_in(input_ids=ids).logits
        before = load_model(plan.parent).float()(input_ids=ids).logits
    rounding = 0.02  # of the merged weights to bf16
    assert (one - two).abs().max() < rounding < (one - before).abs().max()


def test_no_adapter_is_written_that_a_server_would_not_read_as_it_was_trained_nor_the_parents(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "qwen2_5_vl", "sft")
    train(plan)
    assert adapter_of(plan.out) is not None
    for at, changed in enumerate(
        (
            {"memory": MemoryConfig(frozen="nf4")},
            {"lora": LORA.model_copy(update={"targets": ("gate_proj",), "vision": True})},
        )
    ):
        child = {"parent": plan.out, "out": tmp_path / f"child{at}", "train": plan.train.model_copy(update=changed)}
        train(plan.model_copy(update=child))
        assert adapter_of(tmp_path / f"child{at}") is None


def test_the_usual_targets_are_those_of_the_language_layers_alone_unless_the_vision_tower_is_asked_for(
    tmp_path: Path,
) -> None:
    """Qwen2.5-VL's vision tower has layers of the same names, and servers take no adapters for them."""

    def adapted(**more: Any) -> set[bool]:
        loaded = load_model(model(tmp_path, "qwen2_5_vl"))
        add_adapters(loaded, LoraConfig(rank=2, **more), 0)
        return {"visual" in name for name, _ in loaded.named_parameters() if ".lora_" in name}

    assert adapted() == {False} and adapted(vision=True) == {False, True}
    with pytest.raises(UsageError, match=r"train\.lora\.vision=true"):
        adapted(targets=("qkv",))


def test_a_killed_training_goes_on_with_its_adapters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(tmp_path, "qwen3_vl", "grpo", checkpoint_every=1)
    unbroken = plan.model_copy(update={"out": tmp_path / "unbroken"})
    train(unbroken)
    with monkeypatch.context() as broken, pytest.raises(RuntimeError, match="killed"):
        broken.setattr(FsdpEngine, "write", _killed)
        train(plan)
    capsys.readouterr()
    train(plan)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert said[0]["resumed"] == plan.steps - 1
    one, two = (load_file(path / "model.safetensors") for path in (unbroken.out, plan.out))
    assert all(torch.equal(one[name], two[name]) for name in one)


def _killed(*_: object) -> None:
    raise RuntimeError("killed")


def test_the_merged_weights_say_what_the_adapters_said(tmp_path: Path) -> None:
    directory = model(tmp_path, "qwen3_vl")
    adapted, plain = load_model(directory).float(), load_model(directory).float()
    add_adapters(adapted, LORA, 0)
    ids = torch.arange(300, 320)[None]
    with torch.no_grad():
        assert torch.equal(adapted(input_ids=ids).logits, plain(input_ids=ids).logits)
        for name, weight in adapted.named_parameters():
            if ".lora_B." in name:
                torch.nn.init.normal_(weight, std=0.2)
        said = adapted(input_ids=ids).logits
        assert (said - plain(input_ids=ids).logits).abs().max() > 0.01
        plain.load_state_dict(dict(merged(adapted)))
        assert torch.allclose(plain(input_ids=ids).logits, said, atol=1e-4)


def test_layers_that_the_model_lacks_are_named(tmp_path: Path) -> None:
    loaded = load_model(model(tmp_path, "qwen3_vl"))
    with pytest.raises(UsageError, match="no_such_layer"):
        add_adapters(loaded, LoraConfig(rank=2, targets=("no_such_layer",)), 0)


def test_without_peft_the_error_names_the_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learning.engines.fsdp.adapters.find_spec", lambda name: None)
    with pytest.raises(FlywheelError, match=r"peft.*requirements\.lock"):
        add_adapters(None, LORA, 0)
    add_adapters(None, LoraConfig(), 0)


def test_the_small_policy_gets_no_adapters(tmp_path: Path) -> None:
    samples.parent(tmp_path)
    plan = samples.job(tmp_path, lora=LORA)
    with pytest.raises(UsageError, match=r"train\.lora\.rank"):
        train(plan)


def tied(folder: Path) -> None:
    """Ties a checkpoint's head to its table of embeddings."""
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(folder)
    model.config.tie_word_embeddings = model.config.text_config.tie_word_embeddings = True
    model.tie_weights()
    model.save_pretrained(folder)


def test_an_adapter_beside_a_head_of_its_own_is_in_the_written_weights(tmp_path: Path) -> None:
    plan = supervised_job(tmp_path, "qwen3_vl", lora=LoraConfig(rank=4, targets=("lm_head",)))
    train(plan)
    assert changed(plan) == {"lm_head.weight"}


def test_adapters_that_would_be_trained_and_then_not_written_are_refused_by_name(tmp_path: Path) -> None:
    plan = supervised_job(tmp_path, "qwen3_vl", lora=LoraConfig(rank=4, targets=("q_proj", "lm_head")))
    tied(plan.parent)
    message = r"lm_head shares its weight with model\.language_model\.embed_tokens"
    with pytest.raises(UsageError, match=message):
        FsdpEngine(plan, 0, 1)
    with pytest.raises(UsageError, match=message):
        sizes_at(plan.parent, plan.train.lora)  # before a run
    FsdpEngine(supervised_job(tmp_path / "without", "qwen3_vl", lora=LORA), 0, 1).close()


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("embed_tokens", "Embedding"),
        ("pos_embed", "Embedding"),
        ("proj", "Conv3d"),
        ("visual", "Qwen3VLVisionModel"),
        ("self_attn", "Qwen3VLTextAttention"),
        ("act_fn", "GELUTanh"),
    ],
)
def test_adapters_are_for_linear_layers_alone(target: str, kind: str, tmp_path: Path, sentence: Sentences) -> None:
    lora = LoraConfig(rank=4, targets=("q_proj", target), vision=True)
    with sentence.raises(UsageError, kind, hint="train.lora.targets"):
        FsdpEngine(supervised_job(tmp_path, "qwen3_vl", lora=lora), 0, 1)
