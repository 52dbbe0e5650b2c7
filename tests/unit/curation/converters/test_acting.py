"""Calls in replies of any notation, and words that mention one."""

import random
import time
from contextlib import suppress

import pytest

from models.families.dialects import DIALECTS, format_action
from models.families.prompt import SAMPLES
from models.families.registry import FAMILIES
from models.families.thinking import holds_call
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from tests.fixtures.planted.replies import NEWER, SEEDS, mutated, with_odd_values
from tests.unit.models.families.published import ASKED

CALLS = [
    "Thought: So.\nAction: fly(1)",
    "Action: fly()",
    "**Action:** fly(far",
    "ACTION: fly(far",
    "Action: ```python\nfly(far",
    "So.\nAction:\n```python\nfly(\n    1,\n)\n```",
    "Well. Action: fly(speed=1)",
    "pyautogui.click(1, 2)",
    "pyautogui.click(x, y)",
    "click(1, 2)  # the button",
    "```python\npyautogui.moveTo(1, 2); pyautogui.click()\n```",
    "## Code:\n```python\ncomputer.wait()\n```",
    "import pyautogui; pyautogui.click(1, 2)",
    "terminate(status='success')",
    '{"action": "fly"}',
    '{"action_type": "fly", "index": 5}',
    '{"thought": "I {look}", "action": {"type": "fly"}}',
    '{"thought": "a", "action": "fly"}',
    '```json\n{"action": "fly", "text": "a\nb"}\n```',
    '{"name": "fly", "arguments": {}}',
    '{"name": "fly", "parameters": "{}"}',
    '{"thought": "a", "tool_calls": [{"name": "fly", "arguments": {}}]}',
    '{"type": "click", "x": 0.1, "y": 0.5}',
    '{"type": "wait"}',
    "## Code:\n```python\nDONE\n```",
    "<action>\nFAIL\n</action>",
    "```WAIT```",
    "<answer>click(start_box='(1,2)')\nclick(start_box='(3,4)')</answer>",
    "<answer>finished(status='banana')</answer>",
    "<answer>click(1, 2)</answer>",
    "for _ in range(3):\n    pyautogui.click(1, 2)",
    "if True: pyautogui.click(1, 2)",
    "x = 5\npyautogui.click(x, 2)",
    "pyautogui.click(*where)",
    "```python\nWAIT(3)\n```",
    "Action: scroll(down)",
    "Action: Click(Submit)",
    '{"tool_calls": [{"function": {"name": "fly", "arguments": ""}}]}',
    '{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "fly", "arguments": "{}"}}]}',
    '{"type": "function", "function": {"name": "fly", "arguments": {}}}',
    "<tool_call>\n{\"name\": \"fly\"}\n</tool_call>",
    "<tool_call>fly\n<arg_key>x</arg_key>",
    "<tool_call><function=fly>",
    "<action>fly(1)</action>",
    "<function=fly>",
    "<function name='fly'>",
    "<function_never_used_51bce0c785ca2f68081bfa7d91973934=fly>",
    "<|begin_of_box|>fly(1)<|end_of_box|>",
    "<think>Words.</think>\nAction: fly(1)",
]  # fmt: skip
WORDS = [
    "",
    "I look for it.",
    'The "Action": menu is at the top',
    "https://en.wikipedia.org/wiki/Foo_(bar)",
    "See https://en.wikipedia.org/wiki/Foo_(bar)",
    "and/or(x)",
    "w/o(x)",
    "not(x)",
    "window(s)",
    "Action: {see below}",
    "My next action: open the menu.",
    "## Action:\nClick on the button.",
    'Its "action" : none',
    'Its "action" : "none" in JSON',
    '{"action": "none"}',
    '{"action": null, "done": true}',
    '{"name": "Ada", "price": 3}',
    '{"type": "text", "text": "Well."}',
    "<function name= attribute",
    "use the <tool_call> tag",
    "The <action> element",
    "- Action Input: words",
    "Action: think about it (again)",
    "f(x) is shown",
    "I will close the window(s) first.",
    "f(x) = 2x",
    "1. Open the menu (File)",
    "Note: the price (5) is right",
    "the set {1, 2}, {\"a\"}",
    "I run ```python title=\"a\"",
    "42",
    "response(s) are below",
    "The file has\nmove(s): 3",
    "The log says\nFAIL\nfor two tests",
    "Answer:\nDONE",
    "Action: File(s) are saved.",
    "Plan:\n- Action: Option(s) to choose",
    '{"action": "No action needed"}',
    '{"action": "None needed."}',
    '{"action": "-"}',
    '{"type": [], "name": {}}',
    '{"name": "train.py", "parameters": "7B"}',
    "1,234",
    "10 000",
    "48.8566, 2.3522",
    "2024-05-01 12",
    "Color: rgb(255, 0, 0)",
    "Error: TypeError('x')",
    "Answer: f(3)",
    "Function name: compute_total()",
    "- Avatar(2009)\n- Titanic(1997)",
    '1. search("cheap shoes")\n2. open the first result',
    'The points: [{"x": 1, "y": 2}, {"x": 3, "y": 4}]',
    '{"x": 1, "y": 2} and {"x": 3, "y": 4}',
    '{"city": "Paris", "function": "capital"}',
    '{"product": "Drill", "tool": "power"}',
    '{"type": "key", "value": "abc"}',
    '{"action": "N/A"}',
    '{"action": {}}',
    '{"history": [{"action": "fly"}], "answer": "42"}',
    "<|begin_of_box|>Paris<|end_of_box|>",
    '<|begin_of_box|>{"price": 3}<|end_of_box|>',
    "My last action: click(1) did not work.",
    "I would call pyautogui.click(1, 2) for it.",
    "pyautogui.click is the function.",
    "Save (5)",
    "As in the source [1]",
    "(a)",
    "[12]",
    "1. Click [Settings]\n2. Click [Privacy]",
    "- Home (2015)\n- Click (2006)",
    "1. search('shoes')\n2. open it",
    "Complexity: O(1)",
    "last action: click(1) did not work",
    '{"action": {}, "name": "Home", "role": "button"}',
    '[{"name": "Back", "id": 1}]',
    '{"thought": "x", "tool": "power"}',
    "<think>f(1)\n{\"action\": \"fly\"}</think> Well.",
]  # fmt: skip


@pytest.mark.parametrize("reply", CALLS)
def test_a_call_is_found_in_every_notation(reply: str) -> None:
    assert holds_call(reply) and holds_call(f"I look at the page.\n\n{reply}\n")


@pytest.mark.parametrize(
    "reply",
    ["click(start_box='(1,2)')", "click(start_box=<point>1 2</point>)", "type(content='it's so')", "fly(speed=1)"],
)
def test_a_call_without_a_label_begins_a_reply(reply: str) -> None:
    assert holds_call(reply) and not holds_call(f"I look at the page.\n\n{reply}\n")


@pytest.mark.parametrize("reply", WORDS)
def test_words_that_mention_a_call_hold_none(reply: str) -> None:
    assert not holds_call(reply) and not holds_call(f"I look at the page.\n\n{reply}\n")


@pytest.mark.parametrize("reply", [*SEEDS, *NEWER])
def test_a_reply_of_any_client_holds_a_call(reply: str) -> None:
    assert holds_call(reply) != reply.startswith("<ref>")


@pytest.mark.parametrize(("name", "template"), [one for one in ASKED if one[1] != "grounding"])
def test_every_action_that_a_family_writes_is_a_call(name: str, template: str) -> None:
    family = FAMILIES.class_of(name)(PolicyConfig(family=name, template=template))
    family.fit(family.published)
    written = []
    for action in SAMPLES:
        with suppress(UsageError):
            written.append(family.write(action, (320, 200)))
    assert written and all(map(holds_call, written)), [one for one in written if not holds_call(one)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_action_of_a_dialect_is_a_call(dialect: str) -> None:
    assert all(holds_call(format_action(action, dialect)) for action in SAMPLES)


@pytest.mark.parametrize("inside", ["-" * 6000 + "1", "+".join("1" * 6000), "[" * 300 + "]" * 300, "9" * 5000])
def test_what_python_cannot_parse_is_no_call(inside: str) -> None:
    assert not holds_call(f"{inside}\nfly(x) {inside}")
    holds_call(f"fly({inside})")


def test_any_text_is_looked_through_without_an_error() -> None:
    chance = random.Random(5)
    for _ in range(3_000):
        holds_call(mutated(chance))
        holds_call(with_odd_values(chance))


PIECES = ["Action: ", "Action: f\n", "f(", "f()x\n", "f(\n", "f(1,\n", "f('", "{", '{"a": ', '{"action": ', "```", "- "]
PIECES += ["<tool_call>", "<function", "1. ", "*", "[", "\n", " ", '{"a": 1}', "f(1) is\n", "f(1) is\n\n", "a: "]


@pytest.mark.parametrize("piece", PIECES)
def test_any_text_is_looked_through_in_linear_time(piece: str) -> None:
    def seconds(size: int) -> float:
        began = time.process_time()
        holds_call("Well " + piece * (size // len(piece)) + " x")
        return time.process_time() - began

    assert min(seconds(60_000) for _ in range(2)) < 1
