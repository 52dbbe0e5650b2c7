"""Defines trajectories in the exchanged form: fields of all formats, and data that only one format has.

Data without a column in a format goes into a JSON object `flywheel`, in the format's field for metadata. A record's
data without a column in this project is kept in `extra` under the format's name, stored with the row, and written again
in an export of the same format.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, model_validator

from common.text import NO_TEXT, Storable, counted, storable
from schemas.action import Action, from_json, to_json
from schemas.failure import Boundary
from schemas.tables.review import Decision
from schemas.tables.trajectory import IMPORT, Route, Termination

OWN = "flywheel"
"""Key of this project's metadata in records of other formats."""
MOST_STEPS = 1000
"""Maximum number of a trajectory's steps, as in the lake's quality gate."""
MOST_TEXT = 100_000
"""Maximum length of an instruction, a thought or a reply, in characters."""
MOST_SEED = 1_000_000
"""Exclusive limit of training seeds; trajectories of other seeds measure policies and are never used for training."""
MOST_SECONDS = 10_000_000.0
"""Maximum duration of a trajectory, in seconds: some months."""
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""Range of a trajectory's start time; the end is exclusive."""
DEEPEST = 100
"""Maximum nesting of lists and objects in a record."""

Extra = Mapping[str, Any]
"""Data of a record without a column in this project: JSON values by format."""


def flaw_of(value: object) -> tuple[str, str] | None:
    """Return the place (such as `steps.3.text`) and the flaw of the first part of a JSON value that no lake stores.

    It is a NUL or half of a surrogate pair in a text or a key, or a value nested deeper than `DEEPEST`; None if there
    is none. Half of a surrogate pair in stored JSON would break every query that parses it.
    """
    left: list[tuple[tuple[str, ...], object]] = [((), value)]
    while left:
        path, one = left.pop()
        where, inside = ".".join(path), list[tuple[tuple[str, ...], object]]()
        if isinstance(one, dict):
            fields = cast(dict[object, object], one)
            texts = [str(name) for name in fields]
            inside = [((*path, name), held) for name, held in zip(texts, fields.values(), strict=True)]
        elif isinstance(one, list | tuple):
            items = cast(list[object] | tuple[object, ...], one)
            texts, inside = [], [((*path, str(number)), held) for number, held in enumerate(items)]
        else:
            texts = [one] if isinstance(one, str) else []
        found = next((found for text in texts if (found := NO_TEXT.search(text))), None)
        if found:
            what = "a NUL" if found[0] == "\0" else f"half of a character, {found[0]!a},"
            return where, f"{what} is not text: remove it"
        if len(path) > DEEPEST:
            return where[:80], f"nested more than {DEEPEST} deep"
        left += reversed(inside)
    return None


def _begun(instant: datetime) -> datetime:
    """Return the instant; raise ValueError if tables or Python's arithmetic cannot represent it."""
    try:
        within = EARLIEST <= instant.astimezone(UTC) < LATEST
    except OverflowError:
        within = False
    if not within:
        raise ValueError(f"{instant.isoformat()} is not from {EARLIEST.year} to {LATEST.year} in UTC")
    return instant


def holds_back(route: str | None, success: bool | None) -> bool:
    """Whether a filter with this route denies a success, even if the trajectory claims success.

    The trajectory waits for a reviewer, does not measure a policy, or was rejected although it claims success.
    """
    return route in ("quarantine", "none") or (route == "ct" and success is True)


class About(BaseModel, frozen=True):
    """A lake's fields of a trajectory, for formats without columns for them."""

    lake: Storable = ""
    trajectory_id: Storable = ""
    iteration: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None
    task_id: Storable = ""
    seed: int | None = None
    policy: Storable = ""
    policy_version: Storable = ""
    success: bool | None = None
    reward: Annotated[float, Field(ge=-1.0, le=1.0, allow_inf_nan=False)] | None = None
    termination: Termination | None = None
    failure_boundary: Boundary | None = None
    failure_reason: Storable | None = None
    started_at: Annotated[AwareDatetime, AfterValidator(_begun)] | None = None
    wall_s: Annotated[float, Field(ge=0.0, le=MOST_SECONDS, allow_inf_nan=False)] | None = None
    continues: Storable | None = None
    """Trajectory whose first steps a correction replays, in its original lake."""
    replayed: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Number of replayed steps, which are context and no targets; some may be errors."""
    withheld: bool = False
    """Whether none of its steps is a target, as in a correction that is undone or has no verified success."""
    route: Route | None = None
    """Route by the filter or a reviewer of the original lake; null without a decision."""
    reason: Storable = ""
    """Reason for the route."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Data of formats other than the written one."""

    @property
    def measures(self) -> bool:
        """Whether the seed measures policies, so that nothing may train on the trajectory."""
        return self.seed is not None and self.seed >= MOST_SEED


_LATER = {"continues", "replayed", "withheld"}
"""Fields of later versions; a digest includes them only if they have a value, so that older digests stay equal."""
_DECIDED = {"route", "reason"}
"""Fields that change with new decisions; a digest includes only whether they hold the trajectory back."""


class Correction(BaseModel, frozen=True):
    """A reviewer's replacement of a step; the recorded step is then no target."""

    action: Annotated[str, AfterValidator(lambda text: to_json(from_json(text)))]
    """Canonical JSON."""
    thought: Storable = ""
    state: Literal["verified", "refuted", "unverified"] = "unverified"
    """Outcome in a sandbox."""
    replaces: bool | None = None
    """Whether it replaces the recorded step; null counts as yes."""
    taught: bool = False
    """Whether the correction is a target in place of the step; false if another trajectory has it."""


class StepAbout(BaseModel, frozen=True):
    """A lake's fields of a step, for formats without columns for them."""

    actor: Storable = ""
    policy_version: Storable = ""
    error: Storable | None = None
    """Reason why the step's text has no performable action."""
    correction: Correction | None = None
    target: bool | None = None
    """Whether a training in its original lake imitates the recorded step; null if that lake's filter did not accept the
    trajectory, or if a correction replaces the step. False in every lake if the imported record excludes the step
    (`loss_mask` 0, `is_copied_context`)."""
    recorded: Storable | None = None
    """The recorded thought, if a reviewer's thought replaces it, or if chats lose it or the white space around it."""
    thought_by: Storable = ""
    """Author of the recorded thought if it was added later, as in `annotations.author`, with a model's version after a
    colon. Empty for the actor's own thought."""
    unused: Storable = ""
    """Arguments of the step's call for which no action has a field, as in `steps.unused_arguments`."""
    no_action: bool = False
    """Whether the step is a text without an action, whatever a reader finds in the text."""
    extra: dict[str, Any] = Field(default_factory=dict)


class Metadata(BaseModel, frozen=True):
    """The object `flywheel`: of a whole trajectory, or of one step in formats with a row per step."""

    unit: str | None = None
    dialect: str | None = None
    trajectory: About = About()
    step: Annotated[int, Field(ge=0, lt=MOST_STEPS)] | None = None
    """Number of a row's step; null if a row is a trajectory."""
    copied: bool = False
    """Whether a row is only a training target; the whole trajectory is elsewhere in the same export."""
    steps: list[StepAbout] = Field(default_factory=list[StepAbout])

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: object) -> object:
        """Refuse values that no lake stores, also in formats that have them as a JSON text."""
        if flaw := flaw_of(value):
            raise ValueError(": ".join(filter(None, flaw)))
        return value


def without_action(known: Metadata | None, count: int) -> frozenset[int]:
    """Return the numbers of a record's steps that its metadata calls texts without an action.

    Args:
        known: the object at `flywheel`; in rows of several steps it may describe the last one alone.
        count: number of the record's steps.
    """
    described = known.steps if known else []
    first = count - len(described)
    return frozenset(first + number for number, one in enumerate(described) if one.no_action)


@dataclass(frozen=True, slots=True)
class Picture:
    """A screenshot."""

    png: bytes
    width: int
    height: int
    original: str = field(default="", compare=False)
    """Original name of a picture that was painted over."""

    @property
    def sha256(self) -> str:
        """Name of the picture in the lake."""
        return hashlib.sha256(self.png).hexdigest()


@dataclass(frozen=True, slots=True)
class Recorded:
    """The screen recording of a record."""

    source: str
    """Name of the file."""
    sha256: str
    """sha256 of the file."""
    license: str
    """Licence, such as `cc-by-4.0`; empty if it is not given."""
    width: int
    """Width of every frame in pixels."""
    height: int
    rate: float
    """Frames per second."""
    seconds: float
    """Duration."""
    fps: float
    """Frames per second that are compared. A frame is kept if it differs from the one kept before."""
    frames: Callable[[], Iterator[tuple[float, Picture]]]
    """Reads the kept frames from the file again, one at a time, with their seconds from the start."""


@dataclass(frozen=True, slots=True)
class StepAssessment:
    """Assessment of a step's action in hindsight; the fields have AgentNet's names."""

    last_step_correct: bool | None = None
    last_step_redundant: bool | None = None
    reflection: str = ""


@dataclass(frozen=True, slots=True)
class Sampled:
    """A policy's sampled reply in a step."""

    text: str
    """The decoded reply."""
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    """Natural logarithms under the policy that sampled; None if the server gave none."""
    prompt_ids: tuple[int, ...] | None = None
    """Tokens of the prompt, including those of screens; None if they are not requested, cannot be rebuilt, or have a
    redacted text."""


@dataclass(frozen=True, slots=True)
class ExchangedStep:
    """A screenshot, a thought, and the actions of the reply."""

    screen: Picture
    thought: str = ""
    actions: tuple[Action, ...] = ()
    """The actions, in order; empty for a text without an action."""
    text: str = ""
    """Text in place of an action that could not be parsed. With several actions, the recorded reply, which may be
    empty."""
    error: str | None = None
    """Reason why there is no action, or why an action could not be performed."""
    found: StepAssessment | None = None
    about: StepAbout = field(default_factory=StepAbout)
    extra: Extra = field(default_factory=dict[str, Any])
    better: str = ""
    """A reviewer's replacement of only the thought; empty if there is none."""
    sampled: Sampled | None = None
    """Null if no policy of this lake sampled the reply, or if its text is redacted."""
    frames: tuple[Picture, ...] = ()
    """The screens between several actions, as far as they are known: after the first, the second, ..."""
    shown_s: float | None = None
    """Seconds from the start at which the screen appeared; None if unknown."""
    began_s: float | None = None
    """Seconds from the start at which the actions began; None if unknown."""

    @property
    def action(self) -> Action | None:
        """The only action; None if the step has none or several, so that no reader takes the first of several."""
        return self.actions[0] if len(self.actions) == 1 else None

    @property
    def several(self) -> bool:
        """Whether the reply has several actions."""
        return len(self.actions) > 1

    @property
    def acted(self) -> list[tuple[Picture, Action]]:
        """Each action, with the last known screen before it."""
        shown = (self.screen, *self.frames)
        return [(shown[min(number, len(shown) - 1)], one) for number, one in enumerate(self.actions)]


@dataclass(frozen=True, slots=True)
class ImportedReview:
    """A reviewer's decision from another tool; fields as in `schemas.tables.review.Review`."""

    step: int | None
    person: str
    decision: Decision
    action: str | None
    thought: str | None
    note: str


@dataclass(frozen=True, slots=True)
class PlaceQuestion:
    """A question about the place of an element on a step's screen."""

    step: int
    name: str
    """The element, in words."""
    x: float
    """Fraction of the screen's width."""
    y: float


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A trajectory."""

    name: str
    """Name of the trajectory in its source."""
    instruction: str
    steps: tuple[ExchangedStep, ...]
    success: bool | None = None
    """Null if unknown."""
    after: Picture | None = None
    """The screen after the last step."""
    about: About = field(default_factory=About)
    decided: tuple[ImportedReview, ...] = ()
    """Reviewers' decisions on the trajectory from another tool."""
    extra: Extra = field(default_factory=dict[str, Any])
    recording: Recorded | None = None
    """The screen recording that the steps are from. A record of a recording without an event log has no steps."""
    questions: tuple[PlaceQuestion, ...] = ()
    """Questions about places on the steps' screens, in formats that have them."""

    def is_target(self, step: int) -> bool:
        """Whether a recorded step is a target."""
        about, own = self.about, self.steps[step].about
        if own.target is False or about.withheld or about.measures or step < about.replayed:
            return False
        if own.target:
            return True
        if own.correction and own.correction.replaces is not False:
            return False
        return about.continues is None or step == about.replayed or self.steps[about.replayed].about.actor == "person"

    def as_taught(self) -> "Exchanged":
        """Return the trajectory for training: reviewers' thoughts replace recorded ones, which are kept in
        `recorded`."""
        return replace(self, steps=tuple(_taught(one) for one in self.steps))

    @property
    def decisions(self) -> tuple[ImportedReview, ...]:
        """Reviewers' decisions on the trajectory from another tool, including corrections of its steps."""
        given = [(number, one.about.correction) for number, one in enumerate(self.steps)]
        brought = [ImportedReview(at, IMPORT, "correct", one.action, one.thought, "") for at, one in given if one]
        return (*brought, *self.decided)

    @property
    def digest(self) -> str:
        """Return the sha256 of the content, so that a record that is read twice is one trajectory."""
        steps = [
            [one.screen.sha256, one.thought, one.action and to_json(one.action), one.text, one.extra, str(one.found)]
            + ([[*map(to_json, one.actions)], [frame.sha256 for frame in one.frames]] if one.several else [])
            for one in self.steps
        ]
        after = self.after and self.after.sha256
        about = self.about.model_dump(mode="json", exclude=_LATER | _DECIDED)
        about |= self.about.model_dump(mode="json", include=_LATER, exclude_defaults=True)
        if holds_back(self.about.route, self.success):
            about["route"] = self.about.route
        whole = [self.name, self.instruction, steps, self.success, after, about]
        if self.recording:
            whole += [self.recording.sha256, self.recording.license, self.recording.fps]
        if self.questions:
            whole += [[[one.step, one.name, one.x, one.y] for one in self.questions]]
        return hashlib.sha256(json.dumps([*whole, self.extra], sort_keys=True).encode()).hexdigest()

    @property
    def digest_decided(self) -> str:
        """Return the sha256 of the content and of reviewers' decisions."""
        decided = self.decisions
        return hashlib.sha256(f"{self.digest}{decided}".encode()).hexdigest() if decided else self.digest


def _taught(step: ExchangedStep) -> ExchangedStep:
    if not step.better or step.better == step.thought:
        return step
    about = step.about.model_copy(update={"recorded": step.thought})
    return replace(step, thought=step.better, about=about)


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Place of a record in an import."""

    file: str
    line: int | None = None
    """Number of the record, from 1."""
    counted: Literal["line", "row", "record", "task"] = "line"
    """Counted items: lines, rows of Parquet, records of a JSON array, tasks of Label Studio."""


class RecordRefused(ValueError):
    """Raised for a record that cannot be imported; the message names the file, the line, the field and the problem."""

    def __init__(self, place: RecordPlace, field: str, problem: str) -> None:
        self.place, self.field, self.problem = place, field, problem
        line = "" if place.line is None else f", {place.counted} {place.line}"
        super().__init__(storable(f"{place.file}{line}{', ' if field else ''}{field}: {problem}"))


def instructed(text: str, place: RecordPlace, where: str) -> str:
    """Return an instruction; raise RecordRefused with its field where it is blank."""
    if not text.strip():
        raise RecordRefused(place, where, "no instruction: write the task in words")
    return text


def checked(record: Exchanged, place: RecordPlace) -> Exchanged:
    """Check a record, and return it.

    Raises:
        RecordRefused: no step has a screenshot, the instruction is blank, there are more steps or longer texts than a
            lake stores, a text is invalid, the seed measures policies, or the trajectory continues itself.
    """
    about, seed = record.about, record.about.seed
    if record.recording is None or record.steps:
        instructed(record.instruction, place, "instruction")
    if not record.steps and record.recording is None:
        raise RecordRefused(place, "steps", "a trajectory without screenshots: add them, or remove the record")
    if len(record.steps) > MOST_STEPS:
        raise RecordRefused(place, "steps", f"{len(record.steps)} steps, at most {MOST_STEPS} are taken")
    if seed is not None and not 0 <= seed < MOST_SEED:
        raise RecordRefused(
            place, f"{OWN}.trajectory.seed", f"seed {seed} measures policies and must not be trained on"
        )
    if about.continues and about.continues == about.trajectory_id:
        raise RecordRefused(place, f"{OWN}.trajectory.continues", f"{about.continues[:80]} continues itself")
    texts = {"name": record.name, "instruction": record.instruction}
    texts |= {f"questions.{number}.name": one.name for number, one in enumerate(record.questions)}
    for number, step in enumerate(record.steps):
        texts |= {f"steps.{number}.thought": step.thought, f"steps.{number}.action": step.text}
    for where, text in texts.items():
        if len(text) > MOST_TEXT:
            raise RecordRefused(place, where, f"{len(text):,} characters, at most {MOST_TEXT:,} are taken")
    acted = {
        f"steps.{at}.{f'actions.{number}' if step.several else 'action'}": one.model_dump()
        for at, step in enumerate(record.steps)
        for number, one in enumerate(step.actions)
    }
    for where, held in {**texts, **acted}.items():
        if flaw := flaw_of(held):
            raise RecordRefused(place, ".".join(filter(None, (where, flaw[0]))), flaw[1])
    return record


def metadata_of(
    record: Exchanged, format_name: str, unit: str, dialect: str = "", step: int | None = None, copied: bool = False
) -> Extra:
    """Return the object `flywheel` of the whole trajectory or of one step.

    Args:
        record: the trajectory.
        format_name: the written format; the record's data of other formats is included. unit, dialect: unit of the
        written coordinates, and dialect of the written actions.
        step: number of the step, in formats with a row per step.
        copied: whether the row is only a training target.
    """
    others = {name: held for name, held in record.extra.items() if name not in (format_name, OWN)}
    about = record.about.model_copy(update={"success": record.success, "extra": others})
    chosen = record.steps if step is None else record.steps[step : step + 1]
    steps = [_step_about(one, format_name) for one in chosen]
    plain = {"unit": unit, "dialect": dialect or None, "step": step, "steps": steps if any(steps) else None}
    known = {key: value for key, value in plain.items() if value is not None} | ({"copied": True} if copied else {})
    return {**known, "trajectory": about.model_dump(mode="json", exclude_defaults=True)}


def _step_about(step: ExchangedStep, format_name: str) -> Extra:
    others = {name: held for name, held in step.extra.items() if name != format_name}
    thought, no_action = step.about.recorded, not step.actions
    if thought is None and step.thought != ("" if no_action else step.thought.strip()):  # as chats give it back
        thought = step.thought
    facts = {"error": step.error, "extra": others, "recorded": thought, "no_action": no_action}
    about = step.about.model_copy(update=facts)
    return about.model_dump(mode="json", exclude_defaults=True)


def with_metadata(record: Exchanged, known: Metadata | None, place: RecordPlace) -> Exchanged:
    """Return the record with the data of its object `flywheel`; the format's own outcome takes precedence.

    Raises:
        RecordRefused: the object has more or fewer steps than the record.
    """
    if known is None:
        return record
    described, there = len(known.steps), len(record.steps)
    if described not in (0, there):
        problem = f"it describes {counted(described, 'step')}, and the record has {there}"
        raise RecordRefused(place, f"{OWN}.steps", problem)
    about = known.trajectory.model_copy(update={"extra": {}})
    success = known.trajectory.success if record.success is None else record.success
    steps = [*map(_with_step, record.steps, known.steps)] if known.steps else record.steps
    extra = {**known.trajectory.extra, **record.extra}
    return replace(record, steps=tuple(steps), success=success, about=about, extra=extra)


def _with_step(step: ExchangedStep, known: StepAbout) -> ExchangedStep:
    about = known.model_copy(update={"extra": {}, "error": None, "recorded": None, "no_action": False})
    thought = step.thought if known.recorded is None else known.recorded
    error = known.error if known.no_action else known.error or step.error
    extra = {**known.extra, **step.extra}
    return replace(step, thought=thought, error=error, about=about, extra=extra)
