"""The report is passed on, so what looks like a secret or personal data is taken out of its trajectories."""

from collections.abc import Sequence
from typing import Any

from curation.converters.exchanged import Picture
from curation.private import Secrets
from curation.redaction import Redactor, typed
from schemas.action import from_json, to_json
from schemas.observation import Element, elements_of
from storage.lake import Lake

TEXTS = ("instruction", "failure_reason", "reason", "thought", "raw_text", "action_error")
"""Columns of trajectories and steps that hold words of others."""


class Shown:
    """What is shown of some trajectories.

    Args:
        lake: where they are.
        steps: their rows, in order, with `trajectory_id`, `screenshot`, `elements` and `action`.
    """

    def __init__(self, lake: Lake, steps: Sequence[dict[str, Any]]) -> None:
        self._redactor = Redactor()
        self._screens = _screens(lake, steps)
        actions: dict[str, list[Any]] = {}
        for step in steps:
            action = from_json(step["action"]) if step["action"] else None
            actions.setdefault(step["trajectory_id"], []).append((step["screenshot"], action))
        found = (typed(one, self._screens) for one in actions.values())
        self._secrets = Secrets(frozenset(secret for secrets in found for secret in secrets.all))

    def row(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of a trajectory or a step, its texts redacted."""
        texts = {key: self._redactor.text(row[key], self._secrets) for key in TEXTS if row.get(key)}
        if row.get("action"):
            texts["action"] = to_json(self._redactor.action(from_json(row["action"]), self._secrets))
        return {**row, **texts}

    def png(self, row: dict[str, Any]) -> bytes:
        """The picture of a row of `screenshots`, painted over where it shows what must not be shown."""
        picture = Picture(row["png"], row["width"], row["height"])
        return self._redactor.picture(picture, self._screens, self._secrets).png


def _screens(lake: Lake, steps: Sequence[dict[str, Any]]) -> dict[str, list[Element]]:
    names = sorted({step["screenshot"] for step in steps})
    rows = lake.read("readings", ["sha256", "elements"], {"sha256": names})
    listed = dict(zip(rows["sha256"].to_pylist(), rows["elements"].to_pylist(), strict=True))
    listed |= {step["screenshot"]: step["elements"] for step in steps if step["elements"] != "[]"}
    return {name: elements_of(elements) for name, elements in listed.items()}
