"""`flywheel diff A B --task T [--seed N]` on a small lake."""

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from apps.cli import make_app
from tests.unit.apps.conftest import Place

PAIR = ("policy-0001", "policy-0000", "--task", "two-steps")


def run(place: Place, *words: str) -> Result:
    return CliRunner().invoke(make_app(), ["diff", *words, "--config", str(place.file)])


def test_the_seeds_that_one_policy_won_are_listed(place: Place) -> None:
    listed = run(place, *PAIR)
    assert listed.exit_code == 0, listed.output
    assert "2 only policy-0001 won, and 0 only policy-0000" in listed.output and "1000005" in listed.output
    found = json.loads(run(place, *PAIR, "--json").output)
    assert found["task"] == "fake/two-steps" and len(found["pairs"]) == 8
    assert [one["seed"] for one in found["pairs"] if one["a"] != one["b"]] == [1_000_004, 1_000_005]


def test_one_seed_is_shown_side_by_side_and_drawn(place: Place, tmp_path: Path) -> None:
    gif, strip = tmp_path / "a.gif", tmp_path / "a.png"
    shown = run(place, *PAIR, "--seed", "1000005", "--gif", str(gif), "--strip", str(strip))
    assert shown.exit_code == 0, shown.output
    assert all(text in shown.output for text in ("policy-0001", "policy-0000", "success", "failure", "written"))
    found = json.loads(run(place, *PAIR, "--seed", "1000005", "--json").output)
    assert (found["a"]["outcome"], found["b"]["outcome"], found["differs_at"]) == ("success", "failure", None)
    assert found["a"]["steps"][0]["actions"] == [{"type": "click", "x": 0.5, "y": 0.25}]
    with Image.open(gif) as film, Image.open(strip) as joint:
        assert getattr(film, "n_frames", 1) == 2 and film.width > 2 * 480 and joint.height > 2 * 210


def test_a_side_that_was_not_kept_is_named_and_draws_nothing(place: Place, tmp_path: Path) -> None:
    shown = run(place, *PAIR, "--seed", "1000004")
    assert shown.exit_code == 0 and "`evaluate.keep_successes` did not draw this seed" in shown.output
    drawn = run(place, *PAIR, "--seed", "1000004", "--gif", str(tmp_path / "a.gif"))
    assert drawn.exit_code != 0 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ("policy-0001", "policy-0000", "--seed", "1000005"),
        (*PAIR, "--gif", "a.gif"),
        (*PAIR, "--seed", "1000000"),
        (*PAIR, "--seed", "7"),
        ("policy-0001", "policy-0000", "--task", "nothing"),
        ("policy-0001", "nobody", "--task", "two-steps"),
        (*PAIR, "--seed", "1000005", "--strip", "a.gif"),
    ],
)
def test_a_mistake_is_refused(place: Place, words: tuple[str, ...]) -> None:
    assert run(place, *words).exit_code != 0
