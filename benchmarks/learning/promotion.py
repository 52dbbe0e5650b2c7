"""Simulate how often the test of promotions decides rightly, and after how many trajectories.

Two policies disagree on a share of the pairs and differ by some success; each cell is drawn many times in the default
shape (15 tasks, a look every 5 of 15 seeds). Rules: `cautious` holds a candidate that is undecided at the last seed;
`default` promotes it within the tolerance; `bounded` promotes it if its interval is above the first hypothesis, too;
`reproduction` has to win.

Then chains of challenges on the same seeds, each candidate a little worse than the champion, or its equal. The rows
have the loss of success from the first champion to the last, the optimism of the last on the seeds that it was chosen
on, and the share of its 95 % intervals that hold its true success.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.harness import Bar, finish, options
from curation.intervals import mean_interval, paired
from curation.promotion import PromotionRule, better, look, not_worse
from schemas.config.sections import EvaluateConfig, PromoteConfig

TASKS = 15
SEEDS, BETWEEN = EvaluateConfig().seeds, PromoteConfig().look_seeds
PAIRS = [(f"t{task}", seed) for task in range(TASKS) for seed in range(SEEDS)]
FIRST = 0.7
"""The success of the first champion of a chain."""
CHAINS = ((0.01, 12), (0.02, 12), (0.03, 12), (0.0, 3), (0.0, 12), (0.0, 40))
"""By how much each candidate is worse, and how many there are."""
Outcomes = Mapping[tuple[str, int], bool]
DISAGREE = (0.1, 0.2, 0.4)
DIFFERENCES = (-0.08, -0.03, 0.0, 0.02, 0.05)


def rules(chosen: PromoteConfig) -> dict[str, PromotionRule]:
    """The rules of a config."""
    sizes = (chosen.tolerance, chosen.resolution, chosen.alpha, chosen.beta)
    return {
        "cautious": not_worse(*sizes, "hold"),
        "bounded": not_worse(*sizes, "bounded"),
        "default": not_worse(*sizes, "tolerance"),
        "reproduction": better(chosen.resolution, chosen.alpha, chosen.beta),
    }


def simulated(rule: PromotionRule, difference: float, disagree: float, times: int) -> dict[str, Any]:
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


def _looks(rule: PromotionRule, difference: float, disagree: float, dice: random.Random) -> Iterator[Any]:
    wins, losses = (disagree + difference) / 2, (disagree - difference) / 2
    drawn = {pair: dice.random() for pair in PAIRS}
    new = {pair: value < wins for pair, value in drawn.items()}
    old = {pair: wins <= value < wins + losses for pair, value in drawn.items()}
    yield from _shown(rule, new, old)


def _shown(rule: PromotionRule, new: Outcomes, old: Outcomes) -> Iterator[Any]:
    for seeds in [*range(BETWEEN, SEEDS, BETWEEN), SEEDS]:
        seen = [{pair: value for pair, value in one.items() if pair[1] < seeds} for one in (new, old)]
        yield look(rule, paired(*seen), seeds == SEEDS)


def chained(rule: PromotionRule, worse: float, candidates: int, times: int, disagree: float = 0.2) -> dict[str, Any]:
    """What becomes of the champion after so many candidates that are each worse by so much than whom they challenge.

    Args:
        rule: the rule of promotion.
        worse: by how much the chance of success of a candidate is lower.
        candidates: how many challenge, one after the other.
        times: chains.
        disagree: share of the pairs that a candidate and its champion disagree on.
    """
    dice, ends = random.Random(0), [0.0] * times
    lower, better_looking, covered = 0.0, 0.0, 0
    for chain in range(times):
        true = FIRST
        champion = {pair: dice.random() < true for pair in PAIRS}
        for _ in range(candidates):
            lost, won = (disagree + worse) / 2 / true, (disagree - worse) / 2 / (1 - true)
            candidate = {
                pair: (dice.random() >= lost) if right else (dice.random() < won) for pair, right in champion.items()
            }
            found = next(one for one in _shown(rule, candidate, champion) if one is not None)
            if found.outcome == "promote":
                champion, true = candidate, true - worse
        by_task = [sum(champion[f"t{task}", seed] for seed in range(SEEDS)) for task in range(TASKS)]
        at = mean_interval(by_task, [SEEDS] * TASKS)
        ends[chain] = FIRST - true
        lower, better_looking = lower + FIRST - true, better_looking + at.mean - true
        covered += at.low <= true <= at.high
    return {
        "worse": worse, "candidates": candidates, "lower": lower / times,
        "lower, worst 5 %": sorted(ends)[int(0.95 * times)], "looks better by": better_looking / times,
        "intervals that hold it": covered / times,
    }  # fmt: skip


def main() -> int:
    """Simulates every cell."""
    chosen, args = PromoteConfig(), options(__doc__ or "")
    times = 300 if args.short else 2000
    rows: list[dict[str, Any]] = []
    for name, rule in rules(chosen).items():
        own = (0.0, 0.05, 0.1) if name == "reproduction" else DIFFERENCES
        cells = [(disagree, difference) for disagree in DISAGREE for difference in own if abs(difference) <= disagree]
        rows += [{"rule": name, **simulated(rule, difference, disagree, times)} for disagree, difference in cells]

    chains = [
        {"rule": name, **chained(rule, worse, candidates, times // 4)}
        for name, rule in rules(chosen).items()
        if name != "reproduction"
        for worse, candidates in CHAINS
    ]

    def most(name: str, outcome: str, difference: float) -> float:
        return max(row[outcome] for row in rows if (row["rule"], row["difference"]) == (name, difference))

    bars = [
        Bar("cautious: promoted at the first hypothesis", most("cautious", "promote", -0.08), chosen.alpha, "lower"),
        Bar("bounded: promoted at the first hypothesis", most("bounded", "promote", -0.08), chosen.alpha, "lower"),
        Bar("cautious: rejected at the second hypothesis", most("cautious", "reject", 0.02), chosen.beta, "lower"),
        Bar("default: rejected at the second hypothesis", most("default", "reject", 0.02), chosen.beta, "lower"),
        Bar("reproduction: promoted though no better", most("reproduction", "promote", 0.0), chosen.alpha, "lower"),
    ]
    return finish("promotion", [*rows, *chains], bars, args, [rows, chains])


if __name__ == "__main__":
    raise SystemExit(main())
