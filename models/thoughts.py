"""Templated thoughts of steps that have no other.

They are marked as such wherever they are stored (author `template`) and kept few, so that a small policy spends no
words on them.
"""

from schemas.action import Action

THOUGHTS: dict[str, str] = {
    "click": "Click it.",
    "left_double": "Double-click it.",
    "right_single": "Open its menu.",
    "long_press": "Hold it.",
    "scroll": "Scroll.",
    "drag": "Drag it.",
    "type": "Type it.",
    "hotkey": "Use the keys.",
    "press": "Hold the key.",
    "release": "Let the key go.",
    "wait": "Wait.",
    "finished": "Done.",
    "call_user": "Ask the user.",
}
"""Thought by action type; a missing type has none."""
ADMITS = "Not that."
"""Beginning of a thought after an error."""


def templated_thought(action: Action) -> str:
    """Returns the templated thought for an action."""
    return THOUGHTS.get(action.type, "")


def reflective_thought(thought: str) -> str:
    """Builds a thought that first admits the error of the step before."""
    return f"{ADMITS} {thought}".strip()
