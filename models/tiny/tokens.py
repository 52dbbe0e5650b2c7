"""Builds the small policy's tokeniser: frequent text is one token, and copied text has the same tokens everywhere.

Fixed pieces of a reply (a templated thought, `click(start_box='`, one coordinate in steps of ten thousandths) are
single tokens. Words and the phrases between the variable words of the instructions are learned from samples: a
phrase ends where the text branches. A name in quotes and the same name in `type(content='...')` are then the same
tokens, which makes copying learnable. Everything else falls back to characters and bytes, so any text can be written.
"""

import re
from collections import Counter
from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE

from models.thoughts import THOUGHTS, reflective_thought

PAD, START, END, IMAGE, UNKNOWN = "<|pad|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|unk|>"
SPECIALS = (PAD, START, END, IMAGE, UNKNOWN)
GRID = 10
"""Thousandths of the screen per coordinate token."""
BINS = 1000 // GRID + 1

_FAMILIES: dict[str, tuple[tuple[str, str], ...]] = {
    "box_v1": (("(", ","), ("", ")")),
    "point": (("<point>", " "), ("", "</point>")),
    "bbox4": (("[", ", "), ("", ", "), ("", "]")),
}
_PIECES = (
    *(
        f"{name}({key}='"
        for name in ("click", "left_double", "right_single", "scroll")
        for key in ("start_box", "point")
    ),
    *("drag(start_box='", "drag(start_point='", "', end_box='", "', end_point='", "type(content='", "hotkey(key='"),
    *(f"', direction='{direction}')" for direction in ("up", "down", "left", "right")),
    *("')", "\\n')", "wait()", "finished()", "\\n", "\\'", '\\"', "\\\\"),
)
_UNIT = re.compile(r"\w+|\s|[^\w\s]")
_CONTEXT = 6
_SEEN = 8
"""Minimum occurrences of a context from which it is known whether the text branches after the context."""


WORDS = 1500
"""Maximum number of learned words, and of learned phrases."""


def coordinate_tokens(dialect: str) -> list[list[str]]:
    """Lists the coordinate tokens of a dialect: groups of `BINS` tokens each, in rising order."""
    return [[f"{before}{GRID * k}{after}" for k in range(BINS)] for before, after in _FAMILIES[dialect]]


def build_tokenizer(texts: Sequence[str], dialect: str, words: int = WORDS, phrases: Sequence[str] = ()) -> Tokenizer:
    """Builds a tokeniser from sample texts; the same texts give the same tokeniser.

    Args:
        texts: instructions, names of elements.
        dialect: dialect of actions.
        words: maximum number of learned words, and of learned phrases.
        phrases: phrases of the policy's thoughts; each is one token.
    """
    characters = [chr(code) for code in range(32, 127)]
    alphabet = [*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)), *characters]
    vocabulary = {token: index for index, token in enumerate(alphabet)}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN, byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in SPECIALS])
    thoughts = [
        f"Thought: {thought}\nAction: "
        for templated in THOUGHTS.values()
        for thought in (templated, reflective_thought(templated))
    ]
    fixed = [*thoughts, "Action: ", *_PIECES, *(token for family in coordinate_tokens(dialect) for token in family)]
    learned, names = learn_pieces(texts, words)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in dict.fromkeys([*fixed, *phrases, *learned])])
    tokenizer.add_tokens([AddedToken(token, normalized=False, single_word=True) for token in names])
    return tokenizer


def learn_pieces(texts: Sequence[str], words: int) -> tuple[list[str], list[str]]:
    """Learns the phrases and the words of sample texts, each list sorted from the most frequent.

    A cut falls between units a and b if b is no likely continuation (p < 1/2) of the longest context that occurs
    `_SEEN` times. A cut also falls there if a is no likely continuation when read backwards.
    """
    documents = [_UNIT.findall(text) for text in texts]
    forward, backward = _counts(documents), _counts([document[::-1] for document in documents])
    segments: Counter[str] = Counter()
    for document in documents:
        start = 0
        for cut in range(1, len(document) + 1):
            if cut == len(document) or not (
                _sure(forward, document[:cut], document[cut])
                and _sure(backward, document[: cut - 1 : -1], document[cut - 1])
            ):
                segments["".join(document[start:cut])] += 1
                start = cut
    seen = Counter(unit for document in documents for unit in document if unit.isalnum() and len(unit) > 1)
    phrases = [text for text, count in segments.most_common() if count >= _SEEN and len(_UNIT.findall(text)) > 1]
    return phrases[:words], [word for word, count in seen.most_common(words) if count > 1]


def _counts(documents: list[list[str]]) -> Counter[tuple[str, ...]]:
    """Counts each run of up to `_CONTEXT` + 1 units; the start of a text counts as a unit."""
    counts: Counter[tuple[str, ...]] = Counter()
    for document in documents:
        padded = ["", *document]
        for end in range(1, len(padded) + 1):
            for length in range(1, min(end, _CONTEXT + 1) + 1):
                counts[tuple(padded[end - length : end])] += 1
    return counts


def _sure(counts: Counter[tuple[str, ...]], before: Sequence[str], unit: str) -> bool:
    padded = ("", *before[-_CONTEXT:]) if len(before) < _CONTEXT else tuple(before[-_CONTEXT:])
    for length in range(len(padded), 0, -1):
        context = padded[-length:]
        if counts[context] >= _SEEN:
            return counts[(*context, unit)] / counts[context] >= 0.5
    return False
