"""EvoCUA on Qwen3-VL: Qwen's calls on a grid of 0 to 999, with keys that are held and released.

Source: github.com/meituan/EvoCUA @4a0ad5f, mm_agents/evocua/{prompts,evocua_agent}.py, prompt style S2. The style
S1 asks for OpenCUA's grammar.
"""

import json

from models.families.qwen import Qwen3Family
from models.families.screen import Size
from models.families.template import filled, template
from models.families.tools import Tool, in_json
from schemas.action import Action, Press, Release
from schemas.keyboard import pyautogui_name


class EvoCuaFamily(Qwen3Family):
    """EvoCUA-8B and 32B: 999ths of the screen, which its prompt calls a resolution of 1000x1000."""

    counts = "999ths"
    templates = ("computer",)
    max_new_tokens = 32_768
    spec = Tool(refused=frozenset(("triple_click",)))

    def write(self, action: Action, screen: Size) -> str:
        """Writes the action as calls of its tool, which also holds and releases keys.

        Raises:
            UsageError: the tool has no such action.
        """
        if isinstance(action, Press | Release):
            name = "key_down" if isinstance(action, Press) else "key_up"
            return in_json(self.tool, {"action": name, "keys": [pyautogui_name(action.key)]})
        return super().write(action, screen)

    def _tools(self, screen: Size) -> str:
        return filled("evocua-tools.txt", tools=json.dumps(json.loads(template("evocua-computer_use.json"))))
