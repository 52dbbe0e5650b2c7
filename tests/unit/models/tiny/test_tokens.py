"""The small policy's tokeniser: lossless, coordinates and actions short, names the same wherever they stand."""

from hypothesis import given, settings
from hypothesis import strategies as st

from models.families.dialects import DIALECTS, format_action, format_reply
from models.thoughts import THOUGHTS
from models.tiny.tokens import BINS, GRID, build_tokenizer, coordinate_tokens
from schemas.action import Click

NAMES = ("Tora", "ok", "vivamus", "Kq7")
TEXTS = [f'Enter "{name}" into the text field and press Submit.' for name in NAMES for _ in range(6)] + [
    f'Click on the "{name}" button.' for name in NAMES for _ in range(6)
]
TOKENIZER = build_tokenizer(TEXTS, "box_v1")


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    encoded = text.encode("utf-8", "ignore").decode()
    assert TOKENIZER.decode(TOKENIZER.encode(encoded).ids, skip_special_tokens=False) == encoded


def test_a_reply_is_one_token_for_the_thought_one_for_the_action_and_one_per_coordinate() -> None:
    for dialect in DIALECTS:
        tokenizer = build_tokenizer([], dialect)
        reply = format_reply(THOUGHTS["click"], format_action(Click(x=0.48, y=0.52), dialect, GRID))
        tokens = tokenizer.encode(reply).tokens
        families = coordinate_tokens(dialect)
        places = [token for token in tokens if any(token in family for family in families)]
        assert len(places) == (4 if dialect == "bbox4" else 2)
        assert tokens[0] == f"Thought: {THOUGHTS['click']}\nAction: "
        assert len(tokens) <= len(places) + 3


def test_every_coordinate_of_the_grid_is_a_token_of_its_own() -> None:
    for family in coordinate_tokens("box_v1"):
        ids = [TOKENIZER.token_to_id(token) for token in family]
        assert ids == list(range(ids[0], ids[0] + BINS))


def test_a_name_reads_the_same_in_the_instruction_and_in_what_is_typed() -> None:
    name = TOKENIZER.encode("Tora").tokens
    assert name == ["Tora"]
    for text in (TEXTS[0], "type(content='Tora')", '"Tora"'):
        assert name[0] in TOKENIZER.encode(text).tokens


def test_phrases_between_the_variable_words_are_learnt() -> None:
    assert TOKENIZER.encode(TEXTS[0]).tokens == ['Enter "', "Tora", '" into the text field and press Submit.']


def test_the_same_texts_give_the_same_tokeniser() -> None:
    assert build_tokenizer(TEXTS, "box_v1").to_str() == TOKENIZER.to_str()
