"""Group methods and preferences on any model directory: what was said gains or loses, and is rolled out again."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file

from learning.algorithms.critic import BIAS, BODY, WEIGHT
from learning.algorithms.method import method_of
from learning.algorithms.ppo import PpoObjective
from learning.data.files import Rollout, read_rollouts, write_rollouts
from learning.data.sample import Screenshots, read_preferences
from learning.engines.engine import SampleRef
from learning.engines.fsdp.chats import Chats
from learning.engines.fsdp.engine import FsdpBody
from learning.job import Job
from learning.learner import Learner
from learning.trainer import train
from models.policy import Context
from models.random_vlm import KINDS
from models.safe import require_servable
from models.sampling import choose_drawn
from models.serving import rows
from models.tiny.layout import CRITIC, read_config
from models.vlm import VlmPolicy
from schemas.config.training import GroupConfig, PpoConfig
from schemas.failure import CheckpointError, FlywheelError, UsageError
from schemas.observation import Observation
from tests.fixtures.sentences import Sentences
from tests.tiers import NIGHTLY
from tests.unit.learning.chats import policy_of
from tests.unit.learning.replies import job, model, preferences, rolled_out, streamed
from tests.unit.learning.samples import HEIGHT, WIDTH, screen


class Start(NamedTuple):
    """A folder with a random model of a kind."""

    folder: Path
    kind: str


@pytest.fixture(scope="module", params=KINDS if NIGHTLY else KINDS[1:2])
def start(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Start:
    folder = tmp_path_factory.mktemp("model")
    model(folder, request.param)
    return Start(folder, request.param)


def numbers_of(said: str) -> dict[str, float]:
    """What a training measured, from its last line."""
    return json.loads([line for line in said.splitlines() if line.startswith("{")][-1])["numbers"]


def act(plan: Job, checkpoint: Path | None = None) -> str:
    """What a job's result answers to a screen, or another checkpoint of its kind."""
    observation = Observation(screen(0)[0], WIDTH, HEIGHT, "")
    (reply,) = VlmPolicy(checkpoint or plan.out, plan.policy).act([Context("Click it.", (), observation, 0)])
    return reply.text


def logprobs(checkpoint: Path, plan: Job) -> list[float]:
    """Summed log probability of each document of a job under a checkpoint."""
    plan = plan.model_copy(update={"parent": checkpoint})
    samples = method_of(plan.train).read(plan.samples)
    learner = Learner(plan, samples, 0, 1)
    try:
        prepared = learner.prepare([SampleRef(at, at) for at in range(len(samples))])
        return learner.sums(learner.engine.ready(prepared)).tolist()
    finally:
        learner.close()


def test_what_was_drawn_gains_by_its_advantage(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    plan = job(*start, "grpo")
    train(plan)
    numbers = numbers_of(capsys.readouterr().out)
    before, after = logprobs(plan.parent, plan), logprobs(plan.out, plan)
    change = [new - old for new, old in zip(after, before, strict=True)]
    assert min(change[0::2]) > 0 > max(change[1::2])
    assert numbers["tokens"] == plan.steps * sum(len(rollout.token_ids) for rollout in read_rollouts(plan.samples))
    assert numbers["mismatch"] < 1e-3 and numbers["moved"] > 0
    assert act(plan) is not None


def test_replies_of_other_probabilities_than_the_trainers_stop_it_before_its_first_step(
    start: Start, tmp_path: Path, sentence: Sentences
) -> None:
    plan = job(*start, "grpo", group=GroupConfig(most_mismatch=0.02))
    drawn = read_rollouts(plan.samples)
    Learner(plan, drawn, 0, 1).close()
    raw = [replace(one, logprobs=tuple(value - 0.5 for value in one.logprobs)) for one in drawn]
    with sentence.raises(FlywheelError, "train.group.most_mismatch"):
        Learner(plan, raw, 0, 1)


@pytest.mark.parametrize("kind", KINDS if NIGHTLY else ("qwen3_5",))
def test_the_placeholder_of_a_screen_that_was_drawn_is_a_token_like_any_other(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = read_config(model(tmp_path, kind))
    marks = [config[f"{name}_token_id"] for name in ("image", "video", "vision_start")]
    order = iter(range(1_000))

    def forced(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        drawn, shares = choose_drawn(*given)
        at = next(order)
        return (torch.full_like(drawn, marks[at // 3 % 3]) if at % 3 == 1 else drawn), shares

    monkeypatch.setattr(rows, "choose_drawn", forced)
    plan = job(tmp_path, kind, "grpo", group=GroupConfig(most_mismatch=1e-3))
    drawn = read_rollouts(plan.samples)
    assert {token for one in drawn for token in one.token_ids} >= set(marks)
    Learner(plan, drawn, 0, 1).close()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_an_actor_that_disagrees_with_the_trainer_is_warned_of_and_refused_beyond_the_limit(
    method: str, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    """By the default settings: a served model of the same weights is within 0.02 nats."""
    plan = job(*start, method)
    drawn = read_rollouts(plan.samples)

    def trained(nats: float, plan: Job = plan) -> str:
        raw = [replace(one, logprobs=tuple(value - nats for value in one.logprobs)) for one in drawn]
        Learner(plan, raw, 0, 1).close()
        return capsys.readouterr().out

    assert "nats" not in trained(0.02) + trained(0.09)
    assert trained(0.11).count("differ by 0.11 nats on average between actor and trainer (0.02 is usual)") == 1
    with sentence.raises(FlywheelError, "most_mismatch"):
        trained(5.4)
    section = method_of(plan.train).section
    settings = getattr(plan.train, section).model_copy(update={"most_mismatch": 6.0})
    allowed = plan.model_copy(update={"train": plan.train.model_copy(update={section: settings})})
    sentence(trained(5.4, allowed), "most_mismatch", section)


@pytest.mark.slow
def test_each_batch_of_a_stream_is_compared_with_the_weights_before_it_and_gives_weights_that_act(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(start.folder / start.kind, tmp_path / start.kind)
    method = "ppo" if start.kind == KINDS[1] else "grpo"
    plan, stream = streamed(tmp_path, start.kind, method)
    stream.end()
    train(plan)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [one["published"] for one in said if "published" in one] == [1, 2, 3]
    numbers = said[-1]["numbers"]
    rollouts = [rollout for number in (1, 2, 3) for rollout in read_rollouts(stream.rollouts(number))]
    assert len(rollouts) == 6 + 5 + 4 and numbers["tokens"] > 0
    # one step a batch: nothing has moved when its loss is taken, but the weights have, since the replies were drawn
    assert numbers["moved"] < 1e-4 and numbers["clipped"] == 0.0 and numbers["mismatch"] > 1e-3
    assert numbers["mismatch_fresh"] != numbers["mismatch"]
    assert numbers.get("value_steps", 0) == (3 if method == "ppo" else 0)  # before the first batch alone
    folders = (plan.parent, *(stream.weights(updates) for updates in (1, 2, 3)), plan.out)
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert len(set(weights)) == 4 and weights[3] == weights[4]
    assert act(plan, stream.weights(2)) is not None


def test_a_frozen_reference_is_not_renewed(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen3_vl", "dpo").model_copy(update={"stream": tmp_path})
    with pytest.raises(UsageError, match=r"train\.stream\.on.*dpo"):
        Learner(plan, read_preferences(plan.samples), 0, 1)


def test_the_preferred_reply_gains_against_the_rejected_one(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    plan = job(*start, "dpo")
    train(plan)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    losses = [one["loss"] for one in said if "step" in one]
    assert losses[0] == pytest.approx(math.log(2), abs=1e-3) and losses[-1] < losses[0]
    before, after = logprobs(plan.parent, plan), logprobs(plan.out, plan)
    change = [new - old for new, old in zip(after, before, strict=True)]
    assert all(chosen > rejected for chosen, rejected in zip(change[0::2], change[1::2], strict=True))
    assert said[-1]["numbers"]["margin"] > 0
    assert act(plan) is not None


@pytest.mark.slow
def test_a_critic_learns_alone_then_with_the_policy_and_goes_on_with_its_child(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    critic: Literal["shared", "alone"] = "shared" if start.kind == KINDS[0] else "alone"
    config = PpoConfig(critic=critic, value_steps=6, policy_lambda=1.0, value_clip=0.0)
    plan = job(*start, "ppo", ppo=config).model_copy(update={"out": tmp_path / "out"})
    train(plan)
    numbers = numbers_of(capsys.readouterr().out)
    won = [rollout.correct for rollout in read_rollouts(plan.samples)]
    before, after = logprobs(plan.parent, plan), logprobs(plan.out, plan)
    change = [new - old for new, old in zip(after, before, strict=True)]
    gains = {right: [gain for gain, one in zip(change, won, strict=True) if one == right] for right in (True, False)}
    assert sum(gains[True]) / len(gains[True]) > sum(gains[False]) / len(gains[False])
    assert numbers["critic_kept"] == 0 and 0 < numbers["value_steps"] <= 6 and numbers["mismatch"] < 1e-3
    assert numbers["explained_variance_before"] == 0.0
    assert (plan.out / CRITIC).exists() and act(plan) is not None
    require_servable(plan.out)  # its critic is no weight of the policy

    child = plan.model_copy(update={"parent": plan.out, "out": plan.out.with_name("child")})
    learner = Learner(child, read_rollouts(child.samples), 0, 1)
    objective = learner.objective
    assert isinstance(objective, PpoObjective)
    try:
        kept = load_file(plan.out / CRITIC)
        assert torch.equal(objective.critic.head[:-1].detach(), kept[WEIGHT])
        own = {name.removeprefix(BODY): part for name, part in kept.items() if name.startswith(BODY)}
        assert bool(own) == (critic == "alone")
        if own:
            assert objective.critic.body is not None
            body, fresh = objective.critic.body.tensors(), FsdpBody(plan, 0, 1, torch.float32, {}).tensors()
            assert body.keys() == own.keys() and all(torch.equal(body[name], own[name]) for name in own)
            assert any(not torch.equal(fresh[name], own[name]) for name in own)
        assert learner.metrics()["critic_kept"] == 1
        known = objective.valuation
        assert torch.allclose(known.returns, known.correct.float())
    finally:
        learner.close()


def test_the_network_of_another_models_critic_is_refused(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen3_vl", "ppo", ppo=PpoConfig(critic="alone"))
    width = read_config(plan.parent)["text_config"]["hidden_size"]
    foreign = {WEIGHT: torch.zeros(width), BIAS: torch.zeros(1), f"{BODY}model.elsewhere": torch.zeros(2)}
    save_file(foreign, plan.parent / CRITIC)
    with pytest.raises(CheckpointError, match="architecture"):
        Learner(plan, read_rollouts(plan.samples), 0, 1)


def encoder(start: Start) -> Chats:
    job(*start, "grpo")
    return Chats(start.folder / start.kind, policy_of(start.kind), Screenshots(start.folder / "screenshots.parquet"), 0)


def test_a_reply_that_nobody_drew_is_encoded_as_its_text(start: Start) -> None:
    rollout = replace(rolled_out(start.folder / start.kind, 1)[0][0], token_ids=(), logprobs=())
    shown = replace(rollout, reply="Thought: Here.\nAction: click(start_box='(500,250)')")
    for end in (True, False):
        chats = encoder(start)
        said = [token for token in chats.encode(replace(shown, ended=end)).targets.tolist() if token >= 0]
        text = chats.processor.tokenizer.decode(said, skip_special_tokens=True)
        assert text == shown.reply
        assert (said[-1] == chats.processor.tokenizer.eos_token_id) == end


def test_a_placeholder_that_was_drawn_has_no_screen(start: Start) -> None:
    chats = encoder(start)
    image = chats.processor.image_token_id
    rollout = replace(rolled_out(start.folder / start.kind, 1)[0][0], token_ids=(image, 300, 301), logprobs=(-1.0,) * 3)
    chat = chats.encode(rollout)
    assert chat.targets[chat.targets >= 0].tolist() == [image, 300, 301]
    screen = chats.measure(rollout).item.screens[0].tokens
    assert int((chat.ids == image).sum()) == screen + 1 and int(chat.kinds.sum()) == screen
    assert int((chats.without_placeholders(chat) == image).sum()) == screen


@pytest.mark.parametrize(
    ("broken", "named"),
    [({"token_ids": (10**6,), "logprobs": (-1.0,)}, "tokenizer"), ({"screenshots": ("nowhere",)}, "nowhere")],
)
def test_a_reply_that_cannot_be_read_is_named_before_anything_is_trained(
    tmp_path: Path, broken: dict[str, Any], named: str
) -> None:
    plan = job(tmp_path, "qwen3_vl", "grpo")
    write_rollouts(plan.samples, [replace(read_rollouts(plan.samples)[0], **broken)])
    with pytest.raises(FlywheelError, match=named):
        Learner(plan, read_rollouts(plan.samples), 0, 1)


def test_an_empty_reply_is_named(tmp_path: Path) -> None:
    start = Start(tmp_path, "qwen3_vl")
    with pytest.raises(FlywheelError, match="empty reply"):
        shown = rolled_out(model(*start), 1)[0][0].screenshots
        encoder(start).encode(Rollout("t9", 0, "a", shown, "", (), "", ended=False))


def test_preferences_keep_what_was_said_before(tmp_path: Path) -> None:
    plan = job(tmp_path, "qwen3_vl", "dpo")
    rollouts = rolled_out(plan.parent)[0]
    assert list(read_preferences(plan.samples)) == preferences(rollouts)
