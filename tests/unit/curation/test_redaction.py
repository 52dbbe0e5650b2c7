"""What leaves the house of a trajectory: neither a secret in a text nor the pixels that show it."""

import io

import pytest
from PIL import Image

from curation.converters.exchanged import (
    About,
    Correction,
    Exchanged,
    ExchangedStep,
    Picture,
    StepAbout,
    StepAssessment,
)
from curation.redaction import Redactor, painted, typed
from schemas.action import Click, Note, Type, UseTool, to_json
from schemas.observation import Element

CARD = "4111 1111 1111 1111"
MAIL = "ada@example.org"


def picture(grey: int, size: int = 100) -> Picture:
    made = io.BytesIO()
    Image.new("RGB", (size, size), (grey, grey, grey)).save(made, "PNG")
    return Picture(made.getvalue(), size, size)


FORM = [
    Element(f"Card {CARD}", "text", (0.1, 0.1, 0.5, 0.2), False),
    Element("Password", "password field", (0.1, 0.4, 0.5, 0.5), True),
    Element("Search", "text field", (0.1, 0.6, 0.5, 0.7), True),
    Element("fine", "text", (0.1, 0.8, 0.5, 0.9), False),
]


def login(screen: Picture, after: Picture | None = None) -> Exchanged:
    steps = (
        ExchangedStep(screen, "I click it", (Click(x=0.2, y=0.45),)),
        ExchangedStep(
            screen,
            "I type hunter22 there",
            (Type(content="hunter22\n"),),
            found=StepAssessment(None, None, f"to {MAIL}"),
        ),
        ExchangedStep(screen, "", (Click(x=0.2, y=0.65),)),
        ExchangedStep(screen, "", (Type(content="weather"),), error="hunter22 is no word", extra={"verl": [MAIL, 1]}),
        ExchangedStep(screen, text=f"Action: mail({MAIL})", about=StepAbout(extra={"x": {"y": MAIL}})),
    )
    about = About(trajectory_id="7b1f0c", failure_reason=f"no answer from {MAIL}", extra={"trl": MAIL})
    return Exchanged("one", f"Log in as {MAIL}", steps, after=after, about=about, extra={"atif": {"notes": [MAIL]}})


def test_nothing_that_was_found_is_left_in_any_text_and_what_is_typed_elsewhere_stays() -> None:
    redactor, screen = Redactor(), picture(200)
    left = redactor.record(login(screen), {screen.sha256: FORM})
    assert not [secret for secret in (MAIL, "hunter22", CARD) if secret in repr(left)]
    assert left.instruction == "Log in as [redacted e-mail]" and left.about.trajectory_id == "7b1f0c"
    assert [one.action.content for one in left.steps if isinstance(one.action, Type)] == [
        "[redacted password]\n",
        "weather",
    ]
    assert left.steps[0].action == Click(x=0.2, y=0.45)
    assert redactor.numbers()["texts"] == {"e-mail": 8, "password": 3}


def test_the_boxes_that_show_it_are_painted_over_and_nothing_else() -> None:
    redactor, screen = Redactor(), picture(200)
    shown = redactor.record(login(screen), {screen.sha256: FORM}).steps[0].screen
    pixels = Image.open(io.BytesIO(shown.png))
    assert pixels.size == (100, 100)
    assert {pixels.getpixel((x, y)) for x in range(10, 51) for y in range(10, 21)} == {(0, 0, 0)}
    assert {pixels.getpixel((x, y)) for x in range(100) for y in range(25, 100)} == {(200, 200, 200)}
    assert (redactor.regions, redactor.painted, redactor.unread) == (1, {screen.sha256}, set())
    assert shown.sha256 != screen.sha256


def test_a_password_that_a_page_shows_in_its_field_is_known_without_a_click() -> None:
    screen = picture(10)
    held = [Element("PIN", "password field", (0, 0, 1, 1), True, "s3cretPin")]
    step = ExchangedStep(screen, "the PIN is s3cretPin now", (Type(content="s3cretPin"),))
    left = Redactor().record(Exchanged("one", "Pay", (step,)), {screen.sha256: held})
    assert "s3cretPin" not in repr(left)


def test_what_a_person_would_have_typed_into_a_password_field_is_taken_out_as_well() -> None:
    redactor, screen = Redactor(), picture(200)
    given = Correction(action=to_json(Type(content="n3wSecret!")), thought=f"n3wSecret! is of {MAIL}")
    about = StepAbout(correction=given)
    steps = (
        ExchangedStep(screen, "", (Click(x=0.2, y=0.45),)),
        ExchangedStep(screen, "", (Type(content="o"),), about=about),
    )
    left = redactor.record(Exchanged("one", "Log in", steps), {screen.sha256: FORM})
    assert "n3wSecret" not in repr(left) and MAIL not in repr(left)


@pytest.mark.parametrize("known", [True, False])
def test_a_password_among_several_actions_of_a_reply_is_taken_out(known: bool) -> None:
    redactor, screen, between = Redactor(), picture(200), (picture(90), picture(91), picture(92))
    actions = (Click(x=0.2, y=0.65), Click(x=0.2, y=0.45), Type(content="hunter22"), Type(content=MAIL))
    step = ExchangedStep(screen, "hunter22 it is", actions=actions, frames=between, text="type(hunter22)")
    screens = {screen.sha256: FORM} | ({one.sha256: FORM for one in between} if known else {})
    (left,) = redactor.record(Exchanged("one", "Log in", (step,)), screens).steps
    assert not [secret for secret in (MAIL, "hunter22") if secret in repr(left)] and len(left.actions) == 4
    assert (len(left.frames), redactor.left_out) == ((3, 0) if known else (0, 3))
    assert not {one.sha256 for one in left.frames} & {one.sha256 for one in between}


def test_what_nobody_knows_the_text_of_is_counted_or_left_out() -> None:
    redactor, screen, after = Redactor(), picture(200), picture(90)
    left = redactor.record(login(screen, after), {})
    assert left.steps[0].screen == screen and left.after is None
    assert (redactor.unread, redactor.left_out) == ({screen.sha256}, 1)
    known = Redactor().record(login(screen, after), {screen.sha256: [], after.sha256: []})
    assert known.after == after


def test_a_short_password_is_taken_out_of_what_was_typed_and_not_of_other_words() -> None:
    screen = picture(200)
    steps = (ExchangedStep(screen, "", (Click(x=0.2, y=0.45),)), ExchangedStep(screen, "a cat", (Type(content="cat"),)))
    left = Redactor().record(Exchanged("one", "concatenate", steps), {screen.sha256: FORM})
    assert left.instruction == "concatenate" and left.steps[1].thought == "a cat"
    assert left.steps[1].action == Type(content="[redacted password]")


def test_secrets_in_notes_and_in_a_tools_arguments_are_taken_out() -> None:
    screen, number = picture(200), int(CARD.replace(" ", ""))
    call = UseTool(name="pay", arguments={"id": MAIL, "cards": [{"number": number, "cvc": 7}], "ok": True})
    typing = ExchangedStep(screen, "", (Type(content="cat"),)), ExchangedStep(screen, "", (Click(x=0.2, y=0.45),))
    steps = (
        typing[1],
        typing[0],
        ExchangedStep(screen, "", (call,)),
        ExchangedStep(screen, "", (Note(content=f"cat {CARD}"),)),
    )
    more = ExchangedStep(screen, "", (UseTool(name="log_in", arguments={"word": "cat", "user": "concat"}),))
    left = Redactor().record(Exchanged("one", "Pay", (*steps, more)), {screen.sha256: FORM})
    arguments = {"id": "[redacted e-mail]", "cards": [{"number": "[redacted card]", "cvc": 7}], "ok": True}
    assert left.steps[2].action == UseTool(name="pay", arguments=arguments)
    assert left.steps[3].action == Note(content="cat [redacted card]")
    assert left.steps[4].action == UseTool(name="log_in", arguments={"word": "[redacted password]", "user": "concat"})


def test_coordinates_ids_and_times_stay_and_what_is_typed_does_not() -> None:
    screen, card = picture(200), "4111 1111 1111 1111"
    reply = f"Action: click(start_box='<bbox>{card}</bbox>')\nAction: type(content='{card}')"
    kept = {"messages": [{"content": reply}], "frameId": "4111111111111111", "started_at": ["4111111111111111"]}
    steps = (ExchangedStep(screen, f"<|box_start|>({card})<|box_end|>", (Type(content=f"<point>{card}</point>"),)),)
    left = Redactor().record(Exchanged("4111111111111111", "Pay", steps, extra={"ui-tars": kept}), {})
    assert left.extra["ui-tars"] == {
        **kept,
        "messages": [{"content": reply.replace(f"content='{card}", "content='[redacted card]")}],
    }
    assert (left.name, left.steps[0].thought) == ("4111111111111111", f"<|box_start|>({card})<|box_end|>")
    assert left.steps[0].action == Type(content="<point>[redacted card]</point>")
    assert Redactor().value({"id": MAIL, "note": "4111111111111111"}, typed([], {})) == {
        "id": "[redacted e-mail]",
        "note": "[redacted card]",
    }


def test_a_field_that_is_called_a_password_holds_one() -> None:
    held = {
        "password": "hunter two",
        "apiKey": "0a1b2c3d4e5f",
        "token": "click",
        "dbPassword": "******",
        "maxTokens": "9",
    }
    left = Redactor().value({"form": held}, typed([], {}))["form"]
    assert left == held | {"password": "[redacted password]", "apiKey": "[redacted password]"}


def test_a_password_that_is_a_short_word_leaves_the_word_in_the_trajectory() -> None:
    screen = picture(200)
    kept = {"messages": [{"content": "I open it\nAction: type(content='open\\n')"}], "value": "open"}
    steps = (
        ExchangedStep(screen, "", (Click(x=0.2, y=0.45),)),
        ExchangedStep(screen, "I open it", (Type(content="open\n"),), extra={"ui-tars": kept}),
    )
    left = Redactor().record(Exchanged("one", "Please open the door", steps), {screen.sha256: FORM})
    assert (left.instruction, left.steps[1].thought) == ("Please open the door", "I open it")
    assert left.steps[1].action == Type(content="[redacted password]\n")
    assert left.steps[1].extra["ui-tars"] == {
        "messages": [{"content": "I open it\nAction: type(content='[redacted password]\\n')"}],
        "value": "[redacted password]",
    }


@pytest.mark.parametrize("box", [(0.0, 0.0, 1.0, 1.0), (-5.0, 0.5, 9.0, 0.6), (0.5, 0.5, 0.5, 0.5)])
def test_a_box_at_or_beyond_the_edge_is_painted_as_far_as_there_is_a_picture(
    box: tuple[float, float, float, float],
) -> None:
    assert Image.open(io.BytesIO(painted(picture(200), [box]).png)).size == (100, 100)
