"""Reads and writes Label Studio's JSON: a task per step, the recorded action as a prediction, answers as annotations.

`{data: {image, instruction, thought, action, ...}, predictions: [{result}], annotations: [{completed_by, result}]}`.
Points are key points in percent of the picture, labelled with the action; in tasks of other projects, the centre of a
rectangle is a point, too. The action's text and the thought are text areas; `decision` is a choice. Answers on a lake's
own steps become reviewers' decisions: corrections, error steps, and decisions on the trajectory. Tasks of other
projects become trajectories with the first answer as the action. `config.xml` is the labelling interface of the export.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, cast, get_args
from urllib.parse import unquote

from pydantic import AliasChoices, BeforeValidator, Field, ValidationError, model_validator

from common.text import Storable
from curation.converters.chat import ChatRow, joined, key_of, record_of, step_of
from curation.converters.exchanged import (
    OWN,
    Exchanged,
    ExchangedStep,
    ImportedReview,
    Metadata,
    Picture,
    RecordPlace,
    RecordRefused,
    StepAbout,
    instructed,
    metadata_of,
    without_action,
)
from curation.converters.files import ImportSource, OpenModel, Target, fields_of, items_of, line_of, model_of
from curation.converters.format import Format, Read, each
from curation.converters.units import fraction_of
from models.families.dialects import format_action, parse_reply
from schemas.action import Action, action_of, numeric, point_of, to_json
from schemas.problem import named_problem

UNREAD = Picture(b"", 1, 1)
"""Placeholder for pictures that the importing lake already has."""
CONTROLS = ("point", "thought", "action", "decision", "note", "")
"""Controls of the labelling interface."""
IMAGE = "data.image"
FILE, CONFIG = "tasks.json", "config.xml"
LABELS = (
    *("click", "left_double", "right_single", "long_press", "scroll", "drag"),
    *("move", "middle_single", "triple_click", "mouse_down", "mouse_up"),
)
END = "drag_end"
"""Label of the point where a drag ends."""
Word = Literal["accept", "reject", "error_step"]
Mark = tuple[str, float, float]
"""A point: the label and the place in fractions."""
POINTS, BOXES = ("keypointlabels", "keypoint"), ("rectanglelabels", "rectangle")
"""Types of regions with a place. Labels are in the region itself, or in a result of type `labels` with the same id."""
REGIONS = tuple(
    f"{kind}{end}" for kind in ("polygon", "brush", "ellipse", "bitmask", "vector") for end in ("", "labels")
)
"""Types of regions of a picture without a point."""
ROUNDED = 0.001
"""Distance in fractions of the screen within which two points are equal, since texts are rounded to thousandths."""
WORDS: tuple[Word, ...] = get_args(Word)
KNOWN: dict[str, Word] = {word: word for word in WORDS}
XML = f"""<View>
  <Text name="instruction" value="$instruction"/>
  <KeyPointLabels name="point" toName="image">
    {"".join(f'<Label value="{label}"/>' for label in (*LABELS, END))}
  </KeyPointLabels>
  <Image name="image" value="$image"/>
  <TextArea name="thought" toName="image" value="$thought" editable="true"/>
  <TextArea name="action" toName="image" value="$action" editable="true"/>
  <Choices name="decision" toName="image">
    {"".join(f'<Choice value="{word}"/>' for word in WORDS)}
  </Choices>
  <TextArea name="note" toName="image"/>
</View>
"""


class _LabelStudioModel(OpenModel):
    """An object whose null fields count as missing."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        fields = cast(dict[str, Any], given)
        return {name: value for name, value in fields.items() if value is not None or name not in cls.model_fields}


Percent = Annotated[float | None, BeforeValidator(numeric)]


class _LabelStudioValue(_LabelStudioModel):
    x: Percent = None
    y: Percent = None
    width: Percent = None
    height: Percent = None
    rotation: Percent = None
    keypointlabels: list[str] = Field(default_factory=list[str])
    rectanglelabels: list[str] = Field(default_factory=list[str])
    labels: list[str] = Field(default_factory=list[str])
    text: list[Storable] | Storable | None = None
    choices: list[str] = Field(default_factory=list[str])


class _Result(_LabelStudioModel):
    id: int | str | None = None
    type: str
    from_name: str = ""
    image_rotation: Percent = None
    value: _LabelStudioValue = _LabelStudioValue()
    """Empty for a relation of two regions, which has no value."""


class _Answer(_LabelStudioModel):
    id: int | str | None = None
    completed_by: int | str | dict[str, Any] | None = None
    was_cancelled: bool = False
    skipped: bool = False
    """Name of the field in exports before Label Studio 1.0."""
    result: list[_Result] = Field([])


class _Data(_LabelStudioModel):
    image: str
    instruction: Storable | None = None
    text: Storable | None = None
    thought: Storable | None = None
    action: Storable | None = None
    flywheel: Metadata | None = None


class _LabelStudioTask(_LabelStudioModel):
    data: _Data
    annotations: list[_Answer] = Field([], validation_alias=AliasChoices("annotations", "completions"))
    """Answers; called completions before Label Studio 1.0."""
    predictions: list[Any] = Field([])


class LabelStudio(Format):
    """Label Studio's format: a JSON array of tasks, a labelling interface and a folder of pictures."""

    name = "label-studio"
    units = ("percent",)
    assumed = "percent"
    addressed = True
    comes_home = True

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write one task per step."""
        count = 0
        with target.path(FILE).open("w", encoding="utf-8") as tasks:
            tasks.write("[")
            for record in records:
                for number in range(len(record.steps)):
                    tasks.write(("," if count else "") + "\n" + line_of(self._task(record, number, target)).rstrip())
                    count += 1
            tasks.write("\n]\n")
        target.write(CONFIG, XML.encode())

    def _task(self, record: Exchanged, number: int, target: Target) -> dict[str, Any]:
        step = record.steps[number]
        kept: dict[str, Any] = step.extra.get(self.name, {})
        held: dict[str, Any] = kept.get("data", {})
        written = step.text if step.action is None else format_action(step.action)
        if held.get("action") and step_of(parse_reply(held["action"]), step.screen).action == step.action:
            written = held["action"]
        data: dict[str, Any] = {"image": target.images_at + target.picture(step.screen), "step": number}
        data["instruction"] = record.instruction
        data |= {**held, "thought": step.thought, "action": written}
        data[OWN] = metadata_of(record, self.name, self.unit, step=number)
        version = step.about.policy_version or record.about.policy_version or "recorded"
        prediction = {"model_version": version, "result": _results(step)}
        return {"data": data, "predictions": kept.get("predictions", [prediction]), **kept.get("task", {})}

    def records(self, source: ImportSource) -> Read:
        """Yield a trajectory for consecutive tasks of the same trajectory; a task of another project has one step."""
        return joined(self._parts(source))

    def _parts(self, source: ImportSource) -> Iterator[tuple[RecordPlace, ChatRow | RecordRefused]]:
        for file in source.files(".json"):
            whole, value = source.document(file)
            tasks = items_of(value)
            if tasks is None:
                problem = RecordRefused(whole, "", "no list of tasks; export them as JSON")
                yield whole, value if isinstance(value, RecordRefused) else problem
                continue
            values = ((RecordPlace(whole.file, number, "task"), task) for number, task in enumerate(tasks, 1))
            yield from each(source, values, self._part)

    def _part(self, value: Any, source: ImportSource, place: RecordPlace) -> ChatRow:
        _check_whole(value, place)
        task = model_of(_LabelStudioTask, value, place)
        data, known = task.data, task.data.flywheel
        about = known.trajectory if known else None
        home = about is not None and source.stored(about.lake, about.trajectory_id)
        screen = UNREAD if home else _screen(data.image, source, place)
        asked = next((one for one in (data.instruction, data.text) if one and one.strip()), "")
        instructed(asked, place, "data.instruction")
        answers = [one for one in task.annotations if not (one.was_cancelled or one.skipped)]
        own = _recorded(data, screen)
        key, number = key_of(known, place)
        given = answers if known is None else [_of_ours(answer) for answer in answers]
        meant = [(answer, _meant(answer, own, data.action or "", place)) for answer in given]
        decided = [one for answer, step in meant for one in _decided(answer, own, step, number, place)]
        if known is None:
            first = next((step for _, step in meant if step is not own), own)
            if first.action is None:
                _check_answered(answers, place)
            kept = task.model_dump(mode="json", exclude_unset=True, exclude={"data": {"image"}})
            fields = {"data": kept.pop("data"), "predictions": kept.pop("predictions", []), "task": kept}
            step = replace(first, thought=first.thought or own.thought, extra={self.name: fields})
            return ChatRow(record_of(self.name, asked, [step], None, {}, place), key, number)
        rest = [one for one in (_rest(answer) for answer in answers) if one["result"]]
        if rest:
            own = replace(own, extra={self.name: {"task": {"annotations": rest}}})
        return ChatRow(record_of(self.name, asked, [own], known, {}, place, decided, exact=True), key, number)


def _check_whole(task: object, place: RecordPlace) -> None:
    """Check that a task is one of the export `JSON`; raise RecordRefused for a task of the flat export `JSON_MIN`."""
    fields = fields_of(task)
    if fields and "data" not in fields:
        problem = "it is missing, as in JSON_MIN, which leaves out what a step is known by: export the answers as JSON"
        raise RecordRefused(place, "data", problem)


def _check_answered(answers: Sequence[_Answer], place: RecordPlace) -> None:
    """Raise RecordRefused for the first answer that only has regions without an action."""
    for at, answer in enumerate(answers):
        for number, region in enumerate(answer.result):
            if region.type in REGIONS:
                problem = f"{region.type!r} marks no point: answer with a key point or a rectangle"
                raise RecordRefused(place, f"annotations.{at}.result.{number}.type", problem)


def _rest(answer: _Answer) -> dict[str, Any]:
    """Return an answer's results of controls outside this project's interface."""
    whole = answer.model_dump(mode="json", exclude_unset=True)
    return {**whole, "result": [one for one in whole.get("result", []) if one.get("from_name", "") not in CONTROLS]}


def _of_ours(answer: _Answer) -> _Answer:
    """Return an answer to this project's task without regions of other controls, as its interface has no rectangles."""
    result = [
        one for one in answer.result if one.type not in BOXES and (one.type not in POINTS or one.from_name in CONTROLS)
    ]
    return answer.model_copy(update={"result": result})


def _results(step: ExchangedStep) -> list[dict[str, Any]]:
    """Return a recorded step as an answer."""
    about = {"to_name": "image", "original_width": step.screen.width, "original_height": step.screen.height}
    written = step.text if step.action is None else format_action(step.action)
    results: list[dict[str, Any]] = [{"type": "textarea", "from_name": "action", **about, "value": {"text": [written]}}]
    if step.thought:
        results.append({"type": "textarea", "from_name": "thought", **about, "value": {"text": [step.thought]}})
    for label, x, y in _marks_of(step.action):
        value = {"x": 100 * x, "y": 100 * y, "width": 1.0, "keypointlabels": [label]}
        results.append({"type": "keypointlabels", "from_name": "point", **about, "value": value})
    return [{"id": f"r{number}", **one} for number, one in enumerate(results)]


def _recorded(data: _Data, screen: Picture) -> ExchangedStep:
    """Return the step of a task before any answer."""
    thought = data.thought or ""
    if without_action(data.flywheel, 1):
        return ExchangedStep(screen, thought, text=data.action or "")
    if not data.action:
        return ExchangedStep(screen, thought, error="the action is missing")
    step = step_of(parse_reply(data.action), screen)
    return replace(step, thought=thought if thought.strip() else step.thought or thought)


def _decided(
    answer: _Answer, own: ExchangedStep, meant: ExchangedStep, step: int, place: RecordPlace
) -> Iterator[ImportedReview]:
    """Yield the decisions in one reviewer's answer on a step.

    Args:
        answer: the answer.
        own, meant: the recorded step, and the answer's (`_meant`).
        step: number of the step in its trajectory.
        place: place of the task.

    Raises:
        RecordRefused: a decision has an unknown name.
    """
    person, note = _person(answer), _text(answer.result, "note") or ""
    if meant.action is not None and meant is not own:
        yield ImportedReview(step, person, "correct", to_json(meant.action), meant.thought, note)
    words = [word for result in answer.result if result.from_name == "decision" for word in result.value.choices]
    for name in words:
        word = KNOWN.get(name)
        if word is None:
            raise RecordRefused(place, "annotations.result.value.choices", f"{name!r} is none of {', '.join(WORDS)}")
        yield ImportedReview(step if word == "error_step" else None, person, word, None, None, note)
    if not words and not _moved(meant.action, own.action) and note:
        yield ImportedReview(step, person, "note", None, None, note)


def _meant(answer: _Answer, own: ExchangedStep, written: str, place: RecordPlace) -> ExchangedStep:
    """Return the step that an answer gives; `own`, the recorded step, if its action and thought are the same.

    An answer begins as a copy of the recorded step, so only differences are the reviewer's: the last different entry of
    the text, and points at another place or with another label.

    Args:
        answer, own: the answer and the recorded step.
        written: the text of the recorded step.
        place: place of the task.

    Raises:
        RecordRefused: a point is outside of the picture, a text has no action or several, or a text and a point
            contradict each other.
    """
    texts = [text for text in _texts(answer.result, "action") if text.strip() and text.strip() != written.strip()]
    read = [_read(text, own.screen, place) for text in texts]
    typed = next((one for one in reversed(read) if _moved(one.action, own.action)), None)
    action, about = (own.action, own.about) if typed is None else (typed.action, typed.about)
    recorded = _marks_of(own.action)
    marks = [one for one in _marks(answer, own.screen, place) if not any(_near(one, other) for other in recorded)]
    for ends in (False, True):
        if sum((label == END) == ends for label, _, _ in marks) > 1:
            raise RecordRefused(place, "annotations.result.value", "several new points, of which an action has one")
    if marks:
        shown = _pointed(marks, action, place)
        if typed is not None and typed.action is not None and _moved(shown, typed.action):
            problem = f"the text has {format_action(typed.action)}, the point {format_action(shown)}"
            raise RecordRefused(place, "annotations.result.value", problem)
        action, about = shown, StepAbout() if typed is None else about
    given = _text(answer.result, "thought")
    thought = own.thought if given is None else given
    if thought == own.thought or not thought.strip():
        thought = next((one.thought for one in reversed(read) if one.thought), thought)
    if action is None or (thought == own.thought and not _moved(action, own.action)):
        return own
    return replace(own, thought=thought, actions=(action,), text="", error=None, about=about)


def _read(text: str, screen: Picture, place: RecordPlace) -> ExchangedStep:
    step = step_of(parse_reply(text), screen)
    if step.action is None:
        raise RecordRefused(
            place, "annotations.result.value.text", f"{step.error} ({text[:80]!r}); answer with one action"
        )
    return step


def _marks_of(action: Action | None) -> list[Mark]:
    """Return the points of an action, as they are exported."""
    fields = action.model_dump() if action else {}
    places = (("x", "y", fields.get("type")), ("to_x", "to_y", END))
    return [(str(label), fields[x], fields[y]) for x, y, label in places if x in fields]


def _marks(answer: _Answer, screen: Picture, place: RecordPlace) -> list[Mark]:
    """Return the points of an answer: key points, and the centres of rectangles.

    Raises:
        RecordRefused: a point is outside of the picture, a region has no place, or the picture is rotated. Neither
            Label Studio's documentation nor its converter defines whether places count before or after a rotation.
    """
    labels = {one.id: one.value.labels for one in answer.result if one.type == "labels"}
    marks: list[Mark] = []
    for region in (one for one in answer.result if one.type in (*POINTS, *BOXES)):
        if (region.image_rotation or 0) % 360:
            problem = f"a region of an image turned by {region.image_rotation:g} degrees; answer it upright"
            raise RecordRefused(place, "annotations.result.image_rotation", problem)
        value = region.value
        if value.x is None or value.y is None:
            raise RecordRefused(place, "annotations.result.value", f"a region of type {region.type} without x and y")
        x, y = (value.x, value.y) if region.type in POINTS else _centre(value, value.x, value.y, screen)
        try:
            x, y = fraction_of(x, y, "percent", screen.width, screen.height)
        except ValueError as error:
            raise RecordRefused(place, "annotations.result.value.x", str(error)) from error
        named = (*value.keypointlabels, *value.rectanglelabels, *labels.get(region.id, ()))
        label = next(iter(named), LABELS[0])
        if label not in (*LABELS, END) and region.type in POINTS:
            problem = (
                f"{label[:80]!r} is not an action: label the point as one of {', '.join((*LABELS, END))}, or not at all"
            )
            raise RecordRefused(place, "annotations.result.value.keypointlabels", problem)
        marks.append((label if label in (*LABELS, END) else LABELS[0], x, y))
    return marks


def _centre(value: _LabelStudioValue, x: float, y: float, screen: Picture) -> tuple[float, float]:
    """Return the centre of a rectangle in percent; rectangles are rotated clockwise around their corner.

    Source: label-studio-sdk 2.1.3, `converter/utils.py`, `convert_annotation_to_yolo_obb`.
    """
    angle = math.radians(value.rotation or 0.0)
    right, down = (value.width or 0.0) / 2 * screen.width, (value.height or 0.0) / 2 * screen.height
    return (
        x + (right * math.cos(angle) - down * math.sin(angle)) / screen.width,
        y + (right * math.sin(angle) + down * math.cos(angle)) / screen.height,
    )


def _near(one: Mark, other: Mark) -> bool:
    return one[0] == other[0] and max(abs(one[1] - other[1]), abs(one[2] - other[2])) <= ROUNDED


def _pointed(marks: Sequence[Mark], action: Action | None, place: RecordPlace) -> Action:
    """Return an action with its points moved; raise RecordRefused if the result is invalid."""
    fields: dict[str, object] = dict(action.model_dump()) if action and point_of(action) else {}
    for label, x, y in sorted(marks, key=lambda mark: mark[0] == END):
        if label == END:
            fields |= {"to_x": x, "to_y": y}
            continue
        if label != fields.get("type"):
            fields = {"type": label}
        fields |= {"x": x, "y": y}
    try:
        return action_of(fields)
    except ValidationError as error:
        raise RecordRefused(place, "annotations.result", named_problem(error)) from error


def _moved(one: Action | None, other: Action | None) -> bool:
    """Whether two actions differ by more than the rounding of their text."""
    if one is None or other is None:
        return one is not other
    ours, theirs = one.model_dump(), other.model_dump()
    if ours.keys() != theirs.keys():
        return True
    return any(
        abs(value - theirs[key]) > ROUNDED if isinstance(value, float) else value != theirs[key]
        for key, value in ours.items()
    )


def _texts(results: Sequence[_Result], name: str) -> list[str]:
    """Return the entries of a text area; empty if it was not filled in."""
    given = [one.value.text for one in results if one.from_name == name and one.type == "textarea"]
    return [text for one in given for text in (one if isinstance(one, list) else [one]) if text is not None]


def _text(results: Sequence[_Result], name: str) -> str | None:
    """Return the whole text of a text area; None if it was not filled in."""
    texts = _texts(results, name)
    return "\n".join(texts) if texts else None


def _person(answer: _Answer) -> str:
    """Return the name of the answer's reviewer."""
    by = answer.completed_by
    name = by.get("email") or by.get("id") if isinstance(by, dict) else by
    plain = re.sub(r"[^\w .@+'’-]", "-", f"{name if name is not None else 'somebody'}")
    return f"label-studio {plain}"[:60].strip()


def _screen(image: str, source: ImportSource, place: RecordPlace) -> Picture:
    """Return the picture of a task; a local or uploaded file is also searched by its path in Label Studio, or by its
    file name.

    Source: label-studio-sdk 2.1.2, `_extensions/label_studio_tools/core/utils/io.py`, `get_local_path`.

    Raises:
        RecordRefused: the picture does not exist, or several different pictures have its name.
    """
    paths, names = _names(image)
    found = next((path for path in paths if source.holds(path)), None)
    if found is not None or not names:
        return source.picture(found or image, place, IMAGE)
    for name in names:
        same = {path: source.picture(path, place, IMAGE) for path in source.below(name)}
        if len({one.sha256 for one in same.values()}) > 1:
            listed = " and ".join(list(same)[:2])
            problem = f"{listed} are different images called {name!r}: name the folder of one with `--images DIR`"
            raise RecordRefused(place, IMAGE, problem)
        if same:
            return next(iter(same.values()))
    tried = ", ".join(repr(one[:200]) for one in dict.fromkeys((*paths, *names)))
    problem = f"there is no image {tried} below {source.pictures_at}; name its folder with `--images DIR`"
    raise RecordRefused(place, IMAGE, problem)


def _names(image: str) -> tuple[list[str], list[str]]:
    """Return the paths by which a picture is searched, and the names of its file; no names for other addresses.

    The path of a local file (`/data/local-files/?d=`) is below the document root, and that of an uploaded file
    (`/data/upload/1/x.png`) below the folder of uploads. The import's folder may be any folder of this path. An
    uploaded file is also searched without the eight digits that Label Studio adds to its name.
    """
    _, local, quoted = image.partition("?d=")
    uploaded = _UPLOADED.search(unquote(image.partition("?filepath=")[2] or image))
    path = unquote(quoted) if local else uploaded[1] if uploaded else image
    parts = PurePosixPath(path).parts
    if not (local or uploaded) or not parts or ".." in parts or parts[0] == "/":
        return [path], []
    plain = [_DIGITS.sub("", parts[-1])] if uploaded and _DIGITS.match(parts[-1]) else []
    return [str(PurePosixPath(*parts[at:])) for at in range(len(parts) - 1)], [parts[-1], *plain]


_UPLOADED = re.compile(r"^/?(?:data/)?(upload/\d+/.+)$")
_DIGITS = re.compile(r"^[0-9a-f]{8}-(?=.)")
"""Label Studio's prefix of the name of an uploaded file."""
