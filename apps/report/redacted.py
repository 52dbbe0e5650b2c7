"""Redact the report's trajectories: texts that look like a secret or personal data are removed, since reports are
shared."""

from collections.abc import Sequence
from typing import TypeVar

from curation.converters.exchanged import Picture
from curation.private import Secrets
from curation.redaction import Redactor, typed
from schemas.action import Action, from_json, to_json
from schemas.observation import Element, elements_of
from schemas.tables.reading import ScreenReading
from schemas.tables.screenshot import Screenshot
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake

R = TypeVar("R", Trajectory, Step)
TEXTS = ("instruction", "failure_reason", "thought", "raw_text", "action_error", "unused_arguments")
"""Columns of trajectories and steps with external text."""


class RedactedView:
    """The redacted texts and screenshots of some trajectories.

    Args:
        lake: the lake that holds them.
        steps: their steps, in order.
    """

    def __init__(self, lake: Lake, steps: Sequence[Step]) -> None:
        self._redactor = Redactor()
        self._screens = _screens(lake, steps)
        actions: dict[str, list[tuple[str, Action | None]]] = {}
        for step in steps:
            action = from_json(step.action) if step.action else None
            actions.setdefault(step.trajectory_id, []).append((step.screenshot, action))
        found = (typed(one, self._screens) for one in actions.values())
        self._secrets = Secrets(frozenset(secret for secrets in found for secret in secrets.all))

    def text(self, text: str) -> str:
        """A text, redacted."""
        return self._redactor.text(text, self._secrets)

    def row(self, row: R) -> R:
        """A trajectory or a step, its texts redacted."""
        texts = {key: self.text(text) for key in TEXTS if (text := getattr(row, key, None))}
        if isinstance(row, Step) and row.action:
            texts["action"] = to_json(self._redactor.action(from_json(row.action), self._secrets))
        return row.model_copy(update=texts)

    def png(self, row: Screenshot) -> bytes:
        """A screenshot, painted over at the redacted boxes."""
        picture = Picture(row.png, row.width, row.height)
        return self._redactor.picture(picture, self._screens, self._secrets).png


def _screens(lake: Lake, steps: Sequence[Step]) -> dict[str, list[Element]]:
    names = sorted({step.screenshot for step in steps})
    listed = {row.sha256: row.elements for row in lake.rows(ScreenReading, {"sha256": names})}
    listed |= {step.screenshot: step.elements for step in steps if step.elements != "[]"}
    return {name: elements_of(elements) for name, elements in listed.items()}
