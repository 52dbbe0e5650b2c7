"""Measure a judge's agreement with verifiers and people, and decide whether it is on probation.

A judge on probation may only veto. Its rejections count, and trajectories that it accepts are held back. So no policy
learns from a success that only an untrusted judge confirms.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from curation.intervals import wilson
from schemas.config.curating import JudgeConfig
from schemas.tables.agreement import Against, Agreement

FAILURES = 0.2
"""Minimum share of failures among the `judge.evidence_min` comparisons. With 20 failures, a judge that accepts 35 % of
failures accepts at most two with a probability of 0.1."""


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts of a judge's decisions against the truth; a positive is a success."""

    true_positives: int = 0
    false_positives: int = 0
    false_negatives: int = 0
    true_negatives: int = 0

    def __add__(self, other: "Confusion") -> "Confusion":
        return Confusion(
            self.true_positives + other.true_positives,
            self.false_positives + other.false_positives,
            self.false_negatives + other.false_negatives,
            self.true_negatives + other.true_negatives,
        )

    @property
    def n(self) -> int:
        """Number of compared trajectories."""
        return self.true_positives + self.false_positives + self.false_negatives + self.true_negatives

    @property
    def failures(self) -> int:
        """Number of failures among them."""
        return self.false_positives + self.true_negatives

    @property
    def precision(self) -> float | None:
        """Share of accepted trajectories that were successes; None if no trajectory was accepted."""
        return _share(self.true_positives, self.true_positives + self.false_positives)

    @property
    def recall(self) -> float | None:
        """Share of successes that were accepted; None without successes."""
        return _share(self.true_positives, self.true_positives + self.false_negatives)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall, 2 TP / (2 TP + FP + FN); None without positives."""
        return _share(2 * self.true_positives, 2 * self.true_positives + self.false_positives + self.false_negatives)

    @property
    def false_accept_rate(self) -> float | None:
        """Share of failures that were accepted; None without failures."""
        return _share(self.false_positives, self.false_positives + self.true_negatives)

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa, (p_o - p_e) / (1 - p_e): agreement beyond chance with the same shares.

        None if chance alone always agrees.

        Source: Cohen, "A coefficient of agreement for nominal scales", 1960.
        """
        if self.n == 0:
            return None
        accepted, successes = self.true_positives + self.false_positives, self.true_positives + self.false_negatives
        observed = (self.true_positives + self.true_negatives) / self.n
        chance = (accepted * successes + (self.n - accepted) * (self.n - successes)) / self.n**2
        return None if chance == 1 else (observed - chance) / (1 - chance)


def confusion_of(accepted: Iterable[bool], truth: Iterable[bool]) -> Confusion:
    """Count the cases of two lists of equal length."""
    pairs = list(zip(accepted, truth, strict=True))
    return Confusion(
        pairs.count((True, True)), pairs.count((True, False)), pairs.count((False, True)), pairs.count((False, False))
    )


def agreement_of(version: str, against: Against, iteration: int, found: Confusion, now: datetime) -> Agreement:
    """Convert the counts to a row."""
    return Agreement(
        judge_version=version,
        against=against,
        iteration=iteration,
        n=found.n,
        true_positives=found.true_positives,
        false_positives=found.false_positives,
        false_negatives=found.false_negatives,
        true_negatives=found.true_negatives,
        kappa=found.kappa,
        false_accept_rate=found.false_accept_rate,
        created_at=now,
    )


def totals(rows: Sequence[Agreement]) -> dict[Against, Confusion]:
    """Add up the counts of all iterations, by the source of the truth."""
    found: dict[Against, Confusion] = {}
    for row in rows:
        counts = (row.true_positives, row.false_positives, row.false_negatives, row.true_negatives)
        found[row.against] = found.get(row.against, Confusion()) + Confusion(*counts)
    return found


def probation(rows: Sequence[Agreement], config: JudgeConfig) -> str:
    """Return why a judge is on probation; empty if it is not.

    Verifiers and reviewers are separate sources. The judge needs `evidence_min` comparisons with at least one source, a
    fifth of them failures. It needs sufficient agreement with each source that has so many comparisons. With a source
    that has fewer, its disagreement must not exceed chance: a false accept rate whose 95 % interval is above the limit
    also puts the judge on probation.

    Args:
        rows: all agreements of one judge's version.
        config: the limits.
    """
    found = totals(rows)
    if config.evidence_min == 0 and not found:
        return ""
    enough: dict[Against, Confusion] = {
        against: counts for against, counts in found.items() if counts.n >= config.evidence_min
    }
    if not enough:
        most = max((counts.n for counts in found.values()), default=0)
        return f"compared {most} times, of {config.evidence_min}"
    for against, counts in found.items():
        if against not in enough and wilson(counts.false_positives, counts.failures).low > config.false_accept_max:
            return _accepts(against, counts, config)
    for against, counts in enough.items():
        if counts.failures < FAILURES * config.evidence_min:
            return f"compared with {against} {counts.n} times, on {counts.failures} failures"
        if counts.kappa is None or counts.kappa < config.kappa_min:
            kappa = "not defined" if counts.kappa is None else f"{counts.kappa:.2f}"
            return f"kappa against {against} is {kappa}, below {config.kappa_min:g}"
        if (counts.false_accept_rate or 0.0) > config.false_accept_max:
            return _accepts(against, counts, config)
    return ""


def _accepts(against: Against, counts: Confusion, config: JudgeConfig) -> str:
    return f"false accepts against {against} are {counts.false_accept_rate:.2f}, above {config.false_accept_max:g}"


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
