"""The names of the generator's parts, what is held out of training, and the fonts that a machine must have."""

import re
from pathlib import Path

import pytest

from environments.catalog import catalog
from environments.pages import catalog as names
from environments.pages import fonts
from environments.pages.environment import FOLDER, PagesConfig, PagesEnvironment, parts_of, size_of
from environments.pages.solution import key_of
from schemas.config import config_of
from schemas.failure import FlywheelError
from tests.fixtures.sentences import Sentences

ALL_LAYOUTS = {*names.LAYOUTS, *names.LAYOUTS_HELD_OUT}
ALL_WIDGETS = {*names.WIDGETS, *names.WIDGETS_HELD_OUT}


def keys(script: str, table: str) -> list[str]:
    """The keys of an object in one of the scripts."""
    text = (FOLDER / "parts" / script).read_text().partition(f"const {table} = {{")[2].partition("\n};")[0]
    return re.findall(r'^  "?(\w[\w -]*?)"?: [\[(]', text, re.MULTILINE)


def test_the_scripts_and_the_catalog_have_the_same_names() -> None:
    assert sorted(keys("layouts.js", "LAYOUTS")) == sorted(ALL_LAYOUTS)
    assert sorted(keys("widgets.js", "WIDGETS")) == sorted(ALL_WIDGETS)
    assert keys("look.js", "THEMES") == list(names.THEMES)


def test_there_are_enough_of_all() -> None:
    assert len(names.LAYOUTS) >= 40 and len(names.WIDGETS) >= 30 and len(names.THEMES) >= 8
    assert len(names.FONTS) - len(names.FONTS_HELD_OUT) >= 12
    assert {(160, 210), (1280, 800)} <= names.SIZES.keys()


def test_training_and_validation_pages_have_nothing_that_is_held_out() -> None:
    for split in ("train", "validation"):
        for number in range(200):
            key = key_of(split, number, 0)
            parts = parts_of(key.layout, key.seed)
            assert key.layout in names.LAYOUTS and not parts["heldOut"]
            assert not {*parts["widgets"]} & {*names.WIDGETS_HELD_OUT}
            assert not {*parts["fonts"]} & {*names.FONTS_HELD_OUT}


def test_test_pages_have_held_out_layouts_and_fonts() -> None:
    for number in range(50):
        key = key_of("test", number, 0)
        parts = parts_of(key.layout, key.seed)
        assert key.layout in names.LAYOUTS_HELD_OUT and parts["heldOut"]
        assert {*parts["fonts"]} == {*names.FONTS_HELD_OUT} and {*names.WIDGETS_HELD_OUT} <= {*parts["widgets"]}


def test_ids_differ_between_pages_splits_and_seeds_and_stay_the_same() -> None:
    made = [key_of(split, number, seed) for split in ("train", "validation", "test") for number in range(50)
            for seed in (0, 1)]  # fmt: skip
    assert len({key.page_id for key in made}) == len(made) == len({key.seed for key in made})
    assert key_of("train", 7, 0) == key_of("train", 7, 0)
    assert len({size_of(key.layout, key.seed) for key in made}) == len(names.SIZES)


def test_pages_are_tasks_of_a_suite() -> None:
    fields = {
        "environments": {"pages": {"width": 320, "height": 240}},
        "suite": {"tasks": ["form"], "held_out": ["log"]},
    }
    tasks = {task.task_id: task for task in catalog(config_of(fields))}
    assert tasks["pages/form"].split == "train" and tasks["pages/log"].split == "held_out"
    entries = PagesEnvironment("pages", PagesConfig()).entries
    assert {name for name, entry in entries.items() if "held_out" in entry.tags} == {*names.LAYOUTS_HELD_OUT}


def test_a_missing_font_is_named_with_its_debian_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    listed = [font for font in names.FONTS if not font.startswith("Free")]
    program = tmp_path / "fc-list"
    program.write_text("#!/bin/sh\n" + "".join(f'echo "{font},Other"\n' for font in listed))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(FlywheelError) as caught:
        fonts.installed()
    sentence(caught.value)
    assert "FreeSans" in caught.value.problem and "fonts-freefont-ttf" in caught.value.hint
