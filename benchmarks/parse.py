"""Read a million garbled replies by every model family: without an exception, in time linear in their length.

Rows: per family, whose templates take turns, the replies, the share with an action, mean and longest processor time,
and the growth of the time for a reply of twice the length, the worst over long replies of every grammar's pieces.
Linear is 2; the bar leaves room for the machine's other work. A last table compares with the public `ui-tars` package
on its own published examples and on garbled replies, by the reason of each difference.
"""

import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import Bar, finish, options
from models.completion import Completion
from models.families.family import ModelFamily
from models.families.registry import FAMILIES
from models.families.screen import ImageLimits
from schemas.config.policy import PolicyConfig
from tests.fixtures.planted.replies import NEWER, NOISE, SEEDS, mutated
from tests.fixtures.ui_tars_package import UNEXPLAINED, Package, compared, garbled

SCREEN = (1920, 1080)
REPLIES, SHORT = 1_000_000, 20_000
LONG = 100_000
"""Characters of a long reply."""
PIECES = (*SEEDS, *NEWER, *(piece for piece in NOISE if len(piece) > 1))
"""What long replies repeat."""
TOOLS = [{"name": "search-web", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}}}]
"""A function of an environment, for the families that read its calls."""
BESIDE = 10_000
"""Garbled replies that `ui-tars` reads too."""
GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "replies.json"
MOST_GROWTH = 4.0
"""A quadratic reader takes 4 times as long for twice the length."""
SLOWEST_S = 1.0
"""Of one garbled reply, on a machine that does other things too."""


def main() -> int:
    """Reads, measures, prints; exit code 1 if a bar is missed."""
    given = options(__doc__ or "")
    rows, raised = list[dict[str, Any]](), 0
    for name in FAMILIES.names:
        row = _row(name, *((SHORT, PIECES[::12]) if given.short else (REPLIES, PIECES)))
        raised += row["raised"]
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    examples = [case["text"] for case in json.loads(GOLDEN.read_text())["ui-tars"]]
    counts, unexplained = compared(iter([*examples, *garbled(examples, BESIDE)]), Package())
    beside = [{"beside ui-tars": reason, "replies": count} for reason, count in counts.most_common()]
    bars = [
        Bar("exceptions", raised, 0, "lower"),
        Bar("longest, s", max(row["longest ms"] for row in rows) / 1000, SLOWEST_S, "lower"),
        Bar("twice the length, times", max(row["twice"] for row in rows), MOST_GROWTH, "lower"),
        Bar(f"{UNEXPLAINED}, beside ui-tars", len(unexplained), 0, "lower"),
    ]
    return finish("parse", [*rows, *beside], bars, given, [rows, beside])


def _row(name: str, count: int, pieces: Sequence[str]) -> dict[str, Any]:
    kind = FAMILIES.class_of(name)
    families = [
        kind(PolicyConfig.model_validate({"family": name, "template": template, "tools": tools}))
        for template in kind.templates
        for tools in ([], TOOLS)[: 2 if template in kind.tooled else 1]
    ]
    for family in families:
        family.fit(ImageLimits(28, 3136, 12845056))
    chance = random.Random(11)
    raised = acted = 0
    spent, longest = 0.0, 0.0
    for number in range(count):
        family = families[number % len(families)]
        completion = Completion(mutated(chance, (*SEEDS, *NEWER)))
        begun = time.process_time()
        try:
            acted += bool(family.read(completion, SCREEN).actions)
        except Exception:  # whatever it is, it is what is counted
            raised += 1
        took = time.process_time() - begun
        spent, longest = spent + took, max(longest, took)
    return {
        "family": name,
        "replies": count,
        "raised": raised,
        "with an action": acted / count,
        "mean us": 1e6 * spent / count,
        "longest ms": 1e3 * longest,
        "twice": max(_growth(family, piece) for family in families for piece in pieces),
    }


def _growth(family: ModelFamily, piece: str) -> float:
    """How much longer twice the length takes; 2 where both are too short to tell."""

    def seconds(length: int, times: int) -> float:
        completion = Completion(f"Thought: a\nAction: {piece * (length // len(piece))}")
        taken: list[float] = []
        for _ in range(times):
            begun = time.process_time()
            family.read(completion, SCREEN)
            taken.append(time.process_time() - begun)
        return min(taken)

    def growth(times: int) -> float:
        once, twice = seconds(LONG, times), seconds(2 * LONG, times)
        return twice / once if twice > 0.02 else 2.0

    found = growth(1)
    return found if found < 3 else growth(3)


if __name__ == "__main__":
    raise SystemExit(main())
