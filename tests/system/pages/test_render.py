"""`flywheel pretrain render` writes whole pages, continues after an interruption, and names the page of an error."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from environments.chromium.browser import Browser
from environments.pages.environment import PagesConfig, PagesEnvironment, PagesSandbox
from environments.pages.fonts import installed
from environments.pages.solution import key_of
from environments.pool import SandboxPool
from environments.sandbox import Sandbox
from schemas.config.sections import LakeConfig
from schemas.failure import FlywheelError, TrajectoryFailure
from schemas.tables.stage import PREPARE
from storage.lake import Lake
from storage.quality.gate import run_gate
from tasks.pretrain.render import render_page
from tests.fixtures.sentences import Sentences
from tests.tiers import lacks

Call = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", autouse=True)
def with_fonts() -> None:
    try:
        installed()
    except FlywheelError as error:
        pytest.skip(lacks("no fonts", error.hint))


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))


def words(folder: Path, pages: int, *more: str) -> list[str]:
    return ["pretrain", "render", f"lake.uri={folder}/lake", "lake.min_free_mb=10", "pretrain.suite_seeds=0",
            "pretrain.held_back=1", "pretrain.batch=4", f"--pages={pages}", "--json", *more]  # fmt: skip


def lake_in(folder: Path) -> Lake:
    return Lake.open(LakeConfig(uri=str(folder / "lake"), min_free_mb=10), create=False)


def check(folder: Path, pages: int) -> None:
    """What a lake with so many training pages has, each screen once and whole."""
    lake = lake_in(folder)
    rows = lake.read("pages").to_pylist()
    keys = [(row["page_id"], row["step"]) for row in rows]
    assert len(keys) == len(set(keys))
    assert {page for page, _ in keys} == {
        key_of(split, number, 0).page_id
        for split, count in (("train", pages), ("validation", 1), ("test", 1))
        for number in range(count)
    }
    assert all((page, 0) in keys for page, _ in keys)
    pictures = lake.read("screenshots", ["sha256", "iteration"]).to_pylist()
    assert {row["sha256"] for row in rows} <= {row["sha256"] for row in pictures}
    assert {row["iteration"] for row in pictures} == {PREPARE} and len(pictures) == len(
        {row["sha256"] for row in pictures}
    )


@pytest.mark.slow
def test_a_rendering_adds_the_missing_pages_and_doubles_nothing(flywheel: Call, tmp_path: Path) -> None:
    status, out, err = flywheel(*words(tmp_path, 3))
    first = json.loads(out)
    assert status == 0, err
    assert (first["pages"], first["already"]) == (5, 0) and first["bits"] is None
    check(tmp_path, 3)
    again = json.loads(flywheel(*words(tmp_path, 5))[1])
    assert (again["pages"], again["already"]) == (2, 5)
    check(tmp_path, 5)
    assert json.loads(flywheel(*words(tmp_path, 5))[1])["screens"] == 0
    failed = [one for one in run_gate(lake_in(tmp_path), PREPARE, ["pages"], None) if not one.success]
    assert not failed


def test_a_full_disk_ends_a_rendering_with_the_page_and_the_fix(
    flywheel: Call, tmp_path: Path, sentence: Sentences
) -> None:
    status, _, err = flywheel(*words(tmp_path, 3, "lake.min_free_mb=1000000000"))
    assert status == 1 and key_of("test", 0, 0).page_id in err and "lake.min_free_mb" in err
    assert lake_in(tmp_path).count("pages") == 0


class BrokenSandbox(PagesSandbox):
    """A page whose script fails."""

    async def scan(self) -> dict[str, object]:
        raise TrajectoryFailure("verifier", "page.html: there is no layout")


class BrokenEnvironment(PagesEnvironment):
    def sandbox(self, browser: Browser) -> Sandbox:
        return BrokenSandbox(browser, self.config, (160, 210))


def test_a_page_that_does_not_render_is_named(sentence: Sentences) -> None:
    environment, key = BrokenEnvironment("pages", PagesConfig(browsers=1, pages=1)), key_of("train", 3, 0)

    async def rendered() -> None:
        async with SandboxPool([environment]) as pool:
            await render_page(pool, environment, key, "test")

    with pytest.raises(FlywheelError) as caught:
        asyncio.run(rendered())
    sentence(caught.value)
    assert key.page_id in caught.value.problem and key.layout in caught.value.problem


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_killed_rendering_continues_with_the_same_bytes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "apps.cli", *words(tmp_path, 40)]
    for _ in range(2):
        with subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL) as running:
            before = lake_in(tmp_path).count("pages") if (tmp_path / "lake" / "flywheel.json").exists() else 0
            while not (tmp_path / "lake" / "flywheel.json").exists() or lake_in(tmp_path).count("pages") == before:
                assert running.poll() is None
                time.sleep(0.2)
            running.send_signal(signal.SIGKILL)
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    check(tmp_path, 40)
    whole = tmp_path / "whole"
    subprocess.run(
        [sys.executable, "-m", "apps.cli", *words(whole, 40)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    order = [("page_id", "ascending"), ("step", "ascending")]
    assert lake_in(tmp_path).read("pages").sort_by(order) == lake_in(whole).read("pages").sort_by(order)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_pages_have_nothing_of_a_suite(flywheel: Call, tmp_path: Path) -> None:
    status, out, err = flywheel(*words(tmp_path, 42, "pretrain.suite_seeds=1"))
    found = json.loads(out)
    assert status == 0, err
    assert (found["phrases"], found["markup"]) == (0, 0) and found["bits"] >= 12 and found["suite_screens"] > 180
