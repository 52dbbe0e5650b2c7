"""What the gates know of screens on which something changes by itself."""

import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from curation.pictures import detail
from schemas.config import Config, config_of
from storage.lake import Lake
from tasks.collect.collect import write
from tasks.filter import decide
from tasks.shared.gate_facts import Known
from tasks.shared.reviews import decisions_of
from tests.fixtures.planted.faults import Script, form, planted
from tests.fixtures.planted.pictures import png

CLOCKS = [form(number, 0) for number in range(3, 124, 4)]
FAULTS = {
    "no-op loop": "loops",
    "stuck": "redundant",
    "near-duplicate": "duplicates",
    "near-duplicate that idles": "duplicates",
    "hack: no change": "evidence",
    "hack: shortcut": "shortcut",
}
"""The gate that finds each."""
WRONG = {fault: planted(fault, 1, one, 0) for fault, one in zip(FAULTS, CLOCKS[4:], strict=False)}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return config_in(tmp_path)


def config_in(folder: Path) -> Config:
    suite = {"tasks": ["two-steps"], "held_out": []}
    return config_of({"lake": {"uri": str(folder / "lake")}, "environments": {"fake": {}}, "suite": suite})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Thirty clean forms with a clock, and one form with each fault, all decided on."""
    config = config_in(tmp_path_factory.mktemp("clocks"))
    lake = Lake.open(config.lake)
    write(lake, [one.record() for one in (*CLOCKS, *WRONG.values())])
    decide(config, lake, 0)
    return lake


def gates(lake: Lake, scripts: Iterable[Script]) -> list[str]:
    """Which gate turned each of them away; empty for none."""
    found = decisions_of(lake, 0)
    decisions = [found[one.trajectory.trajectory_id] for one in scripts]
    return ["" if one.passed else one.decided_by for one in decisions]


@pytest.mark.slow
def test_no_clean_trajectory_is_lost_where_a_clock_ticks(lake: Lake) -> None:
    assert all(one.clock for one in CLOCKS) and set(gates(lake, CLOCKS)) == {""}


@pytest.mark.slow
def test_what_changed_nothing_but_the_clock_is_found_out(lake: Lake) -> None:
    assert dict(zip(WRONG, gates(lake, WRONG.values()), strict=True)) == FAULTS


def test_a_success_whose_clicks_show_nothing_is_kept_where_that_is_usual_whatever_the_clock_does(
    config: Config,
) -> None:
    quiet = [replace(one, shots=(one.shots[0], *one.shots[-1:]), end=one.shots[0].png) for one in CLOCKS]
    quiet = [replace(one, shots=tuple(replace(shot, png=one.end) for shot in one.shots)) for one in quiet]
    lake = Lake.open(config.lake)
    write(lake, [one.record() for one in quiet])
    decide(config, lake, 0)
    assert {one.decided_by for one in decisions_of(lake, 0).values() if not one.passed} <= {"duplicates"}


def test_what_a_step_changed_is_told_from_the_clock(lake: Lake) -> None:
    wrong = WRONG["no-op loop"]
    name = wrong.trajectory.trajectory_id
    rows = lake.read("reflections", where={"trajectory_id": name}).to_pylist()
    redundant = {row["step"] for row in rows if row["last_step_redundant"]}
    assert len(redundant) == len(wrong.shots) - len(CLOCKS[4].shots)
    clean = {one.trajectory.trajectory_id for one in CLOCKS}
    assert clean.isdisjoint(lake.read("reflections", ["trajectory_id"])["trajectory_id"].to_pylist())


def test_a_lake_without_some_of_its_pictures_is_filtered_as_before(config: Config) -> None:
    lake = Lake.open(config.lake)
    still = [replace(one, clock=False) for one in CLOCKS[:3]]
    write(lake, [one.record() for one in (*still, *CLOCKS[3:])])
    lake.delete("screenshots", "true")
    assert {one.passed for one in decide(config, lake, 0)[0]} == {True}


@pytest.mark.slow
def test_sparse_pages_at_the_size_of_a_desktop_are_neither_blank_nor_copies_of_each_other(config: Config) -> None:
    def page(x: int, y: int) -> bytes:
        image = Image.new("RGB", (1920, 1080), "white")
        ImageDraw.Draw(image).rectangle((x, y, x + 300, y + 40), outline="black")
        ImageDraw.Draw(image).text((x + 8, y + 12), "Search for a word", fill="black")
        return png(image)

    one, again = form(3, 0), form(4, 0).trajectory
    names = {"trajectory_id": again.trajectory_id, "seed": again.seed}
    other = replace(one, trajectory=one.trajectory.model_copy(update=names))
    one, other = (
        replace(one, shots=tuple(replace(shot, png=page(100 + 300 * at, y)) for at, shot in enumerate(one.shots)))
        for one, y in ((one, 100), (other, 800))
    )
    lake = Lake.open(config.lake)
    write(lake, [one.record(), other.record()])
    decide(config, lake, 0)
    assert [found.passed for found in decisions_of(lake, 0).values()] == [True, True]
    name = lake.read("steps", ["screenshot"])["screenshot"].to_pylist()[0]
    shown = lake.read("screenshots", ["png"], {"sha256": name})["png"].to_pylist()[0]
    known = Known(lake, 0)
    assert known.detail(name) == detail(Image.open(io.BytesIO(shown))) and known.detail("0" * 64) is None
