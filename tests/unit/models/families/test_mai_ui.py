"""MAI-UI's replies, as its agents read them: Tongyi-MAI/MAI-UI @4dd07b9, src/mai_naivigation_agent.py and
src/mai_grounding_agent.py."""

import json
from typing import Any

import pytest

from environments.desktop.sandbox import pixel
from models.completion import Completion
from models.families.screen import Size
from models.policy import Context
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from tests.unit.models.families.test_families import SCREEN, chat, made

WIDE, TALL = (1920, 1080), (1080, 2400)
ANSWER = '<answer>\n{"coordinate":[%d,%d]}\n</answer>'


def called(name: str = "mobile_use", **arguments: Any) -> str:
    written = json.dumps({"name": name, "arguments": arguments}, separators=(",", ":"))
    return f"<tool_call>\n{written}\n</tool_call>"


def replied(thought: str = "I see it.", **arguments: Any) -> str:
    return f"<thinking>\n{thought}\n</thinking>\n{called(**arguments)}"


def read(text: str, screen: Size = SCREEN, template: str = "mobile") -> Completion:
    return made("mai-ui", template).read(Completion(text), screen)


def all_of(read: Completion) -> list[Action]:
    return [*read.actions, *read.dropped]


@pytest.mark.parametrize(
    ("coordinate", "fraction", "wide", "tall"),
    [
        ([447, 81], (0.447447, 0.081081), (859.10, 87.57), (483.24, 194.59)),
        ([200, 300, 400, 340], (0.300300, 0.320320), (576.58, 345.95), (324.32, 768.77)),
    ],
)
def test_a_click_is_at_a_fraction_of_the_screen_and_a_box_is_its_centre(
    coordinate: list[int], fraction: tuple[float, float], wide: tuple[float, float], tall: tuple[float, float]
) -> None:
    """`parse_action_to_structure_output` (l.107-187): v / 999, a box of four numbers by its centre."""
    found = read(replied(action="click", coordinate=coordinate))
    assert isinstance(found.first, act.Click) and found.thought == "I see it." and not found.unused
    at = found.first.x, found.first.y
    assert at == pytest.approx(fraction, abs=6e-7)
    for screen, place in ((WIDE, wide), (TALL, tall)):
        assert [one * side for one, side in zip(at, screen, strict=True)] == pytest.approx(place, abs=6e-3)


def test_the_last_place_of_the_grid_is_the_last_pixel() -> None:
    found = read(replied(action="long_press", coordinate=[999, 999])).first
    assert found == act.LongPress(x=1, y=1)
    assert pixel(1, 1, *WIDE) == (1919, 1079) and pixel(1, 1, *TALL) == (1079, 2399)
    assert read(replied(action="click", coordinate=[1000, 5])).first is None


def test_a_swipe_is_the_fingers_so_the_screen_scrolls_the_other_way() -> None:
    found = read(replied(action="swipe", direction="up", coordinate=[500, 500]), TALL).first
    assert isinstance(found, act.Scroll) and found.direction == "down"
    assert (found.x, found.y) == pytest.approx((0.500501, 0.500501), abs=6e-7)
    assert (found.x * 1080, found.y * 2400) == pytest.approx((540.54, 1201.2), abs=6e-3)
    for way, other in (("down", "up"), ("left", "right"), ("right", "left")):
        plain = read(replied(action="swipe", direction=way)).first
        assert plain == act.Scroll(direction=other)  # type: ignore[arg-type]


def test_a_question_to_the_user_ends_and_an_answer_ends_with_its_words() -> None:
    asked = read(replied(action="ask_user", text="Which one?"))
    assert asked.first == act.CallUser(content="Which one?") and not asked.unused
    assert read(replied(action="answer", text="42")).first == act.Finished(content="42")


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ({"action": "type", "text": "微信 \n"}, act.Type(content="微信 \n")),
        ({"action": "open", "text": "Chrome"}, act.OpenApp(app_name="Chrome")),
        ({"action": "system_button", "button": "menu"}, act.PressMenu()),
        (
            {"action": "drag", "start_coordinate": [0, 999], "end_coordinate": [999, 0]},
            act.Drag(x=0, y=1, to_x=1, to_y=0),
        ),
        (
            {"action": "drag", "start_coordinate": [0, 0, 0, 0], "end_coordinate": [998, 0, 1000, 0]},
            act.Drag(x=0, y=0, to_x=1, to_y=0),
        ),
        ({"action": "system_button", "button": "back"}, act.PressBack()),
        ({"action": "system_button", "button": "home"}, act.PressHome()),
        ({"action": "system_button", "button": "enter"}, act.PressEnter()),
        ({"action": "wait"}, act.Wait()),
        ({"action": "terminate", "status": "success"}, act.Finished()),
        ({"action": "terminate", "status": "fail"}, act.CallUser()),
        ({"action": "double_click", "coordinate": [0, 999]}, act.LeftDouble(x=0, y=1)),
    ],
)
def test_its_actions_are_ours(arguments: dict[str, Any], action: Action) -> None:
    found = read(replied(**arguments))
    assert all_of(found) == [action] and not found.unused, found.error


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (replied(action="system_button", button="power"), "no action for the button 'power'"),
        (replied(action="triple_click", coordinate=[5, 5]), "no action for 'triple_click'"),
        (replied(action="swipe", direction="sideways"), "no direction 'sideways'"),
        (replied(action="swipe"), "swipe without `coordinate2` or `direction`"),
        (replied(action="drag", end_coordinate=[5, 5]), "drag without a coordinate"),
        (replied(action="drag", start_coordinate=[5, 5]), "drag without a coordinate"),
        (replied(action="click"), "click without a coordinate"),
        (replied(action="click", coordinate=[1, 2, 3]), "is no coordinate"),
        (replied(action="terminate", status="perhaps"), "status 'perhaps'"),
        (f"<thinking>a</thinking>\n{called('get_weather', location='Rome')}", "no tool 'get_weather'"),
        ("<thinking>a</thinking>", "nothing follows the thinking"),
    ],
)
def test_a_call_that_we_lack_is_refused_by_name(reply: str, reason: str) -> None:
    found = read(reply)
    assert found.first is None and reason in str(found.error)


def test_an_end_of_thinking_of_a_thinking_model_ends_the_thought() -> None:
    """`parse_tagged_text` (l.61-104): `</think>` is taken as `</thinking>`."""
    for head in ("I see it.\n</think>\n\n", "<think>\nI see it.\n</think>\n", "<thinking>I see it.</thinking>"):
        found = read(head + called(action="wait"))
        assert (found.first, found.thought) == (act.Wait(), "I see it.")
    draft = replied(f"Maybe {called(action='click', coordinate=[5, 5])}", action="wait")
    assert all_of(read(draft)) == [act.Wait()]
    assert read(f"<thinking>\nIt is\n{called(action='wait')}").first is None


@pytest.mark.parametrize("value", [63, 126, 252, 504, 509, 447, 999])
def test_a_place_in_a_past_reply_is_the_one_that_was_written(value: int) -> None:
    """`mem2response` writes int(v / 999 * 999), one lower for the first five of these; we keep the reply itself."""
    family, screen = made("mai-ui", history_images=3), Observation(b"", *SCREEN, "")
    for arguments in (
        {"action": "click", "coordinate": [value, 1]},
        {"action": "drag", "start_coordinate": [1, 2], "end_coordinate": [value, 4]},
    ):
        reply = replied(**arguments)
        found = read(reply)
        assert found.first and family.reply(found.thought, [found.first], SCREEN) == reply
        past = (PastStep(found.thought, found.action_text, screen),)
        assert family.messages(Context("Do it.", past, screen, 0))[3]["content"][0]["text"] == reply


def test_all_past_replies_are_shown_and_the_last_screens() -> None:
    """tests/test_mai_navigation_agent.py: no step before; one; three and five with three screens."""
    for past, images in ((0, 1), (1, 2), (3, 3), (5, 3)):
        turns = chat(made("mai-ui", history_images=3), past)
        roles, texts = zip(*turns, strict=True)
        assert roles[:2] == ("system", "user") and texts[1] == "Do it." and texts[0].startswith("You are a GUI agent.")
        assert roles.count("assistant") == past and sum(one.startswith("<1") for one in texts) == images
        assert texts[-1] == f"<{1000 + past}>"
        assert all(f"<thinking>\nt{step}\n</thinking>\n<tool_call>\n" in "".join(texts) for step in range(past))
    assert [role for role, _ in chat(made("mai-ui", history_images=3), 3)][2:5] == ["assistant", "user", "assistant"]


STEPS: tuple[tuple[dict[str, Any], Action], ...] = (
    ({"action": "open", "text": "Settings"}, act.OpenApp(app_name="Settings")),
    ({"action": "swipe", "direction": "down"}, act.Scroll(direction="up")),
    ({"action": "type", "text": "MyNetwork"}, act.Type(content="MyNetwork")),
    ({"action": "open", "text": "Chrome"}, act.OpenApp(app_name="Chrome")),
)


@pytest.mark.parametrize(("arguments", "action"), STEPS)
def test_the_steps_of_its_own_tests_are_read(arguments: dict[str, Any], action: Action) -> None:
    """tests/test_mai_navigation_agent.py, test_build_messages_with_5_history_steps and the one with tools."""
    assert read(replied(**arguments)).first == action


def test_a_tool_of_its_own_tests_is_refused() -> None:
    """The same, test_build_messages_with_5_steps_ask_user_and_mcp."""
    found = read(replied(action="mcp_tool", tool_name="search_restaurant", cuisine="Italian"))
    assert found.first is None and "no action for 'mcp_tool'" in str(found.error)


def test_without_thoughts_it_has_a_prompt_of_its_own() -> None:
    thinks, plain = made("mai-ui"), made("mai-ui", thoughts=False)
    context = Context("Do it.", (), Observation(b"", *SCREEN, ""), 0, thinks=False)
    assert "return the thinking process" in chat(thinks)[0][1]
    assert "return the thinking process" not in str(plain.messages(context))
    assert plain.reply("a", [act.Wait()], SCREEN) == called(action="wait")
    assert thinks.reply("", [act.Wait()], SCREEN) == called(action="wait")


def test_an_action_that_its_prompt_lacks_is_not_written() -> None:
    for one in (act.LeftDouble(x=0.5, y=0.5), act.Hotkey(key="ctrl c"), act.RightSingle(x=0.5, y=0.5)):
        with pytest.raises(UsageError, match=r"policy\.template.*is mobile.*mai-ui has no action"):
            made("mai-ui").write(one, SCREEN)


# evaluation/grounding/output_server/SSV2.jsonl, the first three replies; its script divides by 1000, its agent by 999
ANSWERED = (
    ("This is the entry that opens the language settings.", (186, 63)),
    ("Thought: The star-shaped icon at the top right bookmarks the current page.", (925, 41)),
    ('Thought: It is clearly labeled, below the "Library" icon.', (36, 846)),
)


@pytest.mark.parametrize(("thought", "place"), ANSWERED)
def test_a_place_of_grounding_is_a_click(thought: str, place: tuple[int, int]) -> None:
    """`parse_grounding_response` (l.34-71)."""
    family = made("mai-ui", "grounding")
    reply = f"<grounding_think>\n{thought}\n</grounding_think>\n{ANSWER % place}"
    found = read(reply, template="grounding")
    assert isinstance(found.first, act.Click) and found.thought == thought and not found.unused
    assert (found.first.x, found.first.y) == pytest.approx([one / 999 for one in place])
    assert family.reply(thought, [found.first], SCREEN) == reply
    assert found.action_text == ANSWER % place


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<answer>\n{"coordinate":[1]}\n</answer>', "is no coordinate"),
        ('<answer>\n{"coordinate":[-1,-1]}\n</answer>', "click.x"),
        ("<answer>\n{}\n</answer>", "no place"),
        ("<answer>\n</answer>", "no place"),
        ("It is not there.", "no place"),
        ("<answer>[5,5]</answer>", "no place"),
        (called(action="click", coordinate=[5, 5]), "no place"),
        ('{"action":"double_click","coordinate":[5,5]}', "no action for 'double_click'"),
    ],
)
def test_an_answer_without_a_place_is_an_error(text: str, reason: str) -> None:
    found = read(text, template="grounding")
    assert found.first is None and reason in str(found.error)


def test_grounding_is_asked_with_the_words_first_and_without_history() -> None:
    """`MAIGroundingAgent._build_messages`."""
    turns = chat(made("mai-ui", "grounding"))
    assert [role for role, _ in turns] == ["system", "user"]
    assert turns[0][1].startswith("You are a GUI grounding agent. \n## Task") and turns[1][1] == "Do it.\n<1002>"
    for key, value in (("history_images", 2), ("thoughts", False)):
        with pytest.raises(UsageError, match=rf"policy\.{key}"):
            made("mai-ui", "grounding", **{key: value})


def test_a_reply_may_be_as_long_as_its_agents_allow() -> None:
    assert made("mai-ui").max_new_tokens == 2048
