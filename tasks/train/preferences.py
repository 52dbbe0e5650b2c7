"""Find preferences where trajectories of one task and seed part, store them in `pairs`, and read them for `dpo`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.text import counted
from curation.pairs import PartingStep, pairs_of
from learning.data.sample import Preference, write_preferences
from models.families.dialects import parse_reply
from models.families.family import ModelFamily, Size
from models.judges.judge import Comparison, JudgeCase
from models.judges.registry import case_of, required_judge, screens_of
from schemas.action import from_json_list
from schemas.config import Config
from schemas.config.curating import JudgeConfig
from schemas.tables.pair import Pair
from storage.catalog import answers, ask
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe, TrainingMaterial, pngs_of
from tasks.shared.trajectories import stored
from tasks.shared.weights import policy_family

ROUNDS = 2
"""Number of times that a stage asks the judge about pairs without an answer."""


@dataclass(frozen=True, slots=True)
class JudgedPairs:
    """Kept pairs, and counts of pairs that the judge dropped."""

    pairs: Sequence[Pair]
    tied: int = 0
    """Number of pairs for which the judge preferred no side in both orders."""
    contrary: int = 0
    """Number of pairs for which the judge preferred the other side."""
    unanswered: Counter[str] = field(default_factory=Counter)
    """Number of pairs without an answer of the judge, by reason."""

    @property
    def text(self) -> str:
        """Returns a summary of the dropped pairs; empty if the judge dropped none."""
        told = []
        if self.tied or self.contrary:
            told.append(f"the judge found {counted(self.tied, 'tie')}, and the other side better in {self.contrary}")
        if self.unanswered:
            ((why, _),) = self.unanswered.most_common(1)
            told.append(f"the judge gave no answer on {counted(self.unanswered.total(), 'pair')}: {why}")
        return "; ".join(told)


def find_pairs(config: Config, lake: Lake, iteration: int) -> JudgedPairs:
    """Write the pairs of this iteration's trajectories with each other and with older trajectories.

    With `judge.pairwise`, a pair of a task without a verifier is kept only if the judge prefers the same side.
    """
    rows = answers(lake, PartingStep, "parting_trajectories", iteration=iteration)
    found = JudgedPairs(pairs_of(rows, iteration))
    if config.judge.pairwise:
        found = compared(config.judge, lake, found.pairs)
    lake.append("pairs", found.pairs)
    return found


def compared(config: JudgeConfig, lake: Lake, pairs: Sequence[Pair]) -> JudgedPairs:
    """Return the verified pairs, and the pairs for which the judge prefers the chosen trajectory in both orders.

    The judge is not asked about stored pairs again. It is asked a second time about pairs without an answer, after all
    other pairs, and again in every repetition of the stage.
    """
    judge = required_judge(config)
    there = set(lake.read("pairs", ["pair_id"], {"verified": False})["pair_id"].to_pylist())
    known = {pair.pair_id for pair in pairs if pair.verified or pair.pair_id in there}
    comparisons: dict[str, Comparison] = {}
    for _ in range(ROUNDS):
        for pair in pairs:
            comparison = comparisons.get(pair.pair_id)
            if pair.pair_id not in known and (comparison is None or comparison.probability is None):
                comparisons[pair.pair_id] = judge.compare(*_cases(config, lake, pair))
    answered = [one for one in comparisons.values() if one.probability is not None]
    winners = Counter(one.winner for one in answered)
    return JudgedPairs(
        [pair for pair in pairs if pair.pair_id in known or comparisons[pair.pair_id].winner == "first"],
        winners["tie"],
        winners["second"],
        Counter(one.reason for one in comparisons.values() if one.probability is None),
    )


def _cases(config: JudgeConfig, lake: Lake, pair: Pair) -> tuple[JudgeCase, JudgeCase]:
    """Return the chosen and the rejected trajectory in the judge's form."""
    found = {
        one.trajectory_id: (one, steps)
        for one, steps in stored(lake, {pair.trajectory_id, pair.rejected_trajectory_id or ""})
    }
    sides = [found[name] for name in (pair.trajectory_id, pair.rejected_trajectory_id or "")]
    pngs = pngs_of(lake, [digest for _, steps in sides for digest in screens_of(steps, config)])
    first, second = (case_of(trajectory.instruction, steps, pngs, config) for trajectory, steps in sides)
    return first, second


def preference_material(config: Config, lake: Lake, recipe: PolicyRecipe) -> TrainingMaterial:
    """Return all pairs so far. The parent policy is the reference."""
    pairs = ask(lake, "training_pairs", recipe.pins, corrections=config.filter.corrections)
    rows = (row for batch in pairs.to_batches() for row in batch.to_pylist())
    family = policy_family(config, lake, recipe.parent)
    return TrainingMaterial(
        write=lambda path, _: write_preferences(path, preferences_of(rows, family)),
        samples=pairs.num_rows,
        numbers={"samples": pairs.num_rows},
        summary=f"{pairs.num_rows} pairs",
        nothing="" if pairs.num_rows else "nothing to learn from: no two trajectories of one task and seed part",
    )


def preferences_of(rows: Iterable[Mapping[str, Any]], family: ModelFamily) -> Iterator[Preference]:
    """Yield preferences from rows of `storage/queries/training_pairs.sql`, in the format of the policy's family."""
    for row in rows:
        size = (row["width"], row["height"])
        yield Preference(
            pair_id=row["pair_id"],
            task_id=row["task_id"],
            screenshots=tuple(row["screenshots"][family.rule.folded(len(row["screenshots"])) :]),
            instruction=row["instruction"],
            past_replies=tuple(_past(step, family) for step in row["past"]),
            chosen=_side(row["chosen"], row["chosen_actions"], row["kind"], size, family),
            rejected=_side(row["rejected"], row["rejected_actions"], row["kind"], size, family),
            past_errors=tuple(step["error"] for step in row["past"]),
        )


def _past(step: Mapping[str, Any], family: ModelFamily) -> str:
    if not step["actions"]:
        return step["raw_text"]
    return family.taught(step["thought"], from_json_list(step["actions"]), (step["width"], step["height"]))


def _side(text: str, actions: Sequence[str] | None, kind: str, size: Size, family: ModelFamily) -> str:
    """Format one reply: by its actions for a step, and by its text for a correction or a step without an action."""
    if actions:
        return family.taught(parse_reply(text).thought, from_json_list(actions), size)
    return text if kind == "parting" else family.rewrite(text, size)
