"""Stage `think`: add thoughts to accepted steps that have none. The thinkers of `think.thinkers` try in order.

The stage processes trajectories in chunks. It stores the thoughts of a chunk before the next chunk starts. The id of a
thought is computed from the step, the author and the author's version. The table `thinking` also records steps whose
thoughts were all rejected. After an interruption, the stage therefore asks a thinker only about steps without a result.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import Field

from common.text import counted
from curation.annotation import TrajectoryRoute
from curation.thoughts import usable_steps
from models.thinkers.thinker import THINKERS, Thinker, ThinkerResources
from schemas.config import Config
from schemas.failure import UsageError
from schemas.tables.stage import PlainResult, StageResult
from schemas.tables.step import Step
from schemas.tables.thinking import Thinking
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.running.cluster import divided, part_task, share_out, shares_out
from tasks.running.console import bar
from tasks.running.run import Run, run_of
from tasks.running.stage import stage
from tasks.shared.policies import champion, champion_if_any
from tasks.shared.reviews import decisions_of
from tasks.shared.trajectories import stored, trajectories_of
from tasks.shared.weights import load_policy
from tasks.think.thoughts import IterationThoughts, ThinkingWalk

TOGETHER = 64
"""Trajectories in a chunk if a thinker asks a model. Their screens are in memory at the same time."""
AT_ONCE = 2048
"""Trajectories in a chunk if no thinker asks a model."""


@dataclass(frozen=True, slots=True)
class KeptByStep:
    """Counts for one author at one step number, over all trajectories."""

    author: str
    step: int
    asked: int
    """Number of steps for which the author gave an answer."""
    kept: int
    """Number of these steps whose thought was kept."""


class ThoughtReport(StageResult):
    """Result of the stage `think`, and the fields of `flywheel think --json`."""

    iterations: Sequence[int]
    thoughts: Mapping[str, int]
    """Number of thoughts by author."""
    patterns: Mapping[str, int]
    kept_by_step: Sequence[KeptByStep]
    turned_away: Mapping[str, int]
    """Number of steps for which a model's thoughts were rejected, by reason."""
    tries: int
    tokens: int
    seconds: float
    unasked: int
    failed: Mapping[str, int]
    """Number of steps that a model did not answer, by reason: the ten most frequent reasons, in descending order."""
    unanswered: int = Field(exclude=True)
    """Number of steps that a model did not answer, over all reasons."""

    def __str__(self) -> str:
        text = ", ".join(f"{author} {counted(n, 'thought')}" for author, n in self.thoughts.items()) or "no thought"
        if asked := sum(one.asked for one in self.kept_by_step):
            kept = sum(one.kept for one in self.kept_by_step)
            text += f"; models were asked about {counted(asked, 'step')}, {kept / asked:.0%} kept"
        if self.failed:
            text += f"; no answer on {counted(self.unanswered, 'step')}: {next(iter(self.failed))}"
        return text + (f"; {self.unasked} left unasked (think.most)" if self.unasked else "")


def think(run: Run, iteration: int) -> StageResult:
    """Add thoughts to the steps of one iteration that training may imitate."""
    thinkers = thinkers_of(run.config, run.lake)
    if not thinkers:
        return PlainResult(text="off")
    thoughts = _thoughts(run, iteration, thinkers)
    return report_of(run.lake, [iteration], thoughts.unasked, thoughts.failed)


think_of_steps = stage("think", retry=True)(think)


def _thoughts(run: Run, iteration: int, thinkers: Sequence[Thinker[Any]]) -> IterationThoughts:
    config, lake = run.config, run.lake
    decisions = decisions_of(lake, iteration)
    asks = any(thinker.asks_model for thinker in thinkers)
    if asks and shares_out(config):
        _think_in_parts(
            config, lake, iteration, sorted(decisions), IterationThoughts(config, lake, iteration, thinkers).left
        )
    thoughts = IterationThoughts(config, lake, iteration, thinkers)
    count = lake.count("trajectories", {"iteration": iteration})
    _think(thoughts, trajectories_of(lake, iteration), decisions, count, TOGETHER if asks else AT_ONCE)
    return thoughts


def _think_in_parts(config: Config, lake: Lake, iteration: int, names: Sequence[str], most: int) -> None:
    """Add thoughts on the machines of `cluster`; each part gets an equal share of the `most` requests.

    The caller adds thoughts to the steps that the parts leave.
    """
    parts = divided(config, names)
    given = {"config": config, "iteration": iteration}
    asked = [
        {**given, "names": mine, "most": (most + len(parts) - 1 - number) // len(parts)}
        for number, mine in enumerate(parts)
    ]
    share_out(config, think_part, asked, "think, parts")


@part_task("think-part")
def think_part(config: Config, iteration: int, names: list[str], most: int) -> None:
    """Add thoughts to the steps of the named trajectories, with at most `most` requests to models."""
    lake = Lake.open(config.lake, create=False)
    thoughts = IterationThoughts(config, lake, iteration, thinkers_of(config, lake), most)
    chunks = (names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER))
    trajectories = (one for some in chunks for one in stored(lake, some))
    _think(thoughts, trajectories, decisions_of(lake, iteration), len(names), TOGETHER)


def _think(
    thoughts: IterationThoughts,
    trajectories: Iterator[tuple[Trajectory, list[Step]]],
    decisions: Mapping[str, TrajectoryRoute],
    count: int,
    together: int,
) -> None:
    """Add thoughts to the trajectories, chunk by chunk."""
    with bar() as progress:
        shown = progress.add_task("think", total=count, message="")
        while chunk := list(islice(trajectories, together)):
            kept = [(one, thinkable(steps, decisions.get(one.trajectory_id))) for one, steps in chunk]
            thoughts.of([ThinkingWalk(one, steps) for one, steps in kept if steps])
            progress.update(shown, advance=len(chunk), message=f"{thoughts.asked:,} asked")


def think_again(config: Config, lake: Lake, iterations: tuple[int, int] | None) -> ThoughtReport:
    """Add thoughts of the configured thinkers to stored trajectories; existing thoughts stay.

    Args:
        config: the config with the section `think`.
        lake: the lake with the trajectories, which also receives the annotations.
        iterations: the first iteration and the iteration after the last; all iterations if not given.

    Raises:
        UsageError: `think.thinkers` is empty, or these iterations have no trajectory.
        FlywheelError: a thinker cannot start.
    """
    if not config.think.thinkers:
        raise UsageError("`think.thinkers` is empty.", "Name some, such as think.thinkers='[\"rules\"]'.")
    THINKERS.require(config.think.thinkers, config.think.options)
    counts = Counter(lake.read("trajectories", ["iteration"])["iteration"].to_pylist())
    chosen = [one for one in sorted(counts) if iterations is None or iterations[0] <= one < iterations[1]]
    if not chosen:
        there = f"{min(counts)} to {max(counts)}" if counts else "none"
        raise UsageError("`--iterations`: there is no trajectory in them.", f"The lake's iterations are {there}.")
    run, thinkers = run_of(config, create=False), thinkers_of(config, lake)
    unasked, failed = 0, Counter[str]()
    for iteration in chosen if thinkers else ():
        thoughts = _thoughts(run, iteration, thinkers)
        unasked, failed = unasked + thoughts.unasked, failed + thoughts.failed
    return report_of(lake, chosen, unasked, failed)


def thinkable(steps: Sequence[Step], decision: TrajectoryRoute | None) -> list[Step]:
    """Return the steps of a trajectory that training may imitate, in order."""
    if decision is None or decision.route in ("quarantine", "none"):
        return []
    return usable_steps(steps, None if decision.route == "sft" else decision.valid_steps or 0)


def thinkers_of(config: Config, lake: Lake, free: bool = False) -> list[Thinker[Any]]:
    """Return the configured thinkers, in order.

    The thinker `policy` is left out if the lake has no champion, or if the champion is the untrained small policy.

    Args:
        config: the config with the section `think`.
        lake: the lake with the champion.
        free: leave out thinkers that ask a model.
    """
    version = None if free else champion_if_any(lake)
    thinking = config.model_copy(update={"policy": config.policy.model_copy(update={"thoughts": True})})
    resources = ThinkerResources(lambda: load_policy(thinking, lake, champion(lake).policy_version))
    untrained = version is None or (version.kind == "initial" and not config.policy.given)
    options = THINKERS.read(config.think)
    kinds = {name: THINKERS.class_of(name) for name in options if not (name == "policy" and untrained)}
    return [kind(options[name], resources) for name, kind in kinds.items() if not (free and kind.asks_model)]


def report_of(lake: Lake, iterations: Sequence[int], unasked: int, failed: Counter[str]) -> ThoughtReport:
    """Return the counts of the thoughts that the lake has for these iterations, with the given failures.

    Args:
        lake: the lake with the annotations.
        iterations: the iterations to count.
        unasked: number of steps that no model was asked about because of `think.most`.
        failed: number of steps that a model did not answer, by reason.
    """
    where = {"iteration": list(iterations), "kind": "thought"}
    rows = lake.read("annotations", ["author", "patterns"], where).to_pylist()
    asked = lake.rows(Thinking, {"iteration": list(iterations)})
    steps = sorted({(one.author, one.step) for one in asked})
    return ThoughtReport(
        iterations=iterations,
        thoughts=dict(sorted(Counter(one["author"] for one in rows).items())),
        patterns=dict(sorted(Counter(pattern for one in rows for pattern in one["patterns"]).items())),
        kept_by_step=[
            KeptByStep(author, step, len(there), sum(one.kept for one in there))
            for author, step in steps
            if (there := [one for one in asked if (one.author, one.step) == (author, step)])
        ],
        turned_away=dict(Counter(one.reason for one in asked if not one.kept).most_common()),
        tries=sum(one.tries for one in asked),
        tokens=sum(one.tokens for one in asked),
        seconds=round(sum(one.seconds for one in asked), 3),
        unasked=unasked,
        failed=dict(failed.most_common(10)),
        unanswered=failed.total(),
    )
