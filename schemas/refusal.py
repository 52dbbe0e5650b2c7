"""Define the text of `steps.action_error` for a refused action: its place among the reply's actions, and the reason."""

import re
from dataclasses import dataclass

_TEXT = re.compile(r"action (\d{1,4}) of (\d{1,4}): (.*?)(?:; \d{1,4} not performed)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The first action of a reply that was not performed; the actions after it were not tried."""

    reason: str
    """Reason that the environment gave."""
    number: int = 1
    """Place of the action in its reply, from 1."""
    count: int = 1
    """Number of the reply's actions."""

    @property
    def text(self) -> str:
        """Returns the reason, with the place among several actions and the number of later ones."""
        if self.count == 1:
            return self.reason
        left = f"; {self.count - self.number} not performed" if self.number < self.count else ""
        return f"action {self.number} of {self.count}: {self.reason}{left}"

    @classmethod
    def of(cls, text: str) -> "Refusal":
        """Reads a text that `text` returned. A text without a place is the reason of a reply's only action."""
        found = _TEXT.fullmatch(text)
        return cls(found[3], int(found[1]), int(found[2])) if found else cls(text)
