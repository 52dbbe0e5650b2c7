"""A run that trains while it judges is refused before anything is spent, unless its judge is trusted."""

from pathlib import Path

import pytest

from curation.agreement import Confusion, agreement_of
from models.judges.registry import required_judge, version_of
from schemas.config import Config, load_config
from schemas.failure import UsageError
from schemas.table import utc_now
from storage.lake import Lake
from tasks.preflight.preflight import probes

STREAMED = ("train.method=grpo", "train.stream.on=true", "judge.kind=fake", "judge.evidence_min=20")


def config(folder: Path, *overrides: str) -> Config:
    suite = ('suite.tasks=["note","click-target"]', "suite.hard=[]", "suite.practice=[]", "suite.held_out=[]")
    return load_config(
        "configs/laptop.toml", ['environments={"fake":{}}', *suite, f"lake.uri={folder}/lake", *overrides], {}
    )


def judge_of_run(config: Config) -> str:
    (probe,) = (one for one in probes(config) if one.name == "judge")
    return probe.examine()


def test_a_judge_on_probation_is_refused_where_its_groups_are_trained_on_at_once(tmp_path: Path) -> None:
    streamed = config(tmp_path, *STREAMED)
    problem = r"`train\.stream\.on`: the judge of note is on probation \(compared 0 times, of 20\)"
    with pytest.raises(UsageError, match=problem) as refused:
        judge_of_run(streamed)
    assert "judge.evidence_min=0" in refused.value.hint
    assert not (tmp_path / "lake").exists()
    version = version_of(required_judge(streamed.judge), streamed.judge)
    lake = Lake.open(streamed.lake)
    lake.append("agreements", [agreement_of(version, "verifier", 0, Confusion(10, 5, 0, 5), utc_now())])
    with pytest.raises(UsageError, match=r"on probation \(kappa"):
        judge_of_run(streamed)
    lake.append("agreements", [agreement_of(version, "verifier", 1, Confusion(100, 0, 0, 100), utc_now())])
    assert "is there" in judge_of_run(streamed)


@pytest.mark.parametrize(
    "overrides",
    [
        (*STREAMED, "judge.evidence_min=0"),
        (*STREAMED, 'suite.tasks=["click-target"]', 'suite.held_out=["note"]'),
        (*STREAMED, 'filter.gates=["environment","verifier"]'),
        ("train.method=grpo", "judge.kind=fake"),
    ],
)
def test_it_may_act_where_it_is_trusted_unseen_or_holds_nothing_back_from_a_trainer(
    overrides: tuple[str, ...], tmp_path: Path
) -> None:
    assert "is there" in judge_of_run(config(tmp_path, *overrides))
