"""Pick a few recent trajectories and make them replayable: screenshots as data URIs, actions as marks over them.

Texts that look like a secret or personal data are removed, since reports are shared.
"""

import base64
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from common.picture import rgb_of, size_of, stored_plain
from curation.converters.exchanged import Picture
from curation.private import Secrets
from curation.redaction import Redactor, typed
from schemas.action import Action, from_json_list, in_words, to_json
from schemas.observation import Element, elements_of
from schemas.tables.reading import ScreenReading
from schemas.tables.screenshot import Screenshot
from schemas.tables.step import Step
from schemas.tables.task import short_names
from schemas.tables.trajectory import Trajectory
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.finding import outcome_of

OF_EACH = 4
"""Maximum successes, and maximum failures."""
MOST_STEPS = 8
"""Maximum steps of one trajectory."""
WIDEST = 480
"""Pixels; wider screens are made smaller."""
BUDGET_BYTES = 2_000_000
"""Bytes of all screenshots together; steps beyond it have no screenshot."""
R = TypeVar("R", Trajectory, Step)
TEXTS = ("instruction", "failure_reason", "thought", "raw_text", "action_error", "unused_arguments")
"""Columns of trajectories and steps with external text."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of a replay."""

    step: Step
    picture: str | None
    """A data URI; None if it was left out."""
    action: str
    """Text of the actions."""
    marks: list[tuple[float, float]]
    """Points of the actions, in pixels of the screen."""
    radius: float
    """Radius of a mark."""


@dataclass(frozen=True, slots=True)
class Replay:
    """One trajectory as the page shows it, without texts that look like a secret."""

    row: Trajectory
    reason: str
    """The reason of its route."""
    task: str
    outcome: str
    steps: list[Frame]


def replays(lake: Lake) -> list[Replay]:
    """Failures first, then successes, of the latest iteration; the policy's own if there are some."""
    chosen = choose(_latest(lake))
    if not chosen:
        return []
    ids, names = [row.trajectory_id for row in chosen], short_names(row.task_id for row in chosen)
    decided = ask(lake, "decisions", iteration=chosen[0].iteration).to_pylist()
    reasons = {row["trajectory_id"]: row["reason"] for row in decided}
    stored = sorted(lake.rows(Step, {"trajectory_id": ids}), key=lambda row: row.step)
    redacted = RedactedView(lake, stored)
    steps = {name: [redacted.row(row) for row in stored if row.trajectory_id == name][:MOST_STEPS] for name in ids}
    pictures = _pictures(lake, [step.screenshot for name in ids for step in steps[name]], redacted)
    return [
        Replay(
            row=redacted.row(row),
            reason=redacted.text(reasons.get(row.trajectory_id, "")),
            task=names[row.task_id],
            outcome=outcome_of(row),
            steps=[_frame(step, pictures.get(step.screenshot)) for step in steps[row.trajectory_id]],
        )
        for row in chosen
    ]


def choose(rows: list[Trajectory], of_each: int = OF_EACH) -> list[Trajectory]:
    """Up to `of_each` failures and successes, different tasks before the same task again, environment failures last."""
    own = [row for row in rows if row.policy != "explorer"] or rows
    failures = _spread([row for row in own if row.success is False])
    deaths = _spread([row for row in own if row.success is None])
    successes = _spread([row for row in own if row.success]) or _spread([row for row in rows if row.success])
    return (failures + deaths)[:of_each] + successes[:of_each]


def _spread(rows: list[Trajectory]) -> list[Trajectory]:
    turns: Counter[str] = Counter()
    ranked: list[tuple[int, str, Trajectory]] = []
    for row in sorted(rows, key=lambda row: row.trajectory_id):
        turns[row.task_id] += 1
        ranked.append((turns[row.task_id], row.trajectory_id, row))
    return [row for _, _, row in sorted(ranked, key=lambda item: item[:2])]


def _latest(lake: Lake) -> list[Trajectory]:
    there = lake.read("trajectories", ["iteration"])["iteration"].to_pylist()
    return lake.rows(Trajectory, {"iteration": max(there)}) if there else []


def _frame(step: Step, picture: str | None) -> Frame:
    done, size = [json.loads(action) for action in step.actions], (step.screen_width, step.screen_height)
    named = [(one[x], one[y]) for one in done for x, y in (("x", "y"), ("to_x", "to_y")) if x in one]
    marks = [(round(x * size[0], 1), round(y * size[1], 1)) for x, y in named]
    text = "; ".join(in_words(action) for action in step.actions or [None])
    return Frame(step, picture, text, marks, round(max(size) / 30, 1))


def _pictures(lake: Lake, hashes: list[str], redacted: "RedactedView") -> dict[str, str]:
    wanted = list(dict.fromkeys(hashes))
    found = {row.sha256: redacted.png(row) for row in lake.rows(Screenshot, {"sha256": wanted})}
    spent, uris = 0, dict[str, str]()
    for name in wanted:
        if name in found:
            uri = _data_uri(found[name])
            spent += len(uri)
            if spent <= BUDGET_BYTES:
                uris[name] = uri
    return uris


def _data_uri(png: bytes) -> str:
    png = stored_plain(png)
    width, height = size_of(png)
    if width > WIDEST:
        small = rgb_of(png).resize((WIDEST, round(height * WIDEST / width)))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=75)
        return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
    return "data:image/png;base64," + base64.b64encode(png).decode()


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
            done = [(step.screenshot, action) for action in from_json_list(step.actions) or [None]]
            actions.setdefault(step.trajectory_id, []).extend(done)
        found = (typed(one, self._screens) for one in actions.values())
        self._secrets = Secrets(frozenset(secret for secrets in found for secret in secrets.all))

    def text(self, text: str) -> str:
        """A text, redacted."""
        return self._redactor.text(text, self._secrets)

    def row(self, row: R) -> R:
        """A trajectory or a step, its texts redacted, without the screen's elements."""
        texts: dict[str, Any] = {key: self.text(text) for key in TEXTS if (text := getattr(row, key, None))}
        if isinstance(row, Step):
            actions = (self._redactor.action(action, self._secrets) for action in from_json_list(row.actions))
            texts |= {"elements": "[]", "actions": [to_json(action) for action in actions]}
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
