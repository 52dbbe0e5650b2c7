"""Builds the prompt that shows the action to a model (ActRe), and reads its answer.

The paper names five patterns of reasoning and prints no prompt; this one names them, and asks which ones the thought
uses.
"""

import re

from models.families.dialects import format_action, format_reply
from models.families.prompt import Message
from models.thinkers.thinker import ThinkerCase, ThinkerThought
from schemas.observation import Observation
from schemas.tables.annotation import PATTERNS, Pattern

MEANING: dict[Pattern, str] = {
    "task_decomposition": "split the task into parts",
    "long_term_consistency": "recall the goal and what of it is left",
    "milestone_recognition": "notice that a part is done",
    "trial_and_error": "try what the task does not name, and say why it may help",
    "reflection": "notice that something went wrong or changed nothing, and draw a conclusion",
}
_PATTERNS = re.compile(r"^[ \t*]*Patterns?[ \t*]*:(.*)$", re.IGNORECASE | re.MULTILINE)
_THOUGHT = re.compile(r"^[ \t*]*Thought[ \t*]*:", re.IGNORECASE | re.MULTILINE)


def rules_of(language: str) -> str:
    """Writes the system turn of the task."""
    listed = "\n".join(f"{name.replace('_', ' ')}: {meaning}" for name, meaning in MEANING.items())
    return (
        "You write down what an expert user of a graphical interface thinks before each action. You get the "
        "instruction, what was thought and done so far, the screenshot, and the action that comes next. Write the "
        f"thought that leads to it, as it was before acting: one to three sentences in {language}, first person. Say "
        "what of the task is done and left, which element it is, and why. Use what fits of these patterns:\n"
        f"{listed}\n"
        "Write no coordinates, do not repeat the action, and do not say that it was given. Answer in two lines:\n"
        "Patterns: those used, with commas, or none\nThought: ..."
    )


def chat_about(case: ThinkerCase, language: str, history_images: int) -> list[Message]:
    """Builds the chat that asks for the thought of a known action.

    Args:
        case: the step.
        language: of the thought.
        history_images: how many of the last screens are shown, the current one included.
    """
    turns, shown = case.context.turns, len(case.context.turns) - (history_images - 1)
    parts = [_text(f"Instruction: {case.context.instruction}")]
    for number, turn in enumerate(turns):
        if number >= shown:
            parts.append(_picture(turn.observation))
        parts.append(_text(f"Step {number}:\n{format_reply(turn.thought, turn.action_text)}"))
    unchanged = " The last action changed nothing on it." if case.unchanged else ""
    parts += [
        _text(f"The screen now:{unchanged}"),
        _picture(case.context.observation),
        _text(f"The next action (coordinates are thousandths of the screen): {format_action(case.action)}"),
    ]
    return [{"role": "system", "content": [_text(rules_of(language))]}, {"role": "user", "content": parts}]


def thought_in(text: str, tokens: int = 0) -> ThinkerThought:
    """Reads the thought of an answer with the patterns that it names; an answer of another form is all thought."""
    named = _PATTERNS.search(text)
    rest = text[: named.start()] + text[named.end() :] if named else text
    found = _THOUGHT.search(rest)
    thought = (rest[found.end() :] if found else rest).strip()
    return ThinkerThought(thought, _named(named.group(1)) if named else (), tokens=tokens)


def _named(listed: str) -> tuple[Pattern, ...]:
    words = re.sub(r"[^a-z]+", "_", listed.lower())
    return tuple(pattern for pattern in PATTERNS if pattern in words)


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def _picture(observation: Observation) -> dict[str, object]:
    return {"type": "image", "observation": observation}
