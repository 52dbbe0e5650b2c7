"""Replies between two folds are one sequence: each a target once, behind the very tokens that it was sampled from."""

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

from learning.algorithms.method import method_of
from learning.data.files import Rollout, read_rollouts
from learning.data.sample import Past, Screenshots, TrainSample, write_screenshots
from learning.data.slices import chained, slices
from learning.data.stream import StreamFolder
from learning.engines.choice import unsliced
from learning.engines.engine import SampleRef
from learning.engines.fsdp.chats import Chats
from learning.engines.fsdp.phases import _targets_of
from learning.job import Job
from learning.learner import Learner
from learning.trainer import train
from models.completion import Completion
from models.families.outside import as_sent
from models.families.processor import PromptTokens
from models.families.registry import family_of
from models.policy import Context
from schemas.action import Wait, to_json
from schemas.config.policy import PolicyConfig
from schemas.config.training import StreamConfig
from schemas.observation import Observation, PastStep
from tests.tiers import NIGHTLY
from tests.unit.learning.folded import LENGTHS, SLICES, folded_job
from tests.unit.learning.samples import parent
from tests.unit.models.families.published import ASKED, TRAINED_FROM, screen, write_directory
from tests.unit.models.families.test_folding import OPENED, THOUGHT, folds

STEPS = 45
RULE = PolicyConfig(context="fold").context_rule


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    write_screenshots(folder / "screens", {f"screen-{at}": screen(0).png for at in range(STEPS)})
    return folder


@pytest.fixture(scope="module")
def directory(folder: Path) -> Any:
    return lru_cache(lambda kind: write_directory(kind, folder / kind))


def rollouts(policy: PolicyConfig, count: int) -> list[Rollout]:
    """A trajectory's replies, as a model gives them: the prompt has opened their thinking, and some have another layout
    than the family writes."""
    family = family_of(policy)
    size = (screen(0).width, screen(0).height)
    replies = [family.reply(f"Step {number}.\n\nAction: Wait.", [Wait()], size) for number in range(count)]
    replies = [reply.removeprefix("<think>\n") for reply in replies]
    replies[1::2] = [reply.replace("\n<tool_call>", "\n\n\n<tool_call>") for reply in replies[1::2]]
    names = [f"screen-{number}" for number in range(count)]
    return [
        Rollout(
            "one", at, "task", tuple(names[family.rule.folded(at + 1) : at + 1]), "Do it.", tuple(replies[:at]), text
        )
        for at, text in enumerate(replies)
    ]


NAMES = ("qwen3-vl", "qwen3.5", *(("qwen2.5-vl", "qwen3.8", "ui-tars-1.5") if NIGHTLY else ()))
PUBLISHED = (20, 10, [(1, 20), (21, 30), (31, 40), (41, 45)])
SHORTER = (4, 2, [(1, 4), (5, 6), (7, 8), (9, 9)])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("live", "fold", "cuts"), [SHORTER, *([PUBLISHED] if NIGHTLY else [])])
def test_each_target_comes_behind_the_prompt_that_was_read_at_acting(
    name: str, live: int, fold: int, cuts: list[tuple[int, int]], directory: Any, folder: Path
) -> None:
    place = directory(TRAINED_FROM.get(name, "qwen2_5_vl"))
    policy = PolicyConfig(base=str(place), family=name, context="fold", live_images=live, fold_images=fold)
    family = family_of(policy)
    chats = Chats(place, policy, Screenshots(folder / "screens"), 0)
    tokens = PromptTokens(chats.processor, family.limits)
    documents = rollouts(policy, cuts[-1][1])
    cut = slices(documents, policy.context_rule)
    assert [(members[0] + 1, members[-1] + 1) for members in cut] == cuts
    trained = list[int]()
    for members in cut:
        measures, follows = chats.measure_slice([documents[number] for number in members])
        assert [list(one) for one in chained(range(len(members)), follows)] == [list(range(len(members)))]
        made = [measure for measure in measures if measure is not None]
        whole, targets = chats.encode(documents[members[-1]]).ids, _targets_of(made)
        assert len(made[-1].digests) == members[-1] + 1 - policy.context_rule.folded(members[-1] + 1)
        for number, measure in zip(members, made, strict=True):
            begin = measure.item.tokens - measure.targets + 1
            turns = []
            for text in documents[number].past_replies:
                seen = screen(0)
                read = family.read(Completion(text), (seen.width, seen.height))
                blank = Observation(b"", seen.width, seen.height, "")
                turns.append(PastStep(read.thought, read.action_text, blank, reply=text))
            chat = family.chat(Context("Do it.", tuple(turns), screen(0), 0, thinks=family.thinks))
            assert whole[:begin].tolist() == tokens(as_sent(chat, place, policy))
            assert targets[begin - 1 : measure.item.tokens].tolist() == list(measure.reply)
            trained.append(number)
        assert int((targets >= 0).sum()) == sum(one.targets for one in made)
    assert trained == list(range(len(documents)))


def test_the_slices_of_every_length_cover_each_reply_once_and_grow_at_their_ends_only() -> None:
    documents = [Rollout("one", at, "task", (), "", ("",) * at, "") for at in range(STEPS)]
    whole = slices(documents, RULE)
    for count in range(1, STEPS + 1):
        cut = slices(documents[:count], RULE)
        assert sorted(number for members in cut for number in members) == list(range(count))
        assert cut == [shorter for members in whole if (shorter := [one for one in members if one < count])]
        assert len({RULE.folded(members[0] + 1) for members in cut}) == len(cut)
        for members in cut:
            assert {RULE.folded(number + 1) for number in members} == {RULE.folded(members[0] + 1)}


@pytest.mark.parametrize(("count", "pictures"), [(35, [20, 20, 15]), (41, [20, 20, 20, 11])])
def test_a_trajectory_is_cut_where_it_folds(count: int, pictures: list[int]) -> None:
    documents = [Rollout("one", at, "task", (), "", ("",) * at, "") for at in range(count)]
    assert [RULE.shown(members[-1] + 1) for members in slices(documents, RULE)] == pictures
    assert len(slices(documents, PolicyConfig(history_images=20).context_rule)) == count


def test_replies_of_another_weight_or_trajectory_are_another_slice() -> None:
    documents = [Rollout("one", at, "task", (), "", ("",) * at, "") for at in range(4)]
    documents[2] = replace(documents[2], weight=0.5)
    documents.append(replace(documents[0], trajectory_id="two"))
    assert slices(documents, RULE) == [[0, 1, 3], [2], [4]]


def test_a_document_that_begins_otherwise_gets_a_sequence_of_its_own() -> None:
    assert chained([0, 1, 2, 3], {1: 0, 3: 1}) == [[0, 1, 3], [2]]
    assert chained([0, 3, 0], {1: 0, 3: 1}) == [[0, 1], [2]]


BY_DAY = ("qwen3-vl", "qwen3.5", "holo-3")


@pytest.mark.parametrize(
    ("name", "template"), [one for one in ASKED if folds(*one) and (NIGHTLY or one[0] in BY_DAY) and one[1] != "mobile"]
)
def test_samples_and_replies_follow_each_other_unless_the_template_drops_what_the_prompt_opened(
    name: str, template: str, directory: Any, folder: Path
) -> None:
    place = directory(TRAINED_FROM.get(name, "qwen2_5_vl"))
    fields = {"base": str(place), "family": name, "template": template, "context": "fold"}
    policy = PolicyConfig.model_validate(fields)
    family = family_of(policy)
    chats = Chats(place, policy, Screenshots(folder / "screens"), 0)
    names, replies = [f"screen-{at}" for at in range(3)], (family.reply(THOUGHT, [Wait()], (320, 200)),) * 3
    given = [Rollout("t", at, "t", tuple(names[: at + 1]), "Do it.", replies[:at], replies[at]) for at in range(3)]
    done = (to_json(Wait()),)
    past = Past(THOUGHT, done)
    imitated = [TrainSample("t", tuple(names[: at + 1]), "Do it.", (past,) * at, THOUGHT, done) for at in range(3)]
    for documents in (given, imitated):
        assert chats.measure_slice(documents)[1] == ({} if name in OPENED else {1: 0, 2: 1})
    others = [given[0], replace(given[1], screenshots=("screen-2", "screen-1"))]
    assert chats.measure_slice(others)[1] == {}  # the same tokens, and another picture


def test_thinking_that_the_prompt_opens_is_not_opened_again(directory: Any, folder: Path) -> None:
    place = directory("thinking")
    policy = PolicyConfig(base=str(place), family="qwen3.5")
    chats = Chats(place, policy, Screenshots(folder / "screens"), 0)
    chat = chats.encode(TrainSample("t", ("screen-0",), "Do it.", (), THOUGHT, (to_json(Wait()),)))
    text = chats.processor.decode(chat.ids)
    assert text.count("<think>") == 1 and "<|im_start|>assistant\n<think>\nIt waits.\n</think>\n\nAction: Wait." in text


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("folded")
    return lambda method, **train: folded_job(folder, "qwen2_5_vl", method, **train)


def gradient(plan: Job, count: int, apart: bool) -> tuple[float, dict[str, torch.Tensor], float]:
    """Loss, gradient and tokens of all documents, in slices or each by itself."""
    learner = Learner(plan, method_of(plan.train).read(plan.samples), 0, 1)
    engine: Any = learner.engine
    try:
        if apart:
            engine._follows = {}
        batch = engine.ready(learner.prepare([SampleRef(at, at) for at in range(count)]))
        loss = float(learner.gradient(batch))
        return loss, engine.gradients(), batch.tokens
    finally:
        learner.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sft", "grpo", "ppo"])
def test_a_slice_has_the_loss_and_gradient_of_separate_replies_and_fewer_tokens(job: Any, method: str) -> None:
    """Several ranks, and other models: tests/system/training/test_slices.py."""
    plan, count = job(method), sum(LENGTHS)
    (loss, found, few), (other, wanted, many) = (gradient(plan, count, apart) for apart in (False, True))
    assert loss == pytest.approx(other, rel=1e-5) and few < 0.6 * many
    for name, one in wanted.items():
        assert torch.allclose(found[name], one, rtol=1e-3, atol=1e-5 * float(one.abs().max() + 1e-6)), name


@pytest.mark.parametrize("method", ["sft", "grpo"])
def test_a_training_draws_whole_slices(job: Any, method: str, tmp_path: Path) -> None:
    plan: Job = job(method, batch=1).model_copy(update={"out": tmp_path / "out", "trace": tmp_path / "trace"})
    assert unsliced(plan.policy, plan.train, plan.parent) == ""
    train(plan)
    notes = (tmp_path / "trace" / "rank-0.jsonl").read_text()
    steps = [sorted(json.loads(line)["samples"]) for line in notes.splitlines()]
    assert len(steps) == plan.steps and all(step in SLICES for step in steps)


@pytest.mark.slow
def test_each_batch_of_a_stream_is_drawn_in_slices(job: Any, tmp_path: Path) -> None:
    plan, stream = job("grpo"), StreamFolder(tmp_path / "stream")
    for _ in range(2):
        stream.put(list(read_rollouts(plan.samples)), dict(Screenshots(plan.screenshots)), {})
    stream.end()
    group = plan.train.group.model_copy(update={"epochs": 1.0})
    changed = {"samples": stream.rollouts(1), "screenshots": stream.screenshots(1), "stream": tmp_path / "stream"}
    changed |= {"train": plan.train.model_copy(update={"group": group, "stream": StreamConfig(on=True)})}
    changed |= {"out": tmp_path / "out", "trace": tmp_path / "trace"}
    train(plan.model_copy(update=changed))
    steps = [json.loads(line)["samples"] for line in (tmp_path / "trace" / "rank-0.jsonl").read_text().splitlines()]
    assert len(steps) == 2 * 3  # five slices, two a step
    pairs = [sorted(one + other) for one in SLICES for other in SLICES]
    assert all(sorted(step) in pairs for step in steps)


def test_a_method_that_takes_each_reply_by_itself_and_the_small_policy_have_no_slices(job: Any, tmp_path: Path) -> None:
    plan = job("grpo")
    assert "two replies" in unsliced(plan.policy, plan.train.model_copy(update={"method": "dpo"}), plan.parent)
    assert "small policy" in unsliced(plan.policy, plan.train, parent(tmp_path))
    assert "slides" in unsliced(PolicyConfig(), plan.train, plan.parent)
    assert len(read_rollouts(plan.samples)) == sum(LENGTHS)
