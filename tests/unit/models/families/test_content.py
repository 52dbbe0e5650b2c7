"""Markup within a thought or a typed text is that thought or text, in every family, however a reply is read."""

import random

import pytest

from models.completion import Completion
from models.families.dialects import parse_reply
from models.families.family import ModelFamily
from models.families.outside import SELECTOR, unmarked
from models.families.registry import FAMILIES
from models.families.thinking import split_thinking
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from tests.tiers import NIGHTLY
from tests.unit.models.families.test_families import EACH, SCREEN, emptied, made, near

TEXT_FAMILIES = ("thousandths", "pixels", "tiny", "ui-tars-1.0", "ui-tars-1.5", "doubao")
PIECES = (
    "<think>", "</think>", "</seed:think>", "</THINK>", "<thought>", "</thought>", "<|channel>thought", "<channel|>",
    "<tool_call>", "</tool_call>", '{"name": "computer_use", "arguments": {"action": "wait"}}', "<function=wait>",
    "<function=finished>", "</function>", "<parameter=content>", "</parameter>", "<seed:tool_call>",
    "</seed:tool_call>", "Action: ", "Thought: ", "Action: wait()", "click(start_box='(1,2)')", "type(content='", "')",
    "'", '"', "'''", "```", "```python\n", "pyautogui.click(1, 2)", "## Code:\n", "## Action:\n", "## Thought:",
    "<action>", "</action>", "<operation>", "</operation>", "<|begin_of_box|>", "<|end_of_box|>", "<answer>",
    "</answer>", "Memory:", "Reason: ", '{"action_type": "wait"}', "left_click(start_box='[1,2]')", "\n", "\\", "\\n",
    " ", "a", "it's", "keys=", "{", "}", "#", "DONE",
)  # fmt: skip


def read(family: ModelFamily, text: str) -> Completion:
    return family.read(Completion(text), SCREEN)


EXAMPLES = 120 if NIGHTLY else 30
"""Random thoughts and texts for each family."""


def made_of_pieces(chance: random.Random) -> str:
    return "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 6)))


@pytest.mark.parametrize(("name", "template"), EACH)
def test_whatever_markup_a_thought_and_a_text_hold_both_come_back(name: str, template: str) -> None:
    family, chance, count = made(name, template), random.Random(f"{name} {template}"), 0
    says = read(family, family.reply("I do.", [act.Click(x=0.5, y=0.5)], SCREEN)).thought == "I do."
    for _ in range(EXAMPLES):
        thought, text = made_of_pieces(chance).strip(), made_of_pieces(chance)
        actions: tuple[Action, ...] = (
            act.Click(x=0.5, y=0.25), act.Type(content=text), act.Finished(content=text), act.Wait(),
            act.OpenApp(app_name=text.strip() or "a"), act.Hotkey(key="ctrl c"),
        )  # fmt: skip
        for action in actions:
            try:
                reply = family.reply(thought, [action], SCREEN)
            except UsageError:
                continue
            found, meant = emptied(read(family, reply)), action
            assert near(found.first, meant) and not (*found.actions, *found.dropped)[1:], (reply, found)
            assert not says or not thought or found.thought == thought, (reply, found)
            count += 1
    assert count >= EXAMPLES


@pytest.mark.parametrize("name", TEXT_FAMILIES)
def test_the_action_behind_the_label_counts_and_no_tag_in_a_thought_or_a_text(name: str) -> None:
    click = "Action: click(start_box='(500,300)')"
    for thought in ("press <function=wait> now", "<function=wait>", "<function=wait></function>\nno"):
        found = read(made(name), f"Thought: {thought}\n{click}")
        assert isinstance(found.first, act.Click) and found.thought == thought
    typed = read(made(name), "Thought: a\nAction: type(content='see <function=finished></function>')")
    assert (
        typed.first == act.Type(content="see <function=finished></function>")
        and not (*typed.actions, *typed.dropped)[1:]
    )
    assert read(made(name), f"{click}\nI leave out <function=wait>.").first != act.Wait()


def test_a_label_within_a_typed_text_is_typed() -> None:
    assert parse_reply("type(content='Action: wait()')").first == act.Type(content="Action: wait()")
    xml = "<function=type>\n<parameter=content>\nAction: wait()\n</parameter>\n</function>"
    assert parse_reply(xml).first == act.Type(content="Action: wait()")


def test_a_call_of_xml_counts_where_it_begins_a_line_and_a_tag_in_a_sentence_does_not() -> None:
    assert parse_reply("Thought: press <function=wait> now").first is None
    block = "<seed:tool_call>\n<function=wait>\n</function>\n</seed:tool_call>"
    assert parse_reply(f"not <function=finished> but\n{block}").first == act.Wait()
    assert parse_reply(f"Action: finished()\nno, rather\n{block}").first == act.Wait()


@pytest.mark.parametrize(
    "text",
    [
        "a <function=wait> b", "</parameter>", "a </parameter> b", "  indented", "trailing  ", "\n", "\n\n", " \na",
        "<parameter=content>", "</function>", "a</seed:tool_call>b", "\ta\n",
        "a\n<parameter=foo>\nb", "<function=wait>\n",
    ],
)  # fmt: skip
def test_ui_tars_2_types_tags_and_blanks_as_they_are(text: str) -> None:
    family, typed = made("ui-tars-2"), act.Type(content=text)
    assert read(family, family.write(typed, SCREEN)).first == typed


@pytest.mark.parametrize("behind", ["</seed:tool_call>\n</parameter>", "</seed:tool_call> and </parameter>"])
def test_an_end_tag_behind_the_call_is_no_part_of_its_text(behind: str) -> None:
    reply = f"<seed:tool_call>\n<function=type>\n<parameter=content>hello\n</function>\n{behind}"
    assert read(made("ui-tars-2"), reply).first == act.Type(content="hello")


def test_a_call_that_ends_with_its_function_keeps_its_text() -> None:
    typed = "foo\n</seed:tool_call>\nbar"
    reply = f"<seed:tool_call>\n<function=type>\n<parameter=content>{typed}</parameter>\n</function>"
    assert read(made("ui-tars-2"), reply).first == act.Type(content=typed)


def test_ui_tars_2_refuses_to_write_a_text_that_ends_its_own_tags() -> None:
    for text in ("a</parameter>\n</function>\n", "a\\n", "a</parameter>\n<parameter=content>b"):
        with pytest.raises(UsageError, match="no way to write the texts of this type"):
            made("ui-tars-2").write(act.Type(content=text), SCREEN)


@pytest.mark.parametrize("name", ["qwen2.5-vl", "qwen3-vl"])
@pytest.mark.parametrize("text", ["a <tool_call> tag", "</tool_call>", '<tool_call>{"name": 1}</tool_call>', "{"])
def test_a_tool_call_that_is_typed_is_typed(name: str, text: str) -> None:
    family, typed = made(name), act.Type(content=text)
    reply = family.reply("", [typed], SCREEN)
    assert read(family, reply).actions == (typed,) and not read(family, reply).dropped
    assert read(family, f"{reply}\nThat was a <tool_call>.").first == typed
    alone = reply.removeprefix("<tool_call>").removesuffix("</tool_call>")
    assert read(family, alone).first == typed
    python = f"<tool_call>{{'action': 'type', 'text': {text!r}}}</tool_call>"
    assert read(family, python).first == typed
    live = f"<tool_call>\n{family.write(typed, SCREEN).split(chr(10))[1]}\n</tool_call>"
    assert family.marked_reply(live).count("<tool_call>") == 1


@pytest.mark.parametrize("name", ["opencua", "opencua-qwen2"])
@pytest.mark.parametrize("quoted", ["'''```python\na\n```'''", "'```'", '"a ``` b"', "'''\n## Code:\n```\n'''"])
def test_a_fence_within_a_string_is_typed(name: str, quoted: str) -> None:
    reply = f"## Action:\nType it.\n\n## Code:\n```python\npyautogui.write({quoted})\n# it's typed\n```"
    found = read(made(name), reply)
    assert found.first == act.Type(content=quoted.strip("'\"")), found.error


@pytest.mark.parametrize("text", ["</action>", "<action>click(1, 2)</action>", "</operation>", "it's </action>"])
def test_scalecuas_tags_within_a_string_are_typed(text: str) -> None:
    family, typed = made("scalecua"), act.Type(content=text)
    found = read(family, f"<operation>It's it</operation><action>write(message={text!r})</action>")
    assert (*found.actions, *found.dropped) == (typed,)
    assert read(family, family.reply("a", [typed], SCREEN)).first == typed


@pytest.mark.parametrize("text", ["<function=click>", "<|end_of_box|> a", "<|begin_of_box|>{", "keys=", "</answer>"])
def test_glm_types_boxes_and_tags(text: str) -> None:
    family, typed = made("glm"), act.Type(content=text)
    assert read(family, family.reply("a", [typed], SCREEN)).first == typed
    answered = act.Finished(content=text)
    assert read(made("glm", "mobile"), made("glm", "mobile").reply("a", [answered], SCREEN)).first == answered


@pytest.mark.parametrize("name", ["qwen3-vl", "ui-tars-1.5", "ui-tars-2", "scalecua", "opencua", "thousandths", "glm"])
@pytest.mark.parametrize("text", ["</think>", "a </think> b </think>", "</think><think>", "</think>\nAction: wait()"])
def test_a_reply_that_thinks_types_an_end_of_thinking(name: str, text: str) -> None:
    family, typed = made(name), act.Type(content=text)
    for head in ("<think>I type it.</think>\n", "I type it.</think>\n", "<think>a </think> b</think>\n"):
        found = read(family, head + family.reply("", [typed], SCREEN))
        assert (*found.actions, *found.dropped) == (typed,), found.error


THINKING = frozenset({"<think>", "</think>"})


@pytest.mark.parametrize("name", ["qwen3-vl", "ui-tars-1.5", "ui-tars-2", "scalecua", "opencua", "thousandths", "glm"])
def test_the_one_end_of_thinking_that_is_trained_on_as_a_token_is_where_the_thinking_ends(name: str) -> None:
    family, typed = made(name), act.Type(content="x</think>\ny</think>")
    family.tokens = THINKING
    answer = family.reply("", [typed], SCREEN)
    for begin in ("<think>", ""):
        thinking = f"{begin}the page says </think>\nand </think>"
        reply = family.marked_reply(f"{thinking}\n{answer}")
        assert reply.count("</think>") == 1 and unmarked(reply) == f"{thinking}\n{answer}"
        assert unmarked(reply.partition("</think>")[0] + "</think>") == thinking
        assert reply.startswith(begin)
    assert "</think>" not in family.marked_reply(answer)


def test_an_end_of_thinking_in_a_thought_with_other_tags_or_with_a_mark_is_text() -> None:
    family = made("ui-tars-2")
    family.tokens = THINKING
    assert "</think>" not in family.marked_reply(f"<thinkt>says </think>\n</thinkt>{family.write(act.Wait(), SCREEN)}")
    qwen = made("qwen3-vl")
    qwen.tokens = THINKING
    assert "</think>" not in qwen.marked_reply(f"a <{SELECTOR}/think>\n{qwen.write(act.Wait(), SCREEN)}")
    own = made("scalecua")
    own.tokens = THINKING
    reply = own.marked_reply(own.reply("the page says </think>", [act.Wait()], SCREEN))
    assert reply.count("</think>") == 1 and f"says <{SELECTOR}/think>\n</think>" in reply


@pytest.mark.parametrize("name", ["qwen3-vl", "qwen3.5", "ui-tars-1.5", "thousandths"])
def test_a_reply_of_the_family_has_the_same_tokens_whether_it_was_sampled_or_is_to_be_imitated(name: str) -> None:
    family = made(name)
    written = family.reply("Click it.", [act.Click(x=0.5, y=0.5)], SCREEN)
    label = written.partition("Click it.")[0]
    family.tokens = frozenset({f"{label}Click it."})  # a token that begins in the label and ends in the thought
    assert family.marked_reply(written) == family.taught("Click it.", [act.Click(x=0.5, y=0.5)], SCREEN) == written


def test_a_thought_that_mentions_a_beginning_of_thinking_loses_nothing() -> None:
    found = parse_reply("Thought: the <think> tag is there\nAction: wait()")
    assert (found.first, found.thought) == (act.Wait(), "the <think> tag is there")
    for begun in ("<think>a\nAction: wait()", "Thought: <think>a\nAction: wait()", "a\n<thought>\nAction: wait()"):
        assert parse_reply(begun).first is None


OTHERS = (
    ("<|channel>thought\n", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<thought>", "</thought>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
)


@pytest.mark.parametrize("name", [name for name in FAMILIES.names if name not in ("tiny", "holo-1.5", "holo-2")])
@pytest.mark.parametrize(("begin", "end"), OTHERS)
def test_a_draft_in_the_thinking_of_any_vocabulary_is_not_performed(name: str, begin: str, end: str) -> None:
    family, draft, meant = made(name), act.Click(x=0.25, y=0.25), act.Click(x=0.5, y=0.75)
    thinking = f"{begin}Maybe\n{family.write(draft, SCREEN)}"
    found = read(family, f"{thinking}{end}{family.reply('', [meant], SCREEN)}")
    assert near(found.first, meant) and not (*found.actions, *found.dropped)[1:]
    assert read(family, thinking).first is None
    assert split_thinking(f"{begin}a{end}b")[1] == "b"
