"""How well a recogniser of text reads screens: its words and their places against what the pages know.

The first screen of each MiniWoB++ task, on a seed that no choice has seen. Recall: of the words that stand in an
element's name and fit into it, those that were read at its place. Precision: of the words read within elements, those
that stand there.
"""

import argparse
import asyncio
import hashlib
import time
from typing import Any

from benchmarks.shared.arms import FIRST_TEST_SEED
from benchmarks.shared.report import Bar, finish, options
from curation.perception.agreement import WordRecall, agreement
from curation.perception.screen import RecognisedScreen
from environments.catalog import catalog
from environments.pool import SandboxPool
from environments.registry import environments_of
from models.readers.rapid import RapidReader
from schemas.config import load_config
from schemas.observation import Observation

BAR = 0.85
"""Of both, over all screens."""
MORE = (
    "login-user", "email-inbox", "click-checkboxes", "choose-date", "use-autocomplete", "social-media", "click-option",
    "search-engine", "navigate-tree", "click-menu", "use-spinner", "find-word",
)  # fmt: skip
"""Tasks beside the default suite's."""


def main() -> int:
    """Reads, compares, prints; exit code 1 if a bar is missed."""
    given = options(__doc__ or "")
    reader, rows, whole = RapidReader(), list[dict[str, Any]](), WordRecall()
    for task, seen in asyncio.run(_look(given)):
        screen = RecognisedScreen(
            hashlib.sha256(seen.png).hexdigest(), seen.width, seen.height, seen.elements, "page", seen.png
        )
        started = time.process_time()
        found = agreement(screen, reader.read(seen.png))
        whole += found
        rows.append(_row(task, found, time.process_time() - started))
    rows.append(_row("all", whole, sum(row["cpu s"] for row in rows) / max(1, len(rows))))
    bars = [Bar("recall", whole.recall, BAR, "higher"), Bar("precision", whole.precision, BAR, "higher")]
    return finish("reader", rows, bars, given.json)


async def _look(given: argparse.Namespace) -> list[tuple[str, Observation]]:
    config = load_config("configs/miniwob.toml", ["suite.hard=[]"])
    names = [*config.suite.tasks[:6]] if given.short else [*config.suite.tasks, *MORE]
    asked = load_config("configs/miniwob.toml", ["suite.hard=[]", "suite.held_out=[]", f"suite.tasks={_json(names)}"])
    found: list[tuple[str, Observation]] = []
    async with SandboxPool(environments_of(asked)) as pool:
        for task in catalog(asked):
            if task.template in names:
                async with pool.lease(task, FIRST_TEST_SEED) as sandbox:
                    found.append((task.template, await sandbox.observe(elements=True)))
    return found


def _json(names: list[str]) -> str:
    return "[" + ",".join(f'"{name}"' for name in names) + "]"


def _row(task: str, found: WordRecall, seconds: float) -> dict[str, Any]:
    return {
        "task": task,
        "words": found.there,
        "recall": found.recall if found.there else None,
        "words read": found.read,
        "precision": found.precision if found.read else None,
        "cpu s": round(seconds, 2),
    }


if __name__ == "__main__":
    raise SystemExit(main())
