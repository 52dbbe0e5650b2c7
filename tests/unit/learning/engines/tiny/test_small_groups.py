"""The small policy under group methods: one language of training and serving, and replies that gain or lose."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learning.algorithms.grpo import check_drawn, token_losses
from learning.data.files import Rollout, write_rollouts
from learning.data.sample import write_screenshots
from learning.engines.tiny.batches import outputs_of
from learning.engines.tiny.engine import ReplyEncoder
from learning.job import Job
from learning.trainer import train
from models.families.family import ModelFamily, TinyFamily
from models.policy import Context
from models.tiny.generator import TinyModel
from models.tiny.network import TinyNet
from schemas.config.policy import PolicyConfig
from schemas.config.training import GroupConfig
from schemas.failure import FlywheelError
from schemas.observation import Observation, PastStep
from tests.unit.learning.samples import HEIGHT, POLICY, TRAIN, WIDTH, parent, samples

GROUP = GroupConfig(batch=8, learning_rate=2e-3)
SAID = "Thought: Wait.\nAction: wait()"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("groups")
    parent(folder)
    return folder


def rolled_out(
    folder: Path, temperature: float = 0.8, dtype: torch.dtype = torch.bfloat16
) -> tuple[list[Rollout], dict[str, bytes]]:
    """What the parent says of six screens, the later ones after a first step."""
    made, pngs = samples(6)
    model = TinyModel(folder / "parent", dtype=dtype)
    screens = [Observation(pngs[sample.screenshots[0]], WIDTH, HEIGHT, "") for sample in made]
    past = [(), (), (), *[(PastStep("Wait.", "wait()", screens[0]),)] * 3]
    chats = [
        ModelFamily(POLICY).messages(Context(sample.instruction, turns, screen, 0))
        for sample, turns, screen in zip(made, past, screens, strict=True)
    ]
    completions = model.generate(chats, list(range(6)), temperature, POLICY.max_new_tokens)
    rollouts = [
        Rollout(
            f"t{at}",
            0,
            sample.task_id,
            sample.screenshots,
            sample.instruction,
            ("Thought: Wait.\nAction: wait()",) * len(turns),
            completion.text,
            completion.token_ids,
            completion.logprobs,
            temperature,
            (-1.0) ** at,
        )
        for at, (sample, turns, completion) in enumerate(zip(made, past, completions, strict=True))
    ]
    return rollouts, pngs


def job(
    folder: Path, out: Path, rollouts: list[Rollout], pngs: dict[str, bytes], steps: int = 3, **train: object
) -> Job:
    out.mkdir(parents=True)
    write_rollouts(out / "samples.parquet", rollouts)
    write_screenshots(out / "screenshots.parquet", pngs)
    wanted = {"method": "grpo", "group": GROUP, "batch": GROUP.batch, "warmup": 0, "decay": 0.0, **train}
    return Job(
        parent=folder / "parent",
        out=out / "out",
        samples=out / "samples.parquet",
        screenshots=out / "screenshots.parquet",
        steps=steps,
        learning_rate=GROUP.learning_rate,
        policy=POLICY,
        train=TRAIN.model_copy(update=wanted),
    )


def logprobs(
    checkpoint: Path,
    rollouts: list[Rollout],
    pngs: dict[str, bytes],
    dtype: torch.dtype,
    policy: PolicyConfig = POLICY,
) -> list[float]:
    """Summed log probability of each reply."""
    net = TinyNet.load(checkpoint, dtype)
    sums = [0.0] * len(rollouts)
    for piece in ReplyEncoder(checkpoint, policy, net, pngs).encode(
        rollouts, range(len(rollouts)), [0] * len(rollouts)
    ):
        with torch.no_grad():
            outputs = outputs_of(net, piece)
        for number, value in zip(outputs.rows.tolist(), outputs.logprobs.tolist(), strict=True):
            sums[number] += value
    return sums


def test_training_reads_the_log_probabilities_that_serving_drew_with(start: Path) -> None:
    rollouts, pngs = rolled_out(start, dtype=torch.float32)
    found = logprobs(start / "parent", rollouts, pngs, torch.float32)
    assert found == pytest.approx([sum(rollout.logprobs) for rollout in rollouts], abs=1e-3)


def folded(start: Path) -> tuple[PolicyConfig, list[Rollout], dict[str, bytes]]:
    """What the parent gives at six steps of a trajectory whose screens fold."""
    policy = POLICY.model_copy(update={"context": "fold", "live_images": 3, "fold_images": 2})
    model, family, rule = TinyModel(start / "parent", dtype=torch.float32), TinyFamily(policy), policy.context_rule
    made, pngs = samples(6)
    digests, past, rollouts = list(pngs), (SAID,) * 6, list[Rollout]()
    for at in range(6):
        turns = tuple(PastStep("Wait.", "wait()", Observation(pngs[name], WIDTH, HEIGHT, "")) for name in digests[:at])
        screen = Observation(pngs[digests[at]], WIDTH, HEIGHT, "")
        (given,) = model.generate([family.chat(Context(made[0].instruction, turns, screen, 0))], [at], 0.8, 12)
        shown, read = tuple(digests[rule.folded(at + 1) : at + 1]), (given.token_ids, given.logprobs, 0.8, (-1.0) ** at)
        rollouts.append(Rollout("t", at, "a", shown, made[0].instruction, past[:at], given.text, *read))
    return policy, rollouts, pngs


def test_folded_prompts_are_trained_on_as_they_were_read_each_reply_by_itself(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, rollouts, pngs = folded(start)
    assert [len(rollout.screenshots) for rollout in rollouts] == [1, 2, 3, 2, 3, 2]
    found = logprobs(start / "parent", rollouts, pngs, torch.float32, policy)
    assert found == pytest.approx([sum(rollout.logprobs) for rollout in rollouts], abs=1e-3)
    plan = job(start, tmp_path / "job", rollouts, pngs).model_copy(update={"policy": policy})
    train(plan)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    (warning,) = [line["warning"] for line in lines if "policy.context" in line.get("warning", "")]
    assert "the small policy reads its screens before the text" in warning and lines[-1]["numbers"]["tokens"] > 0


@pytest.mark.parametrize("ratio", ["token", "sequence", "soft"])
def test_replies_with_an_advantage_gain_and_those_with_a_disadvantage_lose(
    start: Path, tmp_path: Path, ratio: str
) -> None:
    rollouts, pngs = rolled_out(start)
    plan = job(start, tmp_path / "job", rollouts, pngs, group=GROUP.model_copy(update={"ratio": ratio}))
    before = logprobs(plan.parent, rollouts, pngs, torch.bfloat16)
    train(plan)
    after = logprobs(plan.out, rollouts, pngs, torch.bfloat16)
    change = [new - old for new, old in zip(after, before, strict=True)]
    assert min(change[0::2]) > 0 > max(change[1::2])


def test_a_reply_that_nobody_drew_is_learnt_from_its_text(start: Path, tmp_path: Path) -> None:
    rollouts, pngs = rolled_out(start)
    shown = replace(rollouts[0], reply="Action: click(start_box='(500,250)')", token_ids=(), logprobs=(), advantage=1.0)
    plan = job(start, tmp_path / "job", [shown], pngs)
    train(plan)
    before, after = (logprobs(path, [shown], pngs, torch.bfloat16)[0] for path in (plan.parent, plan.out))
    assert after > before + 1


def said(plan: Job, folder: Path) -> dict[str, object]:
    (folder / "job.json").write_text(plan.model_dump_json())
    command = [sys.executable, "-m", "learning.trainer", str(folder / "job.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)
    return json.loads(done.stdout.splitlines()[-1]) | {"code": done.returncode}


@pytest.mark.nightly
def test_two_processes_train_what_one_trains_and_count_the_same(start: Path, tmp_path: Path) -> None:
    rollouts, pngs = rolled_out(start)
    alone = job(start, tmp_path / "one", rollouts, pngs)
    both = job(start, tmp_path / "two", rollouts, pngs, processes=2)
    one, two = (said(plan, plan.out.parent) for plan in (alone, both))
    assert one["code"] == two["code"] == 0
    first, second = one["numbers"], two["numbers"]
    assert isinstance(first, dict) and isinstance(second, dict)
    assert first["tokens"] == second["tokens"] > 0
    assert first["mismatch"] == pytest.approx(second["mismatch"], abs=5e-3) and first["mismatch"] < 0.05
    start_state, *states = (load_file(path / "model.safetensors") for path in (alone.parent, alone.out, both.out))
    moved = sum(float((states[0][name] - start_state[name]).float().abs().sum()) for name in start_state)
    apart = sum(float((states[0][name] - states[1][name]).float().abs().sum()) for name in start_state)
    assert apart < 0.2 * moved


def test_a_gradient_that_is_no_number_stops_and_leaves_nothing(start: Path, tmp_path: Path) -> None:
    rollouts, pngs = rolled_out(start)
    plan = job(start, tmp_path / "job", rollouts, pngs, steps=6).model_copy(update={"learning_rate": 1e30})
    with pytest.raises(FlywheelError, match="learning_rate"):
        train(plan)
    assert not plan.out.exists()


@pytest.mark.parametrize(
    "broken", [{"logprobs": (math.nan,), "token_ids": (1,)}, {"logprobs": (-1.0,)}, {"advantage": math.inf}]
)
def test_a_rollout_with_broken_numbers_is_refused_by_name(broken: dict[str, object]) -> None:
    with pytest.raises(FlywheelError, match="trajectory t9"):
        check_drawn(replace(Rollout("t9", 0, "a", (), "i", (), "r"), **broken))


def test_the_loss_corrects_stale_tokens_and_counts_what_it_clipped() -> None:
    old = torch.tensor([-1.0, -1.0, -1.0])
    new = torch.tensor([-1.0, -0.5, -1.0], requires_grad=True)
    served = torch.tensor([-1.0, -2.0, -0.5])
    losses, counts = token_losses(new, old, served, torch.ones(3), GroupConfig())
    assert losses.tolist() == pytest.approx([-1.0, -1.28, -math.exp(-0.5)])
    assert counts.tolist() == pytest.approx([3, 3, 1.5, 1, 0.5, math.exp(-0.5) - 0.5])
    unknown, counted = token_losses(new, old, torch.full((3,), math.nan), torch.ones(3), GroupConfig())
    assert unknown.tolist() == pytest.approx([-1.0, -1.28, -1.0])
    assert counted[1] == 0
