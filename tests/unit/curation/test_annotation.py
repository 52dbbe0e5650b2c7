"""What of a screen's elements is asked for: only what has one answer."""

from curation.annotation import grounding_targets
from schemas.observation import Element


def element(name: str, kind: str = "button", left: float = 0.1, right: float = 0.2, bottom: float = 0.2) -> Element:
    return Element(name, kind, (left, 0.1, right, bottom), kind != "text")


def asked(*elements: Element) -> list[str]:
    return [f"{one.kind} {one.name}" for one in grounding_targets(elements, 12)]


def test_what_others_stand_in_is_not_asked_for() -> None:
    dialog = element("CloseLorem ipsumCancelOK", "other", 0.0, 0.9, 0.9)
    assert asked(dialog, element("Cancel"), element("OK", left=0.3, right=0.4)) == ["button Cancel", "button OK"]


def test_a_kind_or_a_name_that_stands_for_several_elements_is_not_asked_for() -> None:
    fields = element("", "text field"), element("user", "text field", 0.3, 0.4)
    assert asked(*fields) == ["text field user"] and asked(fields[0]) == ["text field "]
    assert asked(element("Send"), element("SEND", left=0.3, right=0.4), element("x", left=0.5, right=0.6)) == [
        "button x"
    ]
