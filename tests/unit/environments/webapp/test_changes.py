"""What changed between two states, and whether it is what was asked for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from environments.webapp.changes import ABSENT, Edit, Match, Want, changes, edited, score

MAIL = {
    "emails": [
        {"id": "a", "read": False, "labels": ["x"], "to": [{"email": "i@b.example"}]},
        {"id": "b", "read": True},
    ],
    "chat": {"general": [{"messageId": "m1", "content": "Hello"}]},
    "open": "a",
}


def scored(edits: list[dict[str, Any]], wants: list[dict[str, Any]], allows: tuple[str, ...] = ()) -> float:
    after = edited(MAIL, [Edit.model_validate(one) for one in edits])
    return score(changes(MAIL, after, ("emails", "chat")), [Want.model_validate(one) for one in wants], allows)


READ = {"at": "emails/a/read", "to": True}


def test_what_is_asked_for_and_nothing_else_scores_one():
    assert scored([READ], [READ]) == 1
    assert scored([], [READ]) == 0
    assert scored([READ, {"at": "emails/b/read", "to": False}], [READ]) == 0


def test_what_is_allowed_may_change_as_well_and_so_may_what_nobody_watches():
    other = {"at": "emails/b/read", "to": False}
    assert scored([READ, other], [READ], ("emails/*/read",)) == 1
    assert scored([READ, {"at": "open", "to": "b"}], [READ]) == 1
    assert scored([other], [READ], ("emails/*/read",)) == 0


def test_true_is_not_one_and_an_emptied_value_is_not_an_absent_one():
    assert scored([{"at": "emails/a/read", "to": 1}], [READ]) == 0
    gone = {"at": "emails/b", "gone": True}
    assert scored([gone], [gone]) == 1
    assert scored([{"at": "emails/b/read", "to": None}], [gone]) == 0


def test_an_added_item_is_known_by_its_fields_and_one_is_enough_for_one_want_only():
    added = {
        "at": "emails/+",
        "to": {"id": "c", "subject": "Hi", "to": [{"email": "o@b.example"}], "body": "<p>Two\nis fine</p>"},
    }
    want = {
        "at": "emails/+",
        "has": {"subject": "Hi", "to/0/email": "o@b.example", "body": {"contains": ["two is fine"]}},
    }
    assert scored([added], [want]) == 1
    assert scored([added], [want, want]) == 0
    assert scored([added, {"at": "emails/+", "to": {"id": "d", "subject": "Hi"}}], [want]) == 0
    assert scored([{"at": "emails/+", "to": {"id": "c", "subject": "Hi", "to": []}}], [want]) == 0


def test_items_are_known_by_any_field_that_ends_in_id_and_their_order_is_no_change():
    answer = {"at": "chat/general/+", "to": {"messageId": "m2", "content": "Yes"}}
    assert scored([answer], [{"at": "chat/general/+", "has": {"content": "Yes"}}]) == 1
    turned = {**MAIL, "emails": MAIL["emails"][::-1]}
    assert not changes(MAIL, turned, ("emails", "chat"))


def test_lists_of_plain_values_are_leaves():
    assert (
        scored([{"at": "emails/a/labels", "to": ["x", "y"]}], [{"at": "emails/a/labels", "like": {"contains": ["y"]}}])
        == 1
    )


def test_a_text_is_the_same_whatever_its_spaces_but_not_its_case():
    want = {"at": "open", "to": "two  words"}
    for text, holds in (("two words\n", 1.0), ("Two words", 0.0)):
        changed = changes(MAIL, {**MAIL, "open": text}, ("open",))
        assert score(changed, [Want.model_validate(want)], ()) == holds
    assert Match(starts="Two").holds("two  words")


def test_what_says_a_text_says_that_and_no_more_whatever_its_tags_and_spaces():
    says = Match(says="Two is fine, not 3.")
    for same in ("Two is fine, not 3.", "<p>Two  is<br>fine,&nbsp;not 3.</p>\n"):
        assert says.holds(same)
    for other in ("Two is fine, not 3. No.", "It is false that: Two is fine, not 3.", "two is fine, not 3.", "", None):
        assert not says.holds(other)
    assert not Match().holds(ABSENT) and not Match(contains=("a",)).holds(ABSENT) and Match(says="").holds(ABSENT)
    assert Match(says="Regards Bob", besides=("Bob",)).holds("Regards Bob")
    less = Match(says="1 < 2 and 3 > 2")
    assert less.holds("<p>1 &lt; 2 and 3 &gt; 2</p>") and not less.holds("1 &lt; 9 and 0 &gt; 2")
    signed = Match(says="Two is fine.", besides=("-- Demo User",))
    assert signed.holds("<br>-- \nDemo UserTwo is fine.") and signed.holds("Two is fine.")
    assert not signed.holds("-- Demo User It is false that: Two is fine.")
    assert all(Match(says="").holds(nothing) for nothing in ("", "<p></p>", None))


def test_a_length_counts_the_items_of_a_list_and_what_is_not_there_has_none():
    assert all(Match(length=0).holds(nothing) for nothing in ([], None, ""))
    assert not any(Match(length=0).holds(something) for something in ([{}], "i@b.example", {"email": "i@b.example"}))
    assert Match(length=1).holds([{}]) and not Match(length=1).holds([{}, {}])
    assert scored(
        [{"at": "emails/+", "to": {"id": "c"}}], [{"at": "emails/+", "has": {"id": "c", "cc": {"length": 0}}}]
    )
    assert not scored([{"at": "emails/+", "to": {"id": "c"}}], [{"at": "emails/+", "has": {"to": {"length": 1}}}])


@pytest.mark.parametrize(
    "bad", [{"at": "a/b"}, {"at": "a/b", "to": 1, "gone": True}, {"at": "a/+", "to": 1}, {"at": "a/b", "has": {"x": 1}}]
)
def test_a_want_that_says_nothing_or_two_things_is_refused(bad: dict[str, Any]):
    with pytest.raises(ValidationError, match="a/"):
        Want.model_validate(bad)


def test_an_edit_of_what_is_not_there_names_its_path():
    for path in ("emails/zz/read", "nothing/here"):
        with pytest.raises(KeyError, match=path):
            edited(MAIL, [Edit(at=path, to=1)])


VALUES = st.sampled_from([None, True, 1, "x", [], [1], [True], [{"id": 1}], [{"id": 1, "x": 2}], {"x": 1}, {"x": True}])
STATES = st.dictionaries(st.sampled_from("abc"), VALUES)


@given(STATES, STATES)
def test_a_state_differs_from_itself_in_nothing_and_from_another_in_what_is_not_equal(
    one: dict[str, Any], other: dict[str, Any]
):
    assert not changes(one, one, "abc")
    differ = {name for name in "abc" if repr(one.get(name, "absent")) != repr(other.get(name, "absent"))}
    assert {path[0] for path in changes(one, other, "abc")} == differ
    assert {path[0] for path in changes(other, one, "abc")} == differ
    assert score(changes(one, one, "abc"), [Want(at="a", to=1)], ("*",)) == 0
