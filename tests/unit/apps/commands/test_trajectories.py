"""`flywheel trajectories` on a small lake."""

import json
from pathlib import Path

from PIL import Image
from typer.testing import CliRunner, Result

from apps.cli import make_app
from tests.unit.apps.conftest import Place, make_place


def run(place: Place, *words: str) -> Result:
    return CliRunner().invoke(make_app(), ["trajectories", *words, "--config", str(place.file)])


def longest(place: Place) -> str:
    found = json.loads(run(place, "--sort", "steps", "--limit", "1", "--json").output)
    return found["trajectories"][0]["trajectory_id"]


def test_alone_it_lists_and_its_json_has_the_same(place: Place) -> None:
    listed = run(place, "--outcome", "failure", "--limit", "3")
    assert listed.exit_code == 0 and "3 of 24 trajectories that match." in listed.output
    found = json.loads(run(place, "list", "--outcome", "failure", "--limit", "3", "--json").output)
    assert len(found["trajectories"]) == 3 < found["total"]
    for one in found["trajectories"]:
        assert one["outcome"] == "failure" and one["trajectory_id"] in listed.output
    assert f"--after {found['after']}" in listed.output
    rest = json.loads(run(place, "--outcome", "failure", "--limit", "21", "--after", found["after"], "--json").output)
    assert len(rest["trajectories"]) == 21 and rest["after"] is None
    assert not {one["trajectory_id"] for one in rest["trajectories"]} & {
        one["trajectory_id"] for one in found["trajectories"]
    }


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
    (tmp_path / "a.gif").write_bytes(b"mine")
    assert run(place, "show", name, "--gif", str(tmp_path / "a.gif")).exit_code != 0
    assert (tmp_path / "a.gif").read_bytes() == b"mine"


def test_found_ids_go_from_one_command_to_others(place: Place, tmp_path: Path) -> None:
    own = make_place(tmp_path)
    listed = run(own, "--outcome", "success", "--iteration", "1", "--ids").output.split()
    assert len(listed) == 12 and all(len(name) == 24 for name in listed)
    file = tmp_path / "ids.txt"
    file.write_text("\n".join(listed))
    tried = json.loads(run(own, "decide", "reject", "--ids", str(file), "--dry-run", "--json").output)
    assert len(tried["trajectories"]) == 12 and not own.lake.count("reviews")
    done = json.loads(run(own, "decide", "reject", "--ids", str(file), "--person", "Ada", "--json").output)
    assert json.loads(run(own, "--gate", "person", "--json").output)["total"] == 12
    undone = run(own, "undo", done["batch"], "--person", "Ada")
    assert undone.exit_code == 0 and "12 trajectories: undone" in undone.output
    assert run(own, "--gate", "person").exit_code != 0  # no trajectory has this gate's rejection now
    one = run(own, "decide", "route:ct", listed[0], "--person", "Ada")
    assert "1 trajectory: route:ct. Undo: flywheel trajectories undo" in one.output
    exported = CliRunner().invoke(
        make_app(),
        ["data", "export", "--format", "atif", "--to", str(tmp_path / "out"), "--ids", str(file), "--config",
         str(own.file), "--json"],
    )  # fmt: skip
    assert exported.exit_code == 0, exported.output
    assert json.loads(exported.stdout)["trajectories"] == 12
    assert run(own, "decide", "reject", "--ids", str(tmp_path / "nothing")).exit_code != 0


def test_tags_are_written_shown_found_and_removed(place: Place, tmp_path: Path) -> None:
    own = make_place(tmp_path)
    name = longest(own)

    def tag(*words: str) -> Result:
        return CliRunner().invoke(make_app(), ["tag", *words, "--person", "Ada", "--config", str(own.file)])

    assert "tag flaky: why (Ada" in tag(name, "policy-0001", "--tag", "flaky", "--note", "why").output
    assert json.loads(run(own, "--tag", "flaky", "--json").output)["total"] == 1
    assert "tag flaky: why" in run(own, "show", name).output and "flaky" in tag("policy-0001").output
    assert tag(name, "--tag", "flaky", "--remove").exit_code == 0
    assert run(own, "--tag", "flaky").exit_code != 0 and tag("nobody", "--tag", "flaky").exit_code != 0
