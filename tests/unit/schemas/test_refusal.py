"""The text of a refused action is read back, whatever the environment's reason holds."""

import pytest

from schemas.refusal import Refusal

REASONS = (
    "no field has the focus",
    "a dialog; 1 not performed",
    "action 2 of 3: no key",
    "; 2 not performed",
    "",
    "a\nb",
)


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize(("number", "count"), [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (12, 32)])
def test_the_text_is_read_back(reason: str, number: int, count: int) -> None:
    refusal = Refusal(reason, number, count)
    assert Refusal.of(refusal.text, count) == refusal
