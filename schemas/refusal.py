"""Define the text of `steps.action_error` for a refused action: its place among the reply's actions, and the reason."""

import re
from dataclasses import dataclass

_TEXT = re.compile(r"action (\d{1,4}) of (\d{1,4}): (.*)", re.DOTALL)


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
    def of(cls, text: str, count: int) -> "Refusal":
        """Reads a text that `text` returned.

        Args:
            text: the text.
            count: number of the reply's actions. The text of a reply with one action is the reason, whatever it holds.
        """
        found = _TEXT.fullmatch(text) if count > 1 else None
        if found is None or int(found[2]) != count:
            return cls(text)
        number = int(found[1])
        left = f"; {count - number} not performed" if number < count else ""
        return cls(found[3].removesuffix(left), number, count)
