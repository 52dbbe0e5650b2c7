"""A model family (`policy.family=tests.taps:Taps`) of its own dialect, grid, reply and prompt."""

import re
from collections.abc import Sequence
from dataclasses import replace

from models.completion import Completion
from models.families.family import ModelFamily, Size
from models.families.prompt import Message
from models.policy import Context
from schemas.action import Action, action_of, from_json, to_json

SIDE = 64
_REPLY = re.compile(r"<think>(.*?)</think>(.*)", re.DOTALL)


class Taps(ModelFamily):
    """Answers `<think>thought</think>tap 12/64 30/64`; every action but a click as canonical JSON."""

    def messages(self, context: Context) -> list[Message]:
        """The goal, what was answered, the screen."""
        past = [_turn("assistant", f"<think>{turn.thought}</think>{turn.action_text}") for turn in context.turns]
        screen: Message = {"role": "user", "content": [{"type": "image", "observation": context.observation}]}
        return [_turn("user", f"Goal: {context.instruction}"), *past, screen]

    def write(self, action: Action, screen: Size) -> str:
        """In parts of the screen's sides."""
        if action.type != "click":
            return to_json(action)
        return f"tap {round(action.x * SIDE)}/{SIDE} {round(action.y * SIDE)}/{SIDE}"

    def reply(self, thought: str, actions: Sequence[Action], screen: Size) -> str:
        """Thought and action."""
        return f"<think>{thought}</think>{self.write_actions(actions, screen)}"

    def read(self, completion: Completion, screen: Size) -> Completion:
        """What `reply` wrote."""
        found = _REPLY.fullmatch(completion.text)
        thought, text = found.groups() if found else ("", completion.text)
        numbers = re.fullmatch(rf"tap (\d+)/{SIDE} (\d+)/{SIDE}", text)
        try:
            x, y = (int(number) / SIDE for number in numbers.groups()) if numbers else (0.0, 0.0)
            action = action_of({"type": "click", "x": x, "y": y}) if numbers else from_json(text)
        except ValueError:
            return replace(completion, thought=thought, action_text=text, error=f"no action in {text[:80]!r}")
        return replace(completion, thought=thought, action_text=text, actions=(action,))


def _turn(role: str, text: str) -> Message:
    return {"role": role, "content": [{"type": "text", "text": text}]}
