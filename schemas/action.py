"""Define all actions as a typed union, and their canonical JSON.

The actions are the unified action space of UI-TARS (arXiv 2501.12326, Table 1), the terminal and files of UI-TARS-2's
GUI-SDK (arXiv 2509.02544), and the pointer's actions that models of 2026 write: moves, middle and triple clicks, a
button that goes down and up. A note is for the policy itself. Coordinates are fractions of the screen in [0, 1]; the
origin is the top left corner. The lake stores the canonical JSON. The module `models.families.dialects` defines other
text forms of actions, called dialects.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, Self, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
    model_validator,
)

from common.text import Storable, mapped_json, storable_json
from schemas.keyboard import MAX_KEYS, names_of, single, together


def numeric(value: Any) -> Any:
    """Returns the value. Raises ValueError for true and false, because Python treats them as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is no number")
    return value


def _chord(key: str) -> str:
    """Normalises a hotkey. A hotkey with an unknown key does not change."""
    try:
        return together(names_of(key))
    except ValueError as error:
        if re.fullmatch(rf"\S+( \S+){{0,{MAX_KEYS - 1}}}", key):
            return key
        raise ValueError(f"{error}: write at most {MAX_KEYS} keys, such as `ctrl c`") from error


def _key(key: str) -> str:
    """Normalises the name of one key. An unknown name does not change."""
    try:
        return single(key)
    except ValueError:
        return key


def _object(value: Any) -> dict[str, Any]:
    """Copies a JSON object, with storable texts; raises ValueError for anything else."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{str(value)[:40]!r} is no JSON object")
    if _depth(cast(object, value)) > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels of lists and objects")
    try:
        written = json.dumps(storable_json(value), allow_nan=False, sort_keys=True, separators=(",", ":"))
    except TypeError as error:
        raise ValueError(f"no JSON: {error}") from error
    if len(written) > MAX_ARGUMENTS:
        raise ValueError(f"{len(written):,} characters of JSON, and at most {MAX_ARGUMENTS:,} are allowed")
    return json.loads(written)


def _depth(value: object) -> int:
    """Counts the levels of lists and objects, at most one more than `MAX_DEPTH`."""
    depth, level = 0, [value]
    while depth <= MAX_DEPTH:
        held = [cast(Iterable[object], one) for one in level if isinstance(one, Mapping | list)]
        if not held:
            return depth
        parts = [cast(Mapping[object, object], one).values() if isinstance(one, Mapping) else one for one in held]
        depth, level = depth + 1, [inner for part in parts for inner in part]
    return depth


Fraction = Annotated[float, BeforeValidator(numeric), Field(ge=0.0, le=1.0)]
Direction = Literal["up", "down", "left", "right"]
Button = Literal["left", "middle", "right"]
MAX_WAIT_S = 30.0
"""Maximum seconds of a wait."""
MAX_HOLD_S = 5.0
"""Maximum seconds of a long press."""
MAX_ARGUMENTS = 100_000
"""Maximum characters of a tool's arguments as canonical JSON."""
MAX_DEPTH = 32
"""Maximum levels of lists and objects in a tool's arguments."""
OPPOSITE: Mapping[str, Direction] = {"up": "down", "down": "up", "left": "right", "right": "left"}
"""Direction in which a screen scrolls, by the direction of a finger's movement."""


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _Brief(_Action):
    """An action whose JSON leaves out optional fields at their defaults, so that rows without such a field stay
    equal."""

    @model_serializer(mode="wrap")
    def _set(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        usual = {name: field.default for name, field in type(self).model_fields.items() if name != "type"}
        return {name: value for name, value in write(self).items() if name not in usual or value != usual[name]}


class _Pointed(_Action):
    x: Fraction
    y: Fraction


class _AtPointer(_Brief):
    """An action at (x, y), or at the pointer if it has neither."""

    x: Fraction | None = None
    y: Fraction | None = None

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.x is None) != (self.y is None):
            raise ValueError(f"`{'x' if self.x is None else 'y'}` is missing: give both or neither")
        return self


class _Button(_AtPointer):
    button: Button = "left"


class Click(_Pointed):
    """A left click."""

    type: Literal["click"] = "click"


class LeftDouble(_AtPointer):
    """A left double click at (x, y), or at the pointer."""

    type: Literal["left_double"] = "left_double"


class RightSingle(_Pointed):
    """A right click."""

    type: Literal["right_single"] = "right_single"


class LongPress(_Pointed, _Brief):
    """A long touch (mobile), for a number of seconds, or as long as the environment usually holds it."""

    type: Literal["long_press"] = "long_press"
    seconds: Annotated[float, BeforeValidator(numeric), Field(ge=0.0, le=MAX_HOLD_S)] | None = None


class Scroll(_AtPointer):
    """A scroll at (x, y), or at the pointer."""

    type: Literal["scroll"] = "scroll"
    direction: Direction


class Drag(_Pointed):
    """A drag: press at (x, y), move, and release at (to_x, to_y)."""

    type: Literal["drag"] = "drag"
    to_x: Fraction
    to_y: Fraction


class Type(_Action):
    """Text typed into the focused element; a trailing newline submits."""

    type: Literal["type"] = "type"
    content: Storable


class Hotkey(_Action):
    """One to three keys pressed together, in lower case, separated by spaces, such as `ctrl c`. `Ctrl+C` is
    converted."""

    type: Literal["hotkey"] = "hotkey"
    key: Annotated[Storable, AfterValidator(_chord)]


class Press(_Action):
    """A key press that holds the key down."""

    type: Literal["press"] = "press"
    key: Annotated[Storable, AfterValidator(_key)]


class Release(_Action):
    """The release of a held key."""

    type: Literal["release"] = "release"
    key: Annotated[Storable, AfterValidator(_key)]


class OpenApp(_Action):
    """The start of an app by its name (mobile)."""

    type: Literal["open_app"] = "open_app"
    app_name: Storable


class PressHome(_Action):
    """The home button (mobile)."""

    type: Literal["press_home"] = "press_home"


class PressBack(_Action):
    """The back button (mobile)."""

    type: Literal["press_back"] = "press_back"


class PressEnter(_Action):
    """The enter key (mobile)."""

    type: Literal["press_enter"] = "press_enter"


class Navigate(_Action):
    """The navigation of a browser to an address."""

    type: Literal["navigate"] = "navigate"
    content: Storable


class NavigateBack(_Action):
    """The navigation of a browser one page back."""

    type: Literal["navigate_back"] = "navigate_back"


class Terminal(_Action):
    """A command for the sandbox's shell (UI-TARS-2's GUI-SDK). The shell keeps its state between commands."""

    type: Literal["terminal"] = "terminal"
    command: Storable


class ReadFile(_Action):
    """The opening of a file of the sandbox; the next screen shows the file."""

    type: Literal["read_file"] = "read_file"
    path: Storable


class WriteFile(_Action):
    """The writing of a whole file of the sandbox."""

    type: Literal["write_file"] = "write_file"
    path: Storable
    content: Storable


class Wait(_Brief):
    """A wait for a number of seconds, or for the environment's usual time."""

    type: Literal["wait"] = "wait"
    seconds: Annotated[float, BeforeValidator(numeric), Field(ge=0.0, le=MAX_WAIT_S)] | None = None


class Finished(_Action):
    """The end of the trajectory: the policy reports that the task is done."""

    type: Literal["finished"] = "finished"
    content: Storable = ""


class CallUser(_Brief):
    """The end of the trajectory: the policy asks for help by a person, perhaps with a question or a reason."""

    type: Literal["call_user"] = "call_user"
    content: Storable = ""


class Move(_Pointed):
    """A move of the pointer without a click, which shows hover texts and opens menus."""

    type: Literal["move"] = "move"


class MiddleSingle(_Pointed):
    """A middle click."""

    type: Literal["middle_single"] = "middle_single"


class TripleClick(_AtPointer):
    """A left triple click at (x, y), or at the pointer, which selects a line or a paragraph."""

    type: Literal["triple_click"] = "triple_click"


class MouseDown(_Button):
    """A mouse button that goes down and stays down. The environment releases it when the trajectory ends."""

    type: Literal["mouse_down"] = "mouse_down"


class MouseUp(_Button):
    """The release of a mouse button."""

    type: Literal["mouse_up"] = "mouse_up"


class PressRecent(_Action):
    """The button that lists the open apps (mobile)."""

    type: Literal["press_recent"] = "press_recent"


class PressMenu(_Action):
    """The menu button (mobile)."""

    type: Literal["press_menu"] = "press_menu"


class Note(_Action):
    """A note that the policy writes for itself. The rollout records it; the environment does not get it."""

    type: Literal["note"] = "note"
    content: Storable


class UseTool(_Action):
    """A call of a tool that the environment offers, such as a tool of an MCP server."""

    type: Literal["tool"] = "tool"
    name: Annotated[Storable, Field(min_length=1, max_length=200)]
    arguments: Annotated[dict[str, Any], BeforeValidator(_object)] = Field(default_factory=dict[str, Any])
    """A JSON object, with at most `MAX_ARGUMENTS` characters of canonical JSON and `MAX_DEPTH` levels."""

    def __hash__(self) -> int:
        return hash(to_json(self))


Action = Annotated[
    Click
    | LeftDouble
    | RightSingle
    | LongPress
    | Scroll
    | Drag
    | Type
    | Hotkey
    | Press
    | Release
    | OpenApp
    | PressHome
    | PressBack
    | PressEnter
    | Navigate
    | NavigateBack
    | Terminal
    | ReadFile
    | WriteFile
    | Wait
    | Finished
    | CallUser
    | Move
    | MiddleSingle
    | TripleClick
    | MouseDown
    | MouseUp
    | PressRecent
    | PressMenu
    | Note
    | UseTool,
    Field(discriminator="type"),
]
TYPES: Mapping[str, type[Action]] = {kind.model_fields["type"].default: kind for kind in get_args(get_args(Action)[0])}
"""All classes of actions, by type name."""
TERMINAL: tuple[str, ...] = ("finished", "call_user")
"""Types of action that end a trajectory."""
IDLE: tuple[str, ...] = ("wait", "note")
"""Types of action without an input to the environment."""

_ADAPTER: TypeAdapter[Action] = TypeAdapter(Action, config=ConfigDict(defer_build=True))


def to_json(action: Action) -> str:
    """Returns the canonical JSON of an action, with sorted keys and without spaces."""
    return json.dumps(action.model_dump(), sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Action:
    """Parses an action from its canonical JSON.

    Raises:
        pydantic.ValidationError: the type is unknown, an argument is unknown or missing, or a coordinate is outside [0,
            1].
    """
    return _ADAPTER.validate_json(text)


def from_json_list(texts: Iterable[str]) -> list[Action]:
    """Reads the actions of one reply, in order, from their canonical JSON; raises as `from_json`."""
    return [from_json(text) for text in texts]


def action_of(fields: dict[str, object]) -> Action:
    """Makes an action from its fields, of which `type` is one. Raises the errors of `from_json`."""
    return _ADAPTER.validate_python(fields)


def point_of(action: Action) -> tuple[float, float] | None:
    """Returns the point of an action; None for an action without a point, also for one at the pointer."""
    if not isinstance(action, _Pointed | _AtPointer) or action.x is None or action.y is None:
        return None
    return action.x, action.y


def type_and_place(action: Action) -> str:
    """Returns the type of an action, for errors; with words for a scroll or several clicks at the pointer, which some
    grammars lack, and with the name of a tool."""
    if isinstance(action, UseTool):
        return f"the tool {action.name[:80]!r}"
    unplaced = isinstance(action, Scroll | LeftDouble | TripleClick) and action.x is None
    return f"{action.type} without a place" if unplaced else action.type


def texts_of(action: Action) -> list[str]:
    """Lists the texts of an action, also those within a tool's arguments, in order of its fields."""
    found = list[str]()

    def add(value: object) -> object:
        found.extend([value] if isinstance(value, str) else [])
        return value

    mapped_json([*action.model_dump(exclude={"type"}).values()], add)
    return found


def in_words(text: str | None) -> str:
    """Describes an action's canonical JSON for people, such as `drag (0.100, 0.200) to (0.300, 0.400)`."""
    if not text:
        return "no action"
    fields = json.loads(text)
    kind, tool = fields.pop("type"), fields.pop("name", None)
    points = [f"({fields.pop(x):.3f}, {fields.pop(y):.3f})" for x, y in (("x", "y"), ("to_x", "to_y")) if x in fields]
    rest = [json.dumps(value, ensure_ascii=False) for value in fields.values()]
    named = [kind.replace("_", " "), *([str(tool)] if tool else [])]
    return " ".join(part for part in (*named, " to ".join(points), *rest) if part)


def seconds_of(action: Action) -> float | None:
    """Returns the seconds that an action takes by its own argument; None without one."""
    return action.seconds if isinstance(action, Wait | LongPress) else None
