"""A stage and its observers: each may fail alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schemas.config import config_of
from storage.lake import Lake
from tasks.running.run import Run
from tasks.running.stage import StageRun, observed


@pytest.fixture
def at(tmp_path: Path) -> StageRun:
    config = config_of(
        {
            "environments": {"fake": {}},
            "suite": {"tasks": ["click-one"]},
            "lake": {"uri": str(tmp_path / "lake"), "min_free_mb": 1},
        }
    )
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
        at.result = {"loss": 0.5}
    assert seen == ["train", {"loss": 0.5}]
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
