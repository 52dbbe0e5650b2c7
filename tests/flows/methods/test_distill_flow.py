"""An iteration of `train.method=opd`: the policy acts alone, a served teacher scores its replies, and it is trained."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import models.serving.openai
import tasks.train.scores
from apps.commands.lineage import lineage_of
from flows.flywheel import flywheel
from models.random_vlm import build_random
from schemas.config import Config, config_of
from schemas.config.training import TrainConfig
from schemas.failure import FlywheelError
from schemas.tables.teacher_score import TeacherScore
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe
from tasks.shared.policies import origin_of, policy_row
from tasks.shared.weights import checkpoint_folder
from tasks.train.scores import reply_material
from tests.flows.conftest import wheel
from tests.teachers import FakeTeacher

pytestmark = pytest.mark.slow
TEXTS = ["Click on the target."] * 8


@pytest.fixture
def taught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Config, FakeTeacher]]:
    """A config whose policy is a random model, and its teacher, a larger one."""
    monkeypatch.setattr(models.serving.openai, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(tasks.train.scores, "TOGETHER", 3)
    build_random("qwen3_vl", TEXTS, 0, tmp_path / "base")
    build_random("qwen3_vl", TEXTS, 1, tmp_path / "larger", hidden=96)
    teacher = FakeTeacher(tmp_path / "larger")
    with teacher.served() as url:
        fields = wheel(tmp_path, monkeypatch).model_dump()
        fields["policy"] |= {"base": str(tmp_path / "base"), "max_new_tokens": 4}
        fields["collect"] |= {"trajectories_per_task": 3}
        opd = {"url": url, "model": "big", "retries": 0, "concurrency": 2, "batch": 4}
        fields["train"] |= {"method": "opd", "opd": opd, "steps_first": TrainConfig().steps_first}
        yield config_of(fields), teacher


def test_a_teachers_scores_are_kept_while_it_is_down_and_trained_on(
    taught: tuple[Config, FakeTeacher], capsys: pytest.CaptureFixture[str]
) -> None:
    config, teacher = taught
    teacher.misreads_after = 2  # after the checks before the run and before the scores
    with pytest.raises(FlywheelError, match=r"train\.opd\.url.*as other tokens than"):
        flywheel(config, iterations=1)
    assert "3 of 3 replies as other tokens than were sampled" in capsys.readouterr().err
    lake = Lake.open(config.lake)
    assert not lake.count("teacher_scores")
    teacher.misreads_after, teacher.dead_after = None, len(teacher.scored) + 2 + 4  # two checks, a chunk and a reply
    with pytest.raises(FlywheelError, match=r"train\.opd\.url.*the worker died"):
        flywheel(config, iterations=1)
    kept = lake.count("teacher_scores")
    assert kept == 4
    teacher.dead_after, asked = None, len(teacher.scored)
    flywheel(config, iterations=1)
    scores, steps = lake.rows(TeacherScore), lake.read("steps", where={"actor": "policy"}).to_pylist()
    assert {(one.trajectory_id, one.step) for one in scores} == {(one["trajectory_id"], one["step"]) for one in steps}
    assert len(teacher.scored) - asked == len(scores) - kept + 2  # and two for the checks before the run and the scores
    choices = lake.read("curriculum").to_pylist()
    assert sum(row["policy_trajectories"] for row in choices) == 6
    assert {(row["explorer_trajectories"], row["relay_trajectories"]) for row in choices} == {(0, 0)}
    row = policy_row(lake, "policy-0000")
    metrics = json.loads(row.metrics)
    trained = [one for one in scores if one.logprobs]
    assert (row.method, metrics["samples"]) == ("opd", len(trained))
    assert metrics["tokens"] >= sum(len(one.logprobs) for one in trained) and metrics["teacher_gap"] != 0
    assert lineage_of(lake, "policy-0000").trajectories == sorted({one.trajectory_id for one in scores})
    origin = origin_of(lake)
    assert origin is not None and row.parent == origin.policy_version
    before, after = (checkpoint_folder(lake, version) for version in (origin.policy_version, "policy-0000"))
    assert (before / "model.safetensors").read_bytes() != (after / "model.safetensors").read_bytes()
    (stage,) = lake.read("stages", where={"stage": "train"}).to_pylist()
    assert json.loads(stage["result"])["charged"]["train"] > 0
    teacher.paths, asked = (), len(teacher.scored)
    again = reply_material(config, lake, PolicyRecipe("policy-0009", origin.policy_version, 0, row.pins))
    assert again.samples == len(trained) and len(teacher.scored) == asked  # a repeated training asks nobody
