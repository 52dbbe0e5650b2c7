"""What people answered in Label Studio is a decision on the step, and only once."""

import json
from pathlib import Path
from typing import Any

import pytest

from curation.converters.exchanged import Exchanged, ExchangedStep, ImportedReview, RecordRefused
from curation.converters.files import ImportSource
from curation.converters.format import FORMATS
from schemas.action import action_of
from schemas.failure import UsageError
from schemas.tables.review import Review
from tasks.exchange.export import export_trajectories
from tasks.exchange.importing import (  # pyright: ignore[reportPrivateUsage]
    ImportResult,
    Request,
    _import_records,
    _resume_import,
    check_import,
)
from tasks.running.run import Run
from tests.fixtures.sentences import Sentences
from tests.unit.apps.conftest import make_place
from tests.unit.curation.converters.records import numbered, picture, taken, written

Result = dict[str, Any]
CLICK, SCROLL = {"type": "click", "x": 0.4881, "y": 0.25}, {"type": "scroll", "x": 0.5, "y": 0.5, "direction": "down"}
DRAG = {"type": "drag", "x": 0.1, "y": 0.2, "to_x": 0.3, "to_y": 0.4}


def area(name: str, *texts: str) -> Result:
    return {"type": "textarea", "from_name": name, "value": {"text": list(texts)}}


def point(x: float, y: float, label: str = "click") -> Result:
    return {"type": "keypointlabels", "from_name": "point", "value": {"x": x, "y": y, "keypointlabels": [label]}}


def choice(name: str, word: str) -> Result:
    return {"type": "choices", "from_name": name, "value": {"choices": [word]}}


def answered(
    folder: Path, *changes: Result, added: tuple[Result, ...] = (), action: Result = CLICK
) -> Exchanged | RecordRefused:
    """A recorded step answered as people do: a copy of what was recorded, in which results take the place of others of
    their control, those of one label of the same label."""
    form = FORMATS.class_of("label-studio")()
    record = numbered([Exchanged("", "Go.", (ExchangedStep(picture(1), "Click it.", (action_of(action),)),))])
    file = written(form, record, folder) / "tasks.json"
    (task,) = json.loads(file.read_text())

    def of(one: Result) -> Any:
        return one["from_name"], one["value"].get("keypointlabels") == ["drag_end"]

    copied = [one for one in task["predictions"][0]["result"] if of(one) not in [of(other) for other in changes]]
    task["annotations"] = [{"id": 1, "completed_by": 1, "result": [*changes, *copied, *added]}]
    file.write_text(json.dumps([task]))
    ((_, read),) = form.read(ImportSource(file))
    return read


def of_others(folder: Path, *answers: list[Result], **data: str) -> Exchanged | RecordRefused:
    """A task of another tool, with an answer of each of these results."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "0.png").write_bytes(picture(0).png)
    task = {"data": {"image": "0.png", "instruction": "Go.", **data}}
    annotations = [{"id": at, "completed_by": 1, "result": results} for at, results in enumerate(answers)]
    (folder / "theirs.json").write_text(json.dumps([{**task, "annotations": annotations}]))
    ((_, read),) = FORMATS.class_of("label-studio")().read(ImportSource(folder / "theirs.json"))
    return read


def corrected(read: Exchanged | RecordRefused) -> Any:
    """The only correction there is, or None where there is none."""
    assert isinstance(read, Exchanged), read
    found = [json.loads(one.action or "") for one in read.decided if one.decision == "correct"]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize("action", [CLICK, SCROLL, DRAG, {"type": "type", "content": "x"}])
def test_an_answer_that_is_a_copy_of_what_was_recorded_corrects_nothing(tmp_path: Path, action: Result) -> None:
    assert corrected(answered(tmp_path / "out", action=action)) is None


@pytest.mark.parametrize(
    ("texts", "action", "meant"),
    [
        (["type(content='x')"], CLICK, {"type": "type", "content": "x"}),
        (["click(start_box='(900,900)')"], CLICK, {"type": "click", "x": 0.9, "y": 0.9}),
        (["click(start_box='(488,250)')", "wait()"], CLICK, {"type": "wait"}),
        (["wait()", "click(start_box='(488,250)')"], CLICK, {"type": "wait"}),
        (["click(start_box='(500,500)')"], SCROLL, {"type": "click", "x": 0.5, "y": 0.5}),
        (["scroll(start_box='(500,500)', direction='up')"], SCROLL, {**SCROLL, "direction": "up"}),
        (["click(start_box='(900,900)')"], DRAG, {"type": "click", "x": 0.9, "y": 0.9}),
    ],
)
def test_an_edited_text_is_the_correction_though_the_recorded_point_is_still_there(
    tmp_path: Path, texts: list[str], action: Result, meant: Result
) -> None:
    assert corrected(answered(tmp_path / "out", area("action", *texts), action=action)) == meant


@pytest.mark.parametrize(
    ("changes", "added", "action", "meant"),
    [
        ([point(90, 90)], (), CLICK, {"type": "click", "x": 0.9, "y": 0.9}),
        ([], (point(90, 90),), CLICK, {"type": "click", "x": 0.9, "y": 0.9}),
        ([point(48.75, 25, "left_double")], (), CLICK, {"type": "left_double", "x": 0.4875, "y": 0.25}),
        ([point(50, 60, "drag_end")], (), DRAG, {**DRAG, "to_x": 0.5, "to_y": 0.6}),
        ([point(90, 90, "scroll")], (), SCROLL, {**SCROLL, "x": 0.9, "y": 0.9}),
        ([point(90, 90), area("action", "click(start_box='(900,900)')")], (), CLICK, {**CLICK, "x": 0.9, "y": 0.9}),
    ],
)
def test_a_moved_point_is_the_correction_though_the_recorded_text_is_still_there(
    tmp_path: Path, changes: list[Result], added: tuple[Result, ...], action: Result, meant: Result
) -> None:
    assert corrected(answered(tmp_path / "out", *changes, added=added, action=action)) == meant


def test_a_text_and_a_point_that_contradict_each_other_are_refused_by_field(tmp_path: Path) -> None:
    read = answered(tmp_path / "out", point(90, 90), area("action", "click(start_box='(100,100)')"))
    assert isinstance(read, RecordRefused) and read.field == "annotations.result.value" and "(100,100)" in read.problem
    read = answered(tmp_path / "two", point(90, 90), added=(point(10, 10),))
    assert isinstance(read, RecordRefused) and "several new points" in read.problem


@pytest.mark.parametrize("answer", [False, True])
@pytest.mark.parametrize(
    ("text", "meant", "thought", "unused"),
    [
        ("type(content='a')\nhotkey(key='enter')", {"type": "type", "content": "a\n"}, "", ""),
        ("type(content='a')\nhotkey(key='return')", {"type": "type", "content": "a\n"}, "", ""),
        ("type(content='a', press_enter=True)", {"type": "type", "content": "a\n"}, "", ""),
        ("wait(time=5)", {"type": "wait", "seconds": 5}, "", ""),
        ("wait(time=50)", {"type": "wait", "seconds": 30}, "", "time=50"),
        ("Thought: It loads.\nAction: wait(why=5)", {"type": "wait"}, "It loads.", "why=5"),
    ],
)
def test_a_text_is_read_as_the_reply_of_a_chat_is(
    tmp_path: Path, answer: bool, text: str, meant: Result, thought: str, unused: str
) -> None:
    for name, own in (("none", ""), ("own", "I look.")):
        action = "click(start_box='(1,2)')" if answer else text
        answers = [[area("action", text)]] if answer else []
        read = of_others(tmp_path / name, *answers, action=action, thought=own)
        assert isinstance(read, Exchanged)
        (step,) = read.steps
        assert (step.action, step.about.unused, step.text, step.error) == (action_of(meant), unused, "", None)
        assert step.thought == ((thought or own) if answer else (own or thought))


SEVERAL = [
    "click(start_box='(100,200)')\ntype(content='a')",
    "click(start_box='(100,200)')\nhotkey(key='enter')",
    "type(content='a', point='<point>1 2</point>')",
    "type(content='x', press_enter=True, delete_existing_text=True)",
    "wait()\nwait()",
]


@pytest.mark.parametrize("text", SEVERAL)
def test_several_actions_are_no_step_and_no_answer(tmp_path: Path, text: str, sentence: Sentences) -> None:
    read = of_others(tmp_path / "task", action=text)
    assert isinstance(read, Exchanged)
    assert (read.steps[0].action, read.steps[0].text) == (None, text)
    assert read.steps[0].error == "2 actions in one reply"
    for refused in (
        of_others(tmp_path / "theirs", [area("action", text)], action="wait()"),
        answered(tmp_path / "ours", area("action", text)),
    ):
        assert isinstance(refused, RecordRefused) and refused.place.line == 1
        assert refused.field == "annotations.result.value.text"
        sentence(refused.problem)


def test_a_thought_in_an_answers_text_is_the_answers(tmp_path: Path) -> None:
    read = answered(tmp_path / "out", area("action", "Thought: It loads.\nAction: wait()"))
    assert isinstance(read, Exchanged)
    (review,) = read.decided
    assert (json.loads(review.action or ""), review.thought) == ({"type": "wait"}, "It loads.")
    said = [area("action", "Thought: It loads.\nAction: wait()"), area("thought", "I wait.")]
    read = answered(tmp_path / "both", *said)
    assert isinstance(read, Exchanged) and read.decided[0].thought == "I wait."


BOX = {"x": 0, "y": 0, "width": 2, "height": 4, "rectanglelabels": ["Button"]}
CLICKED = [
    [point(1, 2)],
    [{**point(1, 2), "from_name": "kp"}],
    [{"type": "rectanglelabels", "from_name": "boxes", "value": BOX}],
    [area("action", "click(start_box='(10,20)')")],
]


@pytest.mark.parametrize("answer", CLICKED)
@pytest.mark.parametrize("name", ["label-studio", "trl"])
def test_the_answer_to_a_task_of_others_stays_its_action_in_an_export(
    tmp_path: Path, name: str, answer: list[Result]
) -> None:
    form = FORMATS.class_of(name)()
    before = "click(start_box='(500,300)')"
    read = of_others(tmp_path / "theirs", answer, action=before, thought="I look.", other="kept")
    assert isinstance(read, Exchanged) and read.steps[0].action == action_of({"type": "click", "x": 0.01, "y": 0.02})
    (again,) = taken(form, written(form, numbered([read]), tmp_path / "out"))
    assert again.steps[0].action == read.steps[0].action and again.steps[0].thought == "I look." and not again.decided


def test_the_text_of_a_task_of_others_is_exported_as_it_came(tmp_path: Path) -> None:
    text = "Thought: I wait.\nAction: wait(why=5)"
    read = of_others(tmp_path / "theirs", action=text, other="kept")
    assert isinstance(read, Exchanged)
    form = FORMATS.class_of("label-studio")()
    folder = written(form, numbered([read]), tmp_path / "out")
    (task,) = json.loads((folder / "tasks.json").read_text())
    assert (task["data"]["action"], task["data"]["other"]) == (text, "kept")
    (again,) = taken(form, folder)
    assert [(one.action, one.thought, one.about.unused) for one in again.steps] == [
        (one.action, one.thought, one.about.unused) for one in read.steps
    ]


def test_only_the_control_of_decisions_decides_and_what_others_hold_is_kept(
    tmp_path: Path, sentence: Sentences
) -> None:
    quality = choice("quality", "Sharp")
    read = answered(tmp_path / "out", choice("decision", "reject"), quality)
    assert isinstance(read, Exchanged)
    assert read.decided == (ImportedReview(None, "label-studio 1", "reject", None, None, ""),)
    (kept,) = read.steps[0].extra["label-studio"]["task"]["annotations"]
    assert [one["from_name"] for one in kept["result"]] == ["quality"] and kept["completed_by"] == 1
    box = {"x": 1, "y": 2, "width": 3, "height": 4, "rectanglelabels": ["click"]}
    read = answered(tmp_path / "box", added=({"type": "rectanglelabels", "from_name": "icons", "value": box},))
    assert isinstance(read, Exchanged) and not read.decided
    assert read.steps[0].extra["label-studio"]["task"]["annotations"][0]["result"][0]["from_name"] == "icons"
    read = answered(tmp_path / "landmark", added=({**point(90, 90, "Button"), "from_name": "landmarks"},))
    assert isinstance(read, Exchanged) and not read.decided
    read = answered(tmp_path / "foreign", added=(point(90, 90, "Button"),))
    assert isinstance(read, RecordRefused)
    sentence(read.problem, "'Button'")
    read = answered(tmp_path / "no", choice("decision", "Sharp"))
    assert isinstance(read, RecordRefused)
    sentence(read.problem, "'Sharp'")


def test_an_answer_is_a_decision_on_the_step_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)
    export_trajectories(place.config, place.lake, FORMATS.class_of("label-studio")(), tmp_path / "out", (0, 1), "sft")
    file = tmp_path / "out" / "tasks.json"
    tasks = json.loads(file.read_text())
    recorded = tasks[0]["predictions"][0]["result"][-1]["value"]
    assert recorded["keypointlabels"] == ["click"] and recorded["x"] == 50.0
    said = [point(5.0, 95.0), area("thought", "There it is."), choice("decision", "reject")]
    tasks[0]["annotations"] = [{"id": 1, "completed_by": {"email": "ada@example.org"}, "result": said}]
    file.write_text(json.dumps(tasks))
    request = Request(format="label-studio", path=file)
    run = Run(place.config, place.lake, "run")
    first, again = (_import_records(run, -2, request, "import:label-studio:0123456789abcdef") for _ in range(2))
    assert (first.trajectories, first.already, first.decisions) == (0, len(tasks), 2)
    assert again.decisions == 0
    name = tasks[0]["data"]["flywheel"]["trajectory"]["trajectory_id"]
    reviews = sorted(place.lake.read("reviews").to_pylist(), key=lambda row: row["revision"])
    assert [(row["trajectory_id"], row["decision"]) for row in reviews] == [(name, "correct"), (name, "reject")]
    assert reviews[0]["person"] == "label-studio ada@example.org"
    assert json.loads(reviews[0]["action"]) == {"type": "click", "x": 0.05, "y": 0.95}
    assert place.lake.count("annotations", {"trajectory_id": name, "kind": "correction"}) == 1


def test_an_export_of_label_studios_own_server_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Label Studio 1.23.2 exported of this very lake after answers through its API: a copy, a moved point, an
    edited text, a rejection with a note, an error step, a skipped task."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)
    recorded = Path(__file__).with_name("label_studio_1_23_2.json").read_text()
    (tmp_path / "answers.json").write_text(recorded.replace('"LAKE"', f'"{place.lake.lake_id}"'))
    request = Request(format="label-studio", path=tmp_path / "answers.json")
    done = _import_records(Run(place.config, place.lake, "run"), -2, request, "import:label-studio:0123456789abcdef")
    assert (done.trajectories, done.already, done.decisions) == (0, 6, 4)
    found = {row["decision"]: row for row in place.lake.read("reviews").to_pylist() if row["decision"] != "correct"}
    assert {name: (row["step"], row["note"]) for name, row in found.items()} == {
        "reject": (None, "wrong page"),
        "error_step": (0, ""),
    }
    corrected_to = {row["action"] for row in place.lake.read("reviews", where={"decision": "correct"}).to_pylist()}
    assert {json.loads(action)["type"] for action in corrected_to} == {"click", "type"}


def test_who_goes_back_to_an_earlier_decision_decides_anew_and_each_import_says_what_was_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)
    export_trajectories(place.config, place.lake, FORMATS.class_of("label-studio")(), tmp_path / "out", (0, 1), "sft")
    file = tmp_path / "out" / "tasks.json"
    task = json.loads(file.read_text())[0]
    name = task["data"]["flywheel"]["trajectory"]["trajectory_id"]

    run, done = Run(place.config, place.lake, "run"), set[int]()

    def brought(number: int, *answers: Result) -> ImportResult:
        task["annotations"] = [{"id": n, "completed_by": 1, "result": [one]} for n, one in enumerate(answers)]
        file.write_text(json.dumps([task]))
        request = Request(format="label-studio", path=file)
        name = f"import:label-studio:{number:016x}"
        if number in done:
            return _resume_import(run, request, name)
        done.add(number)
        return _import_records(run, -2 - number, request, name)

    first, other = point(90, 90), point(10, 10)
    assert [brought(0, first).decisions, brought(1, other).decisions, brought(1, other).decisions] == [1, 1, 0]
    again = brought(0, first)
    assert again.decisions == 1 and "1 decisions of people are new" in str(again)
    assert brought(0, first).decisions == 0
    rows = sorted(place.lake.rows(Review, {"trajectory_id": name}), key=lambda one: one.revision)
    assert [json.loads(one.action or "")["x"] for one in rows] == [0.9, 0.1, 0.9]
    wrong, right = choice("decision", "error_step"), choice("decision", "accept")
    said = [brought(2, wrong), brought(3, right), brought(2, wrong), brought(4, wrong, right), brought(4, wrong, right)]
    assert [one.decisions for one in said] == [1, 1, 1, 1, 0]


LOCAL = "/data/local-files/?d="


def test_an_export_says_where_label_studio_has_its_pictures_and_its_answers_may_lie_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    place = make_place(tmp_path)
    form = FORMATS.class_of("label-studio")()
    export_trajectories(place.config, place.lake, form, tmp_path / "out", (0, 1), "sft", f"{LOCAL}out/")
    (task, *_) = json.loads((tmp_path / "out" / "tasks.json").read_text())
    assert task["data"]["image"].startswith(f"{LOCAL}out/images/") and task["data"]["image"].endswith(".png")
    task["annotations"] = [{"id": 1, "completed_by": 1, "result": [point(90, 90)]}]
    (tmp_path / "elsewhere").mkdir()
    answers = tmp_path / "elsewhere" / "answers.json"
    answers.write_text(json.dumps([task]))
    request = Request(format="label-studio", path=answers)
    assert check_import.fn(place.config, request).name.startswith("import:label-studio:")
    brought = _import_records(Run(place.config, place.lake, "run"), -2, request, "import:label-studio:0123456789abcdef")
    assert (brought.trajectories, brought.decisions) == (0, 1)
    with sentence.raises(UsageError, "--images-at"):
        export_trajectories(place.config, place.lake, FORMATS.class_of("agentnet")(), tmp_path / "no", images_at=LOCAL)


@pytest.mark.parametrize("path", ["images%2F{}", "out/images/{}", "{}"])
def test_a_picture_of_local_files_is_found_by_its_path_or_its_name(tmp_path: Path, path: str) -> None:
    form = FORMATS.class_of("label-studio")()
    record = numbered([Exchanged("", "Go.", (ExchangedStep(picture(1), "", (action_of(CLICK),)),))])
    file = written(form, record, tmp_path / "out") / "tasks.json"
    (task,) = json.loads(file.read_text())
    name = Path(task["data"]["image"]).name
    task["data"]["image"] = LOCAL + path.format(name)
    file.write_text(json.dumps([task]))
    ((_, read),) = form.read(ImportSource(file))
    assert isinstance(read, Exchanged) and read.steps[0].screen == picture(1)
    task["data"]["image"] = f"{LOCAL}..%2Fimages%2F{name}"
    file.write_text(json.dumps([task]))
    ((_, read),) = form.read(ImportSource(file))
    assert isinstance(read, RecordRefused) and "leads out" in read.problem
