"""UI-Venus-2: github.com/inclusionAI/UI-Venus, branch UI-Venus-2 @81945ac. Values are those of its own readers
(models/computer/computer_example.py, models/browser/venus_browser.py, models/mobile/mobile_example.py,
models/grounding/ui_venus2_gd.py) or of its published examples."""

import pytest

from models.completion import Completion
from models.families.family import ModelFamily
from models.families.registry import reply_limit
from models.families.ui_venus import UiVenus2Family
from models.policy import Context
from schemas import action as act
from schemas.action import Action
from schemas.config.policy import PolicyConfig
from schemas.observation import Observation, PastStep
from tests.unit.models.families.test_families import made

DESKTOP, PHONE = (1920, 1080), (1080, 2400)
Size = tuple[int, int]


def family(template: str, images: int = 1) -> ModelFamily:
    return made("ui-venus-2", template, history_images=images)


def read(template: str, call: str, screen: Size = DESKTOP) -> Completion:
    return family(template).read(Completion(f"<think>I see.</think>\n<action>{call}</action>"), screen)


def pixels(action: Action | None, screen: Size) -> list[tuple[int, int]]:
    """The places of an action in pixels, as environments compute them (`environments.desktop.sandbox`)."""
    assert action is not None
    fields = action.model_dump()
    pairs = [(fields[f"{end}x"], fields[f"{end}y"]) for end in ("", "to_") if f"{end}x" in fields]
    return [(min(int(x * screen[0]), screen[0] - 1), min(int(y * screen[1]), screen[1] - 1)) for x, y in pairs]


@pytest.mark.parametrize(
    ("template", "call", "screen", "places"),
    [
        ("computer", "Click(box=(447, 81))", DESKTOP, [(859, 87)]),
        ("computer", "Click(box=(447, 81))", PHONE, [(483, 194)]),
        ("computer", "Click(box=(999, 999))", DESKTOP, [(1919, 1079)]),
        ("computer", "Click(box=(999, 999))", PHONE, [(1079, 2399)]),
        ("mobile", "Click(point=(447, 81))", DESKTOP, [(858, 87)]),
        ("mobile", "Click(point=(447, 81))", PHONE, [(482, 194)]),
        ("mobile", "Click(box=(447, 81))", PHONE, [(482, 194)]),
        ("mobile", "Click(point=(999, 999))", DESKTOP, [(1918, 1078)]),
        ("mobile", "Click(point=(999, 999))", PHONE, [(1078, 2397)]),
        ("browser", "Click(point=(447, 81))", (1280, 720), [(572, 58)]),
        ("browser", "Click(point=(447, 81))", DESKTOP, [(858, 87)]),
        ("mobile", "Drag(start=(500, 800), end=(500, 200))", PHONE, [(540, 1920), (540, 480)]),
        ("mobile", "Swipe(start=(500, 800), end=(500, 200))", PHONE, [(540, 1920), (540, 480)]),
        ("computer", "Drag(end=(800, 300), start=(200, 300))", DESKTOP, [(384, 324), (1537, 324)]),
    ],
)
def test_places_are_those_of_its_own_readers(
    template: str, call: str, screen: Size, places: list[tuple[int, int]]
) -> None:
    found = read(template, call, screen)
    assert pixels(found.first, screen) == places and not (*found.actions, *found.dropped)[1:]
    assert found.thought == "I see." and found.action_text == f"<action>{call}</action>" and not found.unused


@pytest.mark.slow
@pytest.mark.parametrize("side", [720, 768, 1024, 1080, 1280, 1920, 2400])
def test_every_coordinate_is_the_pixel_of_its_own_reader_and_a_browsers_is_at_most_the_next(side: int) -> None:
    """`normalized_point`, `to_pixel` and `point`; the last rounds, and an environment of ours cuts."""
    for value in range(1000):
        ours = pixels(read("computer", f"Click(box=({value}, {value}))", (side, side)).first, (side, side))[0][0]
        assert ours == max(0, min(side - 1, int(value * side / 999)))
        thousandth = pixels(read("mobile", f"Click(point=({value}, {value}))").first, (side, side))[0][0]
        assert thousandth == int(value / 1000 * side)
        assert 0 <= min(side - 1, round(value / 1000 * side)) - thousandth <= 1


def test_a_sequence_is_one_call_of_several_actions() -> None:
    call = 'Sequence(actions=[Click(box=(500, 500)), Type(content="a\\n"), Finished(content="ok")])'
    found = read("computer", call)
    assert pixels(found.first, DESKTOP) == [(960, 540)] and len(found.actions) == 3
    assert (*found.actions, *found.dropped)[1:] == (act.Type(content="a\n"), act.Finished(content="ok"))


@pytest.mark.parametrize(
    ("template", "call", "problem"),
    [
        ("computer", "Sequence(actions=[Sequence(actions=[Wait(), Wait()]), Wait()])", "Sequence within a Sequence"),
        ("computer", "Click(box=[5, 5])", "no box of Click"),
        ("computer", "Click((5, 5))", "without a name"),
        ("computer", "Sequence(actions=[Finished(), Wait()])", "goes on after"),
        ("computer", "Sequence(actions=[CallUser(), Wait()])", "goes on after"),
        ("computer", "Sequence(actions=[Wait()])", "2 to 32 calls"),
        ("computer", f"Sequence(actions=[{', '.join(['Wait()'] * 33)}])", "2 to 32 calls"),
        ("computer", "Sequence(actions=(Wait(), Wait()))", "2 to 32 calls"),
        ("computer", "Sequence(actions=[Wait(), 3])", "no call of a function"),
        ("computer", "Click(box=(1000, 1))", "no box of Click"),
        ("computer", "Click(box=(1, 2, 3, 4))", "no box of Click"),
        ("computer", "Click(box=(True, 2))", "no box of Click"),
        ("computer", "Click(point=(1, 2))", "no argument 'point'"),
        ("computer", "Click(box=(1, 2), box=(3, 4))", "'box' twice"),
        ("computer", "Click(**{'box': (1, 2)})", "without a name"),
        ("computer", "Click(box=(x, 2))", "no literal"),
        ("computer", "click(box=(1, 2))", "no action for 'click'"),
        ("computer", "os.system(content='a')", "no call of a function"),
        ("computer", "Click(box=(1, 2)); Wait()", "no call"),
        ("computer", "Drag(start=(1, 2))", "Drag without its end"),
        ("computer", "Swipe(amount=1.5, axis='vertical')", "1.5 is no amount"),
        ("computer", "Swipe(amount=4097, axis='vertical')", "4097 is no amount"),
        ("computer", "Swipe(amount=5, axis='up')", "up is no axis"),
        ("computer", "Hotkey(keys='ctrl')", "ctrl is no keys"),
        ("computer", "Hotkey(keys=['ctrl', ' '])", "no keys"),
        ("computer", "Hotkey(keys=['z'], repeat=0)", "0 is no repeat"),
        ("computer", "Type(content=5)", "5 is no content"),
        ("mobile", "Click(point=(1000, 5))", "outside of the screen"),
        ("mobile", "Click(point=(-1, 5))", "outside of the screen"),
        ("mobile", "Click(point=(x, 5))", "no literal"),
        ("mobile", "Click()", "Click without a place"),
        ("browser", "Click(point=(1000, 5))", "outside of the screen"),
        ("browser", "Click(point=(1, 2, 3, 4))", "no place of Click"),
        ("browser", "Click((1, 2))", "without a name"),
        ("browser", "Scroll(point=(1, 2), direction='in')", "direction"),
    ],
)
def test_a_call_that_its_own_reader_refuses_is_refused(template: str, call: str, problem: str) -> None:
    found = read(template, call)
    assert found.first is None and problem in (found.error or "") and found.thought == "I see."


@pytest.mark.parametrize(
    ("template", "call", "named"),
    [
        ("computer", "Hotkey(keys=['a', 'b', 'c', 'd'])", "4 keys at once"),
        ("mobile", "Hover(point=(5, 5))", "Hover"),
        ("browser", "GetUrl()", "GetUrl"),
        ("browser", "SelectOption(index=3)", "SelectOption"),
        ("mobile", "GetScreenshot()", "GetScreenshot"),
    ],
)
def test_a_call_that_is_no_action_of_ours_is_refused_by_its_name(template: str, call: str, named: str) -> None:
    found = read(template, call)
    assert not (*found.actions, *found.dropped) and named in (found.error or "")


@pytest.mark.parametrize(
    ("template", "call", "actions"),
    [
        ("computer", "Hotkey(keys=['ctrl', 'c'], repeat=1)", [act.Hotkey(key="ctrl c")]),
        ("computer", "Hotkey(keys=['ctrl', 'z'], repeat=3)", [act.Hotkey(key="ctrl z")] * 3),
        ("computer", "Hotkey(keys=['down'], repeat=5)", [act.Hotkey(key="down")] * 5),
        ("computer", "Type(content='query\\n')", [act.Type(content="query\n")]),
        ("computer", "Type(content='a\nb')", [act.Type(content="a\nb")]),
        ("computer", "Type(content='</action>')", [act.Type(content="</action>")]),
        ("computer", "KeyDown(keys=['shift'])", [act.Press(key="shift")]),
        ("computer", "KeyUp(keys=['ctrl', 'shift'])", [act.Release(key="ctrl"), act.Release(key="shift")]),
        ("computer", "Wait()", [act.Wait()]),
        ("computer", "Finished()", [act.Finished()]),
        ("browser", "PressBack()", [act.NavigateBack()]),
        ("browser", "press_back()", [act.NavigateBack()]),
        ("browser", "PressHome()", [act.Hotkey(key="home")]),
        ("browser", "PressEnter()", [act.Hotkey(key="enter")]),
        ("browser", "Hotkey(keys=('ctrl', 'tab'))", [act.Hotkey(key="ctrl tab")]),
        ("browser", "Hotkey(keys='escape')", [act.Hotkey(key="escape")]),
        ("browser", "Launch(url='https://example.com')", [act.Navigate(content="https://example.com")]),
        ("browser", "Scroll()", [act.Scroll(direction="down")]),
        ("browser", "Scroll(point=[100, 200], direction='up')", [act.Scroll(x=0.1, y=0.2, direction="up")]),
        ("computer", "TripleClick(box=(0, 999))", [act.TripleClick(x=0, y=1)]),
        ("computer", "MiddleClick(box=(0, 999))", [act.MiddleSingle(x=0, y=1)]),
        ("computer", "Hover(box=(0, 999))", [act.Move(x=0, y=1)]),
        ("computer", "MouseDown(box=(0, 999))", [act.MouseDown(x=0, y=1)]),
        ("computer", "MouseDown()", [act.MouseDown()]),
        ("computer", "MouseUp(box=(0, 999))", [act.MouseUp(x=0, y=1)]),
        ("computer", "MouseUp()", [act.MouseUp()]),
        ("computer", "Click()", [act.MouseDown(), act.MouseUp()]),
        ("computer", "DoubleClick()", [act.LeftDouble()]),
        ("computer", "Sequence(actions=[Wait(), TripleClick()])", [act.Wait(), act.TripleClick()]),
        ("computer", "Sequence(actions=[Hover(box=(0, 999)), TripleClick()])", [act.TripleClick(x=0, y=1)]),
        ("computer", "RightClick()", [act.MouseDown(button="right"), act.MouseUp(button="right")]),
        ("computer", "MiddleClick()", [act.MouseDown(button="middle"), act.MouseUp(button="middle")]),
        ("computer", "Drag(end=(0, 999))", [act.MouseDown(), act.MouseUp(x=0, y=1)]),
        ("computer", "Sequence(actions=[Hover(box=(0, 999)), Click()])", [act.Click(x=0, y=1)]),
        (
            "computer",
            "Sequence(actions=[Hover(box=(0, 0)), Drag(end=(0, 999))])",
            [act.Drag(x=0, y=0, to_x=0, to_y=1)],
        ),
        (
            "computer",
            "Sequence(actions=[Hover(box=(0, 999)), Type(content='a')])",
            [act.Move(x=0, y=1), act.Type(content="a")],
        ),
        (
            "computer",
            "Sequence(actions=[MouseDown(box=(0, 0)), Hover(box=(999, 0)), Hover(box=(0, 999)), MouseUp()])",
            [act.MouseDown(x=0, y=0), act.Move(x=1, y=0), act.Move(x=0, y=1), act.MouseUp()],
        ),
        ("computer", "CallUser(content='Which one?')", [act.CallUser(content="Which one?")]),
        ("browser", "CallUser(content='Which one?')", [act.CallUser(content="Which one?")]),
        ("browser", "Hover(point=(500, 250))", [act.Move(x=0.5, y=0.25)]),
        ("browser", "TakeNote(content='42')", [act.Note(content="42")]),
        ("browser", "take_note()", [act.Note(content="")]),
        ("browser", "LongPress(point=(500, 250))", [act.LongPress(x=0.5, y=0.25, seconds=5)]),
        ("mobile", "LongPress(point=(500, 250))", [act.LongPress(x=0.5, y=0.25)]),
        ("browser", "LongPress(point=(500, 250), duration=3)", [act.LongPress(x=0.5, y=0.25, seconds=3)]),
        ("mobile", "PressRecent()", [act.PressRecent()]),
        ("mobile", "Wait(seconds=2)", [act.Wait(seconds=2)]),
        ("mobile", "Answer(content='42')", [act.Finished(content="42")]),
        ("mobile", "PressBack()", [act.PressBack()]),
        ("mobile", "Type(content='(a|b)')", [act.Type(content="(a|b)")]),
    ],
)
def test_calls_are_the_actions_that_the_prompt_describes(template: str, call: str, actions: list[Action]) -> None:
    found = read(template, call)
    assert [*found.actions, *found.dropped] == actions and len(found.actions) == len(actions), found.error
    assert not found.unused


@pytest.mark.parametrize(
    ("template", "call", "unused"),
    [
        ("computer", "Swipe(amount=-5, axis='vertical')", ("amount=-5",)),
        (
            "computer",
            "Sequence(actions=[Wait(), Hover(box=(1, 2)), Swipe(amount=3, axis='horizontal')])",
            ("amount=3",),
        ),
        ("browser", "LongPress(point=(5, 5), duration=20)", ("duration=20",)),
        ("mobile", "Wait(seconds=200)", ("seconds=200",)),
    ],
)
def test_an_argument_without_a_field_is_reported(template: str, call: str, unused: tuple[str, ...]) -> None:
    found = read(template, call)
    assert found.first is not None and found.unused == unused


def test_a_pointer_lasts_for_one_reply() -> None:
    dragged = read("computer", "Sequence(actions=[MouseDown(box=(0, 0)), Hover(box=(999, 0)), MouseUp()])")
    assert dragged.first == act.Drag(x=0, y=0, to_x=1, to_y=0)
    scrolled = read("computer", "Sequence(actions=[Hover(box=(999, 0)), Swipe(amount=1, axis='horizontal')])")
    assert scrolled.first == act.Scroll(x=1, y=0, direction="right")
    assert read("computer", "Swipe(amount=1, axis='vertical')").first == act.Scroll(direction="up")


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("<action>Wait()", "without its end"),
        ("Wait()</action>", "without its begin"),
        ("<action>Wait()</action>\n<action>Wait()</action>", "more than one"),
        ("<action>Type(content='</think>')</action><action>Wait()</action>", "more than one"),
        ("I wait for it.", "no call"),
    ],
)
def test_a_reply_has_one_block_that_is_closed(reply: str, problem: str) -> None:
    found = family("computer").read(Completion(f"<think>I see.</think>\n{reply}"), DESKTOP)
    assert found.first is None and problem in (found.error or "")


def test_a_reply_without_tags_is_the_call_and_drafts_in_thinking_are_not_performed() -> None:
    computer = family("computer")
    assert computer.read(Completion("Wait()"), DESKTOP).first == act.Wait()
    draft = "I could <action>Finished()</action>.\n</think>\n\n<ACTION>\nWait()\n</ACTION>"
    found = computer.read(Completion(draft), DESKTOP)
    assert found.first == act.Wait() and found.thought == "I could <action>Finished()</action>."
    behind = computer.read(Completion("<action>Wait()</action> Then I click."), DESKTOP)
    assert behind.first == act.Wait() and behind.unused == ("text behind the action=Then I click.",)


EXAMPLE = [
    ("LaunchApp(app='酷我音乐')", act.OpenApp(app_name="酷我音乐"), []),
    ("Click(point=(897, 937))", None, [(968, 2213)]),
    ("Click(point=(908, 77))", None, [(980, 181)]),
    ("Click(point=(382, 176))", None, [(412, 415)]),
    ("Click(point=(666, 76))", None, [(719, 179)]),
    ("Click(point=(851, 152))", None, [(919, 359)]),
    ("Finished(content='已打开酷我音乐。')", act.Finished(content="已打开酷我音乐。"), []),
]


@pytest.mark.parametrize(("call", "action", "places"), EXAMPLE)
def test_its_published_example_of_a_phone(call: str, action: Action | None, places: list[tuple[int, int]]) -> None:
    """models/mobile/examples/example_output.json; its screens are 1080 x 2362."""
    found = read("mobile", call, (1080, 2362))
    assert pixels(found.first, (1080, 2362)) == places and (action is None or found.first == action)
    reply = family("mobile").reply("I see.", [found.first or act.Wait()], (1080, 2362))
    assert reply == f"I see.\n</think>\n\n<action>{call}</action>"  # behind the `<think>` of the chat template


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("[500,300]", act.Click(x=0.5, y=0.3)),
        ("[1000, 0]", act.Click(x=1, y=0)),
        ("[100,200,300,400]", act.Click(x=0.2, y=0.3)),
        ("[100, 200], [300, 400]", act.Click(x=0.2, y=0.3)),
        ("[-1,-1]", act.CallUser()),
        ("[1200,300]", None),
        ("There is none.", None),
    ],
)
def test_grounding_is_a_point_or_no_such_element(reply: str, action: Action | None) -> None:
    found = family("grounding").read(Completion(reply), DESKTOP)
    assert found.first == action and (found.error is None) == (action is not None)


def test_grounding_shows_the_current_screen_and_an_instruction_without_its_full_stop() -> None:
    """`_build_user_text`, `_build_messages`."""
    context = Context("Press OK.", (PastStep("", "[1,2]", seen(1)),), seen(9), 0)
    (one,) = family("grounding").messages(context)
    assert [part["type"] for part in one["content"]] == ["image", "text"]
    assert "following instruction: \nPress OK. \n\nThe output" in one["content"][1]["text"]
    two = family("grounding", 2).messages(context)
    assert [(turn["role"], len(turn["content"])) for turn in two] == [("user", 2), ("assistant", 1), ("user", 1)]


def seen(number: int) -> Observation:
    return Observation(b"", 1000 + number, 1000, "")


WAITS = tuple(PastStep(f"t{at}", "<action>Wait()</action>", seen(at)) for at in range(4))


def shown(template: str, images: int, turns: tuple[PastStep, ...] = WAITS) -> list[tuple[str, str]]:
    """Role and content of each turn after the prompt, a screen as its width."""
    of = family(template, images)
    chat = of.messages(Context("Do it.", turns, seen(9), 0))
    assert chat[0]["role"] == "system" and chat[0]["content"][0]["text"].rstrip().endswith("### User Task\nDo it.")
    parts = [[f"<{p['observation'].width}>" if p["type"] == "image" else p["text"] for p in m["content"]] for m in chat]
    return [(one["role"], "".join(part)) for one, part in zip(chat[1:], parts[1:], strict=True)]


def test_a_desktop_and_a_phone_see_all_replies_and_the_last_screens() -> None:
    """`build_messages`: a user turn whose screen is left out is empty."""
    for template, past in (("computer", "History Screenshot:\n"), ("mobile", "History Screenshot:")):
        turns = shown(template, 3)
        users = [text for role, text in turns if role == "user"]
        assert users == ["", "", f"{past}<1002>", f"{past}<1003>", "Current Screenshot:\n<1009>"]
        replies = [text for role, text in turns if role == "assistant"]
        assert replies == [f"<think>t{at}</think>\n<action>Wait()</action>" for at in range(4)]
    assert [text for role, text in shown("mobile", 1) if role == "user"][:4] == [""] * 4


def test_a_browser_sees_the_last_two_turns() -> None:
    """`run`: a deque of two turns, and screens without labels."""
    turns = shown("browser", 3)
    assert [text for role, text in turns if role == "user"] == ["<1002>", "<1003>", "<1009>"]
    assert [text[7:9] for role, text in turns if role == "assistant"] == ["t2", "t3"]
    assert [text for role, text in shown("browser", 1) if role == "user"] == ["", "", "<1009>"]


def test_a_browser_is_told_why_its_last_action_failed() -> None:
    """`run`: the text before the next screen, and before that screen while its turn is shown."""
    call = "<action>Click(point=(5, 5))</action>"
    turns = [PastStep("Try.", call, seen(0), "the page is closed"), *(PastStep("", call, seen(at)) for at in (1, 2))]
    failed = (
        f"Previous action execution failed.\nAction: <think>Try.</think>\n{call}\nError: the page is closed\n"
        "The screenshot and failed action were preserved. Inspect the current page and retry or choose another action."
    )
    for count, users in ((1, ["", f"{failed}9"]), (2, ["", failed, "9"]), (3, [failed, "", "9"])):
        chat = family("browser", 1).messages(Context("Do it.", (*turns[:count],), seen(9), 0))
        parts = [one["content"] for one in chat if one["role"] == "user"]
        texts = ["".join(part.get("text", "9") for part in one) for one in parts]
        assert texts == users, count


def test_a_browser_sees_all_notes_before_each_screen() -> None:
    """`make_user`: the notes of all earlier steps, also of those that are not shown."""
    call = {at: f"<action>TakeNote(content='n{at}')</action>" for at in range(3)}
    blank = "<action>take_note(content=' ')</action>"
    replies = (call[0], "<action>Wait()</action>", call[1], blank, call[2])
    turns = tuple(PastStep("", one, seen(at)) for at, one in enumerate(replies))
    users = [text for role, text in shown("browser", 1, turns) if role == "user"]
    notes = [
        "Notes from earlier steps:\n- n0",
        *(f"Notes from earlier steps:\n- n0\n- n1{more}" for more in ("", "\n- n2")),
    ]
    assert users == [notes[1], notes[1], f"{notes[2]}<1009>"]
    assert [text for role, text in shown("browser", 1, turns[:1]) if role == "user"] == ["", f"{notes[0]}<1009>"]


def test_limits_of_replies_are_those_of_each_harness() -> None:
    limits = {one: UiVenus2Family.reply_tokens(one) for one in UiVenus2Family.templates}
    assert limits == {"computer": 4096, "browser": 4096, "mobile": 16_384, "grounding": 1024}
    assert reply_limit(PolicyConfig(max_new_tokens=7)) == 7


def test_a_scroll_of_a_desktop_moves_the_pointer_first_and_a_phone_has_none() -> None:
    """`Swipe` scrolls at the pointer."""
    written = family("computer").write(act.Scroll(x=0.5, y=0.25, direction="left"), DESKTOP)
    assert written == "<action>Sequence(actions=[Hover(box=(500, 250)), Swipe(amount=-5, axis='horizontal')])</action>"
    assert family("computer").write(act.Click(x=1, y=1), DESKTOP) == "<action>Click(box=(999, 999))</action>"
    assert family("mobile").write(act.Click(x=1, y=1), PHONE) == "<action>Click(point=(999, 999))</action>"
    assert family("browser").write(act.Hotkey(key="enter"), DESKTOP) == "<action>PressEnter()</action>"
