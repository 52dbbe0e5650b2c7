"""AgentNet's JSON lines (OpenCUA, arXiv 2508.09123): a line per trajectory, pyautogui code, fractions of the screen.

`{task_id, instruction, traj: [{index, image, value: {code, observation, thought, action, last_step_correct,
last_step_redundant, reflection}}], task_completed, ...}`; other fields of a record are kept under `agentnet`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from common.text import Storable
from curation.converters.code import pointer_after, read_code, stated_outcome, write_code
from curation.converters.exchanged import (
    OWN,
    Exchanged,
    ExchangedStep,
    Metadata,
    RecordPlace,
    RecordRefused,
    StepAbout,
    StepAssessment,
    instructed,
    metadata_of,
    with_metadata,
    without_action,
)
from curation.converters.files import ImportSource, OpenModel, Target, line_of, model_of
from curation.converters.format import Format, Read, each
from curation.converters.masks import is_masked, masks_of, number_of
from curation.converters.search import JSON_LINES
from curation.converters.tokens import for_trainers, from_export, plain_value
from curation.converters.units import fraction_of
from models.families.code.calls import NoAction, is_unset
from models.families.code.program import OutOfScreen, Point

FILE = "agentnet.jsonl"


class _AgentNetValue(OpenModel):
    code: Storable
    thought: Storable | None = None
    last_step_correct: bool | None = None
    last_step_redundant: bool | None = None
    reflection: Storable | None = None


class _Entry(OpenModel):
    image: str
    value: _AgentNetValue


class _Line(OpenModel):
    task_id: Storable | int
    instruction: Storable | None = None
    traj: list[_Entry]
    task_completed: bool | None = None
    flywheel: Metadata | None = None


class AgentNet(Format):
    """AgentNet's format: a file of lines and a folder of pictures."""

    name = "agentnet"
    assumed = "fraction"

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Writes one line per trajectory."""
        with target.path(FILE).open("w", encoding="utf-8") as lines:
            for record in records:
                lines.write(line_of(self._line(record, target)))

    def _line(self, record: Exchanged, target: Target) -> dict[str, Any]:
        completed = {} if record.success is None else {"task_completed": record.success}
        shown = for_trainers(record)
        traj = [self._entry(number, step, target) for number, step in enumerate(shown.steps)]
        line = {"task_id": record.name, "instruction": shown.instruction, "traj": traj, **completed}
        return {**line, **plain_value(record.extra.get(self.name, {})), OWN: metadata_of(record, self.name, self.unit)}

    def _entry(self, number: int, step: ExchangedStep, target: Target) -> dict[str, Any]:
        kept: dict[str, Any] = plain_value(step.extra.get(self.name, {}))
        code = kept.get("code") or (step.text if step.action is None else write_code(step.action, "agentnet"))
        found = {} if step.found is None else {name: one for name, one in asdict(step.found).items() if one is not None}
        value = {"code": code, **({"thought": step.thought} if step.thought else {}), **kept.get("value", {}), **found}
        return {"index": number, "image": target.picture(step.screen), **kept.get("entry", {}), "value": value}

    def records(self, source: ImportSource) -> Read:
        """One trajectory per line."""
        return each(source, source.rows(*JSON_LINES), self._record)

    def _record(self, value: Any, source: ImportSource, place: RecordPlace) -> Exchanged:
        line = model_of(_Line, value, place)
        if not line.traj:
            raise RecordRefused(place, "traj", "no steps: write each step with its screenshot, or remove the record")
        unit = self.unit_of(line.flywheel, source, place)
        steps, order = list[ExchangedStep](), _order_of(line.traj, place)
        off = masks_of(line.others, [True] * len(line.traj), place, "step", order=order)
        pointer: Point | None = None
        texts = {order[at] for at in without_action(line.flywheel, len(order)) if 0 <= at < len(order)}
        for number in order:
            entry, where = line.traj[number], f"traj.{number}"
            step, pointer = self._step(entry, unit, pointer, source, place, where, number in texts)
            held = {where: entry.others, f"{where}.value": entry.value.others}
            masked = off[number] or any([is_masked(fields, place, at) for at, fields in held.items()])
            steps.append(replace(step, about=StepAbout(target=False)) if masked else step)
        others = line.others
        given = (line.instruction, others.get("natural_language_task"))
        asked = next((one for one in given if isinstance(one, str) and one.strip()), "")
        instructed(asked, place, "instruction")
        extra = {self.name: others} if others else {}
        success = line.task_completed
        if success is None and not line.flywheel:
            success = stated_outcome(steps[-1].action, line.traj[order[-1]].value.code)
        record = Exchanged(str(line.task_id), asked, tuple(steps), success, extra=extra)
        return with_metadata(from_export(record) if line.flywheel else record, line.flywheel, place)

    def _step(
        self,
        entry: _Entry,
        unit: str,
        pointer: Point | None,
        source: ImportSource,
        place: RecordPlace,
        where: str,
        text_alone: bool,
    ) -> tuple[ExchangedStep, Point | None]:
        screen = source.picture(entry.image, place, f"{where}.image")
        code, action, error = entry.value.code, None, None

        def fraction(x: float, y: float) -> Point:
            return fraction_of(x, y, unit, screen.width, screen.height)

        try:
            if text_alone:
                raise NoAction
            action, pointer = read_code(code, fraction, pointer)
        except NoAction as unmapped:
            error, pointer = str(unmapped), pointer_after(code, fraction, pointer)
        except OutOfScreen as outside:
            raise RecordRefused(place, f"{where}.value.code", f"{outside}; --unit names another unit") from outside
        others = {key: value for key, value in entry.others.items() if key != "index"}
        same = action is not None and unit == self.unit and write_code(action, "agentnet") == code
        more = entry.value.others | ({} if unit == self.unit else {f"code_in_{unit}": code})
        kept = {"code": None if same or unit != self.unit else code, "value": more or None, "entry": others or None}
        held = {key: value for key, value in kept.items() if value is not None}
        value = entry.value
        looked = (value.last_step_correct, value.last_step_redundant, value.reflection or "")
        found = StepAssessment(*looked) if looked != (None, None, "") else None
        extra = {self.name: held} if held else {}
        text = "" if action else code
        actions = (action,) if action else ()
        return ExchangedStep(screen, value.thought or "", actions, text, error, found, extra=extra), pointer


def _order_of(entries: Sequence[_Entry], record: RecordPlace) -> list[int]:
    """Return the steps' places in the record, sorted by `index`; unsorted if a step has no `index`.

    Raises:
        RecordRefused: an index is no number.
    """
    indices = list[float]()
    for at, value in enumerate(one.others.get("index") for one in entries):
        number = None if isinstance(value, bool) else value if isinstance(value, int) else number_of(value)
        if number is None and not is_unset(value):
            problem = f"{str(value)[:80]!r} is not a number: write the step's place in the order, or leave it out"
            raise RecordRefused(record, f"traj.{at}.index", problem)
        indices += [] if number is None else [number]
    places = range(len(entries))
    return sorted(places, key=indices.__getitem__) if len(indices) == len(entries) else [*places]
