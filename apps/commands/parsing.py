"""Implement `flywheel parse`: show how a model's reply is parsed, without a lake."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from apps.options import AsJson, print_json, print_line, print_note
from common.text import storable, unmarked
from schemas.failure import UsageError

if TYPE_CHECKING:
    from models.families.family import ModelFamily
    from schemas.action import Action

ANY_SCREEN = (1000, 1000)
"""Size of the screenshot if no coordinate depends on it."""
MOST = 16384
"""Pixels of a screen's side, as in the table of steps."""
BREAKS = {ord(one): one.encode("unicode_escape").decode() for one in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}
"""Characters that end a line, and their escapes: a reply is printed on one line."""
TEXTS = ("text", "reply", "raw_text", "completion")
"""Fields of a record that may hold its reply."""


def parse(
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Reply to parse.")] = None,
    family: Annotated[
        str, typer.Option(metavar="NAME|PATH", help="Model family: a name, a dotted path, or auto with --model.")
    ] = "",
    model: Annotated[Path | None, typer.Option(metavar="DIR", help="Checkpoint whose processor is used.")] = None,
    screen: Annotated[
        str,
        typer.Option(
            metavar="WxH", help="Size of the screenshot, such as 1920x1080; required if coordinates are pixels."
        ),
    ] = "",
    file: Annotated[
        Path | None, typer.Option(metavar="REPLIES.jsonl", help="File with one reply per line; - for stdin.")
    ] = None,
    template: Annotated[
        str | None, typer.Option(help="Prompt template: computer, browser, mobile, grounding or hybrid.")
    ] = None,
    tools: Annotated[
        Path | None, typer.Option(metavar="TOOLS.json", help="File with the list of functions, as in policy.tools.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a family parses replies: thought, actions in fractions of the screen, or the error."""
    if (text is None) == (file is None):
        raise UsageError("`flywheel parse` reads one reply or a file.", "Give TEXT or --file REPLIES.jsonl.")
    if file is not None and str(file) != "-" and (file.is_dir() or not file.exists()):
        raise UsageError(f"`--file {file}`: there is no such file.", "Name a file of JSON lines.")
    reader = reader_of(family, model, template, tools_in(tools) if tools else ())
    size = size_of(screen) if screen or reader.counts == "pixels" else ANY_SCREEN
    _require(reader, size)
    noted = False
    for reply in [text or ""] if file is None else replies_of(file):
        found = as_read(reader, reply, size)
        note = "" if noted else _note_on_places(reader, found, size)
        if note:
            noted = True
            print_note(note)
        if as_json:
            print_json(found, indent=None)
        else:
            print_line(_as_text(found))


def size_of(screen: str) -> tuple[int, int]:
    """Parses the width and height of `WxH`; raises UsageError for anything else."""
    if not screen:
        raise UsageError("`--screen` is not given.", "Write the screenshot's size, for example --screen 1920x1080.")
    found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", screen, re.ASCII)
    width, height = (int(side) for side in found.groups()) if found else (0, 0)
    if not (0 < width <= MOST and 0 < height <= MOST):
        raise UsageError(f"`--screen {screen}` is not a screen size.", "Write, for example, --screen 1920x1080.")
    return width, height


def tools_in(file: Path) -> list[Any]:
    """Reads the functions of a JSON file, each in OpenAI's form, with or without its `type`."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"`--tools {file}` cannot be read: {error}", "Name a file with a list in JSON.") from error
    if not isinstance(found, list):
        raise UsageError(f"`--tools {file}` holds no list.", "Write the functions as a list in JSON.")
    listed = cast(list[Any], found)
    return [one["function"] if isinstance(one, dict) and "function" in one else one for one in listed]


def reader_of(name: str, model: Path | None, template: str | None = None, tools: Sequence[Any] = ()) -> "ModelFamily":
    """Makes the family that parses replies.

    Args:
        name: name or dotted path of the family; `auto` for the checkpoint's.
        model: the checkpoint whose image processor sets the size of a screenshot; None for the published checkpoint.
        template: `policy.template`; None for the family's first.
        tools: `policy.tools`.

    Raises:
        UsageError: the family or template does not exist, or the family writes pixels and has no published checkpoint.
        CheckpointError: the checkpoint has no image processor.
    """
    from models.families.processor import read_limits
    from models.families.registry import FAMILIES, name_of
    from schemas.config.load import config_of
    from schemas.config.policy import PolicyConfig

    if model is not None and not model.is_dir():
        raise UsageError(f"`--model {model}`: there is no such folder.", "Name a checkpoint's folder.")
    if not name:
        raise UsageError("`--family` is not given.", f"One of {', '.join(FAMILIES.names)}, or a dotted path.")
    if name == "auto" and model is None:
        raise UsageError(
            "`--family auto` chooses the family of a checkpoint, and none is given.",
            f"Give --model DIR, or name one of {', '.join(FAMILIES.names)}.",
        )
    if name == "auto":
        assert model is not None
        name = name_of(PolicyConfig(base=str(model)))
        print_note(f"{model} has the family {name}")
    kind = FAMILIES.class_of(name, "--family")
    asked = {"family": name, "template": template or kind.templates[0], "tools": list(tools)}
    made = kind(config_of({"suite": {"tasks": []}, "policy": asked}).policy)
    made.name = name
    limits = kind.published if model is None else None if name == "tiny" else read_limits(model)
    if model is None and kind.counts == "pixels":
        if limits is None:
            raise UsageError(f"{name} writes pixels, and the screenshot size is unknown.", "Give --model DIR.")
        print_note(
            f"pixels are those of the published checkpoint's image processor (factor {limits.factor}, {limits.least:,} "
            f"to {limits.most:,} pixels); --model DIR reads your own's"
        )
    made.fit(limits)
    return made


def as_read(family: "ModelFamily", reply: str, screen: tuple[int, int]) -> dict[str, Any]:
    """Returns those of a reply's `thought`, `sentence`, `actions`, `unused` arguments and `error` that it has, and the
    actions that would not be performed as `dropped`."""
    from models.completion import Completion
    from schemas.action import TERMINAL

    read = family.read(Completion(storable(reply)), screen)
    ends = next((place for place, action in enumerate(read.actions, 1) if action.type in TERMINAL), len(read.actions))

    def listed(actions: "Iterable[Action]") -> list[dict[str, Any]]:
        return [{"type": action.type, **action.model_dump(exclude={"type"})} for action in actions]

    later = listed([*read.actions[ends:], *read.dropped])
    unused = {"unused": list(read.unused)} if read.unused else {}
    sentence = {"sentence": words} if (words := family.sentence(read.action_text)) else {}
    return {
        "thought": read.thought,
        **sentence,
        "actions": listed(read.actions[:ends]),
        **({"dropped": later} if later else {}),
        **unused,
        "error": read.error,
    }


def _note_on_places(family: "ModelFamily", found: Mapping[str, Any], screen: tuple[int, int]) -> str:
    """Returns a note if a reply's places are probably in another unit than the family's; empty otherwise."""
    from models.families.registry import FAMILIES

    width, height = family.sides(screen)
    unit = f"{family.name} writes {family.counts}, {width:g} x {height:g} for this screen"
    if "should be less than or equal to 1 in" in (found["error"] or ""):
        return f"a place is outside of the screen: {unit}"
    points = [(one["x"], one["y"]) for one in found["actions"] if "x" in one and "y" in one]
    if min(width, height) > 1 and any(0 < x * width < 1 and 0 < y * height < 1 for x, y in points):
        name = family.name
        others = ", ".join(one for one in (f"{name}-qwen2", f"{name}-internvl") if one in FAMILIES.names)
        does = f", as {others} does" if others else ""
        return f"both coordinates are below 1, and {unit}: the model may write fractions of the screen{does}"
    return ""


def replies_of(file: Path) -> Iterator[str]:
    """Reads the replies of a file, a JSON string or an object with one of `TEXTS` on each line.

    Raises:
        UsageError: the file does not exist, or a line has no reply; the message names it.
    """
    try:
        with sys.stdin if str(file) == "-" else file.open(encoding="utf-8") as lines:
            yield from _replies(file, unmarked(lines))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`--file {file}`: {error}.", "Name a file of JSON lines.") from error


def _replies(file: Path, lines: Iterable[str]) -> Iterator[str]:
    empty = True
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record: Any = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        found = record if isinstance(record, str) else _field(record)
        if found is None:
            raise UsageError(
                f"{file}, line {number}: no reply.",
                f"Write a JSON string, or an object with one of {', '.join(TEXTS)}.",
            )
        yield found
        empty = False
    if empty:
        name = "standard input" if str(file) == "-" else str(file)
        raise UsageError(f"`--file {file}`: {name} has no reply.", "Write a JSON string per line.")


def _field(record: Any) -> str | None:
    fields: dict[str, Any] = record if isinstance(record, dict) else {}
    return next((fields[name] for name in TEXTS if isinstance(fields.get(name), str)), None)


def _require(family: "ModelFamily", size: tuple[int, int]) -> None:
    """Raises UsageError for a screen that the checkpoint's processor does not accept."""
    try:
        family.sides(size)
    except ValueError as error:
        raise UsageError(f"`--screen`: {error}.", "No image processor takes such a screen.") from error


def _as_text(found: dict[str, Any]) -> str:
    def listed(actions: Iterable[Mapping[str, Any]]) -> str:
        fields = (one.items() for one in actions)
        return "; ".join(
            " ".join(f"{key}={value:.4f}" if isinstance(value, float) else f"{key}={value}" for key, value in one)
            for one in fields
        )

    actions = listed(found["actions"])
    actions += f" (not performed: {listed(found['dropped'])})" if "dropped" in found else ""
    thought = "".join(f"{found[name]} -> " for name in ("thought", "sentence") if found.get(name))
    unused = f" (unused: {', '.join(found['unused'])})" if "unused" in found else ""
    return (thought + (actions or f"no action: {found['error']}") + unused).translate(BREAKS)
