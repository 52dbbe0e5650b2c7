"""Implement `flywheel trajectories`: find trajectories, and show one of them."""

import json
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps import completion
from apps.options import (
    AsJson,
    ConfigFile,
    IdsFile,
    Overrides,
    apart,
    ids_of,
    open_lake,
    print_line,
    print_result,
    resolve,
    user,
)
from common.text import counted, legible
from schemas.failure import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flywheel import StoredTrajectory
    from schemas.tables.step import RecordedStep
    from schemas.tables.tag import Tag
    from tasks.shared.finding import Found, FoundTrajectory
    from tasks.shared.many import Decided

MOST = 100_000
"""Maximum number of listed trajectories."""
COLUMNS = ("<id", "<outcome", "<task", "seed", "iteration", "<policy", "steps", "reward", "<route")


def list_(
    overrides: Overrides = None,
    config: ConfigFile = None,
    task: Annotated[
        str | None, typer.Option(help="Task's id, or its last part.", autocompletion=completion.tasks)
    ] = None,
    outcome: Annotated[str | None, typer.Option(help="success, failure, environment or unknown.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Version, or a kind such as explorer.", autocompletion=completion.policies),
    ] = None,
    iteration: Annotated[int | None, typer.Option(help="Iteration; an import's is negative.")] = None,
    route: Annotated[str | None, typer.Option(help="sft, ct, rl, quarantine or none.")] = None,
    gate: Annotated[str | None, typer.Option(help="Gate that rejected the trajectory.")] = None,
    text: Annotated[str | None, typer.Option(help="Text in the instruction, a thought, an action or a reason.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the task's page.")] = None,
    tag: Annotated[str | None, typer.Option(help="Tag, as `flywheel tag` wrote it.")] = None,
    evaluations: Annotated[
        bool, typer.Option("--evaluations", help="Find the trajectories that evaluations keep, on held-out seeds.")
    ] = False,
    sort: Annotated[str, typer.Option(help="newest, oldest, reward, steps or seconds.")] = "newest",
    limit: Annotated[int | None, typer.Option(min=1, max=MOST, help="Maximum number; 20, or all with --ids.")] = None,
    after: Annotated[str | None, typer.Option(help="List those after this trajectory, for the next page.")] = None,
    ids: Annotated[bool, typer.Option("--ids", help="Print ids alone, one a line, for other commands' --ids.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find trajectories by task, outcome, policy, iteration, route, gate, text, seed and tag."""
    from tasks.shared.finding import Wanted, find, matching, refuse_unknown

    lake = open_lake(resolve(config, overrides))
    wanted = Wanted(task, outcome, policy, iteration, route, gate, text, seed, tag, evaluations)
    found = None if ids else find(lake, wanted, limit or 20, sort, after)
    page = found.matching if found else matching(lake, wanted, limit or MOST, sort, after)
    if not page.total:
        refuse_unknown(lake, wanted)
    if found is None:
        for one in page.ids:
            print_line(one)
        return
    shown = {"total": found.total, "after": found.after, "trajectories": [_as_dict(one) for one in found]}
    print_result(as_json, shown, lambda: _print_found(found))


def show(
    name: Annotated[str, typer.Argument(metavar="TRAJECTORY_ID", help="A trajectory's id.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    gif: Annotated[
        Path | None, typer.Option("--gif", help="Also write its screens as a moving picture, .gif or .webp.")
    ] = None,
    strip: Annotated[
        Path | None, typer.Option("--strip", help="Also write its screens next to each other, as .png.")
    ] = None,
    video: Annotated[
        Path | None, typer.Option("--video", help="Also write its screens with their times as a video, .mp4 or .webm.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a trajectory: its outcome, the decision about it, and its steps."""
    from flywheel import OpenLake
    from tasks.shared.finding import found_of
    from tasks.shared.tags import tags_of

    check_pictures(gif, strip, video)
    lake = open_lake(resolve(config, overrides))
    about = found_of(lake, name)
    trajectory = OpenLake(lake).trajectory(name)
    if gif is not None:
        trajectory.save_film(gif)
    if strip is not None:
        trajectory.strip().save(strip)
    if video is not None:
        trajectory.save_video(video)
    steps = [step_as_dict(one) for one in trajectory.steps]
    written = [str(path) for path in (gif, strip, video) if path is not None]
    tags = tags_of(lake, [name])
    shown = {**_as_dict(about), "tags": tags, "steps": steps, "written": written}
    print_result(as_json, shown, lambda: _print_trajectory(about, trajectory, tags, written))


def decide(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="DECISION [ID]... [KEY=VALUE]...", help="accept, reject or route:ROUTE; then ids, then config keys."
        ),
    ],
    config: ConfigFile = None,
    ids: IdsFile = None,
    person: Annotated[str | None, typer.Option(help="Your name; the user's name if not given.")] = None,
    note: Annotated[str, typer.Option(help="Reason, stored with each decision.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count only, and write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Accept, reject or route many trajectories, as one operation that `trajectories undo` takes back."""
    from tasks.shared.many import decide_all

    (decision, *named), overrides = apart(words)
    chosen = [*named, *ids_of(ids)]
    lake = open_lake(resolve(config, overrides))
    done = decide_all(lake, chosen, decision, person or user(), note, dry_run)
    print_result(as_json, done, lambda: _print_decided(done, decision, dry_run))


def undo(
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="Id of the operation, as `decide` printed it.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    person: Annotated[str | None, typer.Option(help="Your name; the user's name if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Undo the decisions of an operation on many trajectories."""
    from tasks.shared.many import undo_batch

    done = undo_batch(open_lake(resolve(config, overrides)), batch, person or user())
    print_result(as_json, done, lambda: _print_decided(done, "undone", False))


VERBS = (list_, show, decide, undo)


def _print_decided(done: "Decided", decision: str, dry_run: bool) -> None:
    would = " would be" if dry_run else ""
    undo_with = f" Undo: flywheel trajectories undo {done.batch}" if done.batch and decision != "undone" else ""
    print_line(f"{counted(len(done.trajectories), 'trajectory', 'trajectories')}{would}: {decision}.{undo_with}")
    for reason, n in done.left_out.items():
        print_line(f"{n:,} left out: {reason}")


def check_pictures(gif: Path | None, strip: Path | None, video: Path | None = None) -> None:
    """Raises UsageError if the file of a strip is no .png, the folder of a picture does not exist, or its file does."""
    if strip is not None and strip.suffix.lower() != ".png":
        raise UsageError(f"{strip.name} is no .png.", "Name the file, for example, strip.png.")
    for path in (gif, strip, video):
        if path is not None and not path.absolute().parent.is_dir():
            raise UsageError(f"{path}: there is no folder {path.parent}.", "Make it, or name another file.")
        if path is not None and path.exists():
            raise UsageError(f"{path} exists.", "Name a new file; nothing is overwritten.")


def done_in_words(step: "RecordedStep") -> str:
    """Describes the actions of a step and, if one was not performed, the reason."""
    from schemas.action import in_words

    done = "; ".join(map(in_words, step.actions)) or "no action"
    left = len(step.actions) - len(step.frames) - 1
    done += f" (the last {left} not performed)" if left > 0 and not step.action_error else ""
    return f"{done} ({legible(step.action_error)})" if step.action_error else done


def _as_dict(one: "FoundTrajectory") -> dict[str, Any]:
    row = one.row
    kept = ("trajectory_id", "task_id", "seed", "iteration", "policy", "policy_version", "instruction", "n_steps")
    return {
        **{name: getattr(row, name) for name in kept},
        **{name: getattr(row, name) for name in ("reward", "success", "termination", "failure_boundary")},
        "failure_reason": row.failure_reason,
        "started_at": row.started_at.isoformat(),
        "wall_s": row.wall_s,
        "outcome": one.outcome,
        "route": one.route,
        "reason": one.reason,
        "evaluation": getattr(row, "suite", None),
    }


def step_as_dict(step: "RecordedStep") -> dict[str, Any]:
    """Converts a step to JSON."""
    kept = ("step", "actor", "thought", "actions", "action_error", "screenshot", "next_screenshot", "frames")
    return {name: getattr(step, name) for name in kept} | {"actions": [json.loads(one) for one in step.actions]}


def _print_found(found: "Found") -> None:
    from tasks.running.console import make_table, out
    from tasks.shared.status import explorer_name

    table = make_table(*COLUMNS)
    for one in found:
        row = one.row
        reward = "" if row.reward is None else f"{row.reward:.2f}"
        policy = explorer_name(row.policy_version) if row.policy == "explorer" else row.policy_version
        table.add_row(
            row.trajectory_id, one.outcome, row.task_id, str(row.seed), str(row.iteration), policy,
            str(row.n_steps), reward, one.route or "-",
        )  # fmt: skip
    if found.rows:
        out().print(table)
    print_line(f"{len(found.rows):,} of {found.total:,} trajectories that match.")
    if found.after:
        print_line(f"The next ones: --after {found.after}")


def tag_in_words(one: "Tag") -> str:
    """Describes a tag or note."""
    text = ": ".join(part for part in (f"tag {one.tag}" if one.tag else "note", one.note) if part)
    return f"{text} ({one.person}, {one.created_at:%Y-%m-%d})"


def _print_trajectory(
    about: "FoundTrajectory", trajectory: "StoredTrajectory", tags: "Sequence[Tag]", written: list[str]
) -> None:
    row = about.row
    reward = "" if row.reward is None else f", reward {row.reward:.2f}"
    print_line(f"{row.trajectory_id}  {row.task_id}, seed {row.seed}, iteration {row.iteration}, {row.policy_version}")
    suite = getattr(row, "suite", None)
    use = f"of an evaluation ({suite})" if suite else f"route {about.route or 'none yet'} {about.reason}"
    print_line(f"{about.outcome}{reward}, ended by {row.termination}; {use}")
    if row.failure_reason:
        print_line(f"{row.failure_boundary}: {row.failure_reason}")
    print_line(f"instruction: {row.instruction}")
    for one in tags:
        print_line(tag_in_words(one))
    for step in trajectory.steps:
        print_line(f"{step.step:>3}  {done_in_words(step)}")
        if step.thought:
            print_line(textwrap.indent(step.thought, "     "))
    for path in written:
        print_line(f"written: {path}")
