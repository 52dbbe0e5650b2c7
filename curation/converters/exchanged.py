"""A trajectory as formats exchange it: what all of them know, and what only one of them does, kept beside it.

What a format has no column for goes into one JSON object, `flywheel`, at the place where the format keeps metadata;
what a record holds that we have no column for stays with it under the format's name (`extra`), is stored with the row
and is written back where the same format is exported again.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from schemas.action import Action, from_json, to_json
from schemas.failure import Boundary
from schemas.tables.review import Decision
from schemas.tables.trajectory import IMPORT, Route, Termination
from schemas.text import NO_TEXT, Storable, counted, storable

OWN = "flywheel"
"""The key of our metadata in records of others."""
MOST_STEPS = 1000
"""Steps of a trajectory, as the lake's quality gate has it."""
MOST_TEXT = 100_000
"""Characters of an instruction, a thought or a reply."""
MOST_SEED = 1_000_000
"""One past the last training seed: trajectories of other seeds measure policies and are never trained on."""
MOST_SECONDS = 10_000_000.0
"""Of a trajectory: some months."""
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""When a trajectory may have begun, the latter exclusive."""
DEEPEST = 100
"""Lists and objects in each other of a record."""

Extra = Mapping[str, Any]
"""What a record holds beyond our columns: JSON values by format."""


def flaw_of(value: object) -> tuple[str, str] | None:
    """The first thing in a JSON value that no lake keeps: where it stands, such as `steps.3.text`, and what it is.

    It is a NUL or half of a character in a text or a key, or what is nested deeper than `DEEPEST`; None where there is
    none. In the stored JSON half of a character would keep every query that looks into it from running.
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
            return where, f"{what} is no text"
        if len(path) > DEEPEST:
            return where[:80], f"nested more than {DEEPEST} deep"
        left += reversed(inside)
    return None


def _begun(instant: datetime) -> datetime:
    """The instant; raises ValueError for one that is not in the time that tables and Python's own arithmetic hold."""
    try:
        within = EARLIEST <= instant.astimezone(UTC) < LATEST
    except OverflowError:
        within = False
    if not within:
        raise ValueError(f"{instant.isoformat()} is not from {EARLIEST.year} to {LATEST.year} in UTC")
    return instant


def holds_back(route: str | None, success: bool | None) -> bool:
    """Whether a filter that sent a trajectory there says that it is no success, whatever itself says: it waits for a
    person, says nothing about a policy, or was turned away though it claims success."""
    return route in ("quarantine", "none") or (route == "ct" and success is True)


class _Known(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class About(_Known):
    """What a lake knows of a trajectory, for formats that have no columns for it."""

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
    """Of a correction: the trajectory, of the lake it is from, whose first steps were replayed."""
    replayed: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """How many steps were: the context of what follows, some of them errors, and no targets."""
    withheld: bool = False
    """Whether none of its steps is a target: a correction that nothing saw succeed, or that was undone."""
    route: Route | None = None
    """Where the filter or a person of the lake that it is from sent it; null where none has seen it."""
    reason: Storable = ""
    """Why."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Of formats other than the one that is written."""


_LATER = {"continues", "replayed", "withheld"}
"""Fields that came later: they count in a digest only where they say something, so that older ones stay the same."""
_DECIDED = {"route", "reason"}
"""Fields that change as people and judges look again: of these a digest counts that a trajectory is held back."""


class Correction(_Known):
    """What a person put in the place of a step, which is no target as it was recorded."""

    action: Annotated[str, AfterValidator(lambda text: to_json(from_json(text)))]
    """Canonical JSON."""
    thought: Storable = ""
    state: Literal["verified", "refuted", "unverified"] = "unverified"
    """The outcome that a sandbox gave."""
    replaces: bool | None = None
    """Whether the recorded step gave way to it; where nobody says, it did."""
    taught: bool = False
    """Whether it is a target in the step's place; not where another trajectory shows it."""


class StepAbout(_Known):
    """What a lake knows of a step, for formats that have no columns for it."""

    actor: Storable = ""
    policy_version: Storable = ""
    error: Storable | None = None
    """Why its text holds no action that could be performed."""
    correction: Correction | None = None
    target: bool | None = None
    """Whether a training in the lake that it is from imitates it as it was recorded; null where the filter there did
    not accept its trajectory, and where the step gave way to a correction. False in every lake where the record that it
    was imported from says so (`loss_mask` 0, `is_copied_context`)."""
    recorded: Storable | None = None
    """The thought that the step was recorded with, where a person's stands in its place."""
    extra: dict[str, Any] = Field(default_factory=dict)


class Metadata(_Known):
    """The object at `flywheel`: of a whole trajectory, or, in formats with a row per step, of one step."""

    unit: str | None = None
    dialect: str | None = None
    trajectory: About = About()
    step: Annotated[int, Field(ge=0, lt=MOST_STEPS)] | None = None
    """Which step a row is; null where a row is a trajectory."""
    copied: bool = False
    """Whether a row is only what is to be learnt: its trajectory stands whole elsewhere in the same export."""
    steps: list[StepAbout] = Field(default_factory=list[StepAbout])

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: object) -> object:
        """Refuses what no lake keeps, also where a format holds this as a text of JSON."""
        if flaw := flaw_of(value):
            raise ValueError(": ".join(filter(None, flaw)))
        return value


@dataclass(frozen=True, slots=True)
class Picture:
    """A screenshot."""

    png: bytes
    width: int
    height: int
    original: str = field(default="", compare=False)
    """Of one that was painted over: the name of the picture that it was."""

    @property
    def sha256(self) -> str:
        """Its name in the lake."""
        return hashlib.sha256(self.png).hexdigest()


@dataclass(frozen=True, slots=True)
class StepAssessment:
    """What somebody found of a step's action, looking back at it; the fields have AgentNet's names."""

    last_step_correct: bool | None = None
    last_step_redundant: bool | None = None
    reflection: str = ""


@dataclass(frozen=True, slots=True)
class Sampled:
    """What a policy sampled as a step's reply."""

    text: str
    """The reply as it was decoded."""
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    """Natural logarithms under the policy that sampled; None where its server gave none."""
    prompt_ids: tuple[int, ...] | None = None
    """Tokens of the prompt, those of screens included; None where they are not asked for or cannot be made again, and
    where a text of it is redacted."""


@dataclass(frozen=True, slots=True)
class ExchangedStep:
    """A screenshot, a thought, an action."""

    screen: Picture
    thought: str = ""
    action: Action | None = None
    text: str = ""
    """What stood in the action's place where none could be read."""
    error: str | None = None
    """Why `action` is null, or why it could not be performed."""
    found: StepAssessment | None = None
    about: StepAbout = field(default_factory=StepAbout)
    extra: Extra = field(default_factory=dict[str, Any])
    better: str = ""
    """What a person put in the place of its thought while the action stayed; empty where nobody did."""
    sampled: Sampled | None = None
    """Null where no policy of this lake sampled it, and where its text is redacted."""


@dataclass(frozen=True, slots=True)
class ImportedReview:
    """What a person decided elsewhere; fields as in `schemas.tables.review.Review`."""

    step: int | None
    person: str
    decision: Decision
    action: str | None
    thought: str | None
    note: str


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A trajectory."""

    name: str
    """What its source calls it."""
    instruction: str
    steps: tuple[ExchangedStep, ...]
    success: bool | None = None
    """Null where nobody judged it."""
    after: Picture | None = None
    """The screen after the last step."""
    about: About = field(default_factory=About)
    decided: tuple[ImportedReview, ...] = ()
    """What people decided on it elsewhere."""
    extra: Extra = field(default_factory=dict[str, Any])

    def is_target(self, step: int) -> bool:
        """Whether a step is to be imitated as it was recorded."""
        about, own = self.about, self.steps[step].about
        if own.target is False or about.withheld or step < about.replayed:
            return False
        if own.target:
            return True
        if own.correction and own.correction.replaces is not False:
            return False
        return about.continues is None or step == about.replayed or self.steps[about.replayed].about.actor == "person"

    def as_taught(self) -> "Exchanged":
        """The same as a training reads it: with the thoughts that people put in the place of recorded ones, which each
        step then keeps beside it."""
        return replace(self, steps=tuple(_taught(one) for one in self.steps))

    @property
    def decisions(self) -> tuple[ImportedReview, ...]:
        """What people decided on it elsewhere, the corrections that its steps came with included."""
        given = [(number, one.about.correction) for number, one in enumerate(self.steps)]
        brought = [ImportedReview(at, IMPORT, "correct", one.action, one.thought, "") for at, one in given if one]
        return (*brought, *self.decided)

    @property
    def digest(self) -> str:
        """sha256 of all it holds: the same record read twice is one trajectory."""
        steps = [
            [one.screen.sha256, one.thought, one.action and to_json(one.action), one.text, one.extra, str(one.found)]
            for one in self.steps
        ]
        after = self.after and self.after.sha256
        about = self.about.model_dump(mode="json", exclude=_LATER | _DECIDED)
        about |= self.about.model_dump(mode="json", include=_LATER, exclude_defaults=True)
        if holds_back(self.about.route, self.success):
            about["route"] = self.about.route
        whole = [self.name, self.instruction, steps, self.success, after, about]
        return hashlib.sha256(json.dumps([*whole, self.extra], sort_keys=True).encode()).hexdigest()

    @property
    def digest_decided(self) -> str:
        """The same of what it holds and what people decided on it."""
        decided = self.decisions
        return hashlib.sha256(f"{self.digest}{decided}".encode()).hexdigest() if decided else self.digest


def _taught(step: ExchangedStep) -> ExchangedStep:
    if not step.better or step.better == step.thought:
        return step
    about = step.about.model_copy(update={"recorded": step.thought})
    return replace(step, thought=step.better, about=about)


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Where a record stands in what is imported."""

    file: str
    line: int | None = None
    """From 1."""
    counted: Literal["line", "row", "record", "task"] = "line"
    """What is counted: rows of Parquet, records of a JSON array, tasks of Label Studio."""


class RecordRefused(ValueError):
    """A record that cannot be imported: the file, the line, the field, and what is wrong with it."""

    def __init__(self, place: RecordPlace, field: str, problem: str) -> None:
        self.place, self.field, self.problem = place, field, problem
        line = "" if place.line is None else f", {place.counted} {place.line}"
        super().__init__(storable(f"{place.file}{line}{', ' if field else ''}{field}: {problem}"))


def checked(record: Exchanged, place: RecordPlace) -> Exchanged:
    """The record.

    Raises:
        Refused: no step with a screenshot, more steps or longer texts than a lake takes, what is no text, a seed that
            measures policies, a trajectory that continues itself.
    """
    about, seed = record.about, record.about.seed
    if not record.steps:
        raise RecordRefused(place, "steps", "a trajectory without screenshots")
    if len(record.steps) > MOST_STEPS:
        raise RecordRefused(place, "steps", f"{len(record.steps)} steps, at most {MOST_STEPS} are taken")
    if seed is not None and not 0 <= seed < MOST_SEED:
        raise RecordRefused(
            place, f"{OWN}.trajectory.seed", f"seed {seed} measures policies and must not be trained on"
        )
    if about.continues and about.continues == about.trajectory_id:
        raise RecordRefused(
            place, f"{OWN}.trajectory.continues", f"{about.continues[:80]} says that it continues itself"
        )
    texts = {"name": record.name, "instruction": record.instruction}
    for number, step in enumerate(record.steps):
        texts |= {f"steps.{number}.thought": step.thought, f"steps.{number}.action": step.text}
    for where, text in texts.items():
        if len(text) > MOST_TEXT:
            raise RecordRefused(place, where, f"{len(text):,} characters, at most {MOST_TEXT:,} are taken")
    acted = {f"steps.{at}.action": one.action.model_dump() for at, one in enumerate(record.steps) if one.action}
    for where, held in {**texts, **acted}.items():
        if flaw := flaw_of(held):
            raise RecordRefused(place, ".".join(filter(None, (where, flaw[0]))), flaw[1])
    return record


def metadata_of(
    record: Exchanged, format_name: str, unit: str, dialect: str = "", step: int | None = None, copied: bool = False
) -> Extra:
    """What goes under `flywheel`: of the whole trajectory, or of one step of it.

    Args:
        record: the trajectory.
        format_name: the format that is written; what the record holds of other formats is carried along.
        unit, dialect: of coordinates and actions as they are written.
        step: which step, in formats with a row per step.
        copied: whether the row is only what is to be learnt.
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
    about = step.about.model_copy(update={"error": step.error, "extra": others})
    return about.model_dump(mode="json", exclude_defaults=True)


def with_metadata(record: Exchanged, known: Metadata | None, place: RecordPlace) -> Exchanged:
    """The record with what stood under `flywheel`; what the format itself says of the outcome counts.

    Raises:
        Refused: it tells of more or fewer steps than there are.
    """
    if known is None:
        return record
    told, there = len(known.steps), len(record.steps)
    if told not in (0, there):
        raise RecordRefused(place, f"{OWN}.steps", f"it tells of {counted(told, 'step')}, and the record has {there}")
    about = known.trajectory.model_copy(update={"extra": {}})
    success = known.trajectory.success if record.success is None else record.success
    steps = [
        _with_step(step, known.steps[number] if known.steps else StepAbout())
        for number, step in enumerate(record.steps)
    ]
    extra = {**known.trajectory.extra, **record.extra}
    return replace(record, steps=tuple(steps), success=success, about=about, extra=extra)


def _with_step(step: ExchangedStep, known: StepAbout) -> ExchangedStep:
    about = known.model_copy(update={"extra": {}, "error": None, "recorded": None})
    thought = step.thought if known.recorded is None else known.recorded
    extra = {**known.extra, **step.extra}
    return replace(step, thought=thought, error=known.error or step.error, about=about, extra=extra)
