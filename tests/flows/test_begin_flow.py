"""A lake that begins with an import, or with a checkpoint, and not with a run."""

import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForImageTextToText

from apps.commands.policies import export_policy, retrain_policy
from apps.commands.status import show_status, status_of
from flows.data import import_data
from flows.flywheel import flywheel
from flows.policies import adopt, retrain
from schemas.config import Config
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.exchange.importing import Request
from tasks.shared.lease import Claim
from tasks.shared.many import decide_all
from tasks.shared.policies import champion, policies, policy_row
from tasks.shared.weights import checkpoint_folder
from tests.fixtures.sentences import Sentences
from tests.flows.conftest import Turned
from tests.flows.test_adopt_flow import moved, with_policy
from tests.flows.test_import_flow import data_set, line


@pytest.fixture
def imported(small: Config, tmp_path: Path) -> Config:
    """The config of a lake that holds only an import."""
    records = data_set(tmp_path / "theirs", [line(number) for number in range(4)])
    import_data(small, Request(format="agentnet", path=records))
    return small


@pytest.fixture
def model(turned: Turned, tmp_path: Path) -> Path:
    """A model folder from elsewhere."""
    lake = Lake.open(turned(0).lake)
    folder = moved(Path(shutil.copytree(checkpoint_folder(lake, "policy-initial"), tmp_path / "model")))
    shutil.rmtree(tmp_path / "lake")
    return folder


@pytest.mark.slow
def test_an_import_trains_a_given_model_without_an_environment(
    model: Path,
    imported: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("environments.fake.FakeSandbox._start", lambda *_: pytest.fail("started"))
    done = retrain_policy(with_policy(imported, base=str(model)), None, train_only=True)
    assert "`flywheel export --policy retrained-0000 --to DIR`" in done.line
    lake = Lake.open(imported.lake)
    row = policy_row(lake, "retrained-0000")
    assert (row.status, row.parent, row.method) == ("candidate", "policy-initial", "sft")
    assert champion(lake).policy_version == "policy-initial" and champion(lake).method == "given"
    assert not lake.count("evaluations") and not lake.count("promotions")
    assert not status_of(lake)["iterations"] and status_of(lake)["current"] is None
    (one,) = status_of(lake)["candidates"]
    assert (one["policy"], one["method"], one["steps"]) == ("retrained-0000", "sft", imported.train.steps)
    show_status(lake)
    printed = " ".join(capsys.readouterr().out.split())
    assert "No iteration has begun yet. 4 imported trajectories." in printed
    assert "not evaluated; the same `flywheel retrain` without `--train-only` evaluates it" in printed
    export_policy(lake, "retrained-0000", tmp_path / "out")
    AutoModelForImageTextToText.from_pretrained(tmp_path / "out")


@pytest.mark.slow
def test_a_retraining_without_accepted_trajectories_names_the_commands_that_accept_them(
    small: Config, tmp_path: Path, sentence: Sentences
) -> None:
    records = data_set(
        tmp_path / "theirs", [line(number, completed=None, end="pyautogui.click()") for number in (0, 1)]
    )
    import_data(small, Request(format="agentnet", path=records))
    with sentence.raises(UsageError, "no accepted trajectory yet, so nothing was trained", hint="--demonstrations"):
        retrain_policy(small, None, train_only=True)
    lake = Lake.open(small.lake)
    decide_all(lake, lake.read("trajectories")["trajectory_id"].to_pylist(), "accept", "Ada")
    assert "flywheel export --policy retrained-" in retrain_policy(small, None, train_only=True).line


@pytest.mark.slow
def test_the_same_retraining_is_evaluated_later_and_a_run_continues_from_it(
    imported: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert retrain(imported, train_only=True) == "retrained-0000"
    monkeypatch.setattr(Claim, "gone", True)  # each command is a process
    assert retrain(imported) == "retrained-0000"
    lake = Lake.open(imported.lake)
    assert lake.count("evaluations", {"policy_version": "retrained-0000", "suite": "suite"}) == 6
    assert policy_row(lake, "retrained-0000").status != "candidate" and not status_of(lake)["candidates"]
    flywheel(imported, iterations=1)
    assert [name for name, row in policies(lake).items() if row.kind == "initial"] == ["policy-initial"]
    assert "policy-0000" in policies(lake)


@pytest.mark.slow
def test_a_checkpoint_that_is_adopted_into_an_empty_lake_is_the_champion(model: Path, small: Config) -> None:
    assert adopt(small, str(model)) == "adopted-0000"
    lake = Lake.open(small.lake)
    assert champion(lake).policy_version == "adopted-0000"
    assert lake.count("evaluations", {"policy_version": "adopted-0000", "suite": "suite"}) == 6
    with pytest.raises(UsageError, match="the very weights of the champion, adopted-0000"):
        adopt(small, str(model))
    flywheel(small, iterations=1)
    assert policy_row(lake, "policy-0000").parent == "adopted-0000"
    assert "policy-initial" not in policies(lake)
