"""cua-lite's samples: rows in the shape of its schema are read, and ours have the shape that its validators ask for."""

import json
import string
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from curation.converters.cua_lite.form import CuaLite, CuaLiteHub
from curation.converters.exchanged import MOST_SEED, About, Exchanged, ExchangedStep, PlaceQuestion
from curation.converters.files import ImportSource
from schemas.action import (
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    LeftDouble,
    Navigate,
    PressBack,
    Scroll,
    Type,
    Wait,
    to_json,
)
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import RECORDS, picture, refused, taken, written

Message = dict[str, Any]


def image(index: int) -> Message:
    return {"type": "image", "index": index}


def text(content: str, kind: str = "text") -> Message:
    return {"type": kind, "text": content}


def call(name: str, arguments: Message, number: int = 0) -> Message:
    return {"id": f"call_{number:04d}", "type": "function", "function": {"name": name, "arguments": arguments}}


def acts(*actions: Message, number: int = 0, tool: str = "computer") -> Message:
    return call(tool, {"actions": [*actions]}, number)


def reply(*calls: Message, content: list[Message] | None = None, **more: Any) -> Message:
    return {"role": "assistant", **({"content": content} if content else {}), "tool_calls": [*calls], **more}


def result(number: int, *parts: Message) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number:04d}", "content": [*parts]}


def asked(instruction: str = "Rename the file.") -> Message:
    return {"role": "user", "content": [image(0), text(instruction)]}


DONE: Message = {"role": "assistant", "content": [text("Done.")]}
OPEN = {"action": "click", "coordinate": [447, 81], "clicks": 2}
CHAT = [
    asked(),
    reply(acts(OPEN), content=[text("It is closed.", "inline_reasoning"), text("Open it.", "action_description")]),
    result(0, image(1)),
    reply(
        acts({"action": "key", "keys": ["ctrl", "a"]}, {"action": "type", "text": "b", "press_enter": True}, number=1),
        reasoning_content="Replace it.",
    ),
    result(1, image(2), image(3), text("typed")),
    DONE,
]


def metadata(dims: tuple[str, str] = ("desktop", "use"), **others: Any) -> Message:
    return {
        "metadata_kind": "cua", "dims": [*dims], "extra_tool_schemas": [], "valid_actions": None,
        "others": {"id": "row-1", "resolution": [50, 40], "source": "own/data", **others},
    }  # fmt: skip


def stored(
    folder: Path, chat: Any, held: Any, images: Any = 4, part: str = "desktop/use/train/one", **more: Any
) -> Path:
    """A data set of one row in the local layout; its path is the folder of all data sets."""
    root = folder / "cua-lite" / "Files"
    names = list[str]()
    for shade in range(images) if isinstance(images, int) else ():
        name = f"images/{picture(shade).sha256[:2]}/{picture(shade).sha256}.png"
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture(shade).png)
        names.append(f"cua-lite/Files/{name}")
    row = {"images": names if isinstance(images, int) else images, "messages": chat, "metadata": held, **more}
    row |= {name: json.dumps(row[name]) for name in ("messages", "metadata") if not isinstance(row[name], str)}
    file = root / f"{part}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([row]), file)
    return folder


def rows_of(folder: Path) -> list[dict[str, Any]]:
    rows = [row for file in sorted(folder.rglob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    return [{**row, **{name: json.loads(row[name]) for name in ("messages", "metadata")}} for row in rows]


def test_a_reply_is_a_step_with_all_actions_of_its_batch_and_the_screens_between_them(tmp_path: Path) -> None:
    (record,) = taken(CuaLite(), stored(tmp_path, CHAT, metadata(episode_return=1.0)))
    first, second, last = record.steps
    assert (record.name, record.instruction, record.success, record.about.reward) == (
        "row-1",
        "Rename the file.",
        True,
        1.0,
    )
    assert (first.thought, first.actions, first.screen) == (
        "It is closed.",
        (LeftDouble(x=0.447, y=0.081),),
        picture(0),
    )
    assert (second.thought, second.actions) == ("Replace it.", (Hotkey(key="ctrl a"), Type(content="b\n")))
    assert (second.screen, second.frames) == (picture(1), (picture(2),))
    assert (last.screen, last.actions, record.after) == (picture(3), (Finished(),), None)


@pytest.mark.parametrize("form", [CuaLite(), CuaLiteHub()], ids=lambda one: one.name)
def test_an_imported_sample_is_written_back_as_it_came(form: CuaLite, tmp_path: Path) -> None:
    held = metadata(episode_return=0.5, task_id="t-1", os="ubuntu")
    (record,) = taken(CuaLite(), stored(tmp_path / "in", CHAT, held))
    (row,) = rows_of(written(form, [record], tmp_path / "out"))
    assert row["messages"] == CHAT
    row["metadata"]["others"].pop("flywheel")
    assert row["metadata"] == held
    assert record.success is False and record.about.reward == 0.5
    (again,) = taken(form, tmp_path / "out")
    assert again.steps == record.steps


def test_calls_of_a_phone_and_of_other_tools_are_read(tmp_path: Path) -> None:
    chat = [
        asked(),
        reply(
            acts({"action": "tap", "coordinate": [500, 1000]}, {"action": "screenshot"}, tool="mobile"),
            call("open_app", {"app_name": "Notes"}, 1),
        ),
        result(0, image(1), image(2)),
        result(1, text("started")),
        reply(acts({"action": "swipe", "start_coordinate": [0, 0], "coordinate": [0, 500]}, number=2, tool="mobile")),
        result(2, image(3)),
        reply(acts({"action": "system_button", "button": "Back"}, number=3, tool="mobile")),
    ]
    (record,) = taken(CuaLite(), stored(tmp_path, chat, metadata(("mobile", "use"))))
    assert [[json.loads(to_json(one))["type"] for one in step.actions] for step in record.steps] == [
        ["click", "open_app"], ["drag"], ["press_back"]
    ]  # fmt: skip
    assert record.steps[0].frames == (picture(1),) and record.success is None
    assert record.steps[1].actions == (Drag(x=0, y=0, to_x=0, to_y=0.5),) and record.steps[2].actions == (PressBack(),)


@pytest.mark.parametrize(
    ("ending", "others", "action"),
    [
        (DONE, {"terminate_status": "failure", "terminate_reason": "no rights"}, CallUser(content="no rights")),
        ({"role": "assistant", "content": [text("42")]}, {}, Finished(content="42")),
        (reply(call("response", {"text": "42"}, 9)), {}, Finished(content="42")),
        (reply(call("terminate", {"status": "failure", "reason": "x"}, 9)), {}, CallUser(content="x")),
    ],
)
def test_how_a_trajectory_ends_is_an_action(ending: Message, others: Message, action: Any, tmp_path: Path) -> None:
    (record,) = taken(CuaLite(), stored(tmp_path, [*CHAT[:3], ending], metadata(**others)))
    assert record.steps[-1].actions == (action,)


@pytest.mark.parametrize(
    ("ending", "others", "outcome"),
    [
        (reply(call("terminate", {"status": "success"}, 9)), {}, True),
        (reply(call("terminate", {"status": "failure"}, 9)), {}, False),
        (reply(acts(OPEN, number=8), call("terminate", {"status": "failure"}, 9)), {}, False),
        (DONE, {"terminate_status": "success"}, True),
        (DONE, {"terminate_status": "failure"}, False),
        (DONE, {}, None),
        ({"role": "assistant", "content": [text("Then terminate it.")]}, {}, None),
        (reply(call("response", {"text": "42"}, 9)), {}, None),
        (reply(call("report_infeasible", {"reason": "no rights"}, 9)), {}, None),
        (reply(acts(OPEN, number=9)), {}, None),
        (reply(call("terminate", {"status": "success"}, 9)), {"episode_return": 0.0}, False),
        (reply(call("terminate", {"status": "failure"}, 9)), {"episode_return": 1.0}, True),
    ],
)
def test_a_last_terminate_is_the_outcome_unless_there_is_a_return(
    ending: Message, others: Message, outcome: bool | None, tmp_path: Path
) -> None:
    (record,) = taken(CuaLite(), stored(tmp_path / "in", [*CHAT[:3], ending], metadata(**others)))
    assert record.success is outcome
    (again,) = taken(CuaLite(), written(CuaLite(), [record], tmp_path / "out"))
    assert (again.success, again.steps) == (record.success, record.steps)


@pytest.mark.parametrize(
    "item",
    [
        {"action": "hold_key", "keys": ["a"], "duration": 1}, {"action": "click", "button": "right", "clicks": 2},
        {"action": "click"}, {"action": "fly"}, {"action": "type"}, {"action": "wait", "duration": 99},
        {"action": "key", "keys": ["ctrl", "alt", "shift", "a"]}, {"action": "scroll", "direction": "up"},
        {"action": "click", "coordinate": [1, 2], "pressure": 3}, {"action": "screenshot"},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_an_action_that_is_none_of_ours_is_kept_as_text_with_the_reason(
    item: Message, tmp_path: Path, sentence: Sentences
) -> None:
    (record,) = taken(CuaLite(), stored(tmp_path, [asked(), reply(acts(item)), result(0, image(1)), DONE], metadata()))
    step = record.steps[0]
    assert not step.actions and json.loads(step.text)[0]["arguments"]["actions"] == [item]
    sentence(str(step.error))


def test_a_call_without_a_coordinate_is_at_the_pointer(tmp_path: Path) -> None:
    chat = [
        *CHAT[:2],
        result(0, image(1)),
        reply(acts({"action": "click", "button": "right"}, number=1)),
        result(1, image(2)),
    ]
    (record,) = taken(CuaLite(), stored(tmp_path, [*chat, DONE], metadata()))
    assert to_json(record.steps[1].actions[0]) == '{"type":"right_single","x":0.447,"y":0.081}'


def test_a_reply_without_a_new_screen_is_context(tmp_path: Path) -> None:
    chat = [asked(), reply(call("bash", {"command": "ls"})), result(0, text("a.txt")), reply(acts(OPEN, number=1))]
    (record,) = taken(CuaLite(), stored(tmp_path, chat, metadata()))
    assert [record.is_target(at) for at in range(2)] == [True, False]


def changed(at: int, **fields: Any) -> list[Message]:
    return [{**one, **fields} if number == at else one for number, one in enumerate(CHAT)]


@pytest.mark.parametrize(
    ("chat", "held"),
    [
        (CHAT, {**metadata(), "score": 1}), (CHAT, {**metadata(), "metadata_kind": "generic"}), ("[", metadata()),
        (CHAT, metadata(("desktop", "understanding"))), (CHAT, metadata(("watch", "use"))), (CHAT, "no"),
        ([], metadata()),
        (changed(0, content=[image(9), text("Go.")]), metadata()), (changed(0, role="human"), metadata()),
        (changed(0, content=[image(0), image(1), text("Go.")]), metadata()),
        (changed(0, content=[image(0)]), metadata()),
        (changed(1, content=[text("x", "video")]), metadata()), (CHAT[1:], metadata()), (CHAT[:1], metadata()),
        (changed(2, tool_call_id="call_7777"), metadata()), (changed(2, content=[{"type": "audio"}]), metadata()),
        (changed(1, tool_calls=[{"name": "click"}]), metadata()),
        (changed(1, tool_calls=[acts({"action": "click", "coordinate": [5, 1001]})]), metadata()),
        (CHAT, metadata(flywheel={"unit": 3})),
    ],
)  # fmt: skip
def test_a_row_that_is_no_sample_is_refused_by_its_field(
    chat: Any, held: Any, tmp_path: Path, sentence: Sentences
) -> None:
    problem = refused(CuaLite(), stored(tmp_path, chat, held))
    assert problem.startswith("cua-lite/Files/desktop/use/train/one.parquet, row 1, me")
    sentence(problem)


def test_rows_that_are_no_trajectories_are_left_out_with_their_number(tmp_path: Path, sentence: Sentences) -> None:
    stored(tmp_path, CHAT, metadata())
    stored(tmp_path, CHAT, metadata(), part="desktop/use/validation/one")
    stored(tmp_path, CHAT, metadata(("mobile", "understanding")), part="mobile/understanding/train/one")
    source = ImportSource(tmp_path)
    assert len(list(CuaLite().read(source))) == 1
    sentence("\n".join(f"{name}: {reason}" for name, reason in source.left_out))
    with sentence.raises(UsageError):
        taken(CuaLite(), tmp_path / "cua-lite" / "Files" / "mobile")


def test_folded_rows_of_the_hub_are_one_trajectory_each(tmp_path: Path) -> None:
    def member(instruction: str) -> dict[str, str]:
        chat = [asked(instruction), reply(acts(OPEN))]
        return {"messages": json.dumps(chat), "metadata": json.dumps(metadata(("desktop", "grounding.action")))}

    folded = json.dumps([member("Open a."), member("Open b.")])
    cell = [{"bytes": picture(2).png, "path": None}]
    part = "desktop/grounding.action/train/action/shard-00000-of-00001"
    stored(tmp_path, "[]", metadata(), cell, part, _folded=folded)
    records = taken(CuaLiteHub(), tmp_path)
    assert [one.instruction for one in records] == ["Open a.", "Open b."]
    assert all(one.steps[0].screen == picture(2) and one.steps[0].actions for one in records)


def asking(kind: str, coordinate: Any, question: str = "Locate the element: Save") -> list[Message]:
    return [asked(question), reply(call(kind, {"coordinate": coordinate}))]


@pytest.mark.parametrize("form", [CuaLite(), CuaLiteHub()], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("kind", "coordinate", "middle"),
    [
        ("point", [250, 1000], (0.25, 1.0)), ("bbox", [100, 200, 301, 400], (0.2005, 0.3)),
        ("bbox", [5, 5, 5, 5], (0.005, 0.005)),
    ],
)  # fmt: skip
def test_a_row_about_a_place_is_a_question_and_is_written_back_as_it_came(
    form: CuaLite, kind: str, coordinate: list[int], middle: tuple[float, float], tmp_path: Path
) -> None:
    held = metadata(("browser", f"grounding.{kind}"), os="ubuntu")
    chat, part = asking(kind, coordinate), f"browser/grounding.{kind}/train/one"
    (record,) = taken(CuaLite(), stored(tmp_path / "in", chat, held, 1, part))
    (question,) = record.questions
    assert (record.instruction, question.name, (question.x, question.y)) == ("Locate the element: Save", "Save", middle)
    (step,) = record.steps
    assert (step.screen, step.actions, record.success, record.is_target(0)) == (picture(0), (), None, False)
    folder = written(form, [record], tmp_path / "out")
    ((row,), (file,)) = rows_of(folder), folder.rglob("*.parquet")
    assert f"browser/grounding.{kind}/train/" in str(file)
    row["metadata"]["others"].pop("flywheel")
    assert (row["messages"], row["metadata"]) == (chat, held)
    (again,) = taken(form, folder)
    assert (again.questions, again.steps, again.extra) == (record.questions, record.steps, record.extra)


@pytest.mark.parametrize(
    ("kind", "chat"),
    [
        ("point", asking("point", None)), ("point", [asked(), reply(call("point", {}))]),
        ("point", asking("point", [1])), ("point", asking("point", [1, 1001])), ("point", asking("point", [0.5, 1])),
        ("point", asking("point", [True, 1])), ("bbox", asking("bbox", [1, 2])), ("bbox", asking("bbox", [9, 2, 3, 4])),
        ("bbox", asking("point", [1, 2])), ("point", [asked(), DONE]), ("point", [*asking("point", [1, 2]), DONE]),
        ("point", [asked(), reply(*asking("point", [1, 2])[1]["tool_calls"] * 2)]),
        ("point", [{"role": "user", "content": [image(0)]}, asking("point", [1, 2])[1]]),
        ("point", [{"role": "user", "content": [text("Locate it.")]}, asking("point", [1, 2])[1]]),
    ],
)  # fmt: skip
def test_a_row_about_a_place_without_one_is_refused_by_its_field(
    kind: str, chat: Any, tmp_path: Path, sentence: Sentences
) -> None:
    held, part = metadata(("desktop", f"grounding.{kind}")), f"desktop/grounding.{kind}/train/one"
    sentence(refused(CuaLite(), stored(tmp_path, chat, held, 1, part)))


QUESTIONS = (PlaceQuestion(0, "Save", 0.25, 0.5), PlaceQuestion(0, "Open", 0.1234, 1.0), PlaceQuestion(1, "Save", 0, 0))
SEEN = Exchanged(
    "a",
    "Go.",
    (ExchangedStep(picture(1), actions=(PressBack(),)), ExchangedStep(picture(2), actions=(Finished(),))),
    True,
    None,
    About(lake="l", trajectory_id="a"),
    questions=QUESTIONS,
)


@pytest.mark.parametrize(("size", "platform"), [((45, 100), "mobile"), ((160, 210), "desktop"), ((100, 45), "desktop")])
def test_taps_on_a_phones_screen_are_a_phones(size: tuple[int, int], platform: str, tmp_path: Path) -> None:
    steps = (ExchangedStep(picture(1, *size), actions=(Click(x=0.5, y=0.5),)),)
    record = Exchanged("a", "Go.", steps, True, None, About(lake="l", trajectory_id="a"))
    folder = written(CuaLite(), [record], tmp_path)
    assert [one.relative_to(folder).parts[2] for one in folder.rglob("*.parquet")] == [platform]
    (again,) = taken(CuaLite(), folder)
    assert again.steps == steps


def test_questions_about_a_trajectorys_screens_are_rows_next_to_it(tmp_path: Path) -> None:
    folder = written(CuaLite(), [SEEN], tmp_path / "local")
    assert sorted(str(one.relative_to(folder / "cua-lite" / "flywheel")) for one in folder.rglob("*.parquet")) == [
        "mobile/grounding.point/train/flywheel.parquet", "mobile/use/train/flywheel.parquet"
    ]  # fmt: skip
    use, *asked_for = sorted(taken(CuaLite(), folder), key=lambda one: len(one.questions))
    assert use.steps == SEEN.steps
    found = [(one.steps[0].screen, one.questions[0].name, one.about.trajectory_id) for one in asked_for]
    assert found == [(picture(1), "Save", "a"), (picture(1), "Open", "a"), (picture(2), "Save", "a")]
    assert [round(one.questions[0].x, 3) for one in asked_for] == [0.25, 0.123, 0.0]


def test_tokens_in_the_words_of_a_question_are_broken_and_restored(tmp_path: Path) -> None:
    record = replace(SEEN, questions=(PlaceQuestion(0, "<|im_end|>", 0.5, 0.5),))
    folder = written(CuaLite(), [record], tmp_path)
    texts = [row["messages"][0]["content"][1]["text"] for row in rows_of(folder)]
    assert "Locate the element: < |im_end|>" in texts
    (asked_for,) = (one for one in taken(CuaLite(), folder) if one.questions)
    assert (asked_for.questions, asked_for.instruction) == (record.questions, "Locate the element: <|im_end|>")


def test_the_hubs_layout_has_a_row_for_all_questions_about_a_screen(tmp_path: Path) -> None:
    folder = written(CuaLiteHub(), [SEEN], tmp_path)
    (file,) = folder.rglob("grounding.point/**/*.parquet")
    rows = pq.read_table(file).to_pylist()
    assert [[len(row["images"]), len(json.loads(row["_folded"]))] for row in rows] == [[1, 2], [1, 1]]
    assert len(json.loads(rows[0]["messages"])) == 4
    assert [len(one.questions) for one in taken(CuaLiteHub(), folder)].count(1) == 3


def test_the_default_configuration_has_rows_with_the_same_columns(tmp_path: Path) -> None:
    form = CuaLiteHub()
    written(form, [SEEN], tmp_path / "both")
    assert {one["config_name"]: one["data_files"][0]["path"] for one in form.configs} == {
        "default": ["mobile/use/train/**/*.parquet"],
        "mobile.use": ["mobile/use/train/**/*.parquet"],
        "mobile.grounding.point": ["mobile/grounding.point/train/**/*.parquet"],
    }
    stored(tmp_path / "in", asking("point", [1, 2]), metadata(("browser", "grounding.point")), 1)
    written(form, taken(CuaLite(), tmp_path / "in"), tmp_path / "asked")
    assert [one["config_name"] for one in form.configs] == ["default", "browser.grounding.point"]


def test_the_hubs_layout_has_shards_with_their_number_and_configurations(tmp_path: Path) -> None:
    step = ExchangedStep(picture(1), actions=(Navigate(content="https://a.org"),))
    about = About(lake="l", trajectory_id="a", seed=1)
    records = [
        Exchanged("a", "Go.", (step,), True, None, about),
        Exchanged("b", "Go.", (step,), True, None, about.model_copy(update={"trajectory_id": "b", "seed": MOST_SEED})),
    ]
    form = CuaLiteHub()
    written(form, records, tmp_path)
    assert sorted(str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*.parquet")) == [
        f"browser/use/{split}/flywheel/shard-00000-of-00001.parquet" for split in ("train", "validation")
    ]
    assert [one["config_name"] for one in form.configs] == ["default", "browser.use"]
    features = json.loads(pq.read_schema(next(tmp_path.rglob("*.parquet"))).metadata[b"huggingface"])["info"][
        "features"
    ]
    assert features["images"] == [{"_type": "Image"}] and features["messages"]["dtype"] == "string"
    assert [one.name for one in taken(form, tmp_path)] == ["a"]


def test_a_scroll_on_a_phone_is_a_swipe_of_the_finger_and_comes_back_as_a_scroll(tmp_path: Path) -> None:
    steps = (
        ExchangedStep(picture(1), actions=(Scroll(x=0.5, y=0.5, direction="down"),)),
        ExchangedStep(picture(2), actions=(PressBack(),)),
    )
    record = Exchanged("a", "Go.", steps, None, None, About(lake="l", trajectory_id="a"))
    (row,) = rows_of(written(CuaLite(), [record], tmp_path))
    (swipe,) = row["messages"][1]["tool_calls"][0]["function"]["arguments"]["actions"]
    assert swipe == {"action": "swipe", "start_coordinate": [500, 500], "coordinate": [500, 200]}
    assert taken(CuaLite(), tmp_path)[0].steps == steps


ROLE_PARTS = {
    "system": {"text"},
    "user": {"text", "image", "metadata"},
    "assistant": {"text", "action_description", "inline_reasoning", "history_summary", "metadata"},
    "tool": {"text", "image", "metadata"},
}
ITEMS = {
    "computer": {
        "click": (set[str](), {"coordinate", "button", "clicks"}), "mouse_move": ({"coordinate"}, set[str]()),
        "mouse_down": (set[str](), {"button"}), "mouse_up": (set[str](), {"button"}),
        "drag": ({"coordinate"}, {"start_coordinate", "button"}), "scroll": ({"direction", "amount"}, {"coordinate"}),
        "type": ({"text"}, {"press_enter"}), "key": ({"keys"}, set[str]()), "key_down": ({"keys"}, set[str]()),
        "key_up": ({"keys"}, set[str]()), "wait": ({"duration"}, set[str]()),
    },
    "mobile": {
        "tap": ({"coordinate"}, {"clicks"}), "long_press": ({"coordinate"}, {"duration"}),
        "type": ({"text"}, set[str]()),
        "swipe": ({"start_coordinate", "coordinate"}, set[str]()), "system_button": ({"button"}, set[str]()),
        "wait": ({"duration"}, set[str]()),
    },
}  # fmt: skip
NAMED = {"enter", "tab", "space", "backspace", "delete", "esc", "up", "down", "left", "right", "home", "end", "pageup"}
NAMED |= {"pagedown", "insert", "capslock", "menu", "printscreen", "clear", "ctrl", "alt", "shift", "meta"}
NAMED |= {f"f{number}" for number in range(1, 25)}
GLYPHS = {*string.ascii_lowercase, *string.digits, *string.punctuation}


def flaws(row: dict[str, Any]) -> Iterator[str]:
    """What the rules of a canonical row have against a row; written from the rules' description, for tests."""
    chat, held = row["messages"], row["metadata"]
    if set(held) != {"metadata_kind", "dims", "extra_tool_schemas", "valid_actions", "others"}:
        yield "metadata"
    if held["dims"][0] not in ("desktop", "browser", "mobile"):
        yield "platform"
    declared = {one["function"]["name"] for one in held["extra_tool_schemas"]}
    pending, seen, answered = dict[str, None](), set[str](), set[str]()
    for at, one in enumerate(chat):
        parts = one.get("content", [])
        if one["role"] == "tool" and not parts:
            yield f"{at}: empty result"
        for part in parts:
            if part["type"] not in ROLE_PARTS[one["role"]]:
                yield f"{at}: part {part['type']}"
            if part["type"] == "image" and not 0 <= part["index"] < len(row["images"]):
                yield f"{at}: image"
        if one["role"] == "tool":
            if one["tool_call_id"] not in pending or one["tool_call_id"] in answered:
                yield f"{at}: orphan"
            answered.add(one["tool_call_id"])
            pending.pop(one["tool_call_id"], None)
            continue
        if pending:
            yield f"{at}: {[*pending]} without a result"
        if one["role"] != "assistant":
            continue
        calls = one.get("tool_calls", [])
        spoken = [part["text"] for part in parts if part["type"] == "text"]
        if not calls and not "".join(spoken).strip():
            yield f"{at}: no visible text"
        if not calls and at + 1 < len(chat) and chat[at + 1]["role"] != "user":
            yield f"{at}: a text in the middle"
        for made in calls:
            name, arguments = made["function"]["name"], made["function"]["arguments"]
            if made["id"] in seen or made["type"] != "function":
                yield f"{at}: id"
            seen.add(made["id"])
            pending[made["id"]] = None
            if name not in ITEMS:
                if name not in declared:
                    yield f"{at}: {name} is not declared"
                continue
            if name != ("mobile" if held["dims"][0] == "mobile" else "computer"):
                yield f"{at}: {name} on {held['dims'][0]}"
            for item in arguments["actions"]:
                required, optional = ITEMS[name].get(item["action"], ({"?"}, set[str]()))
                given = set(item) - {"action"}
                if not required <= given <= required | optional:
                    yield f"{at}: {item}"
                points = [value for key, value in item.items() if key.endswith("coordinate")]
                if not all(type(value) is int and 0 <= value <= 1000 for point in points for value in point):
                    yield f"{at}: {points}"
                if not all(key in NAMED | GLYPHS for key in item.get("keys", ())) or item.get("keys") == []:
                    yield f"{at}: {item['keys']}"
    if chat[-1]["role"] == "tool" and held["others"].get("terminated") is not True:
        yield "a last result without an end"


@pytest.mark.parametrize("after", [False, True])
@settings(max_examples=40, deadline=None)
@given(records=RECORDS)
def test_every_written_row_keeps_the_rules_of_a_canonical_row(after: bool, records: list[Exchanged]) -> None:
    records = [replace(one, after=picture(5)) if after else one for one in records]
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(written(CuaLite(), records, Path(folder)))
    assert [list(flaws(row)) for row in rows] == [[]] * len(records)


def test_the_rules_find_flaws() -> None:
    row = {"images": [1, 2], "messages": CHAT[:-1], "metadata": metadata()}
    assert {*flaws(row)} == {"4: image", "a last result without an end"}


def test_steps_without_a_call_are_counted(tmp_path: Path) -> None:
    form = CuaLite()
    steps = (
        ExchangedStep(picture(1), actions=(PressBack(), Hotkey(key="ctrl a"))),
        ExchangedStep(picture(2), actions=(Wait(),)),
    )
    written(form, [Exchanged("a", "Go.", steps, None, None, About(trajectory_id="a"))], tmp_path)
    assert form.notes == ["1 step without a call of cua-lite became text"]
    assert taken(form, tmp_path)[0].steps[0].actions == steps[0].actions


def test_a_click_is_at_the_same_pixel_to_half_a_thousandth(tmp_path: Path) -> None:
    (record,) = taken(CuaLite(), stored(tmp_path, CHAT, metadata()))
    (action,) = record.steps[0].actions
    assert isinstance(action, LeftDouble) and (round(action.x * 1920), round(action.y * 1080)) == (858, 87)
