"""A stage and its observers: each may fail alone, and a stage is repeated once where that may help."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schemas.config import Config, config_of
from schemas.failure import EnvironmentDown
from schemas.tables.stage import PlainResult, StageResult
from storage.lake import Lake
from tasks.filter import FilterResult
from tasks.promote.promote import PromotionResult
from tasks.running.run import Run
from tasks.running.stage import StageRun, observed, result_of, stage
from tasks.train.supervised import TrainResult
from tests.fixtures.sentences import Sentences


@pytest.fixture
def config(tmp_path: Path) -> Config:
    lake, suite = {"uri": str(tmp_path / "lake"), "min_free_mb": 1}, {"tasks": ["click-target"]}
    return config_of({"lake": lake, "environments": {"fake": {}}, "suite": suite})


@pytest.fixture
def at(config: Config) -> StageRun:
    return StageRun(Run(config, Lake.open(config.lake), "run"), 3, "train")


@contextmanager
def broken_at_the_begin(_: StageRun) -> Iterator[None]:
    raise OSError("unreachable")
    yield


@contextmanager
def broken_at_the_end(_: StageRun) -> Iterator[None]:
    try:
        yield
    finally:
        raise OSError("unreachable")


def test_an_observer_that_fails_ends_neither_the_work_nor_another_observer(
    at: StageRun, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[object] = []

    @contextmanager
    def whole(stage: StageRun) -> Iterator[None]:
        seen.append(stage.name)
        yield
        seen.append(stage.result)

    with observed(at, (broken_at_the_begin, whole, broken_at_the_end)):
        at.result = PlainResult(text="trained", numbers={"loss": 0.5})
    assert seen == ["train", PlainResult(text="trained", numbers={"loss": 0.5})]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2 and "broken_at_the_end" in caplog.text


def test_an_error_of_the_work_reaches_every_observer_and_the_caller(at: StageRun) -> None:
    seen: list[str] = []

    @contextmanager
    def failure(_: StageRun) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(str(error))
            raise

    with pytest.raises(ValueError, match="no data"), observed(at, (failure, broken_at_the_end, failure)):
        raise ValueError("no data")
    assert seen == ["no data", "no data"]


def test_a_stage_that_fails_once_is_repeated_and_recorded_once(
    config: Config, capfd: pytest.CaptureFixture[str], sentence: Sentences
) -> None:
    left = [ValueError("a bug")]

    @stage("collect", retry=True)
    def collect(run: Run, iteration: int) -> StageResult:
        if left:
            raise left.pop()
        return PlainResult(text="done", numbers={"samples": 3})

    done = {"samples": 3, "say": "done"}
    assert collect(config, 0) == done == {key: (collect(config, 0) or {})[key] for key in done}
    sentence.lines(capfd.readouterr().err, "ValueError")
    assert Lake.open(config.lake).count("stages") == 1


def test_results_store_their_set_fields_and_their_headline_and_have_their_events() -> None:
    found = FilterResult(routes={"sft": 2, "ct": 1}, reflections=4, unanswered=1, reason="no answer in 5 s")
    headline = "sft 2, ct 1, quarantine 0, none 0; the judge gave no answer on 1 trajectory: no answer in 5 s"
    assert found.stored == {"routes": {"sft": 2, "ct": 1}, "reflections": 4, "unanswered": 1, "say": headline}
    assert found.event == ("flywheel.data.accepted", {"accepted": 2, "routes": {"sft": 2, "ct": 1}})
    kept = PromotionResult(promoted=False, champion="policy-0000")
    headline = "nothing was trained; the champion stays"
    assert kept.stored == {"promoted": False, "champion": "policy-0000", "say": headline}
    assert kept.event == ("flywheel.policy.held", {"champion": "policy-0000", "say": headline})
    trained = TrainResult(text="8 samples", numbers={"loss": 0.5}, policy="policy-0001")
    assert trained.stored == {"loss": 0.5, "policy": "policy-0001", "say": "8 samples"} and trained.event is None


@pytest.mark.parametrize(
    ("retry", "error", "times"),
    [(True, ValueError("a bug"), 2), (True, EnvironmentDown("No browser.", "Add one."), 1), (False, ValueError(""), 1)],
)
def test_a_stage_that_goes_on_failing_raises_its_error(
    config: Config, retry: bool, error: Exception, times: int
) -> None:
    tries: list[int] = []

    @stage("collect", retry=retry)
    def collect(run: Run, iteration: int) -> StageResult:
        tries.append(iteration)
        raise error

    with pytest.raises(type(error)):
        collect(config, 0)
    assert tries == [0] * times
    assert result_of(Lake.open(config.lake), 0, "collect") is None
