"""What the first policy's words are read off: pages that fail once are looked at again."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from environments.catalog import catalog
from environments.fake import FakeSandbox
from schemas.config import Config, config_of
from schemas.failure import EnvironmentDown, SandboxFailure
from schemas.tables.task import GuiTask
from tasks.prepare import PAGES, _texts  # pyright: ignore[reportPrivateUsage]
from tests.fixtures.sentences import Sentences


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return config_of(
        {
            "name": "prepare",
            "lake": {"uri": str(tmp_path / "lake")},
            "environments": {"fake": {"sandboxes": 2}},
            "suite": {"tasks": ["click-target", "two-steps"], "held_out": []},
        }
    )


def failing(monkeypatch: pytest.MonkeyPatch, when: Callable[[int, GuiTask], bool]) -> list[str]:
    """Lets starts fail, by their number and task; the tasks whose start failed."""
    begin, starts, failed = FakeSandbox._start, iter(range(10**6)), list[str]()  # pyright: ignore[reportPrivateUsage]

    async def start(self: FakeSandbox, task: GuiTask, seed: int) -> None:
        if when(next(starts), task):
            failed.append(task.task_id)
            raise SandboxFailure("the box is gone")
        await begin(self, task, seed)

    monkeypatch.setattr(FakeSandbox, "_start", start)
    return failed


def test_a_page_whose_sandbox_dies_is_looked_at_again(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = [task for task in catalog(config) if task.split == "train"]
    whole = asyncio.run(_texts(config, tasks))
    assert len(whole) == len(tasks) * PAGES["train"]
    failed = failing(monkeypatch, lambda number, _: number % 9 == 8)
    assert asyncio.run(_texts(config, tasks)) == whole and failed


def test_every_task_that_comes_up_with_no_seed_is_named(
    config: Config, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    tasks = [task for task in catalog(config) if task.split == "train"]
    failing(monkeypatch, lambda _, task: task.template == "two-steps")
    with sentence.raises(EnvironmentDown, "fake/two-steps", hint="flywheel doctor"):
        asyncio.run(_texts(config, tasks))
    failing(monkeypatch, lambda _, task: True)
    with pytest.raises(EnvironmentDown, match=r"fake/click-target.*\nfake/two-steps") as down:
        asyncio.run(_texts(config, tasks))
    assert str(down.value).count("doctor") == 1
