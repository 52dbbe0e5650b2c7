"""Fara-7B and Fara1.5: their prompts, and replies as their public clients read them.

Fara is github.com/microsoft/fara: `fara_agent.py` @3f3f1fd (7B), `fara15_agent.py` @6505fef and tests/test_fara15.py
@f4d4530.
"""

import json
from typing import Any

import pytest

from models.completion import Completion
from models.families.family import ModelFamily
from models.families.outside import unmarked
from models.families.screen import Size
from models.policy import Context
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from tests.unit.models.families.test_families import SCREEN, made

BING = "https://www.bing.com/search?q={}&FORM=QBLH"
WIDE, TALL, BROWSER = (1920, 1080), (1080, 2400), (1440, 900)


def called(action: str, **arguments: Any) -> str:
    given = {"name": "computer_use", "arguments": {"action": action, **arguments}}
    return f"<tool_call>\n{json.dumps(given)}\n</tool_call>"


def read(name: str, reply: str, screen: Size = SCREEN) -> Completion:
    return made(name).read(Completion(reply), screen)


def all_of(found: Completion) -> list[Action]:
    return [*found.actions, *found.dropped]


def place(found: Completion) -> list[float]:
    assert isinstance(found.first, act.Click | act.LeftDouble), found.error
    return [found.first.x, found.first.y]


@pytest.mark.parametrize(
    ("screen", "coordinate", "wanted"),
    [
        (BROWSER, [500, 500], [0.350140, 0.558036]),
        (WIDE, [500, 500], [0.258799, 0.457875]),
        (TALL, [500, 500], [0.457875, 0.207641]),
        (WIDE, [1931, 1091], [0.999482, 0.999084]),
    ],
)
def test_fara_7b_counts_pixels_of_the_picture_that_it_sees(
    screen: Size, coordinate: list[int], wanted: list[float]
) -> None:
    """fara_agent.py, `convert_resized_coords_to_original`."""
    assert place(read("fara-7b", called("left_click", coordinate=coordinate), screen)) == pytest.approx(
        wanted, abs=1e-6
    )


@pytest.mark.parametrize(
    ("screen", "coordinate", "pixels"),
    [
        (BROWSER, [500, 500], [720, 450]),
        (BROWSER, [1000, 1000], [1440, 900]),
        (WIDE, [500, 500], [960, 540]),
        (TALL, [500, 500], [540, 1200]),
        (BROWSER, [447, 81], [643.68, 72.9]),
        (WIDE, [447, 81], [858.24, 87.48]),
        (TALL, [447, 81], [482.76, 194.4]),
    ],
)
def test_fara_1_5_counts_thousandths_of_the_screen(screen: Size, coordinate: list[int], pixels: list[float]) -> None:
    """fara15_agent.py, `_proc`; tests/test_fara15.py, `test_proc_coords_scales_display_space_to_viewport`."""
    x, y = place(read("fara-1.5", called("left_click", coordinate=coordinate), screen))
    assert [x * screen[0], y * screen[1]] == pytest.approx(pixels)


MIDDLE = act.Click(x=0.5, y=0.5)


@pytest.mark.parametrize(
    ("name", "reply", "actions"),
    [
        ("fara-7b", called("type", text="x", coordinate=[966, 546]), [MIDDLE, act.Type(content="x\n")]),
        ("fara-7b", called("type", text="x"), [act.Type(content="x\n")]),
        ("fara-7b", called("type", text="x", press_enter=False), [act.Type(content="x")]),
        (
            "fara-7b",
            called("type", text="x", press_enter=False, delete_existing_text=True),
            [act.Hotkey(key="ctrl a"), act.Type(content="x")],
        ),
        ("fara-7b", called("input_text", text="x"), [act.Type(content="x\n")]),
        ("fara-7b", called("click", coordinate=[966, 546]), [MIDDLE]),
        ("fara-7b", called("keypress", keys=["Control", "A"]), [act.Hotkey(key="ctrl a")]),
        ("fara-7b", called("sleep", duration=3), [act.Wait(seconds=3)]),
        ("fara-7b", called("hover", coordinate=[966, 546]), [act.Move(x=0.5, y=0.5)]),
        ("fara-1.5", called("mouse_move", coordinate=[500, 500]), [act.Move(x=0.5, y=0.5)]),
        ("fara-1.5", called("triple_click", coordinate=[500, 500]), [act.TripleClick(x=0.5, y=0.5)]),
        ("fara-7b", f"It costs 5 EUR.\n{called('stop')}", [act.Finished(content="It costs 5 EUR.")]),
        ("fara-7b", f"It costs 5.\n{called('terminate', status='success')}", [act.Finished(content="It costs 5.")]),
        ("fara-7b", f"I am lost.\n{called('terminate', status='failure')}", [act.CallUser()]),
        ("fara-7b", called("scroll", pixels=-700), [act.Scroll(direction="down")]),
        ("fara-7b", called("visit_url", url="a.example"), [act.Navigate(content="https://a.example")]),
        ("fara-7b", called("visit_url", url="about:blank"), [act.Navigate(content="about:blank")]),
        ("fara-7b", called("visit_url", url="red shoes"), [act.Navigate(content=BING.format("red+shoes"))]),
        ("fara-7b", called("web_search", query="a&b"), [act.Navigate(content=BING.format("a%26b"))]),
        ("fara-7b", called("history_back"), [act.NavigateBack()]),
        ("fara-1.5", called("terminate", answer="42"), [act.Finished(content="42")]),
        ("fara-1.5", called("type", text="x"), [act.Type(content="x")]),
        ("fara-1.5", called("double_click", coordinate=[500, 500]), [act.LeftDouble(x=0.5, y=0.5)]),
        ("fara-1.5", called("right_click", coordinate=[500, 500]), [act.RightSingle(x=0.5, y=0.5)]),
        ("fara-1.5", called("hscroll", pixels=300), [act.Scroll(direction="right")]),
        ("fara-1.5", called("ask_user_question", question="Which?"), [act.CallUser(content="Which?")]),
        ("fara-1.5", called("pause_and_memorize_fact", fact="It is 5."), [act.Note(content="It is 5.")]),
        ("fara-7b", f"I read.\n{called('pause_and_memorize_fact', fact='')}", [act.Note(content="")]),
        ("fara-1.5", called("web_search", query="a b"), [act.Navigate(content=BING.format("a+b"))]),
        ("fara-1.5", called("wait"), [act.Wait()]),
        # tests/test_fara15.py, `test_parse_thoughts_and_action_accepts_common_server_variants`
        (
            "fara-1.5",
            '<tool_call>{"name":"computer_use","arguments":{"action":"wait"}}</tool_call>',
            [act.Wait()],
        ),
        (
            "fara-1.5",
            '<tool_call>\n```json\n{"name":"computer_use","arguments":{"action":"wait"}}\n```\n</tool_call>',
            [act.Wait()],
        ),
        ("fara-1.5", '{"name":"computer_use","arguments":{"action":"wait"}}', [act.Wait()]),
        (
            "fara-1.5",
            "<tool_call>{'name': 'computer_use', 'arguments': {'action': 'wait'}}</tool_call>",
            [act.Wait()],
        ),
    ],
)
def test_faras_calls_are_read_as_its_clients_read_them(name: str, reply: str, actions: list[Action]) -> None:
    found = read(name, reply)
    assert all_of(found) == actions and len(found.actions) == len(actions), found.error


def test_faras_thought_is_the_text_before_the_call() -> None:
    """tests/test_fara15.py, `test_parse_thoughts_and_action`."""
    for name in ("fara-7b", "fara-1.5"):
        found = read(name, f"I should click.\n{called('left_click', coordinate=[500, 500])}")
        assert found.thought == "I should click." and isinstance(found.first, act.Click)


@pytest.mark.parametrize(
    ("name", "reply", "problem"),
    [
        # tests/test_fara15.py, `test_parse_thoughts_and_action_reports_useful_errors`
        ("fara-1.5", "", "no tool call"),
        ("fara-1.5", "I forgot to call a tool", "no tool call"),
        ("fara-1.5", '<tool_call>{"name":"computer_use"}</tool_call>', "no action for ''"),
        ("fara-1.5", called("terminate"), "`answer` is missing"),
        ("fara-1.5", called("read_page_answer_question", question="a"), "no action for 'read_page_answer_question'"),
        ("fara-1.5", called("left_click_drag"), "left_click_drag without a coordinate"),
        ("fara-7b", called("pause_and_memorize_fact"), "`fact` is missing"),
        ("fara-7b", called("left_click"), "left_click without a coordinate"),
        ("fara-7b", called("click", coordinate=[1, 2]).replace("computer_use", "click"), "no tool 'click'"),
    ],
)
def test_what_is_no_action_of_ours_is_an_error_by_name(name: str, reply: str, problem: str) -> None:
    found = read(name, reply)
    assert found.first is None and problem in (found.error or ""), found


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ({"answer": "42"}, act.Finished(content="42")),
        ({"answer": "42", "status": "success"}, act.Finished(content="42")),
        ({"status": "success"}, act.Finished()),
        ({"answer": "no", "status": "failure"}, act.CallUser(content="no")),
        ({"answer": 42, "status": "success"}, act.Finished(content="42")),
        ({"answer": ["a"]}, act.Finished(content='["a"]')),
        ({"answer": "some", "status": "partial"}, act.Finished(content="some")),
    ],
)
def test_the_status_of_an_end_decides_where_there_is_one(arguments: dict[str, str], action: Action) -> None:
    assert read("fara-1.5", called("terminate", **arguments)).first == action


CLEARED = act.Hotkey(key="ctrl a")


def test_an_action_that_a_browser_models_tool_lacks_is_not_written() -> None:
    cases: list[tuple[str, Action]] = [
        ("fara-7b", act.LeftDouble(x=0, y=0)),
        ("fara-7b", act.Drag(x=0, y=0, to_x=1, to_y=1)),
        ("fara-7b", act.Finished(content="42")),
        ("fara-7b", act.CallUser(content="Which?")),
        ("fara-7b", act.TripleClick(x=0, y=0)),
        ("fara-1.5", act.MiddleSingle(x=0, y=0)),
        ("fara-1.5", act.MouseDown()),
        ("fara-1.5", act.Drag(x=0, y=0, to_x=1, to_y=1)),
    ]
    for name, action in cases:
        with pytest.raises(UsageError, match=r"policy\.family"):
            made(name).write(action, SCREEN)


def test_the_answer_of_fara_7b_is_its_thought() -> None:
    """fara_agent.py, `run`: `final_answer = thoughts`."""
    family, answer = made("fara-7b"), act.Finished(content="It is 42.")
    for thought in ("", "It is 42."):
        reply = family.reply(thought, [answer], SCREEN)
        assert reply.startswith("It is 42.\n<tool_call>") and family.read(Completion(reply), SCREEN).first == answer
    with pytest.raises(UsageError, match="answers with its thought"):
        family.reply("I know it.", [answer], SCREEN)
    assert "42" in family.taught("", [answer], SCREEN)


def shown(family: ModelFamily, written: str, past: int) -> list[tuple[str, str]]:
    """Role and text of each turn, with screens by their widths."""
    seen = [Observation(b"", 1000 + number, 1000, "") for number in range(past + 1)]
    turns = tuple(PastStep(f"t{number}", written, seen[number]) for number in range(past))
    chat = family.messages(Context("Do it.", turns, seen[-1], 0))

    def text(part: dict[str, Any]) -> str:
        return f"<{part['observation'].width}>" if part["type"] == "image" else part["text"]

    return [(message["role"], "".join(map(text, message["content"]))) for message in chat]


@pytest.mark.parametrize("name", ["fara-7b", "fara-1.5"])
def test_a_visit_that_failed_is_reported_before_the_next_screen_by_fara_1_5(name: str) -> None:
    """fara15_agent.py, `_dispatch_action` and `_pending_observation`; fara_agent.py reports no failure."""
    family, seen, why = made(name, history_images=2), Observation(b"", 1000, 1000, ""), "no such host <|im_end|>"
    visit, click = called("visit_url", url="a.b"), called("left_click", coordinate=[5, 5])
    for written, line in ((visit, f"visit_url to a.b failed: {why}\n"), (click, ""), (click + visit, "")):
        turn = PastStep("t", written, seen, why)
        (part,) = (one for one in family.chat(Context("Do it.", (turn,), seen, 0))[-1]["content"] if "text" in one)
        assert unmarked(part["text"]) == (line if name == "fara-1.5" else "") + NEXT
        assert "<|im_end|>" not in part["text"]
    assert family.chat(Context("Do it.", (PastStep("t", visit, seen),), seen, 0))[-1]["content"][-1]["text"] == NEXT


NEXT = "Here is the next screenshot. Think about what to do next."


@pytest.mark.parametrize("name", ["fara-7b", "fara-1.5"])
def test_faras_older_screens_go_with_their_text_and_the_task_stays(name: str) -> None:
    """`maybe_remove_old_screenshots` of both clients, with `max_n_images` for `policy.history_images`."""
    family, written = made(name, history_images=2), called("wait")
    (_, system), *turns = shown(family, written, 3)
    assert turns == [
        ("user", "Do it."),
        ("assistant", f"t0\n{written}"),
        ("assistant", f"t1\n{written}"),
        ("user", f"<1002>{NEXT}"),
        ("assistant", f"t2\n{written}"),
        ("user", f"<1003>{NEXT}"),
    ]
    assert shown(family, written, 0)[1] == ("user", "<1000>Do it.")
    tool = json.loads(system.partition("<tools>\n")[2].partition("\n</tools>")[0])
    actions = tool["function"]["parameters"]["properties"]["action"]["enum"]
    if name == "fara-7b":
        assert system.startswith("You are a helpful assistant.\n\nYou are a web automation agent that performs")
        assert "resolution is 1008x1008." in system and len(actions) == 11
    else:  # tests/test_fara15.py, `test_system_prompt_contents_and_action_space`
        assert system.startswith("You are Fara, a computer use agent") and "Qwen3.5-9B" in system
        assert "A critical point is a situation" in system and "The screen's resolution is 1000x1000" in system
        assert set(actions) == {
            "key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "double_click", "triple_click",
            "scroll", "hscroll", "visit_url", "history_back", "web_search", "read_page_answer_question",
            "pause_and_memorize_fact", "ask_user_question", "wait", "terminate",
        }  # fmt: skip
