"""The general forms of special tokens, and texts in which no tokenizer reads one.

A judge, a proposer, a thinker, a maker of tasks and a trainer of others have vocabularies that are not known here. So
whatever has a general form is broken with a zero-width space before it goes out, and answers are restored, so that what
a model copies from its prompt (a page's `<b>`, a field's `[null]`) is what stood there.
"""

import re

ZERO_WIDTH = "\u200b"
FORMS = (
    r"<[^\s<>\U000e01ef]{1,80}>",  # <|im_end|>, </s>, <tool_call>
    r"\[/?[A-Za-z_][A-Za-z0-9_]{1,39}\]",  # [INST], [/INST], [gMASK], [control_8]
    "\u25c1[^\\s\u25c1\u25b7\U000e01ef]{1,80}\u25b7",  # Kimi's
)
"""The general forms of tokens."""
_STARTS = re.compile(f"(?={'|'.join(FORMS)}).", re.DOTALL)
_BROKEN = re.compile(rf"(?<=[<\[\u25c1]){ZERO_WIDTH}")


def broken(text: str) -> str:
    """Put a zero-width space behind the first character of everything that may be a token."""
    return _STARTS.sub(lambda found: found[0] + ZERO_WIDTH, text)


def restored(text: str) -> str:
    """Return the text that `broken` broke."""
    return _BROKEN.sub("", text)
