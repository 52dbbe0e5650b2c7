"""Several actions a reply: what each family writes and reads, and what a family with one call a reply does."""

import pytest

from models.completion import MAX_ACTIONS, Completion
from models.families.registry import FAMILIES
from schemas import action as act
from schemas.action import Action
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.models.families.test_families import EACH, SCREEN, made, near

CLICK, TYPE, WAIT = act.Click(x=0.25, y=0.5), act.Type(content="Ada\nB"), act.Wait(seconds=2)
DESKTOP: list[Action] = [CLICK, act.Hotkey(key="ctrl a"), act.Press(key="shift"), act.Release(key="shift"), WAIT]
PHONE: list[Action] = [CLICK, TYPE, act.Drag(x=0.5, y=0.75, to_x=0.5, to_y=0.25), WAIT]
SEVERAL = [(name, template) for name, template in EACH if template in FAMILIES.class_of(name).several]
ONE = [(name, template) for name, template in EACH if (name, template) not in SEVERAL]


def all_near(read: tuple[Action, ...], actions: list[Action]) -> bool:
    return len(read) == len(actions) and all(near(one, other) for one, other in zip(read, actions, strict=True))


@pytest.mark.parametrize(("name", "template"), [*SEVERAL, ("ui-venus-2", "computer")])
def test_a_family_reads_all_actions_that_it_writes(name: str, template: str) -> None:
    family = made(name, template)
    actions = PHONE if template == "mobile" else DESKTOP
    kept = list[Action]()
    for action in actions:
        try:
            family.write(action, SCREEN)
            kept.append(action)
        except UsageError:
            continue
    assert len(kept) >= 2
    read = family.read(Completion(family.reply("I do it.", kept, SCREEN)), SCREEN)
    assert all_near(read.actions, kept) and not read.dropped, read


@pytest.mark.parametrize(("name", "template"), ONE)
def test_a_family_with_one_call_refuses_to_write_several(name: str, template: str, sentence: Sentences) -> None:
    if (name, template) == ("ui-venus-2", "computer"):
        return
    with sentence.raises(UsageError, "policy."):
        made(name, template).reply("I do it.", [CLICK, CLICK], SCREEN)


@pytest.mark.parametrize(
    ("name", "template", "actions"),
    [
        ("fara-7b", "computer", [CLICK, TYPE]),
        ("fara-1.5", "computer", [CLICK, act.Hotkey(key="ctrl a"), TYPE]),
        ("step-gui", "mobile", [CLICK, TYPE]),
        ("glm", "mobile", [CLICK, TYPE]),
    ],
)
def test_a_click_before_a_text_is_one_call_where_the_family_has_one(
    name: str, template: str, actions: list[Action]
) -> None:
    family = made(name, template)
    read = family.read(Completion(family.reply("I do it.", actions, SCREEN)), SCREEN)
    assert all_near(read.actions, actions) and not read.dropped


@pytest.mark.parametrize("name", ["mai-ui", "gui-owl-1.5"])
def test_further_calls_of_a_family_with_one_call_are_kept_as_dropped(name: str) -> None:
    family = made(name, "mobile")
    calls = [family.reply("", [one], SCREEN) for one in (CLICK, WAIT)]
    read = family.read(Completion("\n".join(calls)), SCREEN)
    assert [one.type for one in read.actions] == ["click"] and [one.type for one in read.dropped] == ["wait"]


def test_the_number_of_performed_actions_is_limited() -> None:
    family = made("qwen3.5", "computer")
    read = family.read(Completion(family.reply("I do it.", [CLICK] * (MAX_ACTIONS + 3), SCREEN)), SCREEN)
    assert (len(read.actions), len(read.dropped)) == (MAX_ACTIONS, 3)
