"""The small policy under PPO: a critic that learns returns before the policy moves, stays with it and goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from learning.algorithms.critic import BIAS, WEIGHT, Critic, read_critic
from learning.algorithms.losses import value_loss
from learning.algorithms.ppo import PpoObjective, TokensOf
from learning.algorithms.returns import explained_variance
from learning.data.files import read_rollouts
from learning.data.sample import read_screenshots
from learning.data.stream import StreamFolder
from learning.engines.tiny.batches import outputs_of
from learning.engines.tiny.engine import ReplyEncoder, TinyEngine
from learning.job import Job
from learning.learner import Learner
from learning.trainer import train
from models.tiny.layout import CRITIC
from models.tiny.network import TinyNet
from schemas.failure import CheckpointError, FlywheelError
from tests.fixtures.sentences import Sentences
from tests.unit.learning.samples import job as supervised_job
from tests.unit.learning.samples import parent
from tests.unit.learning.trajectories import ppo_job, trajectories


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ppo")
    parent(folder)
    return folder


def begun(plan: Job) -> tuple[TinyEngine, PpoObjective, dict[str, float]]:
    """Engine, objective and metrics before the first step."""
    engine = TinyEngine(plan, 0, 1)
    learner = Learner(plan, read_rollouts(plan.samples), 0, 1, engine)
    assert isinstance(learner.objective, PpoObjective)
    return engine, learner.objective, learner.metrics()


def trained(plan: Job, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Trains here; the last numbers."""
    torch.manual_seed(0)
    train(plan)
    return json.loads(capsys.readouterr().out.splitlines()[-1])["numbers"]


def logprobs(plan: Job, checkpoint: Path) -> dict[str, float]:
    """Mean log probability of a reply by its trajectory."""
    rollouts, net = read_rollouts(plan.samples), TinyNet.load(checkpoint)
    found: dict[str, float] = {}
    encoder = ReplyEncoder(checkpoint, plan.policy, net, read_screenshots(plan.screenshots))
    for piece in encoder.encode(rollouts, range(len(rollouts)), [0] * len(rollouts)):
        with torch.no_grad():
            outputs = outputs_of(net, piece)
        for number, value in zip(outputs.rows.tolist(), outputs.logprobs.tolist(), strict=True):
            name = rollouts[number].trajectory_id
            found[name] = found.get(name, 0.0) + value
    return found


@pytest.mark.parametrize("critic", ["shared", "alone"])
def test_the_critic_learns_the_returns_while_the_policy_stands_still(start: Path, tmp_path: Path, critic: str) -> None:
    plan = ppo_job(start, tmp_path, count=64, critic=critic, value_steps=25, critic_learning_rate=3e-3)
    engine, objective, told = begun(plan)
    assert torch.equal(engine.net.flat, TinyNet.load(plan.parent).flat)
    assert told["explained_variance_before"] == 0.0 and 0 < told["value_steps"] <= 25
    # A head on an untrained body that may not move learns next to nothing, and how little differs between processors.
    assert told["explained_variance"] >= {"shared": 0.0, "alone": 0.4}[critic]
    known = objective.valuation
    assert explained_variance(known.values, known.returns) >= {"shared": 0.0, "alone": 0.6}[critic]


def test_a_head_learns_returns_that_hidden_states_tell(start: Path, tmp_path: Path) -> None:
    plan = ppo_job(start, tmp_path, critic="shared")
    critic = Critic(plan, TinyEngine(plan, 0, 1))
    hidden = torch.randn(256, 64, generator=torch.Generator().manual_seed(0))
    returns = (hidden[:, 0] > 0).float()
    for _ in range(200):
        critic.zero()
        value_loss(critic.values(hidden), torch.zeros(256), returns).mean().backward()
        critic.step(3e-3)
    fresh = torch.randn(256, 64, generator=torch.Generator().manual_seed(1))
    assert explained_variance(critic.values(fresh).detach(), (fresh[:, 0] > 0).float()) > 0.4


@pytest.mark.parametrize("critic", ["shared", "alone"])
def test_replies_of_trajectories_that_succeed_gain_on_those_that_fail(
    start: Path, tmp_path: Path, critic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ppo_job(start, tmp_path, critic=critic, value_steps=0, policy_lambda=1.0)
    trained(plan, capsys)
    won = {one.trajectory_id: one.correct for one in read_rollouts(plan.samples)}
    before, after = (logprobs(plan, path) for path in (plan.parent, plan.out))
    gains = {right: [after[name] - before[name] for name in won if won[name] == right] for right in (True, False)}
    assert sum(gains[True]) / len(gains[True]) > sum(gains[False]) / len(gains[False]) + 0.1


def test_advantages_are_those_of_the_critics_values_over_whole_trajectories(start: Path, tmp_path: Path) -> None:
    known = begun(ppo_job(start, tmp_path, count=8, value_steps=4, policy_lambda=1.0, whiten=False))[1].valuation
    returns = known.correct.float()
    assert torch.allclose(known.returns, returns)
    assert torch.allclose(known.advantages, returns - known.values, atol=1e-6)


def test_the_positive_loss_pulls_what_succeeded_up(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = ppo_job(start, tmp_path / "plain", value_steps=0, policy_lambda=1.0)
    pulled = ppo_job(start, tmp_path / "pulled", value_steps=0, policy_lambda=1.0, positive=1.0)
    won = {one.trajectory_id for one in read_rollouts(plain.samples) if one.correct}
    sums = []
    for plan in (plain, pulled):
        trained(plan, capsys)
        found = logprobs(plan, plan.out)
        sums.append(sum(found[name] for name in won))
    assert sums[1] > sums[0]


@pytest.mark.parametrize("critic", ["shared", "alone"])
def test_the_critic_is_kept_beside_the_weights_and_goes_on(
    start: Path, tmp_path: Path, critic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ppo_job(start, tmp_path / "one", critic=critic, value_steps=6, steps=1)
    assert trained(first, capsys)["critic_kept"] == 0
    second = ppo_job(start, tmp_path / "two", critic=critic, value_steps=0, steps=1)
    second = second.model_copy(update={"parent": first.out})
    head = begun(second)[1].critic.head.detach()
    assert torch.allclose(head[:-1], load_file(first.out / CRITIC)[WEIGHT]) and head.abs().sum() > 0
    assert trained(second, capsys)["critic_kept"] == 1
    other = {"shared": "alone", "alone": "shared"}[critic]
    third = ppo_job(start, tmp_path / "three", critic=other, value_steps=0, steps=1)
    assert trained(third.model_copy(update={"parent": first.out}), capsys)["critic_kept"] == 0


@pytest.mark.parametrize("critic", ["shared", "alone"])
def test_batches_of_a_stream_are_judged_by_a_critic_that_was_trained_alone_once(
    start: Path, tmp_path: Path, critic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ppo_job(start, tmp_path, critic=critic, value_steps=4, epochs=1.0, batch=64, policy_lambda=1.0)
    rollouts, pngs = trajectories(start, 16)
    stream = StreamFolder(tmp_path / "stream")
    for first in (0, 8, 16):
        stream.put(rollouts[first : first + 16], pngs, {})
    stream.end()
    plan = plan.model_copy(
        update={"stream": tmp_path / "stream", "samples": stream.rollouts(1), "screenshots": stream.screenshots(1)}
    )
    numbers = trained(plan, capsys)
    assert numbers["value_steps"] == 4 and numbers["moved"] == 0.0  # one step a batch, each from the weights before it
    assert 0.0 < numbers["mismatch_fresh"] == pytest.approx(numbers["mismatch"])
    places = (plan.parent, *(stream.weights(updates) for updates in (1, 2, 3)), plan.out)
    weights = [(place / "model.safetensors").read_bytes() for place in places]
    assert len(set(weights)) == 4 and weights[3] == weights[4]
    critics = [(place / CRITIC).read_bytes() for place in places[1:]]
    assert len(set(critics)) == 3 and critics[2] == critics[3]


def test_a_child_of_another_method_takes_no_critic_over(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ppo_job(start, tmp_path / "one", value_steps=2, steps=1)
    trained(first, capsys)
    (tmp_path / "two").mkdir()
    plan = supervised_job(tmp_path / "two", steps=1).model_copy(update={"parent": first.out})
    trained(plan, capsys)
    assert (first.out / CRITIC).exists() and not (plan.out / CRITIC).exists()


def test_plain_transformers_loads_the_checkpoint_and_ignores_the_critic(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from transformers import AutoModelForImageTextToText

    plan = ppo_job(start, tmp_path, critic="alone", value_steps=2, steps=1)
    trained(plan, capsys)
    loaded: Any = AutoModelForImageTextToText.from_pretrained(plan.out, output_loading_info=True)
    info = loaded[1]
    assert not info["missing_keys"] and not info["unexpected_keys"]


def test_a_critic_of_another_size_or_a_broken_one_is_named(tmp_path: Path) -> None:
    assert read_critic(tmp_path, False, 8) == {}
    save_file({WEIGHT: torch.zeros(4), BIAS: torch.zeros(1)}, tmp_path / CRITIC)
    with pytest.raises(CheckpointError, match=r"critic\.safetensors.*\(4,\).*\(8,\)"):
        read_critic(tmp_path, False, 8)
    (tmp_path / CRITIC).write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=r"critic\.safetensors"):
        read_critic(tmp_path, False, 8)


def test_a_gradient_that_is_no_number_stops_before_and_after_the_policy_moves(
    start: Path, tmp_path: Path, sentence: Sentences
) -> None:
    early = ppo_job(start, tmp_path / "early", critic_learning_rate=1e30, value_steps=20)
    with pytest.raises(FlywheelError, match=r"critic's gradient.*samples"):
        train(early)
    late = ppo_job(start, tmp_path / "late", value_steps=0).model_copy(update={"learning_rate": 1e30})
    with sentence.raises(FlywheelError, hint="train.learning_rate"):
        train(late)
    assert not early.out.exists() and not late.out.exists()


def told(plan: Job) -> dict[str, Any]:
    path = plan.out.with_name("job.json")
    path.write_text(plan.model_dump_json())
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, "-m", "learning.trainer", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])["numbers"]


@pytest.mark.nightly
def test_two_processes_train_what_one_trains(start: Path, tmp_path: Path) -> None:
    alone = ppo_job(start, tmp_path / "one", value_steps=5)
    both = ppo_job(start, tmp_path / "two", value_steps=5, train={"processes": 2})
    one, two = told(alone), told(both)
    assert one["tokens"] == two["tokens"] > 0 and one["value_steps"] == two["value_steps"]
    assert one["explained_variance"] == pytest.approx(two["explained_variance"], abs=0.05)
    for file in ("model.safetensors", CRITIC):
        states = [load_file(plan.out / file) for plan in (alone, both)]
        begun = load_file(alone.parent / "model.safetensors") if file != CRITIC else {}
        zero = torch.zeros(())
        moved = sum(
            float((states[0][name] - begun.get(name.removeprefix("critic."), zero)).float().abs().sum())
            for name in states[0]
        )
        apart = sum(float((states[0][name] - states[1][name]).float().abs().sum()) for name in states[0])
        assert apart < 0.2 * moved, file


def test_tokens_are_laid_end_to_end() -> None:
    tokens = TokensOf([2, 3, 1])
    assert tokens.count == 6 and tokens.of([1, 2]) == 4
    assert tokens.index([2, 0]).tolist() == [5, 0, 1]
