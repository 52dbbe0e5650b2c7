"""Turns a context into a chat by UI-TARS's rule (arXiv 2501.12326, Eq. 3), for every model.

    P(t_n, a_n | instruction, t_1, a_1, ..., (o_{n-i}, t_{n-i}, a_{n-i}) for i = 1..N, o_n)

All past thoughts and actions stay as text; only the last N screenshots stay as images, the current one last. With
`policy.context=fold`, a text replaces the older ones (`schemas.context`).
"""

from collections.abc import Callable, Sequence
from typing import Any

from models.families.dialects import format_reply
from models.families.screen import ImageLimits
from models.families.video import Clip
from models.policy import Context
from schemas.action import Click, Drag, Finished, Hotkey, ReadFile, Scroll, Terminal, Type, Wait, WriteFile
from schemas.context import ContextRule
from schemas.observation import Observation, PastStep

Message = dict[str, Any]
"""One turn of a chat as `transformers` takes it: role and content parts."""

WHAT_WAS_DONE = "What was done?"
"""Inverse dynamics: two screens, answered by the action between them."""
WHAT_CHANGED = "What changed?"
"""State transition: two screens, answered in words."""

SAMPLES = (
    Click(x=0.48, y=0.52),
    Drag(x=0.1, y=0.2, to_x=0.3, to_y=0.4),
    Scroll(x=0.48, y=0.52, direction="down"),
    Type(content="text"),
    Hotkey(key="ctrl c"),
    Wait(),
    Finished(),
)
TOOL_SAMPLES = (Terminal(command="ls -l"), ReadFile(path="notes.txt"), WriteFile(path="notes.txt", content="text"))
"""Samples of the additional actions of an environment with a shell and files."""


THOUGHT = "Thought: ...\n"
COLLAPSED = "This screenshot has been collapsed."
"""Text that replaces a folded screen; Qwen3.5's prompt announces it (OSWorld, `mm_agents/qwen`)."""


def system_text(actions: Sequence[str], unit: str = "thousandths of the screen", thinks: bool = True) -> str:
    """Writes the system turn: the task and the available actions.

    Args:
        actions: sample actions, in the model's notation.
        unit: unit of coordinates.
        thinks: whether the prompt asks for a thought before the action.
    """
    written = "\n".join(actions)
    return (
        "You use a graphical interface. You see a screenshot and answer with one action, as\n"
        f"{THOUGHT if thinks else ''}Action: ...\n"
        f"Actions, by example (coordinates are {unit}):\n{written}\n"
        "In content, write \\' for ', \\\" for \" and \\n for a new line; a \\n at the end submits."
    )


def messages_of(
    context: Context,
    rule: ContextRule,
    system: str,
    limits: ImageLimits | None = None,
    collapsed: str = COLLAPSED,
) -> list[Message]:
    """Builds the chat that a policy continues: the system turn of this text, the instruction, and `steps_of`."""
    head = [text_turn("system", system), text_turn("user", context.instruction)]
    return [*head, *steps_of(context, rule, _reply_of, limits, collapsed)]


def _reply_of(turn: PastStep) -> str:
    return format_reply(turn.thought, turn.action_text)


def steps_of(
    context: Context,
    rule: ContextRule,
    reply: Callable[[PastStep], str],
    limits: ImageLimits | None = None,
    collapsed: str = COLLAPSED,
    result: Callable[[PastStep], str] | None = None,
) -> list[Message]:
    """Builds the turns behind the instruction: step by step a screen and the reply to it, then the current screen.

    Args:
        context: the past steps and the current screen.
        rule: the screens that are pictures.
        reply: writes the reply of a past step.
        limits: limits to which screens are resized; None shows them unchanged.
        collapsed: the text that replaces a folded screen, except the first one, whose place the instruction takes.
        result: writes the result of a past step's call, which follows the reply; an empty text is left out.
    """
    chat = list[Message]()
    folded = rule.folded(len(context.turns) + 1)
    for position, turn in enumerate(context.turns):
        if position >= folded:
            chat.append(screen_turn(turn.observation, limits))
        elif rule.folds and position and collapsed:
            chat.append(text_turn("user", collapsed))
        chat.append(text_turn("assistant", reply(turn)))
        if result is not None and (text := result(turn)):
            chat.append(text_turn("user", text))
    return [*chat, screen_turn(context.observation, limits)]


def question_of(
    question: str, screens: Sequence[Observation], system: str = "", limits: ImageLimits | None = None
) -> list[Message]:
    """Builds a chat with a question about screens outside of any trajectory; a question for an action has a system
    turn."""
    head = [text_turn("system", system)] if system else []
    return [*head, text_turn("user", question), *(screen_turn(screen, limits) for screen in screens)]


def video_question(question: str, clip: Clip) -> list[Message]:
    """Builds a chat with a question about a video, in one turn with the video first, as Qwen's documents show it."""
    return [{"role": "user", "content": [{"type": "video", "clip": clip}, text_part(question)]}]


def screens_of(messages: list[Message]) -> list[Observation]:
    """Lists the observations that a chat shows, in order."""
    return [part["observation"] for message in messages for part in message["content"] if part["type"] == "image"]


def clips_of(messages: list[Message]) -> list[Clip]:
    """Lists the videos that a chat shows, in order."""
    return [part["clip"] for message in messages for part in message["content"] if part["type"] == "video"]


def text_turn(role: str, text: str) -> Message:
    """Builds a turn of text."""
    return {"role": role, "content": [text_part(text)]}


def screen_turn(observation: Observation, limits: ImageLimits | None = None) -> Message:
    """Builds a turn that shows a screen, resized to `limits` if given (`models.families.screen`)."""
    return {"role": "user", "content": [screen_part(observation, limits)]}


def screen_part(observation: Observation, limits: ImageLimits | None = None) -> Message:
    """Builds the part of a turn that shows a screen."""
    return {"type": "image", "observation": observation, **({"limits": limits} if limits else {})}


def text_part(text: str) -> Message:
    """Builds the part of a turn that holds text."""
    return {"type": "text", "text": text}
