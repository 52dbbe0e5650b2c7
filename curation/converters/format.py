"""Defines the interface of formats, which write trajectories into a folder and read them from a file or folder.

A custom format derives from `Format` and is named by its dotted path; built-in formats are found in the same way.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from common.text import counted
from curation.converters.exchanged import Exchanged, ExchangedStep, Metadata, RecordPlace, RecordRefused, checked
from curation.converters.files import ImportSource, Target
from curation.converters.units import UNITS
from models.families.dialects import format_actions, format_reply
from schemas.failure import UsageError
from schemas.registry import Registry

Read = Iterator[tuple[RecordPlace, Exchanged | RecordRefused]]
T = TypeVar("T")


def each(
    source: ImportSource,
    values: Iterable[tuple[RecordPlace, Any]],
    read: Callable[[Any, ImportSource, RecordPlace], T],
) -> Iterator[tuple[RecordPlace, T | RecordRefused]]:
    """Yield what `read` makes of each of a source's values, or its refusal."""
    for place, value in values:
        try:
            yield place, read(value, source, place)
        except RecordRefused as refused:
            yield place, refused


class Format(ABC):
    """Reads and writes trajectories in one format.

    Args:
        unit: unit of written coordinates; the format's first if not given.
        dialect: dialect of written actions, in a format with several dialects; the format's first if not given.

    Raises:
        UsageError: the format does not have the unit or the dialect.
    """

    name: ClassVar[str]
    """Name of the format in stored data of imported records; letters, digits and dashes."""
    units: ClassVar[tuple[str, ...]] = ("fraction",)
    """Units of written coordinates."""
    theirs: ClassVar[tuple[str, ...]] = ()
    """Units in records of other projects, if they differ from `units`."""
    assumed: ClassVar[str | None] = None
    """Unit of a record that names none; None if the format does not define it."""
    dialects: ClassVar[tuple[str, ...]] = ()
    addressed: ClassVar[bool] = False
    """Whether pictures are named by their address, with the prefix `Target.images_at`."""
    comes_home: ClassVar[bool] = False
    """Whether an export is imported again with reviewers' changes, so that exports must not be redacted."""

    read_by: ClassVar[str] = ""
    """Format that hints name instead of this one, since it reads the same files; empty if there is none."""
    several: ClassVar[bool] = False
    """Whether a step of the format holds all actions of a reply; else `export` writes such a reply as text."""
    asks: ClassVar[bool] = False
    """Whether the format has questions about places on screens (`Exchanged.questions`)."""
    prompts: ClassVar[bool] = False
    """Whether the format has the tokens of prompts (`Sampled.prompt_ids`), whose computation takes time."""

    tags: ClassVar[tuple[str, ...]] = ()
    """Tags of an export on the Hub, in addition to the tags of every export."""
    loading: str = ""
    """Python code that reads an export from the folder `DIR`, for its card."""
    contents: ClassVar[str] = ""
    """Description of an export's files and columns in Markdown, for its card."""

    def __init__(self, unit: str | None = None, dialect: str | None = None) -> None:
        self.notes: list[str] = []
        """Notes for the users of a written export, one line each."""
        self.configs: list[dict[str, Any]] = []
        """Configurations that `datasets.load_dataset` reads, as `configs` of a card; set by `write`."""
        self.as_text = 0
        """Number of exported steps with several actions that were written as text."""
        self.unit = unit or self.units[0]
        self.dialect = dialect or (self.dialects[0] if self.dialects else "")
        if self.unit not in self.units:
            raise UsageError(f"`--unit {unit}`: {self.name} has {', '.join(self.units)}.")
        if dialect and dialect not in self.dialects:
            has = ", ".join(self.dialects) or "none to choose from"
            raise UsageError(f"`--dialect {dialect}`: {self.name} has {has}.")

    def export(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write trajectories (`write`), and note how many steps the format cannot hold as actions."""
        self.write(records if self.several else map(self._with_single_actions, records), target)
        if self.as_text:
            steps, held = counted(self.as_text, "step"), "is" if self.as_text == 1 else "are"
            self.notes.append(f"{steps} with several actions {held} text: {self.name} has one action a step.")

    def _with_single_actions(self, record: Exchanged) -> Exchanged:
        """Return the trajectory with the text of each reply that has several actions, and the reason; count them."""
        several = [step.several for step in record.steps]
        self.as_text += sum(several)
        return replace(record, steps=tuple(map(_single, record.steps))) if any(several) else record

    @abstractmethod
    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write trajectories, with only a few in memory at a time."""

    @abstractmethod
    def records(self, source: ImportSource) -> Read:
        """Yield every record of a source, or its refusal, with only a few in memory at a time."""

    def read(self, source: ImportSource) -> Read:
        """Yield the checked records of `records`."""
        return each(source, self.records(source), _checked)

    def unit_of(
        self, known: Metadata | None, source: ImportSource, place: RecordPlace, usual: str | None = None
    ) -> str:
        """Return the unit of a record's coordinates: from the record, the command, its tool (`usual`) or the format, in
        this order.

        Raises:
            RecordRefused: no unit is given, or the record's unit is unknown.
        """
        unit = (known.unit if known else None) or source.unit or usual or self.assumed
        if unit is None:
            problem = (
                f"the unit of its coordinates is not given; name it: --unit {' or '.join(self.theirs or self.units)}"
            )
            raise RecordRefused(place, "flywheel.unit", problem)
        if unit not in UNITS:
            raise RecordRefused(place, "flywheel.unit", f"there is no unit {unit[:80]!r}; one of {', '.join(UNITS)}")
        return unit


def _single(step: ExchangedStep) -> ExchangedStep:
    """Return a step without its actions if it has several, as the text of the reply with the reason."""
    if not step.several:
        return step
    text = step.text or format_reply(step.thought, format_actions(step.actions))
    error = f"{len(step.actions)} actions in one reply" + (f"; {step.error}" if step.error else "")
    return replace(step, actions=(), frames=(), text=text, error=error)


def _checked(found: Exchanged | RecordRefused, _: ImportSource, place: RecordPlace) -> Exchanged | RecordRefused:
    return found if isinstance(found, RecordRefused) else checked(found, place)


FORMATS: Registry[Format] = Registry(
    "--format",
    Format,
    {
        "ui-tars": "curation.converters.ui_tars:UiTars",
        "agentnet": "curation.converters.agentnet:AgentNet",
        "scalecua": "curation.converters.scalecua:ScaleCua",
        "hf": "curation.converters.hf:HuggingFace",
        "cua-lite": "curation.converters.cua_lite.form:CuaLite",
        "cua-lite-hub": "curation.converters.cua_lite.form:CuaLiteHub",
        "trl": "curation.converters.trl:Trl",
        "verl": "curation.converters.verl:Verl",
        "atif": "curation.converters.atif.form:Atif",
        "lerobot": "curation.converters.lerobot:LeRobot",
        "label-studio": "curation.converters.label_studio:LabelStudio",
        "recording": "curation.converters.recording:RecordingFormat",
    },
)
