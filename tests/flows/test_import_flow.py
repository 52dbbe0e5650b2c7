"""A data set of others becomes an iteration of its own: gated, routed, trained on, and there once only."""

import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw, ImageFont

from apps.commands.data import news
from apps.commands.lineage import lineage_of
from curation.converters.agentnet import AgentNet
from curation.converters.exchanged import Exchanged
from curation.converters.files import ImportSource
from curation.converters.format import FORMATS
from flows.data import import_data, refilter
from flows.flywheel import flywheel
from flows.policies import retrain
from models import readers as rapid
from schemas.config import Config
from schemas.failure import FlywheelError, UsageError
from storage.catalog import ask
from storage.lake import Lake
from tasks.exchange import demonstrations
from tasks.exchange.export import export_trajectories
from tasks.exchange.importing import Request, check_import, claim_import
from tasks.running.run import open_run
from tasks.shared.reviews import Draft, submit
from tasks.shared.status import begun_iterations, iterations
from tasks.train.supervised import weighed_targets
from tests.fixtures.sentences import Sentences
from tests.flows.conftest import Turned

COUNTS = ("trajectories", "steps", "already", "repeated")


def png(shade: int) -> bytes:
    """A screen with a window on it; one of a single colour would be taken for one that has not been drawn yet."""
    buffer, image = io.BytesIO(), Image.new("RGB", (160, 120), (shade, 90, 200))
    place = random.Random(shade)
    for _ in range(6):
        x, y = place.randrange(120), place.randrange(90)
        ImageDraw.Draw(image).rectangle((x, y, x + 35, y + 25), fill=(place.randrange(256), 255 - shade, 40))
    image.save(buffer, "PNG")
    return buffer.getvalue()


def line(
    number: int, completed: bool | None = True, end: str = "computer.terminate(status='success')", **more: Any
) -> dict[str, Any]:
    """A record of two steps with AgentNet's columns."""
    codes = [f"pyautogui.click(x=0.{number + 1}, y=0.25)", end]
    looked = {"last_step_correct": True, "last_step_redundant": False, "reflection": "It did what it had to."}
    traj = [
        {"index": at, "image": f"{number}-{at}.png", "value": {"code": code, "thought": "Click it.", **looked}}
        for at, code in enumerate(codes)
    ]
    done = {} if completed is None else {"task_completed": completed, "alignment_score": 8}
    return {"task_id": f"theirs-{number}", "instruction": f"Open window {number}.", "traj": traj, **done, **more}


def data_set(folder: Path, lines: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    for entry in [entry for one in lines for entry in one["traj"]]:
        name = Path(entry["image"]).name
        first, second = name.removesuffix(".png").split("-")
        (folder / name).write_bytes(png(20 * int(first) + 7 * int(second)))
    (folder / "theirs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder / "theirs.jsonl"


def test_an_imported_data_set_is_gated_routed_and_in_the_next_training(turned: Turned, tmp_path: Path) -> None:
    small = turned(1)
    lake = Lake.open(small.lake)
    lines = [line(0), line(1), line(2, completed=False), line(3, None, "pyautogui.press('enter')")]
    request = Request(format="agentnet", path=data_set(tmp_path / "theirs", lines))
    done = import_data(small, request)
    assert (done["iteration"], done["trajectories"], done["steps"]) == (-2, 4, 8)
    assert done["routes"]["sft"] == 2
    assert {route: sum(gates.values()) for route, gates in done["gates"].items()} == {
        route: count for route, count in done["routes"].items() if route != "sft"
    }
    rows = {
        json.loads(row["extra"])["name"]: row for row in lake.read("trajectories", where={"iteration": -2}).to_pylist()
    }
    assert [rows[f"theirs-{n}"]["success"] for n in range(4)] == [True, True, False, None]
    assert {row["policy_version"] for row in rows.values()} == {done["source"]}
    assert lake.count("reflections", {"iteration": -2}) == 8
    assert all(row["success"] for row in lake.read("quality", where={"iteration": -2}).to_pylist())

    versions = lake.versions()
    again = import_data(small, request)
    assert [again[name] for name in COUNTS] == [0, 0, 4, 0]
    assert again["iteration"] is None and "4 trajectories of theirs.jsonl are in the lake already" in again["say"]
    assert lake.count("trajectories", {"iteration": -2}) == 4
    assert lake.versions() == versions

    version = retrain(small)
    trained = lineage_of(lake, version).trajectories
    accepted = {rows[f"theirs-{n}"]["trajectory_id"] for n in (0, 1)}
    assert accepted <= set(trained)
    assert version in lineage_of(lake, min(accepted)).policies
    assert [row.iteration for row in begun_iterations(lake)] == [0]
    assert [row.iteration for row in iterations(lake)] == [-2, -1, 0]


@pytest.mark.nightly
def test_the_wheels_own_trajectories_go_round_and_come_home_only_once(turned: Turned, tmp_path: Path) -> None:
    small = turned(1)
    lake = Lake.open(small.lake)
    count = export_trajectories(small, lake, AgentNet(), tmp_path / "out").total()
    assert count == lake.count("trajectories", {"iteration": 0}) > 0
    home = import_data(small, Request(format="agentnet", path=tmp_path / "out"))
    assert (home["trajectories"], home["already"]) == (0, count)
    other = small.model_copy(update={"lake": small.lake.model_copy(update={"uri": str(tmp_path / "other")})})
    away = import_data(other, Request(format="agentnet", path=tmp_path / "out"))
    there = Lake.open(other.lake)
    assert away["trajectories"] == count
    ours = {
        (row["task_id"], row["seed"], row["success"], row["n_steps"]) for row in lake.read("trajectories").to_pylist()
    }
    theirs = {
        (row["task_id"], row["seed"], row["success"], row["n_steps"]) for row in there.read("trajectories").to_pylist()
    }
    assert ours == theirs
    flywheel(other, iterations=1)
    assert [row.iteration for row in iterations(there)] == [-2, -1, 0]


@pytest.mark.slow
def test_a_record_is_counted_once_and_an_import_without_a_new_one_has_no_iteration(
    small: Config, tmp_path: Path
) -> None:
    one, two, three = line(0), line(1), line(2)
    first = import_data(small, Request(format="agentnet", path=data_set(tmp_path / "one", [one, one, two])))
    assert [first[name] for name in COUNTS] == [2, 4, 0, 1]
    assert "2 trajectories, 4 steps of theirs.jsonl; 1 record is the same as an earlier one" in first["say"]
    lake = Lake.open(small.lake)
    versions = lake.versions()
    part = import_data(small, Request(format="agentnet", path=data_set(tmp_path / "part", [two, two])))
    assert (part["iteration"], part["routes"], part["source"] != first["source"]) == (None, {}, True)
    assert [part[name] for name in COUNTS] == [0, 0, 1, 1]
    assert {name: lake.version(name) for name in ("trajectories", "stages", "quality")} == {
        name: versions[name] for name in ("trajectories", "stages", "quality")
    }
    mixed = import_data(small, Request(format="agentnet", path=data_set(tmp_path / "more", [one, three, one, three])))
    assert mixed["iteration"] == first["iteration"] - 1
    assert [mixed[name] for name in COUNTS] == [1, 2, 1, 2]


@pytest.mark.slow
def test_what_two_imports_hold_alike_is_imitated_once_and_stays_so_when_filtered_again(
    small: Config, tmp_path: Path
) -> None:
    first = import_data(small, Request(format="agentnet", path=data_set(tmp_path / "one", [line(0), line(1)])))
    again = {**line(0), "task_id": "another", "instruction": "open  window 0. "}
    second = import_data(small, Request(format="agentnet", path=data_set(tmp_path / "two", [again, line(2)])))
    assert (first["routes"], second["routes"]) == ({"sft": 2}, {"rl": 1, "sft": 1})
    assert (first["gates"], second["gates"]) == ({}, {"rl": {"duplicates": 1}})
    assert second["iteration"] < first["iteration"]
    found = refilter(small)
    assert found.changed == 0 and found.routes.after == {"rl": 1, "sft": 3}


def routes(config: Config) -> dict[str, str]:
    """Routes of the lake's trajectories, by name of their records."""
    lake = Lake.open(config.lake)
    names = {
        row["trajectory_id"]: json.loads(row["extra"])["name"].removeprefix("theirs-")
        for row in lake.read("trajectories").to_pylist()
    }
    return {names[row["trajectory_id"]]: row["route"] for row in ask(lake, "decisions", iteration=None).to_pylist()}


def outcomes(config: Config) -> list[tuple[Any, ...]]:
    """Outcomes of the lake's trajectories with their routes; which of two equal ones is the duplicate is left open."""
    lake = Lake.open(config.lake)
    decided = {row["trajectory_id"]: row["route"] for row in ask(lake, "decisions", iteration=None).to_pylist()}
    rows = lake.read("trajectories").to_pylist()
    return sorted((row["success"], row["reward"], row["termination"], decided[row["trajectory_id"]]) for row in rows)


@pytest.mark.slow
def test_demonstrations_given_later_make_the_rows_of_a_first_import_with_them(small: Config, tmp_path: Path) -> None:
    enter = "pyautogui.press('enter')"
    lines = [line(number, None, enter) for number in range(4)] + [line(5, False, enter)]
    lines[1] = {**lines[0], "task_id": "theirs-1"}  # the same on the same screens
    file = data_set(tmp_path / "theirs", lines)
    plain, request = (Request(format="agentnet", path=file, demonstrations=given) for given in (False, True))
    other = small.model_copy(update={"lake": small.lake.model_copy(update={"uri": str(tmp_path / "other")})})
    import_data(other, request)
    first = import_data(small, plain)
    assert (first["routes"], first["without_outcome"]) == ({"ct": 5}, 4)
    done = import_data(small, request)["demonstrations"]
    assert (done["accepted"], done["rejected"], done["iterations"]) == (3, {"duplicates": 1}, [-2])
    assert outcomes(small) == outcomes(other)
    assert [one[:3] for one in outcomes(small)] == [(False, 0.0, "done")] + [(True, 1.0, "done")] * 4
    assert import_data(small, request)["demonstrations"]["accepted"] == 0
    with pytest.raises(UsageError, match="already, with --demonstrations"):
        import_data(small, plain)


@pytest.mark.slow
def test_later_demonstrations_keep_decisions_of_reviewers_and_continue_after_a_kill(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = data_set(tmp_path / "theirs", [line(number, None, "pyautogui.press('enter')") for number in range(3)])
    import_data(small, Request(format="agentnet", path=file))
    lake = Lake.open(small.lake)
    (two,) = (
        row["trajectory_id"]
        for row in lake.read("trajectories").to_pylist()
        if json.loads(row["extra"])["name"] == "theirs-2"
    )
    submit(lake, Draft(two, 0, "Ada", "reject"))
    request = Request(format="agentnet", path=file, demonstrations=True)
    with monkeypatch.context() as patch:
        patch.setattr(demonstrations, "decide", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            import_data(small, request)
    assert set(routes(small).values()) == {"ct"}
    assert import_data(small, request)["demonstrations"]["accepted"] == 2
    assert routes(small) == {"0": "sft", "1": "sft", "2": "ct"}
    assert lake.read("trajectories", ["success"], {"trajectory_id": two})["success"].to_pylist() == [None]


@pytest.mark.slow
def test_a_repeated_import_reports_that_the_interrupted_one_is_finished(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(format="agentnet", path=data_set(tmp_path / "theirs", [line(0), line(1)]))
    with monkeypatch.context() as patch:
        patch.setattr("flows.data.check_quality", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            import_data(small, request)
    done = import_data(small, request)
    assert (done["iteration"], done["trajectories"], done["already"], done["routes"]) == (-2, 0, 2, {"sft": 2})
    assert news(done) == "the interrupted import is finished now"
    assert news(import_data(small, request)) == "nothing new"


@pytest.mark.slow
def test_an_import_that_was_begun_as_demonstrations_is_not_repeated_otherwise(
    small: Config, tmp_path: Path, sentence: Sentences
) -> None:
    file = data_set(tmp_path / "theirs", [line(0, None, "pyautogui.press('enter')"), line(1)])
    request = Request(format="agentnet", path=file, demonstrations=True)
    assert import_data(small, request)["routes"] == {"sft": 2}
    with sentence.raises(UsageError):
        import_data(small, request.model_copy(update={"demonstrations": False}))
    other = data_set(tmp_path / "more", [line(2, None, "pyautogui.press('enter')")])
    half = Request(format="agentnet", path=other)
    with open_run(small):
        claim_import.fn(small, half, check_import.fn(small, half).name)
    with sentence.raises(UsageError):
        import_data(small, half.model_copy(update={"demonstrations": True}))


ENDS = [
    *(f"computer.terminate(status={status!r})" for status in ("success", "failure", "fail", "infeasible")),
    "pyautogui.press('enter')",
]


def test_the_last_terminate_is_the_outcome_of_a_record_without_one(tmp_path: Path) -> None:
    lines = [line(number, None, end) for number, end in enumerate(ENDS)] + [line(5, False), line(6, True, ENDS[3])]
    found = [one for _, one in AgentNet().read(ImportSource(data_set(tmp_path / "theirs", lines)))]
    outcomes = [one.success for one in found if isinstance(one, Exchanged)]
    assert outcomes == [True, False, False, False, None, False, True]


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_a_demonstration_that_ends_in_failure_is_not_imitated(small: Config, tmp_path: Path, later: bool) -> None:
    lines = [line(number, None, end) for number, end in enumerate(ENDS)]
    request = Request(format="agentnet", path=data_set(tmp_path / "theirs", lines))
    if later:
        import_data(small, request)
    import_data(small, request.model_copy(update={"demonstrations": True}))
    lake = Lake.open(small.lake)
    failed = lake.read("trajectories", ["trajectory_id"], {"success": False})["trajectory_id"].to_pylist()
    routes = {row["trajectory_id"]: row["route"] for row in ask(lake, "decisions", iteration=-2).to_pylist()}
    assert [routes.pop(name) for name in failed] == ["ct"] * 3 and [*routes.values()] == ["sft"] * 2


@pytest.mark.slow
def test_screens_that_differ_in_colour_alone_make_trajectories_of_their_own(small: Config, tmp_path: Path) -> None:
    lines = [{**line(0), "task_id": f"theirs-{number}", "instruction": "Click the square."} for number in range(20)]
    for number, one in enumerate(lines):
        one["traj"] = [{**step, "image": f"{number}-{at}.png"} for at, step in enumerate(one["traj"])]
    file = data_set(tmp_path / "theirs", lines)
    for number in range(20):
        image = Image.new("RGB", (160, 120), "white")
        pen, hue = ImageDraw.Draw(image), f"hsl({number * 18}, 90%, 50%)"
        pen.text((8, 6), "Click the square.", fill="black")
        pen.rectangle((60, 40, 90, 70), fill=hue)
        image.save(file.parent / f"{number}-0.png")
        pen.rectangle((0, 100, 160, 120), fill="black")
        image.save(file.parent / f"{number}-1.png")
    done = import_data(small, Request(format="agentnet", path=file))
    assert (done["routes"], done["gates"]) == ({"sft": 20}, {})


def test_one_bad_record_refuses_all_and_names_file_line_and_field(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = line(1)
    bad["traj"][1]["image"] = "../../1-1.png"
    held = line(2, flywheel={"trajectory": {"task_id": "fake/enter-text"}})
    file = data_set(tmp_path / "theirs", [line(0), bad, held])
    config = small.model_copy(update={"suite": small.suite.model_copy(update={"held_out": ("enter-text",)})})
    said = r"theirs\.jsonl, line 2, traj\.1\.image: '\.\./\.\./1-1\.png' leads out .* 1 more .* Nothing was imported"
    with pytest.raises(FlywheelError, match=said):
        import_data(config, Request(format="agentnet", path=file))
    assert not Path(small.lake.uri).exists()
    listed = [json.loads(one) for one in (tmp_path / "home" / "refused.jsonl").read_text().splitlines()]
    assert [(one["line"], one["field"]) for one in listed] == [
        (2, "traj.1.image"),
        (3, "flywheel.trajectory.task_id"),
    ]


@pytest.mark.slow
def test_screens_of_an_imported_data_set_are_read_off_their_pixels_once(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = data_set(tmp_path / "theirs", [line(0), line(1)])
    for path in file.parent.glob("*.png"):
        picture = Image.open(path).convert("RGB")
        ImageDraw.Draw(picture).rectangle((0, 0, 160, 30), fill="white")
        ImageDraw.Draw(picture).text((8, 6), "Settings", fill="black", font=ImageFont.load_default(16))
        picture.save(path)
    config = small.model_copy(update={"annotate": small.annotate.model_copy(update={"reader": "rapidocr"})})
    request = Request(format="agentnet", path=file)
    with monkeypatch.context() as patched, pytest.raises(FlywheelError, match=r"annotate\.reader"):
        patched.setattr(rapid, "MODULES", ("no_such_module",))
        import_data(config, request)
    assert not Path(small.lake.uri).exists()
    done = import_data(config, request)
    lake = Lake.open(config.lake)
    made = lake.read("annotations", where={"iteration": done["iteration"], "author": "ocr"}).to_pylist()
    assert {"grounding", "caption", "question"} <= {one["kind"] for one in made}
    assert any("Settings" in one["thought"] for one in made)
    assert lake.count("readings") == len({one["screenshot"] for one in lake.read("steps").to_pylist()})


def asked_about(folder: Path, count: int) -> Path:
    """A data set of cua-lite with questions about places: two on each of `count` screens."""
    root = folder / "cua-lite" / "Places"
    rows = list[dict[str, Any]]()
    for number in range(count):
        content = png(number)
        name = f"cua-lite/Places/images/{number}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        for at, element in enumerate(("Save", "Open")):
            made = {"name": "point", "arguments": {"coordinate": [100 + at, 500]}}
            called = [{"id": "call_0000", "type": "function", "function": made}]
            user = [{"type": "image", "index": 0}, {"type": "text", "text": f"Locate the element: {element}"}]
            chat = [{"role": "user", "content": user}, {"role": "assistant", "tool_calls": called}]
            held = {"metadata_kind": "cua", "dims": ["desktop", "grounding.point"], "others": {"id": f"{number}-{at}"}}
            rows.append({"images": [name], "messages": json.dumps(chat), "metadata": json.dumps(held)})
    file = root / "desktop" / "grounding.point" / "train" / "point.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), file)
    return folder


def test_questions_about_places_are_trained_on_with_their_screens_and_exported_again(
    small: Config, tmp_path: Path
) -> None:
    done = import_data(small, Request(format="cua-lite", path=asked_about(tmp_path / "in", 3)))
    assert [done[name] for name in (*COUNTS, "questions", "unreadable", "without_outcome")] == [6, 6, 0, 0, 6, 0, 0]
    assert done["routes"] == {"ct": 6}
    lake = Lake.open(small.lake)
    asked = lake.read("annotations", where={"kind": "grounding"}).to_pylist()
    assert {one["author"] for one in asked} == {"import"} and sorted(one["thought"] for one in asked)[:3] == [
        "Open"
    ] * 3
    assert len({one["screenshot"] for one in lake.read("steps").to_pylist()}) == 3
    weighed = weighed_targets(small, lake)
    usable = [row for row in weighed.to_pylist() if row["weight"]]
    assert [row["grounding"] for row in usable] == [True] * 3
    for name in ("cua-lite", "cua-lite-hub"):
        form = FORMATS.class_of(name)()
        export_trajectories(small, lake, form, tmp_path / name)
        read = [one for _, one in form.read(ImportSource(tmp_path / name))]
        assert len(read) == 6 and all(isinstance(one, Exchanged) and one.questions for one in read)
        again = import_data(small, Request(format=name, path=tmp_path / name))
        assert (again["iteration"], again["trajectories"]) == (None, 0)
