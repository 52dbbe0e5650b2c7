"""What `train.memory` changes is what is held, never what is learned."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from learning.data.sample import read_samples
from learning.engines.engine import SampleRef
from learning.engines.fsdp import engine as engine_module
from learning.engines.fsdp import phases
from learning.engines.fsdp.adapters import is_adapter
from learning.engines.fsdp.costs import CPU, cluster_cost
from learning.engines.fsdp.engine import FsdpEngine
from learning.engines.fsdp.model import checkpointable_blocks, compiles
from learning.engines.fsdp.shards import whole
from learning.job import Job
from learning.learner import Learner
from learning.parallel import packed_attention as packed_module
from learning.parallel.packed_attention import PackedDocuments, packed_attention
from learning.planning.step_rules import PieceMemory
from learning.trainer import train
from models import fused
from models.attention_kernels import DOCUMENTS, FLASH, Heads
from models.random_vlm import KINDS
from schemas.config.training import ExpertsConfig, LoraConfig, MemoryConfig, TrainConfig
from schemas.failure import PlanError, UsageError
from tests.fixtures.sentences import Sentences
from tests.tiers import NIGHTLY
from tests.unit.learning import samples
from tests.unit.learning.chats import job

LORA = LoraConfig(rank=4, alpha=16.0)


def gradient(plan: Job) -> dict[str, torch.Tensor]:
    """Of the first step over all documents."""
    learner = Learner(plan, read_samples(plan.samples), 0, 1)
    try:
        learner.gradient(learner.engine.ready(learner.prepare([SampleRef(at, at) for at in range(8)])))
        engine = learner.engine
        assert isinstance(engine, FsdpEngine)
        return engine.gradients()
    finally:
        learner.close()


def with_memory(plan: Job, **memory: Any) -> Job:
    return plan.model_copy(update={"train": plan.train.model_copy(update={"memory": MemoryConfig(**memory)})})


def test_logits_in_chunks_give_the_same_gradient(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen3_vl")
    full, chunked = gradient(plan), gradient(with_memory(plan, logits_chunk=3))
    assert full.keys() == chunked.keys()
    assert all(torch.allclose(full[name], chunked[name], rtol=1e-4, atol=1e-7) for name in full)


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_5"])
def test_activations_of_some_blocks_computed_twice_give_the_same_gradient_bit_for_bit(
    kind: str, tmp_path: Path
) -> None:
    plan = job(tmp_path, kind)
    kept, number = gradient(plan), 3
    some = plan.model_copy(update={"train": plan.train.model_copy(update={"activation_checkpointing": number})})
    engine = FsdpEngine(some, 0, 1)
    blocks = checkpointable_blocks(engine._model)
    twice = [block.gradient_checkpointing for block in blocks]
    assert twice == [True] * number + [False] * (len(blocks) - number) and number < len(blocks)
    assert "visual" in next(name for name, one in engine._model.named_modules() if one is blocks[0])
    engine.close()
    found = gradient(some)
    assert kept.keys() == found.keys() and all(torch.equal(kept[name], found[name]) for name in kept)


def test_knobs_without_their_full_effect_are_named_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    FsdpEngine(job(tmp_path, "qwen2_5_vl", activation_checkpointing=1000), 0, 1).close()
    assert "activation_checkpointing is 1000, and 4 blocks save activations" in capsys.readouterr().out
    FsdpEngine(job(tmp_path / "compiled", "qwen2_5_vl", compiled=True), 0, 1).close()
    assert "train.compiled=true: on a CPU" in capsys.readouterr().out


def test_micro_batches_as_large_as_the_memory_give_the_same_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    plan = job(tmp_path, "qwen2_5_vl", token_cap="auto")
    whole = gradient(plan)  # a CPU has no limit
    monkeypatch.setattr(engine_module, "room_of", lambda _: 2**40)
    learner = Learner(plan, read_samples(plan.samples), 0, 1)
    engine = learner.engine
    assert isinstance(engine, FsdpEngine) and engine.rules.memory is not None
    memory, items = engine.rules.memory, engine.items
    assert all(item.targets and item.patches for item in items)
    learner.close()
    taken = 2**40 - memory.room
    monkeypatch.setattr(engine_module, "room_of", lambda _: taken + 2 * max(map(memory.of, items)))
    learner = Learner(plan, read_samples(plan.samples), 0, 1)
    batch = learner.engine.ready(learner.prepare([SampleRef(at, at) for at in range(8)]))
    learner.close()
    assert 2 <= len(batch.pieces) <= 6
    split = gradient(plan)
    assert all(torch.allclose(whole[name], split[name], rtol=1e-4, atol=1e-6) for name in whole)
    monkeypatch.setattr(engine_module, "room_of", lambda _: taken + max(map(memory.of, items)) // 2)
    with sentence.raises(PlanError, "GiB in a step", hint="train.activation_checkpointing"):
        gradient(plan)
    monkeypatch.setattr(engine_module, "room_of", lambda _: 2**30)
    with sentence.raises(UsageError, "train.token_cap is auto", hint="flywheel plan"):
        FsdpEngine(plan, 0, 1)


def test_sequence_plans_take_the_tokens_that_the_memory_has_room_for(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen2_5_vl")
    learner = Learner(plan, read_samples(plan.samples), 0, 1)
    engine = learner.engine
    assert isinstance(engine, FsdpEngine)
    items, memory = engine.items, PieceMemory(0, 40, 25, 70)
    most = max(map(memory.of, items))
    cluster = cluster_cost(engine.shape, 2, 2, 1, CPU)
    engine.rules = replace(engine.rules, cluster=cluster, memory=replace(memory, room=most))
    engine._check_fit()
    cap = engine.rules.cap
    assert cap is not None and engine.rules.cluster is not None and engine.rules.cluster.capacity(1) == cap
    assert all(memory.of(item) * cap / item.tokens <= most for item in items)  # a rank full of such documents fits
    engine.rules = replace(engine.rules, cluster=cluster, memory=replace(memory, room=most // 20))
    with pytest.raises(PlanError, match="fits on no group"):
        engine._check_fit()
    learner.close()


@pytest.mark.nightly
@pytest.mark.parametrize("knobs", [{"activation_checkpointing": True, "token_cap": 700}])
def test_compiled_blocks_give_the_same_gradient(knobs: dict[str, Any], tmp_path: Path) -> None:
    """In fp32, whose norms it rounds in another order."""
    plan = job(tmp_path, "qwen2_5_vl", **knobs)
    compiled = plan.model_copy(update={"train": plan.train.model_copy(update={"compiled": True})})
    plain, fast = gradient(plan), gradient(compiled)
    assert plain.keys() == fast.keys()
    assert all(torch.allclose(plain[name], fast[name], rtol=1e-3, atol=1e-6) for name in plain)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("kind", KINDS if NIGHTLY else ["qwen3_vl_moe"])
def test_functions_that_are_compiled_alone_give_the_same_gradient(
    kind: str, checkpointing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU takes a GPU's branch here."""
    plan = job(tmp_path, kind, activation_checkpointing=checkpointing)
    plain, graphs = gradient(plan), torch._dynamo.utils.counters["stats"]
    monkeypatch.setattr(fused, "_is_fused", lambda x, tokens: not torch.compiler.is_compiling())
    torch._dynamo.reset()
    graphs.clear()
    learner = Learner(plan, read_samples(plan.samples), 0, 1)
    engine = learner.engine
    assert isinstance(engine, FsdpEngine)
    fused.fuse(engine._model)
    for first in (4, 0):
        engine.zero()
        learner.gradient(engine.ready(learner.prepare([SampleRef(at, at) for at in range(first, 8)])))
    found = engine.gradients()
    compiled = graphs["unique_graphs"]
    with torch.no_grad():
        engine.forward(engine.prepared(range(3)).pieces[0])
    learner.close()
    assert plain.keys() == found.keys() and compiled > 2 and graphs["unique_graphs"] <= 2 * compiled
    assert all(torch.allclose(plain[name], found[name], rtol=1e-3, atol=1e-6) for name in plain)


def test_rows_of_ranks_that_do_not_divide_them_are_refused(tmp_path: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError, "train.replicas"):
        FsdpEngine(job(tmp_path, "qwen3_vl", replicas=2), 0, 1)


@pytest.mark.parametrize("knob", ["parallel", "balance"])
def test_a_model_without_experts_is_not_trained_as_if_it_had_some(
    knob: str, tmp_path: Path, sentence: Sentences
) -> None:
    experts = ExpertsConfig.model_validate({knob: 1})
    with sentence.raises(UsageError, "train.experts", knob):
        FsdpEngine(job(tmp_path, "qwen3_vl", experts=experts), 0, 1)


def test_blocks_are_not_compiled_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"train\.compiled`: a C\+\+ compiler"):
        FsdpEngine(job(tmp_path, "qwen3_vl", compiled=True), 0, 1)


def test_blocks_are_compiled_for_long_trainings_on_a_gpu_that_has_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, gpu = TrainConfig(), torch.device("cuda")
    assert not compiles(config, torch.device("cpu"), 1000)
    assert not compiles(config, gpu, 99)
    monkeypatch.setattr(fused, "find_spec", lambda _: True)
    monkeypatch.setattr(fused, "_tried", lambda _: "")
    assert compiles(config, gpu, 100)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not compiles(config, gpu, 100)


def test_attention_of_packed_documents_breaks_no_graph_and_is_compiled_once() -> None:
    """The meta device takes a GPU's branches."""
    compiled = torch.compile(packed_attention, backend="eager", fullgraph=True, dynamic=True)
    torch._dynamo.utils.counters.clear()
    for edges in ((0, 32, 64), (0, 10, 20, 90), (0, 5, 50)):
        q, k, v = (torch.empty(1, heads, edges[-1], 16, device="meta", dtype=torch.bfloat16) for heads in (4, 2, 2))
        packed = PackedDocuments.of(edges, device="meta")
        made, _ = compiled(torch.nn.Module(), q, k, v, None, packed=packed)
        assert made.shape == (1, edges[-1], 4, 16)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_attention_in_another_kernel_breaks_a_graph_and_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = list[tuple[int, ...]]()

    def kernel(q: Any, k: Any, v: Any, queries: Any, keys: Any, scaling: Any, causal: bool) -> torch.Tensor:
        ran.append(queries.edges)
        assert keys is queries and causal
        return torch.empty_like(q)

    monkeypatch.setitem(packed_module.KERNELS, DOCUMENTS, kernel)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(
        lambda *given: packed_attention(*given[:-1], packed=given[-1])[0] + 1, backend="eager", dynamic=True
    )
    every = ((0, 32, 64), (0, 10, 20, 90), (0, 5, 50), (0, 7, 90))
    for edges in every:
        q, k, v = (torch.empty(1, heads, edges[-1], 16, device="meta", dtype=torch.bfloat16) for heads in (4, 2, 2))
        packed = PackedDocuments.of(edges, device="meta")
        packed.kernel = DOCUMENTS
        assert compiled(torch.nn.Module(), q, k, v, None, packed).shape == (1, edges[-1], 4, 16)
    assert ran == [*every] and torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 4


def test_the_kernels_of_a_pass_are_chosen_from_its_planned_lengths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[Any, ...]]()

    class Choice:
        def __init__(self, heads: Any) -> None:
            self.heads = heads

        def of(self, queries: Any, keys: Any) -> str:
            asked.append((self.heads, queries.edges, keys.edges, keys is queries))
            return DOCUMENTS if self.heads.causal else FLASH

    monkeypatch.setattr(phases, "choice_of", Choice)
    plan = job(tmp_path, "qwen2_5_vl", parent={"heads": 4, "kv_heads": 2})
    engine = FsdpEngine(plan, 0, 1)
    engine._net.choose_kernels(torch.device("cuda"), torch.bfloat16)
    engine.encode(read_samples(plan.samples), plan.screenshots)
    (work,) = engine.prepared(range(8)).pieces
    engine.forward(work)
    language, tower = asked
    heads = Heads("language model", 4, 2, 16, True, torch.bfloat16, torch.device("cuda"))
    assert language[0] == heads and language[1] == work.packed.edges and work.packed.kernel == DOCUMENTS
    assert language[2] == (work.packed.seen or work.packed).edges and language[3] == (work.packed.seen is None)
    assert not tower[0].causal and tower[0].queries * tower[0].width == 64 and tower[3]
    assert tower[1] == (0, *work.grids.prod(-1).cumsum(0).tolist())
    engine.close()


def test_a_bf16_base_beside_adapters_gives_the_gradient_of_an_fp32_one(tmp_path: Path) -> None:
    """The directory is bf16, so nothing is rounded, and a CPU computes in fp32 either way."""
    plan = job(tmp_path, "qwen3_vl", lora=LORA)
    full, half = gradient(plan), gradient(with_memory(plan, frozen="bfloat16"))
    assert full and all(is_adapter(name) for name in full)
    assert all(torch.equal(full[name], half[name]) for name in full)
    engine = FsdpEngine(with_memory(plan, frozen="bfloat16"), 0, 1)
    held = {is_adapter(name): weight.dtype for name, weight in engine._model.named_parameters()}
    assert held == {False: torch.bfloat16, True: torch.float32}
    engine.close()


@pytest.mark.parametrize("frozen", ["float32", "bfloat16"])
def test_a_frozen_vision_tower_stays_and_everything_else_moves_as_it_would(frozen: str, tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen2_5_vl", checkpoint_every=1)
    still = with_memory(plan, freeze_vision=True, frozen=frozen)
    full, part = gradient(plan), gradient(still)
    assert {name for name in full if "visual" not in name} == part.keys()
    assert all(torch.allclose(full[name], part[name], rtol=1e-4, atol=1e-7) for name in part)
    train(still)
    before, after = (load_file(path / "model.safetensors") for path in (plan.parent, still.out))
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved and not any("visual" in name for name in moved) and len(after) == len(before)


def test_the_next_training_takes_up_all_weights_also_those_that_were_frozen(tmp_path: Path) -> None:
    plan = with_memory(job(tmp_path, "qwen3_vl"), freeze_vision=True, frozen="bfloat16")
    train(plan)
    following = plan.model_copy(update={"parent": plan.out, "out": tmp_path / "next"})
    for memory in (MemoryConfig(), plan.train.memory):
        settings = plan.train.model_copy(update={"memory": memory})
        learner = Learner(following.model_copy(update={"train": settings}), read_samples(plan.samples), 0, 1)
        held = {name: part for name, part in learner.engine.masters().items() if name.startswith("model.")}
        assert {part.dtype for part in held.values()} == {torch.float32}  # type: ignore[union-attr]
        learner.close()


def test_offloaded_weights_take_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no GPU both lie in the same memory; what is shown is that the way there and back is right."""
    monkeypatch.setattr("learning.engines.fsdp.engine.check_offload", lambda train, device: None)
    found = []
    for knobs in ({}, {"offload": True}, {"offload": True, "whole_gradients": True}):
        plan = with_memory(job(tmp_path, "qwen3_vl"), **knobs)
        learner = Learner(plan, read_samples(plan.samples), 0, 1)
        for _ in range(2):
            learner.step(learner.prepare([SampleRef(at, at) for at in range(8)]), 1e-3)
        found.append({name: whole(part).clone() for name, part in learner.state().items()})  # type: ignore[arg-type]
        learner.close()
    one, *others = found
    for other in others:
        assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_cpu_has_nothing_to_offload(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.memory\.offload"):
        FsdpEngine(with_memory(job(tmp_path, "qwen3_vl"), offload=True), 0, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": {"frozen": "bfloat16"}}, "nothing is frozen"),
        ({"memory": {"freeze_vision": True}, "lora": {"rank": 4, "vision": True}}, "lora.vision"),
        ({"memory": {"offload": True}, "lora": {"rank": 4}}, "memory.frozen=bfloat16"),
        ({"memory": {"offload": True}, "device": "cpu"}, "nowhere else"),
        ({"memory": {"freeze_vision": True}, "keep": "masters+moments"}, "has no moments"),
        ({"memory": {"logits_chunk": 0}}, "logits_chunk"),
    ],
)
def test_what_cannot_hold_is_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainConfig.model_validate(settings)


@pytest.mark.parametrize(
    "memory",
    [
        {"logits_chunk": 8},
        {"offload": True},
        {"moments": "8bit"},
        {"frozen": "bfloat16", "freeze_vision": True},
    ],
)
def test_the_small_policy_has_none_of_the_others(memory: dict[str, Any], tmp_path: Path) -> None:
    samples.parent(tmp_path)
    plan = samples.job(tmp_path, memory=MemoryConfig(**memory))
    with pytest.raises(UsageError, match=rf"train\.memory\.{next(iter(memory))}`"):
        train(plan)
