"""Replies as a model may garble them: those of every grammar, cut, doubled, mixed and strewn with noise."""

import random
import re
from collections.abc import Sequence

SEEDS = (
    "Thought: I look.\nAction: click(start_box='(197,525)')",
    "Thought: I look.\nAction: click(start_box='<|box_start|>(197,525)<|box_end|>')\n\ntype(content='it\\'s\\n')",
    "Thought: a\nAction: drag(start_point='<point>1 2</point>', end_point='<point>3 4</point>')",
    "Reflection: no.\nAction_Summary: so.\nAction：scroll(start_box='[1, 2, 3, 4]', direction='down')",
    "<think>go</think><seed:tool_call>\n<function=click>\n<parameter=point><point>17 58</point></parameter>\n"
    "</function>\n</seed:tool_call>",
    'Action: Click.\n<tool_call>\n{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [9, 5]}}'
    "\n</tool_call>",
    '<tool_call>\n{"name": "computer_use", "arguments": {"action": "scroll", "pixels": -5}}\n</tool_call>',
    '<tool_call>{"name": "mobile_use", "arguments": {"action": "swipe", "coordinate": [1, 2], "coordinate2": [3, 4]}}',
    "## Thought:\nhm\n\n## Action:\nClick.\n\n## Code:\n```python\npyautogui.click(x=1443, y=343)\n```",
    "pyautogui.moveTo(x=1, y=2)\npyautogui.dragTo(x=3, y=4, button='left')\ncomputer.terminate(status='success')",
    '{"action": "click_absolute", "x": 947, "y": 338}',
    'Memory: \nReason: so\nAction: {"action_type": "click", "box_2d": [[100, 200, 300, 400]]}',
    "<think_x>go</think_x><seed:tool_call_never_used_5><function_never_used_5=scroll><parameter_never_used_5=direction>up"
    "</parameter_never_used_5></function_never_used_5></seed:tool_call_never_used_5>",
    "<think>hm</think>\n<answer>\n42\n</answer>",
    "<think>\nhm\n</think>\n<operation>\nClick it.\n</operation>\n<action>\nclick(x=0.3674, y=0.9192)\n</action>",
    "<operation>Up.</operation><action>swipe(from_coord=[1, 2], direction='up')\nhotkey('ctrl', 's')</action>",
    "<ref>OK</ref><box>[[100, 200, 300, 400]]</box>",
    "I click.\n<|begin_of_box|>left_click(start_box='[586, 446]', element_info='OK')<|end_of_box|>\nMemory:\n[]",
)
NOISE = (
    "'", '"', "\\", "(", ")", "[", "]", "{", "}", "<", ">", "\n", "\n\n", " ", "=", ",", "-", "9" * 30, "1e999", "NaN",
    "Action:", "Action：", "Thought:", "<tool_call>", "</tool_call>", "<function=", "<parameter=point>", "<point>",
    "<|box_start|>", "null", "true", "[[[[", "pyautogui.", "start_box=", "\ud800", "\x00", "é", "动作", "<think>",
    "```", "<action>", "</action>", "<answer>", "[[",
    "type(content='", "0x1",
)  # fmt: skip
ODD = (
    "null", "true", "-1", "1e999", "NaN", "9" * 400, "-" + "9" * 4200, "0x" + "f" * 4000, "1j", "...", "b'a'",
    "pyautogui.LEFT", "''", '"\\ud800"', "'\\x00'", "' - '", "'+'", "[]", "[[]]", "[1]", "[1, 2, 3]",
    f"[1, 1, {'9' * 400}, 1]", "[1e999, 1]", "['a', ['b']]", "[{}]", "[null]", "(5, 5)", "{}", "{1}", "{1: 2}",
    "{[]: 1}", "{{}}", "{{'a': 1}}", "[" * 300 + "]" * 300,
    "'success'", "'failure'", "'up'", "f'{1}'", "-'a'",
)  # fmt: skip
"""What no grammar expects as a name or a value, in JSON and in Python."""
_VALUE = re.compile(r"""'[^'\n]*'|"[^"\n]*"|\[[^\]\n]*\]|\([^()\n]*\)|\{[^\n]*\}|-?\d+(?:\.\d+)?""")


def with_odd_values(chance: random.Random, seeds: Sequence[str] = SEEDS) -> str:
    """One of the replies, one or two of its names or values replaced by odd ones."""
    text = chance.choice(seeds)
    for _ in range(chance.randrange(1, 3)):
        if found := list(_VALUE.finditer(text)):
            value = chance.choice(found)
            text = text[: value.start()] + chance.choice(ODD) + text[value.end() :]
    return text


def mutated(chance: random.Random, seeds: Sequence[str] = SEEDS) -> str:
    """One of the replies, garbled."""
    text = chance.choice(seeds)
    for _ in range(chance.randrange(5)):
        at, to = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
        kind = chance.randrange(5)
        if kind == 0:
            text = text[:at] + text[to:]
        elif kind == 1:
            text = text[:at] + chance.choice(NOISE) + text[at:]
        elif kind == 2:
            text = text[:at] + text[at:to] * 2 + text[to:]
        elif kind == 3:
            text = text[:at] + chance.choice(seeds)[at:to] + text[to:]
        else:
            text = text[:at] + chance.choice(NOISE) * chance.randrange(1, 9) + text[to:]
    return text
