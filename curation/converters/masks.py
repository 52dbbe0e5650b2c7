"""Reads from rows, messages and their parts which replies have a loss, and which are desirable."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from common.text import counted
from curation.converters.exchanged import RecordPlace, RecordRefused
from curation.converters.files import fields_of, items_of, parsed
from models.families.code.calls import is_unset

MASKS = (
    *("loss_mask", "step_loss_mask", "loss", "loss_scale", "loss_weight"),
    *("train", "training", "train_detail", "weight"),
)
"""Fields by which a message excludes itself from training: `loss_mask` of UI-TARS and verl, `step_loss_mask` of agents'
rollouts, `loss` and `loss_scale` of ms-swift, `train`, `training` and `train_detail` of axolotl, `weight` of OpenAI."""
LABELS = ("label", "kto_tag")
"""Fields by which a row marks its last reply as desirable or not: `label` of TRL and ms-swift, `kto_tag` of
LLaMA-Factory."""
STRATEGIES = (
    *("default", "all", "last_round", "ignore_empty_think"),
    *("react", "agentflan", "alpha_umi", "hermes", "qwen"),
)
"""Strategies of ms-swift that a row may name in `loss_scale` (modelscope/ms-swift, pull request 8430), joined by `+`;
`last_round` trains only on the last reply, and the others weigh parts of replies."""
_NO = ("false", "f", "no", "n", "off")
_YES = ("true", "t", "yes", "y", "on")


def is_masked(fields: Mapping[str, Any], place: RecordPlace, where: str) -> bool:
    """Return whether a message excludes itself or a part of itself from training, in a field of `MASKS`.

    A step is a target only as a whole, so an excluded part excludes the step.

    Args:
        fields: fields of the message; its parts are the items of `content` and `tool_calls`. place, where: the place of
        its record, and the name of its field.

    Raises:
        RecordRefused: a value is no mask.
    """
    held = [(where, fields)]
    for name in ("content", "tool_calls"):
        held += [(f"{where}.{name}.{at}", fields_of(one)) for at, one in enumerate(items_of(fields.get(name)) or [])]
    return any([_is_off(one.get(name), place, f"{at}.{name}") for at, one in held for name in MASKS])


def masks_of(
    row: Mapping[str, Any],
    replies: Sequence[bool],
    place: RecordPlace,
    called: str = "message",
    labelled: int = 0,
    order: Sequence[int] = (),
) -> list[bool]:
    """Return for each message of a row whether the row excludes it from training.

    Args:
        row: the row's fields.
        replies: for each message, whether it is a reply.
        place: the place of the row.
        called: the field's name of a message.
        labelled: the number of last replies to which a label of the row (`LABELS`) applies. Other replies are context.
        order: indices of the messages in order of time; empty if the row has them in this order.

    Raises:
        RecordRefused: a list has more or fewer entries than messages, or a value is no mask.
    """
    off, messages = [False] * len(replies), len(replies)
    order = order or range(messages)
    turn_of = {at: turn for turn, at in enumerate(order)}
    last_replies = [turn_of[at] for at in order if replies[at]][-max(labelled, 1) :] or [0]
    first, last = last_replies[0], last_replies[-1]
    for name in MASKS:
        value = _unwritten(row.get(name))
        items = items_of(value)
        if name == "loss_scale" and (strategies := _strategies(value)):
            off = [one or ("last_round" in strategies and turn_of[at] < last) for at, one in enumerate(off)]
            continue
        if items and len(items) != messages:
            problem = f"{counted(len(items), 'value')} for {counted(messages, called)}: write one for each"
            raise RecordRefused(place, name, problem)
        if items is None:
            masked = _is_off(value, place, name)
            off = [one or masked for one in off]
        elif items:
            off = [one | _is_off(items[at], place, f"{name}.{at}") for at, one in enumerate(off)]
    desirable = is_desirable(row) if labelled else None
    if desirable is not None:
        off = [one or not desirable or turn_of[at] < first for at, one in enumerate(off)]
    return off


def _strategies(value: object) -> list[str]:
    """Return the strategies that a row's `loss_scale` names; empty for anything else."""
    names = value.strip().split("+") if isinstance(value, str) else []
    return names if all(name in STRATEGIES for name in names) else []


def is_desirable(row: Mapping[str, Any]) -> bool | None:
    """Return whether the label of a row marks its last reply as desirable; None without a label or for a class."""
    for name in LABELS:
        value = row.get(name)
        number = number_of(value)
        if number in (0, 1):
            return bool(number)
        if isinstance(value, str) and value.strip().lower() in (*_NO, *_YES):
            return value.strip().lower() in _YES
    return None


def _unwritten(value: object) -> object:
    """Return the list or object in a text of JSON; any other value unchanged."""
    if not isinstance(value, str) or value.strip()[:1] not in ("[", "{"):
        return value
    inside: object = parsed(value.encode(), RecordPlace(""))
    return cast(object, inside) if isinstance(inside, list | dict) else value


def _is_off(value: object, place: RecordPlace, where: str) -> bool:
    """Return whether a mask, or a part of it, excludes something; raise RecordRefused for a value that is no mask."""
    left, off = list[tuple[str, object]]([(where, value)]), False
    while left:
        at, one = left.pop()
        one = _unwritten(one)
        parts = _mask_parts(one)
        if parts or one in ([], {}):
            left += [(f"{at}.{name}", part) for name, part in reversed(parts)]
            continue
        trains = _trains(one)
        if trains is None:
            problem = f"{str(one)[:80]!r} is not a mask: write true or false, or a number of at least 0"
            raise RecordRefused(place, at, problem)
        off = off or not trains
    return off


def _mask_parts(value: object) -> list[tuple[str, object]]:
    """Return the masks in a list or an object, by name; none for other values."""
    if isinstance(value, Mapping):
        fields = cast(Mapping[str, object], value)
        return [(name, fields[name]) for name in MASKS if name in fields]
    return [(str(number), item) for number, item in enumerate(items_of(value) or ())]


def _trains(value: object) -> bool | None:
    """Return whether one value of a mask trains; None for a value that is no mask, such as pandas' NaN."""
    text = value.strip().lower() if isinstance(value, str) else None
    if is_unset(value) or text in _YES:
        return True
    if text in _NO:
        return False
    number = number_of(value)
    return None if number is None or number < 0 else number != 0


def number_of(value: object) -> float | None:
    """Return a finite number, also of a text."""
    try:
        number = float(cast(Any, value))
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
