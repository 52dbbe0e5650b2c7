"""How often the promotion's test decides rightly, and after how many trajectories: simulated, no policy acts.

Two policies disagree on a share of the pairs and differ by so much; each cell is drawn many times in the default shape
(15 tasks, a look every 5 of 15 seeds). Rules: `cautious`, where what is undecided at the last seed is held; `default`,
where it is promoted within the tolerance; `bounded`, where its interval must be above the first hypothesis, too;
`reproduction`, which has to win.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks.shared.report import Bar, finish, options
from curation.intervals import paired
from curation.promotion import Rule, better, look, not_worse
from schemas.config.sections import EvaluateConfig, PromoteConfig

TASKS = 15
DISAGREE = (0.1, 0.2, 0.4)
DIFFERENCES = (-0.08, -0.03, 0.0, 0.02, 0.05)


def rules(chosen: PromoteConfig) -> dict[str, Rule]:
    """The rules of a config."""
    sizes = (chosen.tolerance, chosen.resolution, chosen.alpha, chosen.beta)
    return {
        "cautious": not_worse(*sizes, "hold"),
        "bounded": not_worse(*sizes, "bounded"),
        "default": not_worse(*sizes, "tolerance"),
        "reproduction": better(chosen.resolution, chosen.alpha, chosen.beta),
    }


def simulated(rule: Rule, difference: float, disagree: float, times: int) -> dict[str, Any]:
    """Shares of the outcomes, and the mean number of pairs."""
    dice, found, pairs = random.Random(0), Counter[str](), 0
    for _ in range(times):
        for decision in _looks(rule, difference, disagree, dice):
            if decision is not None:
                found[decision.outcome] += 1
                pairs += decision.pairs
                break
    shares = {name: found[name] / times for name in ("promote", "hold", "reject")}
    return {"disagree": disagree, "difference": difference, **shares, "pairs": round(pairs / times)}


def _looks(rule: Rule, difference: float, disagree: float, dice: random.Random) -> Iterator[Any]:
    most, between = EvaluateConfig().seeds, PromoteConfig().look_seeds
    wins, losses = (disagree + difference) / 2, (disagree - difference) / 2
    drawn = {(f"t{task}", seed): dice.random() for task in range(TASKS) for seed in range(most)}
    for seeds in [*range(between, most, between), most]:
        shown = {key: value for key, value in drawn.items() if key[1] < seeds}
        new = {key: value < wins for key, value in shown.items()}
        old = {key: wins <= value < wins + losses for key, value in shown.items()}
        yield look(rule, paired(new, old), seeds == most)


def main() -> int:
    """Simulates every cell."""
    chosen, args = PromoteConfig(), options(__doc__ or "")
    times = 300 if args.short else 2000
    rows: list[dict[str, Any]] = []
    for name, rule in rules(chosen).items():
        own = (0.0, 0.05, 0.1) if name == "reproduction" else DIFFERENCES
        cells = [(disagree, difference) for disagree in DISAGREE for difference in own if abs(difference) <= disagree]
        rows += [{"rule": name, **simulated(rule, difference, disagree, times)} for disagree, difference in cells]

    def most(name: str, outcome: str, difference: float) -> float:
        return max(row[outcome] for row in rows if (row["rule"], row["difference"]) == (name, difference))

    bars = [
        Bar("cautious: promoted at the first hypothesis", most("cautious", "promote", -0.08), chosen.alpha, "lower"),
        Bar("bounded: promoted at the first hypothesis", most("bounded", "promote", -0.08), chosen.alpha, "lower"),
        Bar("cautious: rejected at the second hypothesis", most("cautious", "reject", 0.02), chosen.beta, "lower"),
        Bar("default: rejected at the second hypothesis", most("default", "reject", 0.02), chosen.beta, "lower"),
        Bar("reproduction: promoted though no better", most("reproduction", "promote", 0.0), chosen.alpha, "lower"),
    ]
    return finish("promotion", rows, bars, args.json)


if __name__ == "__main__":
    raise SystemExit(main())
