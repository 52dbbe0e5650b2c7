"""The unified action space of UI-TARS (arXiv 2501.12326, Table 1), with the terminal and the files of UI-TARS-2's
GUI-SDK (arXiv 2509.02544), as a closed, typed union.

Coordinates are fractions of the screen in [0, 1]; the origin is the top left corner. Text forms of these actions are
*dialects* and live in `models.families.dialects`; this module knows only the typed action and its one canonical JSON
form, which the lake stores.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from common.text import Storable
from schemas.keyboard import MAX_KEYS, names_of, single, together


def numeric(value: Any) -> Any:
    """Returns the value; raises ValueError for true and false, which Python takes for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is no number")
    return value


def _chord(key: str) -> str:
    """Normalises a hotkey; one with a key that no keyboard has stays as it is."""
    try:
        return together(names_of(key))
    except ValueError as error:
        if re.fullmatch(rf"\S+( \S+){{0,{MAX_KEYS - 1}}}", key):
            return key
        raise ValueError(f"{error}: write at most {MAX_KEYS} keys, such as `ctrl c`") from error


def _key(key: str) -> str:
    """Normalises the name of one key; what is no key stays as it is."""
    try:
        return single(key)
    except ValueError:
        return key


Fraction = Annotated[float, BeforeValidator(numeric), Field(ge=0.0, le=1.0)]
Direction = Literal["up", "down", "left", "right"]
OPPOSITE: Mapping[str, Direction] = {"up": "down", "down": "up", "left": "right", "right": "left"}
"""Direction in which a screen scrolls as a finger moves over it."""


class _Action(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Pointed(_Action):
    x: Fraction
    y: Fraction


class Click(_Pointed):
    """A left click."""

    type: Literal["click"] = "click"


class LeftDouble(_Pointed):
    """A left double click."""

    type: Literal["left_double"] = "left_double"


class RightSingle(_Pointed):
    """A right click."""

    type: Literal["right_single"] = "right_single"


class LongPress(_Pointed):
    """A touch held down (mobile)."""

    type: Literal["long_press"] = "long_press"


class Scroll(_Pointed):
    """A scroll with the pointer at (x, y)."""

    type: Literal["scroll"] = "scroll"
    direction: Direction


class Drag(_Pointed):
    """Press at (x, y), move, release at (to_x, to_y)."""

    type: Literal["drag"] = "drag"
    to_x: Fraction
    to_y: Fraction


class Type(_Action):
    """Text typed into the focused element; a trailing newline submits."""

    type: Literal["type"] = "type"
    content: Storable


class Hotkey(_Action):
    """One to three keys pressed together, lower case, separated by spaces: `ctrl c`; `Ctrl+C` becomes it."""

    type: Literal["hotkey"] = "hotkey"
    key: Annotated[Storable, AfterValidator(_chord)]


class Press(_Action):
    """A key pressed and held."""

    type: Literal["press"] = "press"
    key: Annotated[Storable, AfterValidator(_key)]


class Release(_Action):
    """A held key released."""

    type: Literal["release"] = "release"
    key: Annotated[Storable, AfterValidator(_key)]


class OpenApp(_Action):
    """An app started by its name (mobile)."""

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
    """A browser sent to an address."""

    type: Literal["navigate"] = "navigate"
    content: Storable


class NavigateBack(_Action):
    """A browser sent one page back."""

    type: Literal["navigate_back"] = "navigate_back"


class Terminal(_Action):
    """A command run in the sandbox's shell, which goes on from the last one (UI-TARS-2's GUI-SDK)."""

    type: Literal["terminal"] = "terminal"
    command: Storable


class ReadFile(_Action):
    """A file of the sandbox opened, so that the next screen shows it."""

    type: Literal["read_file"] = "read_file"
    path: Storable


class WriteFile(_Action):
    """A file of the sandbox written as a whole."""

    type: Literal["write_file"] = "write_file"
    path: Storable
    content: Storable


class Wait(_Action):
    """Wait for a while."""

    type: Literal["wait"] = "wait"


class Finished(_Action):
    """The end: the policy reports the task as done."""

    type: Literal["finished"] = "finished"
    content: Storable = ""


class CallUser(_Action):
    """The end: the policy asks for a person."""

    type: Literal["call_user"] = "call_user"


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
    | CallUser,
    Field(discriminator="type"),
]
TYPES: Mapping[str, type[Action]] = {kind.model_fields["type"].default: kind for kind in get_args(get_args(Action)[0])}
"""All actions by the name of their type."""
TERMINAL: tuple[str, ...] = ("finished", "call_user")
"""Types of action that end a trajectory."""

_ADAPTER: TypeAdapter[Action] = TypeAdapter(Action)


def to_json(action: Action) -> str:
    """Writes the canonical JSON of an action: sorted keys, no spaces."""
    return json.dumps(action.model_dump(), sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Action:
    """Parses an action from its canonical JSON.

    Raises:
        pydantic.ValidationError: unknown type, unknown or missing argument, coordinate outside [0, 1].
    """
    return _ADAPTER.validate_json(text)


def action_of(fields: dict[str, object]) -> Action:
    """Makes the action with these fields (`type` names the kind); raises as `from_json` does."""
    return _ADAPTER.validate_python(fields)


def point_of(action: Action) -> tuple[float, float] | None:
    """Returns the point an action aims at, or None for actions without one."""
    return (action.x, action.y) if isinstance(action, _Pointed) else None
