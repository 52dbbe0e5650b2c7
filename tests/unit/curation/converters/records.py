"""Trajectories to exchange, drawn at random, and formats to a folder and back."""

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from PIL import Image

from common.picture import rgb_of
from curation.converters.exchanged import (
    About,
    Correction,
    Exchanged,
    ExchangedStep,
    Picture,
    RecordRefused,
    StepAbout,
    StepAssessment,
)
from curation.converters.files import ImportSource, Target
from curation.converters.format import Format
from curation.video import changed_box
from schemas.action import Action, action_of, to_json
from schemas.keyboard import KEYS

LETTER = st.characters(codec="utf-8", exclude_characters="\0")
TEXT = st.text(LETTER, max_size=12)
WORD = st.text("abcxyz019", min_size=1, max_size=6)
NAMES = [one for one, key in KEYS.items() if one.isascii() and one.isalnum() and key.pyautogui == one == one.lower()]
KEY = st.sampled_from(NAMES)
PLACE = st.integers(0, 1000).map(lambda thousandth: thousandth / 1000)
POINT = {"x": PLACE, "y": PLACE}


def actions(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Action]:
    return st.fixed_dictionaries({"type": st.just(kind), **fields}).map(action_of)


SECONDS = st.integers(0, 5)
JSON_VALUES = TEXT | st.integers(-9, 9) | st.booleans() | st.none() | st.lists(TEXT | st.just(0.5), max_size=2)
ACTIONS: st.SearchStrategy[Action] = st.one_of(
    *(actions(kind, **POINT) for kind in ("click", "left_double", "triple_click", "right_single", "middle_single")),
    *(actions(kind, **POINT) for kind in ("move", "long_press")),
    *(actions(kind, **at) for kind in ("mouse_down", "mouse_up") for at in (POINT, {}, {"button": st.just("right")})),
    actions("long_press", **POINT, seconds=SECONDS),
    actions("wait", seconds=SECONDS),
    actions("call_user", content=TEXT),
    *(actions(kind) for kind in ("press_recent", "press_menu")),
    actions("scroll", **POINT, direction=st.sampled_from(["up", "down", "left", "right"])),
    actions("drag", **POINT, to_x=PLACE, to_y=PLACE),
    actions("type", content=TEXT),
    actions("hotkey", key=st.lists(KEY, min_size=1, max_size=3).map(" ".join)),
    *(actions(kind, key=KEY) for kind in ("press", "release")),
    actions("open_app", app_name=TEXT),
    actions("navigate", content=TEXT),
    actions("note", content=TEXT),
    actions("tool", name=TEXT.filter(bool), arguments=st.dictionaries(TEXT, JSON_VALUES, max_size=2)),
    *(actions(kind) for kind in ("press_home", "press_back", "press_enter", "navigate_back", "wait", "call_user")),
    actions("finished", content=TEXT),
)


@cache
def picture(shade: int, width: int = 50, height: int = 40) -> Picture:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (shade, 80, 160)).save(buffer, "PNG")
    return Picture(buffer.getvalue(), width, height)


PICTURES = st.builds(picture, st.integers(0, 5))
CORRECTIONS = st.builds(
    Correction,
    action=ACTIONS.map(to_json),
    thought=st.sampled_from(["", "So."]),
    state=st.sampled_from(["verified", "refuted", "unverified"]),
    replaces=st.sampled_from([None, True, False]),
    taught=st.booleans(),
)
STEPS = st.builds(
    ExchangedStep,
    screen=PICTURES,
    thought=st.one_of(st.just(""), WORD, TEXT.map(str.strip)),
    actions=ACTIONS.map(lambda action: (action,)),
    about=st.builds(
        StepAbout,
        actor=st.sampled_from(["", "policy"]),
        policy_version=WORD,
        correction=st.one_of(st.none(), st.none(), CORRECTIONS),
        target=st.sampled_from([None, None, True, False]),
    ),
    error=st.one_of(st.none(), st.none(), WORD),
)
ABOUT = st.builds(
    About,
    lake=WORD,
    trajectory_id=WORD,
    iteration=st.integers(-3, 5),
    task_id=WORD,
    seed=st.integers(0, 999_999),
    policy=st.just("policy"),
    policy_version=WORD,
    reward=st.one_of(st.none(), st.sampled_from([0.0, 1.0])),
    termination=st.one_of(st.none(), st.just("done")),
    wall_s=st.one_of(st.none(), st.just(1.5)),
    continues=st.one_of(st.none(), st.just("t9")),
    replayed=st.integers(0, 2),
    withheld=st.sampled_from([False, False, True]),
)


def numbered(records: Sequence[Exchanged]) -> list[Exchanged]:
    """The records, each with an id of its own."""
    made: list[Exchanged] = []
    for number, record in enumerate(records):
        about = record.about.model_copy(update={"trajectory_id": f"t{number}", "success": record.success})
        made.append(Exchanged(f"t{number}", record.instruction, record.steps, record.success, None, about))
    return made


RECORDS = st.lists(
    st.builds(
        Exchanged,
        name=WORD,
        instruction=st.text(LETTER, min_size=1, max_size=20).map(lambda text: f"Do {text}."),
        steps=st.lists(STEPS, min_size=1, max_size=4).map(tuple),
        success=st.sampled_from([True, False, None]),
        about=ABOUT,
    ),
    min_size=1,
    max_size=3,
).map(numbered)


def found(correct: bool | None = True) -> StepAssessment:
    return StepAssessment(correct, False, "It did what it had to.")


def written(form: Format, records: Sequence[Exchanged], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    form.write(records, Target(folder))
    return folder


def read(form: Format, path: Path, **of: Any) -> list[Exchanged | RecordRefused]:
    return [one for _, one in form.read(ImportSource(path, **of))]


def taken(form: Format, path: Path, **of: Any) -> list[Exchanged]:
    """All records of a source, none of them refused."""
    records: list[Exchanged] = []
    for one in read(form, path, **of):
        if isinstance(one, RecordRefused):
            raise one
        records.append(one)
    return records


def refused(form: Format, path: Path, **of: Any) -> str:
    """What the only refusal of a source says."""
    (one,) = [str(one) for one in read(form, path, **of) if isinstance(one, RecordRefused)]
    return one


def same_screens(name: str, found: Sequence[Picture], given: Sequence[Picture]) -> bool:
    """Whether screens came back: all their bytes, or from a video without a visible change."""
    if name != "recording":
        return list(found) == list(given)
    pairs = zip(found, given, strict=True)
    return all(changed_box(rgb_of(one.png), rgb_of(other.png)) is None for one, other in pairs)
