"""Secrets and personal data in a text: what is found, what only looks like it, and how long it takes."""

import random
import time

import pytest

from curation.private import find, without

KEYS = {
    "sk-proj-abcdefghij0123456789": "key",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789": "key",
    "AKIAIOSFODNN7EXAMPLE": "key",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv": "key",
    "xoxb-123456789012-abcdefghijkl": "key",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl": "key",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END": "key",
    "ada.lovelace+x@mail.example.co.uk": "e-mail",
    "4111 1111 1111 1111": "card",
    "5500-0000-0000-0004": "card",
    "378282246310005": "card",
    "GB29 NWBK 6016 1331 9268 19": "account",
    "DE89370400440532013000": "account",
    "+49 (0)30 1234-5678": "phone",
    "(415) 555-2671": "phone",
    "415-555-2671": "phone",
    "123-45-6789": "number of a person",
}


@pytest.mark.parametrize(("secret", "kind"), KEYS.items())
def test_a_secret_is_found_wherever_it_stands_and_the_rest_stays(secret: str, kind: str) -> None:
    for before, after in (("", ""), ("it is ", " THEN go"), ('"', '",'), ("(", ")"), ("x: ", ".\n")):
        text, kinds = without(before + secret + after)
        assert (text, kinds) == (f"{before}[redacted {kind}]{after}", [kind])


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('Enter the username "ada" and the password "h3rl0ck".', 'password "[redacted password]".'),
        ("password: correct-horse", "password: [redacted password]"),
        ("api_key=Zk91AbQx", "api_key=[redacted password]"),
        ("https://ada:s3cret@host/x", "https://ada:[redacted password]@host/x"),
        ("Authorization: Bearer abcdef0123456789", "Bearer [redacted key]"),
    ],
)
def test_what_is_called_a_secret_is_one(text: str, left: str) -> None:
    assert without(text)[0].endswith(left)


@pytest.mark.parametrize(
    "text",
    [
        "Click the password field and press enter. Password Field. The password is required.",
        "4111 1111 1111 1112, 1234567890123, 0000 0000 0000 0000",
        "click(start_box='(512,340)') at 2026-11-23 13:35:20, 0.1234567890123456",
        "GB29 NWBK 6016 1331 9268 18",
        "7b1f0c9e4111111111111111aa",
        "@here, a@b, version 1.2.3.4, 10.0.0.1:8080",
        "Task 415 555 of 2671",
        "[redacted e-mail] [redacted number of a person]",
    ],
)
def test_what_only_looks_like_one_stays(text: str) -> None:
    assert without(text) == (text, [])


def test_a_known_password_is_found_in_any_words() -> None:
    assert without("type h3rl0ck, then h3rl0ck again", frozenset({"h3rl0ck"})) == (
        "type [redacted password], then [redacted password] again",
        ["password", "password"],
    )


def test_what_was_redacted_once_is_not_redacted_again() -> None:
    once, _ = without("; ".join(KEYS))
    assert without(once) == (once, []) and find(once) == []


@pytest.mark.parametrize(
    "unit", ["a", "1", "1 ", "a@", "a.", "-", "AB12", "://a:", "password ", "a@b.co ", "eyJaaaaaaaa.", "+1 ("]
)
def test_a_text_made_to_be_slow_is_not(unit: str) -> None:
    started = time.perf_counter()
    find((unit * 100_000)[:100_000])
    assert time.perf_counter() - started < 3


def test_random_texts_are_redacted_without_loss_of_what_lies_between() -> None:
    draw = random.Random(0)
    secrets = list(KEYS)
    for _ in range(200):
        parts = [
            draw.choice(secrets) if draw.random() < 0.4 else draw.choice(["wörds", "\n", "42", "ok."]) for _ in range(9)
        ]
        text, kinds = without(" | ".join(parts))
        shown = [f"[redacted {KEYS[one]}]" if one in KEYS else one for one in parts]
        assert text == " | ".join(shown) and kinds == [KEYS[one] for one in parts if one in KEYS]
