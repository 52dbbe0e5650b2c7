"""GUI-Owl 1.5: tools in the system turn, replies with a sentence and a tool call, as Qwen3-VL with prompts of its own.

Source: github.com/X-PLUG/MobileAgent @11cea57, `Mobile-Agent-v3.5/computer_use` and `mobile_use`. The user's text is
before the first screen. The client for phones writes today's date before the instruction; this project leaves the date
out, since a sample could not reproduce it.
"""

from collections.abc import Sequence

from models.families.prompt import Message, screen_part, text_part
from models.families.qwen import QwenFamily
from models.families.screen import Size
from models.families.template import template
from models.families.tools import Tool
from schemas.observation import Observation

TOOL = Tool(
    aliases={
        "right click": "right_click",
        "computer_double_click": "double_click",
        "hotkey": "key",
        "open app": "open",
        "call_user": "interact",
        "calluser": "interact",
        "stop": "terminate",
        "done": "terminate",
    },
    refused=frozenset(("triple_click",)),
)
"""Actions, with the other names that its clients perform (`run_gui_owl_1_5_for_pc.py`, `_for_mobile.py`)."""


class GuiOwlFamily(QwenFamily):
    """GUI-Owl 1.5, Instruct and Thinking: thousandths of the screen.

    The published clients show the current screen and the screens of the last four steps (`policy.history_images=5`).
    """

    templates = ("computer", "mobile")
    max_new_tokens = 4096
    label = "Action: "
    spec = TOOL

    def _asked(self, text: str, screens: Sequence[Observation]) -> Message:
        shown = [screen_part(screen, self.limits) for screen in screens]
        return {"role": "user", "content": [text_part(text.removeprefix("\n")), *shown]}

    def _tools(self, screen: Size) -> str:
        return template(f"gui-owl-1.5-{self.template}.txt")
