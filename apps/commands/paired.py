"""Implement `flywheel diff A B --task T [--seed N]`: two policies on the same evaluation seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from apps.commands.trajectories import check_pictures, done_in_words, step_as_dict
from apps.options import print_line, print_result
from common.text import harmless
from flywheel import OpenLake
from flywheel.film import paired_frames, save_moving, stacked_strips
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.promote.pairs import (
    PolicySide,
    SeedPair,
    SideBySide,
    evaluated_pairs,
    evaluated_task,
    evaluated_version,
    require_kept,
    side_by_side,
)
from tasks.running.console import make_table, out

if TYPE_CHECKING:
    from flywheel import StoredTrajectory
    from schemas.tables.step import RecordedStep

OUTCOMES = {True: "success", False: "failure"}


def list_pairs(lake: Lake, a: str, b: str, task: str, as_json: bool) -> None:
    """Prints the seeds of a task on which one of two policies succeeded and the other failed."""
    first, second = (evaluated_version(lake, name) for name in (a, b))
    named = evaluated_task(lake, first, task)
    pairs = evaluated_pairs(lake, first, second, named)
    rows = [{"seed": one.seed, "a": one.a, "b": one.b, "kept": one.kept} for one in pairs]
    result = {"task": named, "a": first, "b": second, "pairs": rows}
    print_result(as_json, result, lambda: _print_pairs(named, first, second, pairs))


def show_pair(
    lake: Lake, a: str, b: str, task: str, seed: int, gif: Path | None, strip: Path | None, as_json: bool
) -> None:
    """Prints two policies on one seed step by step, and draws them into the given files."""
    check_pictures(gif, strip)
    pair = side_by_side(lake, a, b, task, seed)
    require_kept(pair)
    written = _draw(lake, pair, gif, strip) if gif or strip else []
    print_result(as_json, _as_dict(pair, written), lambda: _print_pair(pair, written))


def _draw(lake: Lake, pair: SideBySide, gif: Path | None, strip: Path | None) -> list[str]:
    both, names = [_whole(lake, one) for one in (pair.a, pair.b)], [pair.a.policy, pair.b.policy]
    if gif is not None:
        save_moving(paired_frames([one.film() for one in both], names), gif)
    if strip is not None:
        stacked_strips([one.strip() for one in both], names).save(strip)
    return [str(path) for path in (gif, strip) if path is not None]


def _whole(lake: Lake, side: PolicySide) -> "StoredTrajectory":
    if side.row is None:
        raise UsageError(
            f"`seed`: {side.policy} has no pictures of it: {side.not_kept}.", "Leave --gif and --strip out."
        )
    return OpenLake(lake).trajectory(side.row.trajectory_id)


def _as_dict(pair: SideBySide, written: list[str]) -> dict[str, Any]:
    return {
        "task": pair.task_id,
        "seed": pair.seed,
        "instruction": pair.instruction,
        "differs_at": pair.differs_at,
        "a": _side_as_dict(pair.a),
        "b": _side_as_dict(pair.b),
        "written": written,
    }


def _side_as_dict(side: PolicySide) -> dict[str, Any]:
    return {
        "policy": side.policy,
        "outcome": side.outcome,
        "reward": side.evaluation.reward,
        "trajectory_id": side.row and side.row.trajectory_id,
        "not_kept": side.not_kept,
        "steps": [step_as_dict(one) for one in side.steps],
    }


def _print_pairs(task: str, a: str, b: str, pairs: Sequence[SeedPair]) -> None:
    table = make_table("seed", f"<{a}", f"<{b}", "<steps kept", gap=2)
    for one in pairs:
        if one.won:
            kept = {(True, True): "both", (True, False): a, (False, True): b}.get(one.kept, "none")
            table.add_row(str(one.seed), OUTCOMES[one.a], OUTCOMES[one.b], kept)
    if table.row_count:
        out().print(table)
    won = [one.won for one in pairs]
    print_line(f"{task}: of {len(pairs)} seeds, {won.count('a')} only {a} won, and {won.count('b')} only {b}.")


def _print_pair(pair: SideBySide, written: Sequence[str]) -> None:
    print_line(f"{pair.task_id}, seed {pair.seed}")
    print_line(f"instruction: {pair.instruction}")
    table = make_table("step", f"<{pair.a.policy}", f"<{pair.b.policy}", gap=2)
    table.add_row("", _outcome(pair.a), _outcome(pair.b))
    for number, (a, b) in enumerate(pair.steps):
        mark = ">" if number == pair.differs_at else ""
        table.add_row(f"{mark}{number}", _cell(a), _cell(b))
    out().print(table)
    for side in (pair.a, pair.b):
        if side.not_kept:
            print_line(f"{side.policy} has no steps here: {side.not_kept}.")
    if pair.differs_at is not None:
        print_line(f"From step {pair.differs_at} on, they act differently.")
    for path in written:
        print_line(f"written: {path}")


def _outcome(side: PolicySide) -> Text:
    reward = "" if side.evaluation.reward is None else f", reward {side.evaluation.reward:.2f}"
    colour = {"success": "green", "failure": "red"}.get(side.outcome, "")
    return Text(f"{side.outcome}{reward}", colour)


def _cell(step: "RecordedStep | None") -> Text:
    if step is None:
        return Text("")
    thought = f"\n{harmless(step.thought)}" if step.thought else ""
    return Text.assemble(harmless(done_in_words(step)), (thought, "dim"))
