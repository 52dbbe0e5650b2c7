"""Read cua-lite's tool calls as actions. Their arguments are checked as cua-lite's schemas check them."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from curation.converters.cua_lite.calls import ALONE, BATCHES, CLICKS, SIDE, SYSTEM
from curation.converters.files import fields_of, items_of
from schemas.action import Action, action_of
from schemas.problem import named_problem

PointerAt = Sequence[int] | None
"""The pointer's place, in thousandths; None if it is unknown."""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


Point = Annotated[list[int], Field(min_length=2, max_length=2)]
Keys = Annotated[list[str], Field(min_length=1)]
_Button = Literal["left", "right", "middle"]


class _Clicked(_Arguments):
    action: Literal["click"]
    coordinate: Point | None = None
    button: _Button = "left"
    clicks: Literal[1, 2, 3] = 1


class _Moved(_Arguments):
    action: Literal["mouse_move"]
    coordinate: Point


class _Pressed(_Arguments):
    action: Literal["mouse_down", "mouse_up"]
    button: _Button = "left"


class _Dragged(_Arguments):
    action: Literal["drag"]
    coordinate: Point
    start_coordinate: Point | None = None
    button: _Button = "left"


class _Scrolled(_Arguments):
    action: Literal["scroll"]
    direction: Literal["up", "down", "left", "right"]
    amount: int
    coordinate: Point | None = None


class _Typed(_Arguments):
    action: Literal["type"]
    text: str
    press_enter: bool | None = None


class _Keyed(_Arguments):
    action: Literal["key", "key_down", "key_up"]
    keys: Keys


class _Held(_Arguments):
    action: Literal["hold_key"]
    keys: Keys
    duration: float


class _Waited(_Arguments):
    action: Literal["wait"]
    duration: float


class _Looked(_Arguments):
    action: Literal["screenshot", "cursor_position"]


class _Tapped(_Arguments):
    action: Literal["tap"]
    coordinate: Point
    clicks: Literal[1, 2] = 1


class _Touched(_Arguments):
    action: Literal["long_press"]
    coordinate: Point
    duration: float | None = None


class _Swiped(_Arguments):
    action: Literal["swipe", "drag"]
    start_coordinate: Point
    coordinate: Point


class _Pinched(_Arguments):
    action: Literal["pinch"]
    coordinate: Point
    direction: Literal["in", "out"]
    amount: int = 25


class _System(_Arguments):
    action: Literal["system_button"]
    button: Literal["Home", "Back", "Enter", "Menu", "Recent"]


_COMPUTER: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        _Clicked | _Moved | _Pressed | _Dragged | _Scrolled | _Typed | _Keyed | _Held | _Waited | _Looked,
        Field(discriminator="action"),
    ]
)
_MOBILE: TypeAdapter[Any] = TypeAdapter(
    Annotated[
        _Tapped | _Touched | _Typed | _Swiped | _Pinched | _System | _Waited | _Looked, Field(discriminator="action")
    ]
)


class NotAnAction(ValueError):
    """Raised for a call that is no action of this project; the message names its field and the reason."""


class OutOfRange(ValueError):
    """Raised for a coordinate outside of the screen; the message names its field."""


def read_call(name: str, arguments: Any, where: str, pointer: PointerAt) -> tuple[list[Action | None], PointerAt]:
    """Parse a call, and return its actions with the pointer's place after them.

    Args:
        name, arguments: the call.
        where: field of its arguments, for messages.
        pointer: the pointer's place before.

    Returns:
        The actions, with None for one without effect, such as a screenshot; and the pointer's place.

    Raises:
        NotAnAction: the call or one of its actions is none of this project.
        OutOfRange: a coordinate is outside of the screen.
    """
    if name in ALONE:
        return [_read_alone(name, arguments, where)], pointer
    if name not in BATCHES.values():
        raise NotAnAction(f"{where}: the tool {name[:80]!r} is no action of this project")
    items = items_of(fields_of(arguments).get("actions"))
    if not items:
        raise NotAnAction(f"{where}.actions: no list of actions")
    done = list[Action | None]()
    for number, item in enumerate(items):
        field = f"{where}.actions.{number}"
        try:
            parsed = (_COMPUTER if name == "computer" else _MOBILE).validate_python(item)
        except ValidationError as error:
            raise NotAnAction(f"{field}: {named_problem(error)}") from error
        for point in (getattr(parsed, one, None) for one in ("coordinate", "start_coordinate")):
            if point is not None and not all(0 <= value <= SIDE for value in point):
                raise OutOfRange(f"{field}: {point} is not a point of a screen of {SIDE} x {SIDE} thousandths")
        try:
            done += _actions(parsed, pointer)
        except ValueError as error:
            problem = named_problem(error) if isinstance(error, ValidationError) else str(error)
            raise NotAnAction(f"{field}: {problem}") from error
        pointer = getattr(parsed, "coordinate", None) or pointer
    return done, pointer


class _Alone(_Arguments):
    url: str | None = None
    app_name: str | None = None
    command: str | None = None
    text: str | None = None
    reason: str | None = None
    status: Literal["success", "failure"] | None = None


def _read_alone(name: str, arguments: Any, where: str) -> Action:
    try:
        given = _Alone.model_validate(arguments).model_dump(exclude_none=True)
    except ValidationError as error:
        raise NotAnAction(f"{where}: {named_problem(error)}") from error
    required, optional = ALONE[name]
    if missing := [one for one in required if one not in given]:
        raise NotAnAction(f"{where}.{missing[0]}: {name} needs it")
    if unknown := given.keys() - {*required, *optional}:
        raise NotAnAction(f"{where}.{min(unknown)}: {name} has no such argument")
    match name:
        case "goto":
            return action_of({"type": "navigate", "content": given["url"]})
        case "back":
            return action_of({"type": "navigate_back"})
        case "open_app":
            return action_of({"type": "open_app", "app_name": given["app_name"]})
        case "bash":
            return action_of({"type": "terminal", "command": given["command"]})
        case "response":
            return action_of({"type": "finished", "content": given["text"]})
        case _:
            failed = given.get("status", "failure") == "failure"
            return action_of({"type": "call_user" if failed else "finished", "content": given.get("reason", "")})


def _actions(item: Any, pointer: PointerAt) -> Iterator[Action | None]:
    """Yield the actions of a parsed item; None for one without effect.

    Raises:
        ValueError: this project has no such action.
    """
    match item:
        case _Clicked():
            button = {} if item.button == "left" else {"button": item.button}
            wanted = button | ({} if item.clicks == 1 else {"clicks": item.clicks})
            kind = next((kind for kind, fields in CLICKS.items() if fields == wanted), None)
            if kind is None:
                raise ValueError(f"{item.clicks} clicks with the {item.button} button are no action of this project")
            yield _made(kind, item.coordinate or _known(pointer))
        case _Moved():
            yield _made("move", item.coordinate)
        case _Pressed():
            yield _made(item.action, None, **({} if item.button == "left" else {"button": item.button}))
        case _Dragged(button="left") | _Swiped(action="swipe"):
            to = _fraction(item.coordinate)
            yield _made("drag", item.start_coordinate or _known(pointer), to_x=to["x"], to_y=to["y"])
        case _Scrolled():
            yield _made("scroll", item.coordinate, direction=item.direction)
        case _Typed():
            yield _made("type", None, content=item.text + ("\n" if item.press_enter else ""))
        case _Keyed(action="key"):
            yield _made("hotkey", None, key=" ".join(item.keys))
        case _Keyed():
            kind = "press" if item.action == "key_down" else "release"
            yield from (_made(kind, None, key=key) for key in item.keys)
        case _Waited():
            yield _made("wait", None, seconds=item.duration)
        case _Tapped():
            yield _made("click" if item.clicks == 1 else "left_double", item.coordinate)
        case _Touched():
            yield _made("long_press", item.coordinate, **({} if item.duration is None else {"seconds": item.duration}))
        case _System():
            yield SYSTEM[item.button]
        case _Looked():
            yield None
        case _:
            with_button = f" with the {item.button} button" if isinstance(item, _Dragged) else ""
            raise ValueError(f"{item.action}{with_button} is no action of this project")


def _made(kind: str, point: Sequence[int] | None, **fields: Any) -> Action:
    return action_of({"type": kind, **(_fraction(point) if point is not None else {}), **fields})


def _known(pointer: PointerAt) -> Sequence[int]:
    if pointer is None:
        raise ValueError("the call has no coordinate, and the pointer's place is not known")
    return pointer


def _fraction(point: Sequence[int]) -> dict[str, float]:
    return {"x": point[0] / SIDE, "y": point[1] / SIDE}
