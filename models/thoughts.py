"""Writes templated thoughts for steps without a thought.

The lake stores them with the author `template`. Their number is small, so that a small policy need not learn many words
for them.
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
"""Thought by action type; each is a token of the small policy."""
FURTHER: dict[str, str] = {
    "move": "Point at it.",
    "middle_single": "Middle-click it.",
    "triple_click": "Select the line.",
    "mouse_down": "Hold the button.",
    "mouse_up": "Let the button go.",
    "note": "Write it down.",
    "tool": "Use the tool.",
}
"""Thoughts that are no tokens of the small policy, so that its vocabulary stays; any other type has no thought."""
ADMITS = "Not that."
"""Beginning of a thought after an error."""


def templated_thought(action: Action) -> str:
    """Returns the templated thought for an action."""
    return THOUGHTS.get(action.type) or FURTHER.get(action.type, "")


def reflective_thought(thought: str) -> str:
    """Builds a thought that begins by admitting the previous step's error."""
    return f"{ADMITS} {thought}".strip()
