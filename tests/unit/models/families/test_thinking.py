"""What a model thinks is never performed, in any family, and none of it is lost from the thought."""

import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.completion import Completion
from models.families.dialects import format_action, format_reply, parse_reply
from models.families.registry import FAMILIES
from models.families.thinking import split_thinking
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from tests.fixtures.planted.replies import mutated
from tests.unit.models.families.test_families import ACTIONS, EACH, SCREEN, answered, emptied, made, near

DRAFT, MEANT = act.Click(x=0.25, y=0.25), act.Click(x=0.5, y=0.75)
ENDS = ("</think>", "</thinking>", "</thinkt>", "</THINK>", "</seed:think>", "</think_never_used_51bce0>", "◁/think▷")
ACTING = [(name, template) for name, template in EACH if name != "tiny"]


def all_of(read: Completion) -> list[Action]:
    return [*read.actions, *read.dropped]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("opened", [True, False], ids=["opened in the reply", "opened by the template"])
@pytest.mark.parametrize(("name", "template"), ACTING)
def test_a_draft_inside_of_thinking_is_not_performed_and_stays_in_the_thought(
    name: str, template: str, opened: bool, end: str
) -> None:
    family = made(name, template)
    draft, meant = family.write(DRAFT, SCREEN), family.reply("", [MEANT], SCREEN)
    begin = end.replace("/", "") if opened else ""
    read = family.read(
        Completion(f"{begin}Maybe\n{draft}\nno, and a <tool_call> or </think> is none.{end}\n{meant}"), SCREEN
    )
    assert near(read.first, MEANT) and not (*read.actions, *read.dropped)[1:], (read.first, read.error)
    if draft in read.thought:
        assert read.thought.startswith("Maybe") and read.thought.endswith("is none.")
    else:  # a grammar whose answer has words of its own before the call
        assert read.thought == "Click it."


@pytest.mark.parametrize(("name", "template"), ACTING)
def test_a_reply_that_ends_inside_of_its_thinking_is_no_action(name: str, template: str) -> None:
    family = made(name, template)
    draft = family.write(DRAFT, SCREEN)
    begun = f"<think>I try\n{draft}"
    for text in (begun, f"{begun}</think>", f"Well.\n<thinkt>{draft}\n{draft} and", f"{draft}</think>"):
        read = family.read(Completion(text), SCREEN)
        assert read.first is None and read.error, text
    assert made("qwen3-vl").read(Completion(begun), SCREEN).thought == f"I try\n{draft}"


@pytest.mark.parametrize(("name", "template"), ACTING)
@settings(max_examples=25, deadline=None)
@given(before=st.text(max_size=30), after=st.text(max_size=30), end=st.sampled_from(ENDS), number=st.integers(0, 99))
def test_whatever_stands_around_a_draft_it_is_not_performed(
    name: str, template: str, before: str, after: str, end: str, number: int
) -> None:
    family = made(name, template)
    draft = family.write(act.Click(x=number / 100, y=0.25), SCREEN)
    read = family.read(Completion(f"{before}\n{draft}\n{after}{end}\n{family.reply('', [MEANT], SCREEN)}"), SCREEN)
    assert near(read.first, MEANT) and not (*read.actions, *read.dropped)[1:]


@pytest.mark.parametrize(("name", "template"), EACH)
def test_a_thought_that_holds_a_draft_is_written_so_that_the_action_comes_back(name: str, template: str) -> None:
    family, written = made(name, template), 0
    thought = f"Not\n{family.write(DRAFT, SCREEN)}\nbut the other."
    for action in ACTIONS:
        try:
            reply = family.reply(thought, [action], SCREEN)
        except UsageError:
            continue
        read = emptied(family.read(Completion(reply), SCREEN))
        assert near(read.first, answered(family, action, read.thought)) and not (*read.actions, *read.dropped)[1:], (
            reply,
            read,
        )
        assert read.thought in (thought, family.read(Completion(family.reply("", [action], SCREEN)), SCREEN).thought)
        written += 1
    assert written


def test_a_stored_reply_keeps_a_thought_that_holds_a_draft() -> None:
    thought = "I could\nAction: wait()\nbut no."
    read = parse_reply(format_reply(thought, format_action(MEANT)))
    assert (read.thought, read.first) == (thought, MEANT)


@pytest.mark.parametrize("name", FAMILIES.names)
def test_no_garbled_reply_acts_before_its_last_end_of_thinking(name: str) -> None:
    family, chance = made(name), random.Random(3)
    for _ in range(150):
        text = mutated(chance) + chance.choice(ENDS)
        read = family.read(Completion(text), SCREEN)
        assert read.first is None and read.error


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("a", "", "a"),
        ("<think>a</think>b", "a", "b"),
        ("a</think>b", "a", "b"),
        ("<think>a</think>b</think>c", "a</think>b", "c"),
        ("<Thinking>a</Thinking >b", "a", "b"),
        ("[THINK]a[/THINK]b", "a", "b"),
        ("<think>a", "", "<think>a"),
        ("thinking </thin> </ink>", "", "thinking </thin> </ink>"),
    ],
)
def test_a_reply_is_split_after_its_last_end_of_thinking(text: str, thinking: str, answer: str) -> None:
    assert split_thinking(text) == (thinking, answer)


def test_a_text_that_mentions_a_beginning_of_thinking_is_typed() -> None:
    typed = act.Type(content="use <think> here")
    for name in ("qwen3-vl", "ui-tars-1.5", "ui-tars-2", "thousandths"):
        read = made(name).read(Completion(made(name).reply("I type.", [typed], SCREEN)), SCREEN)
        assert read.first == typed


@pytest.mark.parametrize("name", ["qwen3-vl", "ui-tars-1.5", "ui-tars-2", "thousandths", "opencua", "scalecua"])
def test_an_end_of_thinking_that_is_typed_is_typed(name: str) -> None:
    typed, family = act.Type(content="a </think> b"), made(name)
    assert family.read(Completion(family.reply("", [typed], SCREEN)), SCREEN).first == typed
    begun = f"<think>{family.write(typed, SCREEN)}"
    assert family.read(Completion(begun), SCREEN).first is None
    assert near(family.read(Completion(f"{begun}</think>{family.reply('', [MEANT], SCREEN)}"), SCREEN).first, MEANT)


def typing(text: str) -> str:
    return f'<tool_call>{{"name": "computer_use", "arguments": {{"action": "type", "text": "{text}"}}}}</tool_call>'


@pytest.mark.parametrize("written", ["<\\/think>", "\\u003c/think>", "a<\\/think>b\\u003c/thinking>"])
def test_an_end_of_thinking_that_a_draft_types_by_an_escape_ends_nothing(written: str) -> None:
    family = made("qwen3-vl")
    meant = family.write(MEANT, SCREEN)
    for begin in ("", "<think>"):
        read = family.read(Completion(f"{begin}Maybe {typing(written)} no.</think>{meant}"), SCREEN)
        assert near(read.first, MEANT) and not (*read.actions, *read.dropped)[1:]
        assert read.thought == f"Maybe {typing(written)} no."
    typed = family.read(Completion(f"I type.</think>{typing(f'{written} </think>')}"), SCREEN).first
    assert isinstance(typed, act.Type) and typed.content.endswith(" </think>")


BOX = "click(start_box='(500,300)')"


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        (f"Thought：a\nAction：{BOX}", "a"),
        (f"**Thought:** a\n**Action:** {BOX}", "a"),
        (f"thought: a\naction: {BOX}", "a"),
        (f"### Thought: a\n### Action: {BOX}", "a"),
        (f"# Thought: a\n\n# Action:\n{BOX}", "a"),
        (f"```\nThought: a\nAction: {BOX}\n```", "a"),
        (f"Thought: a\n```\nAction: {BOX}\n```", "a"),
        (f"Thought: a\nAction:\n```python\n{BOX}\n```", "a"),
        (f"Thought: a\nAction: `{BOX}`", "a"),
        (f"Thought: a\nAction: ```{BOX}```", "a"),
        (f"```\n{BOX}\n```", ""),
        (f"<think>a</think>```\nAction: {BOX}\n```", "a"),
        (f"Reflection：a\nAction_Summary：b\nAction：{BOX}", "a\nb"),
    ],
)
def test_labels_and_code_blocks_of_markdown_are_read(text: str, thought: str) -> None:
    """web-infra-dev/midscene #2588 (a fenced `finished`), #843 (a full-width colon)."""
    read = parse_reply(text)
    assert (read.thought, read.first) == (thought, act.Click(x=0.5, y=0.3)), read.error
    fenced = parse_reply(re.sub(re.escape(BOX), "finished(content='done, 3.')", text))
    assert fenced.first == act.Finished(content="done, 3.")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("click (start_box='(500,300)')", act.Click(x=0.5, y=0.3)),
        ("wait ()", act.Wait()),
        ("type (content='it's so')", act.Type(content="it's so")),
        ("scroll(start_box='(500,300)', direction='Down')", act.Scroll(x=0.5, y=0.3, direction="down")),
        ("click (the button)", None),
        ("click the button (see below)", None),
    ],
)
def test_blanks_and_capitals_that_the_public_parser_reads_are_read(text: str, wanted: act.Action | None) -> None:
    """ui-tars 0.5.1, `action_parser.py`."""
    assert parse_reply(f"Thought: a\nAction: {text}").first == wanted


CALLS = {
    "ui-tars-1.5": f"Action: {BOX}",
    "qwen3-vl": '<tool_call>{"action": "wait"}</tool_call>',
    "glm": "<|begin_of_box|>WAIT()<|end_of_box|>",
    "scalecua": "<action>wait()</action>",
    "opencua": "## Code:\n```python\ncomputer.wait()\n```",
    "holo-2": '{"x": 500, "y": 300}',
    "ui-tars-2": "<seed:tool_call>\n<function=wait></function>\n</seed:tool_call>",
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    "thought",
    [
        "The page says: ```error```",
        "```error``` is what it says.",
        "The command to run is ```ls",
        "I run it:\n```bash\nls\n```",
        "```\nls\n```\nThat I run.",
        "```bash\nls\n```\nThen:\n```\nps\n```",
        "It ends with Action:",
        "Its label is Action: and that is all.",
        "```ls\nps```",
        "I run: ```bash\nls\n```",
        "- ```bash\nls\n```",
        "```ls``` is it.",
        "```python\nprint(1)\n```\nThe ``` marks code.",
        "The ``` key ends it.\n```python\nx=1\n```",
    ],
)
def test_blocks_spans_and_labels_within_a_thought_are_words_of_it(name: str, thought: str) -> None:
    read = made(name).read(Completion(f"{thought}\n{CALLS[name]}"), SCREEN)
    assert read.first is not None and read.thought == thought and not read.unused


@pytest.mark.parametrize("name", ["qwen3-vl", "glm", "scalecua", "holo-2"])
@pytest.mark.parametrize(
    "opening",
    ["```json\n", "```\n", "Action:\n", "**Action:** ", "Action: ```json\n", "Action：\n\n```\n", "```py\nAction:\n"],
)
def test_a_fence_or_a_label_on_a_line_of_its_own_opens_the_action(name: str, opening: str) -> None:
    for thought in ("I look.", "I ran:\n```\nls\n```"):
        read = made(name).read(Completion(f"{thought}\n{opening}{CALLS[name]}"), SCREEN)
        assert read.first is not None and read.thought == thought


@pytest.mark.parametrize("name", CALLS)
def test_a_fence_around_a_whole_reply_is_no_thought(name: str) -> None:
    for word in ("", "text", "python"):
        read = made(name).read(Completion(f"```{word}\nI look.\n{CALLS[name]}\n```"), SCREEN)
        assert read.first is not None and read.thought == "I look."


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("piece", ["Action: ", "Action:\n", "```python\n", "```\n", "```", " \n", "Action: ```\n"])
def test_openings_that_repeat_are_read_in_linear_time(name: str, piece: str) -> None:
    text = piece * (60_000 // len(piece))
    began = time.process_time()
    made(name).read(Completion(text + CALLS[name]), SCREEN)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("name", ["ui-tars-1.5", "qwen3-vl"])
def test_a_block_that_opens_behind_the_label_of_a_thought_stays_whole(name: str) -> None:
    call = "Action: wait()" if name == "ui-tars-1.5" else CALLS[name]
    read = made(name).read(Completion(f'Thought: ```json\n{{"a": 1}}\n```\n{call}'), SCREEN)
    assert read.first is not None and read.thought.removeprefix("Thought: ") == '```json\n{"a": 1}\n```'


@pytest.mark.parametrize("name", ["ui-tars-1.5", "qwen3-vl"])
@pytest.mark.parametrize(
    "opening",
    [
        *("```", "```python", 'Run ```python title="a"', "1. ```bash -x", "2) ```", "**Code:** ```bash -x", "- > ```"),
        *("- ``` title", "3. ``` a title", "* > ``` title"),
        *("Run ```c++ {1,3}", "> 1. ```js", "As ```x``` says: ```sh", "  ```python3 -m a"),
    ],
)
def test_a_block_of_code_in_a_thought_keeps_both_its_fences(name: str, opening: str) -> None:
    call, thought = "Action: wait()" if name == "ui-tars-1.5" else CALLS[name], f"So.\n{opening}\nx = 1\n```"
    read = made(name).read(Completion(f"{thought}\n{call}"), SCREEN)
    assert read.first is not None and read.thought == thought
    read = made(name).read(Completion(f"{thought}\n```\n{call}\n```"), SCREEN)
    assert read.first is not None and read.thought == thought


def test_a_fence_around_a_call_ends_with_it_after_a_stray_fence_in_words() -> None:
    read = made("ui-tars-1.5").read(
        Completion("Thought: It begins with ``` and I wait.\n```\nAction: wait()\n```"), SCREEN
    )
    assert (read.first, read.thought) == (act.Wait(), "It begins with ``` and I wait.")


@pytest.mark.parametrize("tag", ["box", "point", "ref"])
def test_internvls_tags_around_a_place_are_no_words(tag: str) -> None:
    read = made("internvl").read(Completion(f"<{tag}>[[500, 300]]</{tag}>"), SCREEN)
    assert read.first is not None and (read.thought, read.unused) == ("", ())
