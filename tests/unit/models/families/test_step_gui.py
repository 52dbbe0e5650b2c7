"""Step-GUI: prompts, records and places as stepfun-ai/gelab-zero @19465cf publishes them."""

import pytest

from models.completion import Completion
from models.families.family import ModelFamily
from models.families.template import template
from models.policy import Context
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from tests.unit.models.families.test_families import made

DESKTOP, PHONE = (1920, 1080), (1080, 2400)
SCREEN = Observation(b"", *PHONE, "")


def read(reply: str, screen: tuple[int, int] = PHONE) -> Completion:
    return made("step-gui").read(Completion(reply), screen)


@pytest.mark.parametrize("head", ["", "<THINK> 想 </THINK>\nexplain:点击\t"])
@pytest.mark.parametrize(
    ("record", "action", "unused"),
    [
        ("action:CLICK\tpoint:447,81", act.Click(x=0.447, y=0.081), ()),
        ("action:CLICK\tpoint:447 81", act.Click(x=0.447, y=0.081), ()),
        ("action:CLICK\tpoint: 447, 81", act.Click(x=0.447, y=0.081), ()),
        ("action:CLICK\tpoint:1000,1000", act.Click(x=1, y=1), ()),
        ("action:SLIDE\tpoint1:500,800\tpoint2:500,200", act.Drag(x=0.5, y=0.8, to_x=0.5, to_y=0.2), ()),
        ("action:AWAKE\tvalue:微信", act.OpenApp(app_name="微信"), ()),
        ("action:INFO\tvalue:哪一个？", act.CallUser(content="哪一个？"), ()),
        ("action:COMPLETE\treturn:42", act.Finished(content="42"), ()),
        ("action:COMPLETE\tvalue:42", act.Finished(content="42"), ()),
        ("action:COMPLETE", act.Finished(), ()),
        ("action:WAIT\tvalue:5", act.Wait(seconds=5), ()),
        ("action:WAIT\tvalue:60", act.Wait(seconds=30), ("value=60",)),
        ("action:ABORT\tvalue:无网络", act.CallUser(content="无网络"), ()),
        ("action:LONGPRESS\tpoint:500,250", act.LongPress(x=0.5, y=0.25), ()),
        ("action:LONGPRESS\tpoint:500,250\tduration:3", act.LongPress(x=0.5, y=0.25, seconds=3), ()),
        ("action:TYPE\tvalue:a: b", act.Type(content="a: b"), ()),
        ("action:TYPE\tvalue:hi\tpoint:5,6\tis_keyboard:true", act.Type(content="hi"), ("point=5,6",)),
        ("action:BACK", act.PressBack(), ()),
        ("action:HOME", act.PressHome(), ()),
    ],
)
def test_a_record_is_read(head: str, record: str, action: Action, unused: tuple[str, ...]) -> None:
    """`str2action` of `copilot_tools/parser_0920_summary.py`, the examples of its prompt, and `act_on_device` of
    `copilot_front_end/pu_frontend_executor.py`. A thousandth is the same fraction of every screen: 858.24 and 87.48
    pixels of 1920x1080, 482.76 and 194.4 of 1080x2400."""
    for end in ("", "\tsummary:已完成", "\n"):
        for screen in (DESKTOP, PHONE):
            found = read(f"{head}{record}{end}", screen)
            assert (found.first, found.unused) == (action, unused), found.error
            assert found.thought == ("想" if head else "") and not (*found.actions, *found.dropped)[1:]


def test_a_text_with_a_place_is_a_click_and_typing() -> None:
    """The published client types without the click, since `keyboard_exists` is missing; docs/families.md."""
    found = read("explain:输入\taction:TYPE\tvalue:你好\tpoint:500,100\tsummary:s")
    assert (found.first, (*found.actions, *found.dropped)[1:]) == (act.Click(x=0.5, y=0.1), (act.Type(content="你好"),))
    assert len(found.actions) == 2 and not found.unused


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        ("action:CLICK\tpoint:447.5,81", "is no point: two whole numbers"),
        ("action:CLICK\tpoint:447", "is no point: two whole numbers"),
        ("action:CLICK\tpoint:1,2,3", "is no point: two whole numbers"),
        ("action:CLICK\tpoint:", "is no point: two whole numbers"),
        ("action:CLICK\tpoint:1," + "9" * 5000, "is no point: two whole numbers"),
        ("action:CLICK\tpoint:1200,5", "click.x: should be less than or equal to 1"),
        ("action:CLICK", "`point` is missing"),
        ("action:SLIDE\tpoint1:1,2", "`point2` is missing"),
        ("action:TYPE\tpoint:1,2", "`value` is missing"),
        ("action:AWAKE", "`value` is missing"),
        ("action:CLICK\tpoint:1,2\tpoint:3,4", "field 'point' twice"),
        ("action:CLICK\tpoint:1,2\nexplain:b\taction:WAIT", "field 'explain' twice"),
        ("action:HOT_KEY\tkey:volume_up", "there is no action for 'HOT_KEY'"),
        ("action:SCROLL\tpoint:1,2\tdirection:down", "there is no action for 'SCROLL'"),
        ("summary:x", "no action in"),
    ],
)
def test_a_record_without_an_action_of_this_project_is_refused_by_name(record: str, problem: str) -> None:
    found = read(f"<THINK>a</THINK>\nexplain:x\t{record}")
    assert found.first is None and problem in (found.error or "") and found.thought == "a"


@pytest.mark.parametrize(
    "reply",
    [
        "<think>xxx</think>",
        "<think>xxx</think>\nexplain:xxx\taction:xx\tvalue:xxx\tsummary:xxx",
        "< think>xxx</think>\nexplain:xxx\taction:xx\tvalue:xxx\tsummary:xxx",
        "</THINK>xxx</THINK>\nexplain:xxx\taction:xx\tvalue:xxx\tsummary:xxx",
        "<THINK>xxx</THINK>\nexplain:xxx\taction:xx\tvalue:xxx\tsummary:xxx",
        "<TINK>xxx</TINK>\nexplain:xxx\taction:xx\tvalue:xxx\tsummary:xxx",
        "<THIN>xxx</THIN>\nexplain:xxx\taction:xx\tvalue:xxx\tsummary:xxx",
    ],
)
def test_the_tags_of_a_thought_are_read_in_any_spelling(reply: str) -> None:
    """The examples at the end of `parser_0920_summary.py`, its repair of `TINK`, and the README's known `THIN`."""
    found = read(reply)
    assert found.first is None and found.error
    acting = read(reply.replace("action:xx", "action:WAIT"))
    if "explain" in reply:
        assert "there is no action for 'XX'" in found.error
        assert acting.first == act.Wait() and acting.unused == ("value=xxx",)
        assert acting.thought == ("</THINK>xxx" if reply.startswith("</") else "xxx")


def test_fields_may_be_on_lines_of_their_own() -> None:
    found = read("<THINK>a</THINK>\nexplain:b\naction:CLICK\npoint:500,300\nsummary:c\nd")
    assert found.first == act.Click(x=0.5, y=0.3) and not found.unused
    assert made("step-gui").sentence(found.action_text) == "b" and asked(made("step-gui"), found).count("c\nd") == 1


def test_words_that_are_no_field_are_reported() -> None:
    found = read("explain:b\tso\taction:CLICK\tpoint:500,300\nGo.\tsummary:\nThat was it.")
    assert found.first == act.Click(x=0.5, y=0.3)
    assert found.unused == ("text behind the action=so\nThat was it.\nGo.",)


def asked(family: ModelFamily, *steps: Completion, instruction: str = "Do it.") -> str:
    turns = tuple(PastStep(step.thought, step.action_text, SCREEN) for step in steps)
    (turn,) = family.messages(Context(instruction, turns, SCREEN, 0))
    assert turn["role"] == "user" and [part["type"] for part in turn["content"]] == ["text", "image", "text"]
    return turn["content"][0]["text"]


def test_the_prompt_has_the_last_summary_and_no_other_history() -> None:
    """`make_status_prompt` and `env2messages4ask` of `parser_0920_summary.py`, without hints and a user's reply."""
    family = made("step-gui")
    first = read("<THINK>a</THINK>\nexplain:打开\taction:AWAKE\tvalue:微信\tsummary:已打开微信")
    second = read("<THINK>a</THINK>\nexplain:点击\taction:CLICK\tpoint:1,2\tsummary:已打开微信，已点击")
    head, form = template("step-gui-task.txt"), template("step-gui-format.txt")
    assert asked(family) == (
        f"{head}\n已知用户任务为：Do it.\n已知已经执行过的历史动作如下：暂无历史操作\n当前手机屏幕截图如下：\n"
    )
    text = asked(family, first, second)
    assert "历史动作如下：已打开微信，已点击\n当前" in text and text.count("已打开微信") == 1
    assert "1. CLICK：" in head and "例如：action:CLICK\tpoint:x,y\n" in head and form.endswith("新历史总结\n")
    assert asked(family, instruction="{history}").count("{history}") == 1


def test_steps_without_a_summary_are_listed_by_their_explanations() -> None:
    family = made("step-gui")
    first = read("explain:打开\taction:AWAKE\tvalue:微信\tsummary:已打开微信")
    own = [read(family.write(one, PHONE)) for one in (act.Click(x=0.5, y=0.5), act.Type(content="a"))]
    assert "如下：已打开微信\nClick it.\nType it.\n当前" in asked(family, first, *own)
    assert "如下：Click it.\nType it.\n当前" in asked(family, *own)


@pytest.mark.parametrize("text", ["a\tb", " a", "a\n", "a\nvalue:b", "a\nsummary: b"])
def test_a_text_that_a_record_cannot_hold_is_refused(text: str) -> None:
    for action in (act.Type(content=text), act.Finished(content=text), act.OpenApp(app_name=text)):
        with pytest.raises(UsageError, match="no way to write the texts of this"):
            made("step-gui").write(action, PHONE)


@pytest.mark.parametrize(
    "action",
    [
        act.Scroll(x=0.5, y=0.5, direction="down"), act.LeftDouble(x=0.5, y=0.5), act.RightSingle(x=0.5, y=0.5),
        act.Hotkey(key="enter"), act.PressBack(), act.PressHome(), act.PressEnter(), act.Press(key="a"),
    ],
)  # fmt: skip
def test_an_action_that_the_prompt_lacks_is_refused(action: Action) -> None:
    with pytest.raises(UsageError, match=f"step-gui has no action for {action.type}"):
        made("step-gui").write(action, PHONE)


@pytest.mark.parametrize(
    "action",
    [
        act.Click(x=0.447, y=0.081), act.LongPress(x=1, y=0), act.Drag(x=0.5, y=0.8, to_x=0.5, to_y=0.2),
        act.Type(content="a\nb: </THINK> <tool_call>"), act.OpenApp(app_name="微信"), act.Finished(content="42"),
        act.Finished(), act.Wait(seconds=2), act.CallUser(), act.CallUser(content="哪一个？"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("thought", ["", "想", "a\n\taction:WAIT\n</THINK> b"])
def test_a_reply_comes_back(action: Action, thought: str) -> None:
    found = read(made("step-gui").reply(thought, [action], PHONE))
    assert (found.first, found.thought, (*found.actions, *found.dropped)[1:]) == (action, thought, ())


def test_a_question_has_the_actions_where_it_asks_for_one() -> None:
    family = made("step-gui")
    (plain,), (acting,) = family.question("What?", [SCREEN]), family.question("What?", [SCREEN], acts=True)
    assert plain["content"][0]["text"] == "What?" and acting["content"][0]["text"].endswith("\nWhat?")
    assert "CLICK" in acting["content"][0]["text"]
