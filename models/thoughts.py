"""Templated thoughts: what a step's thought says where nobody thought of one.

They are marked as such wherever they are stored (author `template`) and kept few, so that a small policy spends no
words on them. A click says what it is aimed at, in the words that also ask where a thing is (`learning.batches`): to
act is then to name a thing and to find it, and every screen teaches the finding.
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
"""Thought by action type; what is missing here has none."""


AIM = ('Click "', '".')
"""What stands around the name of a click's target."""
LONGEST_AIM = 20
"""Characters; longer names are texts to read, not to say."""


def templated_thought(action: Action, target: str = "") -> str:
    """The templated thought for an action; `target` names what a click is aimed at, if it is known."""
    if action.type == "click" and target:
        return aim(target)
    return THOUGHTS.get(action.type, "")


def aim(name: str) -> str:
    """The thought of a click on the thing of this name."""
    return f"{AIM[0]}{name}{AIM[1]}"


def can_be_aimed_at(name: str) -> bool:
    """Whether a thought can say this name."""
    return 0 < len(name) <= LONGEST_AIM and '"' not in name and name.isprintable()
