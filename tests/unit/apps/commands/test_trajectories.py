"""`flywheel trajectories` on a small lake."""

import json
from pathlib import Path

from PIL import Image
from typer.testing import CliRunner, Result

from apps.cli import make_app
from tests.unit.apps.conftest import Place


def run(place: Place, *words: str) -> Result:
    return CliRunner().invoke(make_app(), ["trajectories", *words, "--config", str(place.file)])


def longest(place: Place) -> str:
    found = json.loads(run(place, "--sort", "steps", "--limit", "1", "--json").output)
    return found["trajectories"][0]["trajectory_id"]


def test_alone_it_lists_and_its_json_has_the_same(place: Place) -> None:
    listed = run(place, "--outcome", "failure", "--limit", "3")
    assert listed.exit_code == 0 and listed.output.rstrip().endswith("trajectories that match.")
    found = json.loads(run(place, "list", "--outcome", "failure", "--limit", "3", "--json").output)
    assert len(found["trajectories"]) == 3 < found["total"]
    for one in found["trajectories"]:
        assert one["outcome"] == "failure" and one["trajectory_id"] in listed.output


def test_one_is_shown_with_its_steps_and_drawn(place: Place, tmp_path: Path) -> None:
    name = json.loads(run(place, "--sort", "steps", "--limit", "1", "--json").output)["trajectories"][0][
        "trajectory_id"
    ]
    gif, webp, strip = tmp_path / "a.gif", tmp_path / "a.webp", tmp_path / "a.png"
    shown = run(place, "show", name, "--gif", str(gif), "--strip", str(strip))
    assert shown.exit_code == 0 and name in shown.output and f"written: {gif}" in shown.output
    about = json.loads(run(place, "show", name, "--gif", str(webp), "--json").output)
    assert about["written"] == [str(webp)] and len(about["steps"]) == about["n_steps"] >= 1
    frames = sum(max(1, len(step["actions"])) for step in about["steps"]) + 1
    for path in (gif, webp):
        with Image.open(path) as film:
            assert getattr(film, "n_frames", 1) == frames
    with Image.open(strip) as joint:
        assert joint.width > frames * 160


def test_a_mistake_is_named_and_nothing_is_written(place: Place, tmp_path: Path) -> None:
    name = longest(place)
    for words in (["show", name, "--gif", str(tmp_path / "a.mp4")], ["show", name, "--strip", str(tmp_path / "a.gif")]):
        assert run(place, *words).exit_code != 0
    assert run(place, "show", "nobody").exit_code != 0 and run(place, "--route", "nowhere").exit_code != 0
    assert not list(tmp_path.iterdir())
