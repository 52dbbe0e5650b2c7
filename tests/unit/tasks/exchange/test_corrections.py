"""Errors that were corrected leave the house, and come into one, as context and never as targets."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from curation.converters.format import FORMATS
from schemas.action import action_of, to_json
from schemas.config import Config, config_of
from storage.catalog import ask
from storage.lake import Lake
from tasks.exchange.export import export_trajectories
from tasks.exchange.importing import Request, _import_records  # pyright: ignore[reportPrivateUsage]
from tasks.running.run import Run
from tasks.shared.reviews import Draft, submit
from tests.tiers import NIGHTLY
from tests.unit.apps.conftest import make_place
from tests.unit.curation.converters.records import picture

ERROR, MEANT = {"type": "type", "content": "error"}, {"type": "type", "content": "meant"}


@pytest.fixture
def corrected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Config, Lake]:
    """A lake in which one success corrects another's error, the same was undone once more, one that a person corrected
    was accepted without a verifier, and so was one whose correction a sandbox refuted."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)
    lake, where = place.lake, {"iteration": 0}
    first, step, verdict = _success(lake)
    after = picture(1, 160, 210)
    lake.append("screenshots", [{**where, "sha256": after.sha256, "png": after.png, "phash": "0" * 16, **SIZE}])
    for name, more in (
        ("right", {"continues": "failed", "replayed": 1}),
        ("unseen", {"continues": "failed", "replayed": 1, "success": None}),
        ("person", {"success": False}),
        ("refuted", {"success": False}),
        ("tried", {"continues": "refuted", "replayed": 1, "success": False, "policy": "correction"}),
    ):
        acted = [json.dumps(ERROR), json.dumps({"type": "type", "content": name})]
        rows = [
            {
                **step,
                "trajectory_id": name,
                "step": at,
                "actions": [one],
                "actor": "person",
                "action_type": "type",
            }
            for at, one in enumerate(acted)
        ]
        rows[1]["screenshot"] = after.sha256
        if name == "tried":
            rows[1]["actions"] = [to_json(action_of(MEANT))]
        lake.append("steps", rows)
        lake.append("trajectories", [{**first, "trajectory_id": name, "n_steps": 2, **more}])
        route = "ct" if name == "tried" else "sft"
        lake.append("verdicts", [{**verdict, "trajectory_id": name, "route": route}])
    submit(lake, Draft("person", 0, "ada", "correct", 0, json.dumps(MEANT), "I look."))
    submit(lake, Draft("refuted", 0, "ada", "correct", 1, json.dumps(MEANT), "I look."))
    return place.config, lake


def taught_of(rows: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Trajectory and typed word of the targets that were made here."""
    return sorted((name, word) for name, text in rows if name in NAMES for word in WORDS if f"'{word}'" in text)


SIZE = {"width": 160, "height": 210}
NAMES = ("right", "unseen", "person", "refuted")
WORDS = (*NAMES, "error", "meant")
TARGETS = [("person", "meant"), ("person", "person"), ("refuted", "error"), ("right", "right")]


@pytest.mark.slow
def test_no_trainer_of_others_gets_a_replayed_or_corrected_step_for_a_target(
    corrected: tuple[Config, Lake], tmp_path: Path
) -> None:
    config, lake = corrected
    for name in ("ui-tars", "verl", "trl", "scalecua"):
        export_trajectories(config, lake, FORMATS.class_of(name)(), tmp_path / name, (0, 1), "sft")
    lines = _lines(tmp_path / "ui-tars" / "ui-tars.jsonl")
    chats = [(_named(one["flywheel"]), one["messages"][-1]) for one in lines]
    assert taught_of([(name, one["content"]) for name, one in chats if one["loss_mask"]]) == TARGETS
    assert len([name for name, _ in chats if name in NAMES]) == 2 * len(NAMES) + 1
    rows = pq.read_table(tmp_path / "verl" / "verl.parquet").to_pylist()
    verl = [(_named(json.loads(one["extra_info"]["flywheel"])), one["reward_model"]["ground_truth"]) for one in rows]
    assert taught_of(verl) == TARGETS
    rows = pq.read_table(tmp_path / "trl" / "trl-completions.parquet").to_pylist()
    trl = [(_named(json.loads(one["flywheel"])), one["completion"][0]["content"][0]["text"]) for one in rows]
    assert taught_of(trl) == TARGETS
    whole = pq.read_table(tmp_path / "trl" / "trl.parquet").to_pylist()
    assert not {_named(json.loads(one["flywheel"])) for one in whole} & set(NAMES)
    card = (tmp_path / "trl" / "README.md").read_text().split("---")[1]
    assert yaml.safe_load(card)["configs"] == [
        {"config_name": "trajectories", "data_files": "trl.parquet"},
        {"config_name": "targets", "data_files": "trl-completions.parquet"},
    ]
    lines = _lines(tmp_path / "scalecua" / "scalecua.jsonl")
    scale = [(_named(one["flywheel"]), one["conversations"][-1]["value"].split("<action>")[1]) for one in lines]
    assert taught_of(scale) == TARGETS
    mix = json.loads((tmp_path / "scalecua" / "meta.json").read_text())["flywheel"]
    assert mix["length"] == len(lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["atif", "verl"] if NIGHTLY else ["atif"])
def test_what_was_no_target_is_none_where_it_is_imported(
    corrected: tuple[Config, Lake], tmp_path: Path, name: str
) -> None:
    config, lake = corrected
    export_trajectories(config, lake, FORMATS.class_of(name)(), tmp_path / "out", (0, 1), "sft")
    other = config_of({**json.loads(config.canonical()), "lake": {"uri": str(tmp_path / "other"), "min_free_mb": 1}})
    run = Run(other, Lake.open(other.lake), "run")
    request = Request(format=name, path=tmp_path / "out")
    done = _import_records(run, -2, request, f"import:{name}:0123456789abcdef")
    assert done.decisions == 2
    assert _import_records(run, -2, request, f"import:{name}:0123456789abcdef").decisions == 0
    brought = {
        json.loads(one["extra"])["flywheel"]["trajectory_id"]: one
        for one in run.lake.read("trajectories", where={"iteration": -2}).to_pylist()
    }
    assert (brought["right"]["continues"], brought["right"]["replayed"]) == ("failed", 1)
    (verdict, *_) = lake.read("verdicts").to_pylist()
    names = {one["trajectory_id"]: known for known, one in brought.items() if known in NAMES}
    run.lake.append("verdicts", [{**verdict, "trajectory_id": one, "route": "sft"} for one in names])
    assert _weighed(run.lake, names) == _weighed(lake, {one: one for one in NAMES}) == {
        ("person", 0, True), ("person", 1, False), ("refuted", 0, False), ("right", 1, False)
    }  # fmt: skip


def _weighed(lake: Lake, names: dict[str, str]) -> set[tuple[str, int, bool]]:
    """What a training draws of these: the trajectory, the step, and whether a person's reply to it."""
    asked = {"history_images": 2, "measured": "", "balance": 0.5, "floor": 0.1, "grounding_share": 0.1}
    rows: list[dict[str, Any]] = ask(
        lake, "training_weights", **asked, practice=[], practice_share=0.0, prefixes="none", corrections="all"
    ).to_pylist()
    drawn = [one for one in rows if one["weight"] is not None and one["trajectory_id"] in names]
    return {(names[one["trajectory_id"]], one["step"], one["corrected"]) for one in drawn}


def _named(known: dict[str, Any]) -> str:
    return known["trajectory"]["trajectory_id"]


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


TAUGHT = {
    ("beyond", 1, False),  # what follows the corrected step only showed that it was right
    ("shown-twice", 2, False),  # the last showing of the corrected screen
    ("by-hand", 1, False), ("by-hand", 2, False), ("by-hand", 3, False),  # what a person said, and all that follows
    ("lost", 0, True),  # its other correction is what by-hand shows
    ("detour", 2, False), ("detour", 3, False),
    ("group-1", 0, False), ("group-1", 1, False),  # group-2 did the very same
    ("stands", 0, False), ("stands", 1, False),  # a verified success, its correction not
}  # fmt: skip


@pytest.fixture
def busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Config, Lake]:
    """Corrections of proposers and of people with steps after them, a detour, a group that repeats itself, and a
    success whose correction nothing confirmed; all accepted."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)
    lake, sample = place.lake, _success(place.lake)
    correction = {"policy": "correction", "continues": "elsewhere", "replayed": 1}
    for name, screens, more in (
        ("beyond", "1234", correction),
        ("shown-twice", "1223", correction),
        ("lost", "12", {"success": False}),
        ("by-hand", "1234", {**correction, "continues": "lost"}),
        ("detour", "1213", {}),
        ("group-1", "56", {"group_id": "g"}),
        ("group-2", "56", {"group_id": "g"}),
        ("stands", "57", {}),
    ):
        _add(lake, name, screens, sample, **more)
    submit(lake, Draft("lost", 0, "ada", "correct", 1, _typed("by-hand", 1), "So."))
    submit(lake, Draft("lost", 1, "ada", "correct", 0, json.dumps(MEANT), "I look."))
    submit(lake, Draft("stands", 0, "ada", "correct", 0, json.dumps(MEANT), "Elsewhere."))
    return place.config, lake


def _success(lake: Lake) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A success of one step as it stands in the lake: the trajectory, the step, the verdict."""
    found = lake.read("trajectories", where={"iteration": 0, "success": True, "n_steps": 1}).to_pylist()
    first = found[0]
    of = {"iteration": 0, "trajectory_id": first["trajectory_id"]}
    (step,), (verdict,) = lake.read("steps", where=of).to_pylist(), lake.read("verdicts", where=of).to_pylist()
    return first, step, verdict


def _add(lake: Lake, name: str, screens: str, sample: Any, **more: Any) -> None:
    """An accepted trajectory, made from that of `_success`, each digit of `screens` a screen."""
    where, (first, step, verdict) = {"iteration": 0}, sample
    shown = {screen: picture(int(screen), 160, 210) for screen in screens}
    pngs = [{**where, "sha256": one.sha256, "png": one.png, "phash": "0" * 16, **SIZE} for one in shown.values()]
    lake.append("screenshots", pngs)
    acted = {"trajectory_id": name, "action_type": "type", "actor": "person" if name == "by-hand" else "explorer"}
    steps = [
        {**step, **acted, "step": at, "screenshot": shown[screen].sha256, "actions": [_typed(name, at)]}
        for at, screen in enumerate(screens)
    ]
    lake.append("steps", steps)
    lake.append("trajectories", [{**first, "trajectory_id": name, "n_steps": len(steps), **more}])
    lake.append("verdicts", [{**verdict, "trajectory_id": name, "route": "sft"}])


def _typed(name: str, at: int) -> str:
    return to_json(action_of({"type": "type", "content": f"{name.split('-')[0] if 'group' in name else name} {at}"}))


OURS = {name: name for name in ("group-2", *(name for name, _, _ in TAUGHT))}


@pytest.mark.slow
def test_the_targets_of_an_export_are_those_of_a_training_here(busy: tuple[Config, Lake], tmp_path: Path) -> None:
    config, lake = busy
    assert _weighed(lake, OURS) == TAUGHT
    for name in ("ui-tars", "verl", "trl", "scalecua"):
        export_trajectories(config, lake, FORMATS.class_of(name)(), tmp_path / name, (0, 1), "sft")
    assert _lessons(_masked(tmp_path / "ui-tars"), OURS) == TAUGHT
    rows = pq.read_table(tmp_path / "verl" / "verl.parquet").to_pylist()
    verl = [(json.loads(one["extra_info"]["flywheel"]), one["reward_model"]["ground_truth"]) for one in rows]
    assert _lessons(verl, OURS) == TAUGHT
    lines = _lines(tmp_path / "scalecua" / "scalecua.jsonl")
    assert _lessons([(one["flywheel"], one["conversations"][-1]["value"]) for one in lines], OURS) == TAUGHT
    rows = pq.read_table(tmp_path / "trl" / "trl-completions.parquet").to_pylist()
    trl = [(json.loads(one["flywheel"]), one["completion"][0]["content"][0]["text"]) for one in rows]
    chats = pq.read_table(tmp_path / "trl" / "trl.parquet").to_pylist()
    whole = {_named(json.loads(one["flywheel"])) for one in chats} & OURS.keys()
    assert whole == {"group-1", "stands"}
    assert _lessons(trl, OURS) == {one for one in TAUGHT if one[0] not in whole}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["atif", "verl", "trl", "lerobot"] if NIGHTLY else ["verl"])
def test_what_was_a_target_is_one_where_it_is_imported_and_nothing_else_is(
    busy: tuple[Config, Lake], tmp_path: Path, name: str
) -> None:
    config, lake = busy
    export_trajectories(config, lake, FORMATS.class_of(name)(), tmp_path / "out", (0, 1), "sft")
    other = config_of({**json.loads(config.canonical()), "lake": {"uri": str(tmp_path / "other"), "min_free_mb": 1}})
    run = Run(other, Lake.open(other.lake), "run")
    _import_records(run, -2, Request(format=name, path=tmp_path / "out"), f"import:{name}:0123456789abcdef")
    brought = run.lake.read("trajectories", where={"iteration": -2}).to_pylist()
    known = {one["trajectory_id"]: json.loads(one["extra"])["flywheel"]["trajectory_id"] for one in brought}
    (verdict, *_) = lake.read("verdicts").to_pylist()
    decided = {**verdict, "iteration": -2, "route": "sft"}
    run.lake.append("verdicts", [{**decided, "trajectory_id": one} for one in known])
    names = {one: ours for one, ours in known.items() if ours in OURS}
    assert _weighed(run.lake, names) == TAUGHT
    export_trajectories(other, run.lake, FORMATS.class_of("ui-tars")(), tmp_path / "again", (-2, -1))
    assert _lessons(_masked(tmp_path / "again"), names) == TAUGHT


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ui-tars", "verl", "trl", "scalecua"] if NIGHTLY else ["ui-tars", "trl"])
def test_a_trainer_of_others_reads_the_thoughts_that_people_wrote_and_the_recorded_ones_stay_beside(
    busy: tuple[Config, Lake], tmp_path: Path, name: str
) -> None:
    config, lake = busy
    for step in lake.read("steps", where={"trajectory_id": "detour"}).to_pylist():
        lake.upsert("steps", [{**step, "thought": f"Recorded {step['step']}."}])
    submit(lake, Draft("detour", 0, "ada", "correct", 2, _typed("detour", 2), "Mine."))
    export_trajectories(config, lake, FORMATS.class_of(name)(), tmp_path / "out", (0, 1), "sft")
    if name in ("ui-tars", "scalecua"):
        texts = (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()
    else:
        file = "trl-completions.parquet" if name == "trl" else "verl.parquet"
        rows = pq.read_table(tmp_path / "out" / file).drop_columns("images").to_pylist()
        texts = [json.dumps(row) for row in rows]
    said = [text.partition('"flywheel"')[0] for text in texts]
    assert any("Mine." in text for text in said)
    if name != "scalecua":  # whose history is of operations alone
        assert all("Mine." in text for text in said if "detour 3" in text)
    assert not any("Recorded 2." in text for text in said)
    assert any("Recorded 2." in text for text in texts)  # beside it
    other = config_of({**json.loads(config.canonical()), "lake": {"uri": str(tmp_path / "other"), "min_free_mb": 1}})
    run = Run(other, Lake.open(other.lake), "run")
    _import_records(run, -2, Request(format=name, path=tmp_path / "out"), f"import:{name}:0123456789abcdef")
    thoughts = run.lake.read("steps", ["thought"], {"iteration": -2})["thought"].to_pylist()
    assert "Recorded 2." in thoughts and "Mine." not in thoughts
    assert "Mine." in run.lake.read("reviews", ["thought"])["thought"].to_pylist()


def _masked(folder: Path) -> list[tuple[dict[str, Any], str]]:
    """Of the rows of UI-TARS with a loss what is known of them, and the reply."""
    lines = _lines(folder / "ui-tars.jsonl")
    chats = [(one["flywheel"], one["messages"][-1]) for one in lines]
    return [(known, reply["content"]) for known, reply in chats if reply["loss_mask"]]


def _lessons(rows: list[tuple[dict[str, Any], str]], names: dict[str, str]) -> set[tuple[str, int, bool]]:
    """Of rows that are targets the trajectory, the step, and whether it is a person's reply; each is there once."""
    found = [(names[_named(one)], one["step"], "meant" in reply) for one, reply in rows if _named(one) in names]
    assert len(set(found)) == len(found)
    return set(found)
