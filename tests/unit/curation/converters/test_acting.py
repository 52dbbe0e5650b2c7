"""Calls in replies of any notation, and words that mention one."""

import random
import time
from contextlib import suppress

import pytest

from curation.converters.acting import holds_call
from models.families.dialects import DIALECTS, format_action
from models.families.prompt import SAMPLES
from models.families.registry import FAMILIES
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from tests.fixtures.planted.replies import SEEDS, mutated, with_odd_values
from tests.unit.models.families.published import ASKED

CALLS = [
    "click(1)",
    "- click(1)",
    "1. click(x=1)",
    "2) **click(x=1)**",
    "click(1)  # the button",
    "click(1);",
    "I open it.\n\nclick(x=1, y=2); wait()",
    "Action 1: click(x=1)",
    "Step 3: fly(now=True)",
    "Step 4: click(1)",
    "Grounded Operation: CLICK(box=[[1, 2, 3, 4]], element_type='Button')",
    "Well. Action: fly(1) and so on",
    "Action:\n```python\nfly(\n    1,\n)\n```",
    "fly(\n  speed=2,\n  height='a (b'\n)",
    "pyautogui.click(x, y)",
    "page.get_by_role('button').click()",
    "[fly(x=1), land()]",
    "type(content='it's so')",
    "write('say \"hi\"')",
    "```click [12]```",
    "In summary, the next action I will perform is ```type [164] [restaurants] [1]```",
    "```json\n{\"action\": \"fly\"}\n```",
    '{"type": "click", "x": 1}',
    '{"tool": "search", "query": "shoes"}',
    '{"tool_name": "search"}',
    '{"name": "fly", "arguments": {}}',
    '{"name": "fly", "parameters": {"speed": 2}}',
    '{"thought": "I {look}", "action": {"type": "fly"}}',
    '{"thought": "a", "tool_calls": [{"function": {"name": "fly"}}]}',
    '{"reason": "so", "actions": [{"action": "fly"}]}',
    "{'thought': 'it\\'s', 'action': 'fly'}",
    '{"action": "type", "text": "say "hi""}',
    'Action: {"type": "fly"}',
    "Action: search\nAction Input: cheap shoes",
    "**Action:** search\n**Action Input:** cheap shoes",
    "Action: fly(far",
    "<tool_call>\n{\"name\": \"fly\"}\n</tool_call>",
    "<tool_call>fly\n<arg_key>x</arg_key>",
    "<tool_call>\nfly\n</tool_call>",
    "<function=fly>",
    "<function name='fly'>",
    "<function_never_used_51bce0c785ca2f68081bfa7d91973934=fly>",
    '<invoke name="computer">\n<parameter name="action">fly</parameter>',
    '<invoke name="computer">',
    "<|tool_call_begin|>functions.fly:0<|tool_call_argument_begin|>{}",
    "<|tool_calls_section_begin|>",
    "<｜tool▁call▁begin｜>function",
    "<|begin_of_box|>fly(1)<|end_of_box|>",
    "[TOOL_CALLS]fly[ARGS]{}",
    "<think>Words.</think>\nfly(1)",
    '{"thinking": "x", "action": [{"click": {"index": 1}}]}',
    '{"name": "left_click", "coordinate": [1, 2]}',
    '{"name": "computer", "coordinate": [1, 2]}',
    '{"Action": "click", "Point": [1, 2]}',
    '{"Next Action": "click", "Box ID": 3}',
    '{"action": left_click, "coordinate": [1, 2]}',
    '{"text": "a\nb", "type": "click"}',
    'Action: "click(1)"',
    "Action: - click(1)",
    "ACTION: fly(far",
    "Action: ```python\nfly(far",
    "```tool_code\nprint(default_api.click(x=1))\n```",
    "fly(1) fly(2)",
    "type('it's', enter=True)",
    '<function=fly{"x": 1}></function>',
    '<｜DSML｜invoke name="fly">',
    "tap(1, 2)<|im_end|>",
    "tap(1, 2)</s>",
    "click [164]",
    "type [164] [shoes] [1]",
    "click[Buy Now]",
    "CLICK <point>[[511, 422]]</point>",
    "### Action ###\nTap (511, 422)",
    "await page.click('a')",
    "import pyautogui; pyautogui.click(1, 2)",
    "click(start_box=<point>1 2</point>)",
    "press(Keys.ENTER)",
    "动作：fly(1)",
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
    "click(x, y)",
    "click()s are logged",
    "1. Open the menu (File)",
    "Note: the price (5) is right",
    "the set {1, 2}, {\"a\"}",
    "I run ```python title=\"a\"",
    "42",
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
    '{"action": "no action needed"}',
    '{"action": {}}',
    '{"history": [{"action": "fly"}], "answer": "42"}',
    "<|begin_of_box|>Paris<|end_of_box|>",
    '<|begin_of_box|>{"price": 3}<|end_of_box|>',
    "My last action: click(1) did not work.",
    "Save (5)",
    "As in the source [1]",
    "(a)",
    "[12]",
    "<think>f(1)\n{\"action\": \"fly\"}</think> Well.",
]  # fmt: skip


@pytest.mark.parametrize("reply", CALLS)
def test_a_call_is_found_in_every_notation(reply: str) -> None:
    assert holds_call(reply) and holds_call(f"I look at the page.\n\n{reply}\n")


@pytest.mark.parametrize(
    "reply",
    [
        '{"x": 3, "y": 2}',
        '```json\n[{"x": 3, "y": 2}]\n```',
        "(480,520)",
        "[1, 2, 3, 4]",
        "<point>1 2</point>",
        "<ref>OK</ref><box>[[1, 2, 3, 4]]</box>",
    ],
)
def test_a_place_alone_is_a_call_and_one_in_words_is_none(reply: str) -> None:
    assert holds_call(reply) and not holds_call(f"It is at {reply}.")


@pytest.mark.parametrize("reply", WORDS)
def test_words_that_mention_a_call_hold_none(reply: str) -> None:
    assert not holds_call(reply) and not holds_call(f"I look at the page.\n\n{reply}\n")


@pytest.mark.parametrize("reply", SEEDS)
def test_a_reply_of_any_client_holds_a_call(reply: str) -> None:
    assert holds_call(reply) != ("<answer>" in reply)


@pytest.mark.parametrize(("name", "template"), ASKED)
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
