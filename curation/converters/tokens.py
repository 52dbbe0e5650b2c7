"""Keeps special tokens out of texts for other projects' trainers.

A tokenizer reads `<|im_end|>` or `<image>` as a control code anywhere in a row. Formats whose texts are tokenised
(`ui-tars`, `trl`, `verl`, `scalecua`, `agentnet`, `lerobot`) therefore write every text of a trajectory with a space
behind the first character of such a token. Formats for records and exchange (`atif`, `label-studio`) keep texts
exactly. A text that already has the broken form gets one more space. So an import of an export restores the text
exactly by removing one space from each.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from curation.converters.exchanged import Exchanged, ExchangedStep
from schemas.action import Action

_NAMES = (
    *("image", "/image", "img", "/img", "video", "audio", "IMG_CONTEXT", "global-img", r"row_\d_col_\d"),
    *("/?s", "bos", "eos", "pad", "unk", "mask", "cls", "sep", "sop", "eop", "fake_token_around_image"),
    r"(?:start|end|begin)_of_(?:turn|image|utterance|text|sentence|thought|solution)",
    *("image_soft_token", "/?ref", "/?box", "/?quad"),
)
"""Tokens between plain angle brackets, of InternVL, Gemma, PaliGemma, SmolVLM, GLM, Llama and LLaVA. `<think>` and
`<tool_call>` are markup of the formats themselves, whose writers keep them out of texts."""
_INNER = r"[^\s<>\[\]◁▷]{1,60}"
_ANGLED = rf"(?:(?:{'|'.join(_NAMES)})>|(?!\|box_(?:start|end)\|>)(?:[|｜]{_INNER}|{_INNER}[|｜])>)"
_SQUARE = (
    r"(?:IMG(?:_BREAK|_END)?|/?(?:INST|THINK|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|SYSTEM_PROMPT)|BOS|EOS|UNK|PAD"
    r"|CLS|SEP|[gs]?MASK|PREFIX|SUFFIX|MIDDLE|control_\d{1,4})\]"
)
_RESTS = {"<": _ANGLED, r"\[": _SQUARE, "◁": f"{_INNER}▷"}
"""Forms of tokens by their first character; box tokens are UI-TARS's own markup."""
_TOKENS = re.compile("|".join(f"{first}(?= *{rest})" for first, rest in _RESTS.items()))
"""The first character of a token such as `<image>`, `<|im_end|>` or `[INST]`, also of a broken token."""
_BROKEN = re.compile("|".join(f"(?<={first}) (?= *{rest})" for first, rest in _RESTS.items()))
Change = Callable[[str], str]


def plain(text: str) -> str:
    """Break every token in a text with a space behind its first character."""
    return _TOKENS.sub(lambda found: f"{found[0]} ", text)


def restored(text: str) -> str:
    """Return the text that `plain` broke."""
    return _BROKEN.sub("", text)


def plain_between(text: str, placeholder: re.Pattern[str]) -> str:
    """Break every token of a text except the placeholders of pictures."""
    made, end = "", 0
    for found in placeholder.finditer(text):
        made, end = f"{made}{plain(text[end : found.start()])}{found[0]}", found.end()
    return made + plain(text[end:])


def plain_value(value: Any) -> Any:
    """Break every token in the texts of a JSON value; keys stay."""
    return _value(value, plain)


def for_trainers(record: Exchanged) -> Exchanged:
    """Break every token in a trajectory's texts; a format breaks its own `extra`, where it knows the placeholders."""
    return _record(record, plain)


def from_export(record: Exchanged) -> Exchanged:
    """Restore the trajectory that `for_trainers` broke, including `extra`."""
    steps = tuple(replace(one, extra=_value(one.extra, restored)) for one in record.steps)
    return _record(replace(record, steps=steps, extra=_value(record.extra, restored)), restored)


def _record(record: Exchanged, change: Change) -> Exchanged:
    steps = tuple(_step(one, change) for one in record.steps)
    questions = tuple(replace(one, name=change(one.name)) for one in record.questions)
    return replace(record, instruction=change(record.instruction), steps=steps, questions=questions)


def _step(step: ExchangedStep, change: Change) -> ExchangedStep:
    found = step.found and replace(step.found, reflection=change(step.found.reflection))
    actions = tuple(_action(one, change) for one in step.actions)
    text = change(step.text)
    return replace(step, thought=change(step.thought), actions=actions, text=text, found=found)


def _action(action: Action, change: Change) -> Action:
    held = {name: one for name, one in action.model_dump(exclude={"type"}).items() if isinstance(one, str)}
    changed = {name: change(one) for name, one in held.items() if change(one) != one}
    return action.model_copy(update=changed) if changed else action


def _value(value: Any, change: Change) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: _value(one, change) for key, one in cast(Mapping[str, Any], value).items()}
    if isinstance(value, list | tuple):
        return [_value(one, change) for one in cast(Sequence[Any], value)]
    return value
