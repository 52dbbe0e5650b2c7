"""The champion after a challenge and after a rollback; broken or leaking policies are never promoted."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from models.safe import require_sound
from schemas.config import Config, config_of
from schemas.failure import CheckpointError, UsageError
from schemas.table import utc_now
from schemas.tables.evaluation import Evaluation
from schemas.tables.policy import PolicyVersion
from schemas.tables.promotion import Promotion
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.promote.events import abandoned, decisions, event_of
from tasks.promote.promote import challenge, leak, roll_back
from tasks.shared.policies import champion, policies, policy_row, promotions
from tests.fixtures.sentences import Sentences
from tests.tiers import NIGHTLY
from tests.unit.apps.conftest import make_place

CHALLENGE = """
import sys
from schemas.config import Config
from storage.lake import Lake
from tasks.promote.promote import challenge
from tasks.shared.policies import policy_row
config = Config.model_validate_json(sys.argv[1])
lake = Lake.open(config.lake, create=False)
for number in range(int(sys.argv[3])):
    print("ready", flush=True)
    sys.stdin.readline()
    challenge(config, lake, policy_row(lake, f"{sys.argv[2]}{number}"))
"""
ROUNDS = 4 if NIGHTLY else 2
TASKS = [f"fake/t{number}" for number in range(15)]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = {"uri": str(tmp_path / "lake"), "min_free_mb": 1}
    return config_of({"environments": {"fake": {}}, "suite": {"tasks": ["click-one"]}, "lake": lake})


@pytest.fixture
def lake(config: Config, tmp_path: Path) -> Lake:
    """One champion, `first`, that succeeds on every second seed."""
    lake = Lake.open(config.lake)
    policy(lake, config, tmp_path, "first", None, kind="initial", status="champion")
    evaluated(lake, "first", lambda seed: seed % 2 == 0)
    return lake


def policy(lake: Lake, config: Config, folder: Path, name: str, parent: str | None, **more: Any) -> PolicyVersion:
    weights = more.pop("weights", np.ones(4, np.float32))
    model = folder / name
    model.mkdir()
    save_file({"layer.weight": weights}, model / "model.safetensors")
    row: dict[str, Any] = {
        "policy_version": name, "kind": "iteration", "parent": parent, "iteration": 0, "method": "sft",
        "checkpoint": lake.blobs.put_directory(model, f"checkpoints/{name}"), "data_versions": "{}",
        "config": config.canonical(), "code": "c", "seed": 0, "metrics": "{}", "status": "candidate",
        "created_at": utc_now(),
    }  # fmt: skip
    made = PolicyVersion.model_validate({**row, **more})
    lake.append("policies", [made])
    return made


def evaluated(lake: Lake, name: str, wins: Any, seeds: Iterable[int] = range(15), **more: Any) -> None:
    rows = [
        Evaluation.model_validate(
            {
                "policy_version": name, "suite": "suite", "task_id": task, "seed": 1_000_000 + seed, "iteration": 0,
                "success": bool(wins(seed)), "reward": 0.0, "n_steps": 2, "failure_boundary": None,
                "unparsable": False, "think_ms": 10.0, **more,
            }
        )
        for task in TASKS for seed in seeds
    ]  # fmt: skip
    lake.append("evaluations", rows)


def challenged(lake: Lake, config: Config, folder: Path, name: str, wins: Any, **more: Any) -> Promotion:
    row = policy(lake, config, folder, name, champion(lake).policy_version, **more)
    evaluated(lake, name, wins)
    return challenge(config, lake, row)


def always(_seed: int) -> bool:
    return True


def half(seed: int) -> bool:
    return seed % 2 == 0


def test_a_better_challenger_reigns_and_the_record_says_against_whom_over_how_many_pairs(
    lake: Lake, config: Config, tmp_path: Path
) -> None:
    found = challenged(lake, config, tmp_path, "second", always)
    assert (found.champion, found.decision) == ("second", "promote")
    (told,) = lake.rows(Promotion)
    assert (told.policy_version, told.against, told.champion) == ("second", "first", "second")
    assert (told.pairs, told.wins, told.losses) == (75, 30, 0)  # of seeds 0 to 4 two are odd: decided at the first look
    assert told.low is not None and told.difference == pytest.approx(0.4) and 0 < told.low < 0.4
    assert json.loads(told.rule)["alpha"] == 0.05
    assert (policy_row(lake, "first").status, champion(lake).policy_version) == ("retired", "second")


def test_a_worse_challenger_is_rejected_and_the_champion_stays(lake: Lake, config: Config, tmp_path: Path) -> None:
    found = challenged(lake, config, tmp_path, "second", lambda _: False)
    assert (found.decision, found.champion, policy_row(lake, "second").status) == ("reject", "first", "rejected")


def test_what_is_decided_is_decided_once_and_a_restart_changes_nothing(
    lake: Lake, config: Config, tmp_path: Path
) -> None:
    row = policy(lake, config, tmp_path, "second", "first")
    evaluated(lake, "second", always)
    first = challenge(config, lake, row)
    lake.upsert("policies", [row, policy_row(lake, "first").model_copy(update={"status": "champion"})])  # killed here
    assert challenge(config, lake, row) == first
    assert champion(lake).policy_version == "second" and lake.count("promotions") == 1
    roll_back(lake, None, "")
    challenge(config, lake, policy_row(lake, "second"))
    assert champion(lake).policy_version == "first"


def test_an_equal_reproduction_does_not_dethrone_the_champion_where_an_equal_candidate_would(
    lake: Lake, config: Config, tmp_path: Path
) -> None:
    again = challenged(lake, config, tmp_path, "again", half, kind="retrained", repeats="first")
    assert again.decision != "promote" and champion(lake).policy_version == "first"
    assert challenged(lake, config, tmp_path, "candidate", half).decision == "promote"
    assert challenged(lake, config, tmp_path, "won", always, kind="retrained", repeats="first").decision == "promote"


@pytest.mark.parametrize(
    ("making", "acting", "said"),
    [
        ({"weights": np.array([1.0, np.nan], np.float32)}, {}, r"model\.safetensors: layer\.weight"),
        ({"weights": np.array([1.0, np.inf], np.float32)}, {}, "not finite, or are huge"),
        ({"metrics": '{"loss": NaN}'}, {}, "the loss of its training is nan"),
        ({}, {"unparsable": True}, r"100% of its trajectories end in a reply without an action.*promote\.unparsable"),
        ({}, {"think_ms": 2500.0}, r"takes 2\.50 s to reply.*promote\.step_s"),
    ],
)
def test_a_broken_candidate_never_reigns_however_well_it_does(
    lake: Lake, config: Config, tmp_path: Path, making: dict[str, Any], acting: dict[str, Any], said: str
) -> None:
    slow = config.model_copy(update={"promote": config.promote.model_copy(update={"step_s": 1.0})})
    lake.delete("evaluations", "true")  # nor where the champion was never measured
    row = policy(lake, config, tmp_path, "second", "first", **making)
    evaluated(lake, "second", always, **acting)
    found = challenge(slow, lake, row)
    assert found.decision == "reject" and champion(lake).policy_version == "first"
    assert re.search(said, found.reason)


def test_training_data_with_held_out_seeds_holds_the_candidate_by_name(
    lake: Lake, config: Config, tmp_path: Path, sentence: Sentences
) -> None:
    one = Trajectory(
        trajectory_id="leaky", iteration=0, run_id="r", task_id="fake/click-one", seed=1_000_003, split="validation",
        attempt=0, policy="explorer", policy_version="explorer-1", instruction="Click.", n_steps=1, reward=1.0,
        success=True, termination="done", sampling="{}", started_at=utc_now(), wall_s=1.0,
    )  # fmt: skip
    lake.append("trajectories", [one])
    for table in ("steps", "screenshots", "verdicts"):
        lake.append(table, [])
    pins = json.dumps({"trajectories": lake.version("trajectories"), "steps": 0, "screenshots": 0, "verdicts": 0})
    found = challenged(lake, config, tmp_path, "second", always, data_versions=pins)
    assert found.decision == "hold"
    sentence(found.reason, "fake/click-one")
    assert champion(lake).policy_version == "first"


def test_a_task_that_is_held_out_and_trained_on_holds_the_candidate(
    lake: Lake, config: Config, tmp_path: Path, sentence: Sentences
) -> None:
    one = Trajectory(
        trajectory_id="t", iteration=0, run_id="r", task_id="fake/two-steps", seed=3, split="train",
        attempt=0, policy="explorer", policy_version="explorer-1", instruction="Click.", n_steps=1, reward=1.0,
        success=True, termination="done", sampling="{}", started_at=utc_now(), wall_s=1.0,
    )  # fmt: skip
    lake.append("trajectories", [one])
    held = config.model_copy(update={"suite": config.suite.model_copy(update={"held_out": ("two-steps",)})})
    found = challenged(lake, held, tmp_path, "second", always)
    assert found.decision == "hold"
    sentence(found.reason, "fake/two-steps")


def test_a_rollback_goes_to_the_champion_before_or_to_a_named_one_and_is_recorded(
    lake: Lake, config: Config, tmp_path: Path, sentence: Sentences
) -> None:
    challenged(lake, config, tmp_path, "second", always)
    challenged(lake, config, tmp_path, "third", always)
    told = roll_back(lake, None, "it clicks everything twice")
    assert (told.champion, told.against, told.reason) == ("second", "third", "it clicks everything twice")
    assert champion(lake).policy_version == "second" and policy_row(lake, "third").status == "retired"
    roll_back(lake, None, "")
    assert champion(lake).policy_version == "first"
    with sentence.raises(UsageError):
        roll_back(lake, None, "")
    roll_back(lake, "third", "it was the sandbox")
    assert champion(lake).policy_version == "third"
    with sentence.raises(UsageError, hint="flywheel status"):
        roll_back(lake, "third", "")
    policy(lake, config, tmp_path, "fourth", "third")
    with pytest.raises(UsageError, match="was never champion"):
        roll_back(lake, "fourth", "")
    kinds = [(one.kind, one.decision, one.policy) for one in decisions(lake)]
    assert kinds[-2:] == [("rollback", "rollback", "third"), ("iteration", "candidate", "fourth")]


def test_a_rollback_is_in_effect_once_it_is_recorded_and_the_same_command_goes_back_once(
    lake: Lake, config: Config, tmp_path: Path, sentence: Sentences
) -> None:
    challenged(lake, config, tmp_path, "second", always)
    challenged(lake, config, tmp_path, "third", always)
    before = [policy_row(lake, name) for name in ("second", "third")]
    roll_back(lake, None, "", "third")
    lake.upsert("policies", before)  # statuses as another writer stored them
    assert champion(lake).policy_version == "second" and policy_row(lake, "third").status == "retired"
    with sentence.raises(UsageError, hint="flywheel status"):
        roll_back(lake, None, "", "third")
    assert event_of(lake, "rollback:0001") is None


@pytest.mark.slow
def test_of_two_that_are_decided_on_at_once_the_second_is_held_against_the_first(
    lake: Lake, config: Config, tmp_path: Path
) -> None:
    for number in range(ROUNDS):
        for name, wins in (("good", always), ("fair", half)):
            policy(lake, config, tmp_path, f"{name}{number}", "first")
            evaluated(lake, f"{name}{number}", wins)
    words = [sys.executable, "-c", CHALLENGE, config.model_dump_json()]
    pipe = subprocess.PIPE
    both = [
        subprocess.Popen([*words, name, str(ROUNDS)], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for name in ("good", "fair")
    ]
    for _ in range(ROUNDS):
        for one in both:
            assert one.stdout is not None and one.stdout.readline() == "ready\n"
        for one in both:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
    for one in both:
        assert one.wait(120) == 0, one.stderr and one.stderr.read()
        one.communicate()
    reigns, told = "first", promotions(lake)
    assert len(told) == 2 * ROUNDS
    for event in told:
        assert event.against == reigns
        reigns = event.champion
    assert [row.policy_version for row in policies(lake).values() if row.status == "champion"] == [reigns]
    assert reigns == f"good{ROUNDS - 1}"


def test_who_was_measured_against_another_is_measured_against_the_one_who_reigns_by_now(
    lake: Lake, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = policy(lake, config, tmp_path, "late", "first")
    evaluated(lake, "late", lambda seed: seed != 1, range(5))  # decided against `first` at that look
    challenged(lake, config, tmp_path, "second", lambda seed: seed != 2)
    more = list[str]()

    def measure(_config: Config, lake: Lake, candidate: PolicyVersion) -> None:
        more.append(champion(lake).policy_version)
        evaluated(lake, candidate.policy_version, lambda seed: seed != 1, range(5, 15))

    monkeypatch.setattr("tasks.promote.promote.measure_challenger", measure)
    assert challenge(config, lake, late).against == "second" and more == ["second"]
    told = event_of(lake, "challenge:late")
    assert told is not None and told.pairs > 75


def test_of_several_stored_champions_the_newest_promotion_s_is_champion(
    lake: Lake, config: Config, tmp_path: Path
) -> None:
    challenged(lake, config, tmp_path, "second", always)
    challenged(lake, config, tmp_path, "third", always)
    stored = [row.model_copy(update={"status": "champion"}) for row in policies(lake).values()]
    lake.upsert("policies", stored)
    assert [row.policy_version for row in policies(lake).values() if row.status == "champion"] == ["third"]
    challenged(lake, config, tmp_path, "fourth", lambda _: False)
    assert event_of(lake, "challenge:fourth").against == "third"  # type: ignore[union-attr]
    assert roll_back(lake, None, "").against == "third" and policy_row(lake, "first").status == "retired"


def test_a_lake_of_before_the_log_of_promotions_keeps_its_stored_statuses(
    lake: Lake, config: Config, tmp_path: Path
) -> None:
    for name, status in (("second", "retired"), ("third", "champion"), ("fourth", "rejected")):
        policy(lake, config, tmp_path, name, "first", status=status)
    lake.upsert("policies", [policy_row(lake, "first").model_copy(update={"status": "retired"})])
    statuses = {"first": "retired", "second": "retired", "third": "champion", "fourth": "rejected"}
    assert {name: row.status for name, row in policies(lake).items()} == statuses
    evaluated(lake, "third", half)
    challenged(lake, config, tmp_path, "fifth", always)
    assert {name: row.status for name, row in policies(lake).items()} == statuses | {
        "third": "retired",
        "fifth": "champion",
    }


def test_a_decision_comes_after_all_others_whatever_another_machine_s_clock_said(
    lake: Lake, config: Config, tmp_path: Path
) -> None:
    challenged(lake, config, tmp_path, "second", always)
    (told,) = lake.rows(Promotion)
    lake.upsert("promotions", [told.model_copy(update={"created_at": utc_now() + timedelta(hours=1)})])
    challenged(lake, config, tmp_path, "third", always)
    assert promotions(lake)[-1].champion == "third" == champion(lake).policy_version


def test_what_was_trained_from_a_policy_that_was_rolled_back_is_held(
    lake: Lake, config: Config, tmp_path: Path, sentence: Sentences
) -> None:
    challenged(lake, config, tmp_path, "second", always)
    row = policy(lake, config, tmp_path, "third", "second")
    evaluated(lake, "third", always)
    roll_back(lake, None, "")
    found = challenge(config, lake, row)
    assert found.decision == "hold"
    sentence(found.reason)
    roll_back(lake, "second", "")
    assert abandoned(lake, row) is None


def test_what_the_champion_descends_from_is_not_abandoned_though_it_was_rolled_forward_from(
    lake: Lake, config: Config, tmp_path: Path
) -> None:
    challenged(lake, config, tmp_path, "second", always)
    roll_back(lake, "first", "")
    roll_back(lake, "second", "it was the sandbox")
    row = policy(lake, config, tmp_path, "again", "first", kind="retrained", repeats="second")
    assert abandoned(lake, row) is None


@pytest.mark.parametrize("wrong", [np.nan, -np.inf, 1e30])
def test_weights_that_are_no_numbers_or_huge_cannot_be_brought_in(
    wrong: float, tmp_path: Path, sentence: Sentences
) -> None:
    save_file({"a": np.ones(2, np.float32), "b": np.array([wrong], np.float32)}, tmp_path / "model.safetensors")
    with sentence.raises(CheckpointError, "model.safetensors"):
        require_sound(tmp_path)


def test_a_held_out_task_that_ends_on_a_trained_task_s_screens_holds_the_candidate_and_both_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)
    lake, screen = place.lake, f"{(1 << 511) + (1 << 40) - 1:0128x}"
    rows = lake.read("screenshots").to_pylist()
    lake.upsert("screenshots", [{**row, "phash": screen} for row in rows])
    row = policy_row(lake, "policy-0001").model_copy(update={"data_versions": json.dumps(lake.versions())})
    held = lake.rows(Evaluation, {"policy_version": "policy-0001", "suite": "held_out"})
    near = f"{(1 << 511) + (1 << 40) - 2:0128x}"
    lake.upsert("evaluations", [one.model_copy(update={"final_phash": near}) for one in held])
    found = leak(place.config, lake, row)
    assert found is not None and re.search(r"fake/enter-text \(1 of 1 in fake/click-target\)", found)
    alike = place.config.promote.model_copy(update={"same_screens": "ignore"})
    assert leak(place.config.model_copy(update={"promote": alike}), lake, row) is None
    failed = [one.model_copy(update={"final_phash": near, "success": False}) for one in held]
    lake.upsert("evaluations", failed)  # it ends where every task begins
    assert leak(place.config, lake, row) is None
    lake.upsert("evaluations", [one.model_copy(update={"final_phash": "f" * 128}) for one in held])
    assert leak(place.config, lake, row) is None


def test_a_beginner_that_writes_no_worse_than_the_champion_is_not_broken_by_it(
    lake: Lake, config: Config, tmp_path: Path
) -> None:
    lake.delete("evaluations", "true")
    evaluated(lake, "first", lambda seed: seed % 2 == 0, unparsable=True)
    policy(lake, config, tmp_path, "second", "first")
    evaluated(lake, "second", always, unparsable=True)
    assert challenge(config, lake, policy_row(lake, "second")).decision == "promote"


def test_a_policy_whose_replies_never_hold_an_action_is_rejected_although_the_champion_s_do_neither(
    lake: Lake, config: Config, tmp_path: Path, sentence: Sentences
) -> None:
    lake.delete("evaluations", "true")
    for name in ("first", "second"):
        if name == "second":
            policy(lake, config, tmp_path, name, "first")
        evaluated(lake, name, lambda _: False, unparsable=True, unread="Thought: I'd click.\nclick 5 5")
    found = challenge(config, lake, policy_row(lake, "second"))
    assert found.decision == "reject"
    sentence(found.reason, "Thought: I'd click.")
