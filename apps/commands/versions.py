"""Implement the verbs of versions: roll back the champion, compare two versions, forget a trajectory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps import completion
from apps.options import AsJson, ConfigFile, IdsFile, apart, ids_of, open_lake, print_line, print_result, resolve, user
from schemas.failure import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flywheel.comparison import HistoryComparison


def rollback(
    named: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[VERSION] [KEY=VALUE]...",
            help="Earlier champion, then config keys.",
            autocompletion=completion.policies,
        ),
    ] = None,
    config: ConfigFile = None,
    reason: Annotated[str, typer.Option(help="Reason, which is stored with the record.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make the previous champion, or VERSION, the champion again; the next training starts from it."""
    from apps.commands.policies import roll_back_to
    from tasks.promote.events import as_dict

    versions, overrides = apart(named)
    if len(versions) > 1:
        raise UsageError(f"`rollback` takes one version, not {', '.join(versions)}.", "Name one, or none.")
    done = roll_back_to(open_lake(resolve(config, overrides)), versions[0] if versions else None, reason)
    print_result(
        as_json, as_dict(done), f"{done.champion} is the champion again in place of {done.against}: {done.reason}"
    )


def diff(
    named: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A B [KEY=VALUE]...",
            help="Policies, `now`, times like 2026-11-20T12:00; or runs; or lakes.",
            autocompletion=completion.policies_or_keys,
        ),
    ] = None,
    config: ConfigFile = None,
    task: Annotated[
        str | None,
        typer.Option(help="List the evaluation seeds of this task that one won.", autocompletion=completion.tasks),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With --task: both policies on this seed, step by step.")] = None,
    gif: Annotated[
        Path | None, typer.Option("--gif", help="With --seed: write both as a moving picture, .gif or .webp.")
    ] = None,
    strip: Annotated[
        Path | None, typer.Option("--strip", help="With --seed: write the screens of both as a .png.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the changes between two data versions, policies, runs or lakes, or two policies on one task and seed."""
    from flywheel.comparison import is_lake
    from tasks.shared.runs import run_named

    versions, overrides = apart(named)
    if len(versions) != 2:
        raise UsageError(f"`diff` compares two versions, not {len(versions)}.", "Write, for example, policy-0001 now.")
    if task is None and seed is not None:
        raise UsageError("`--seed` is of a task.", "Add --task, such as --task click-test.")
    if seed is None and (gif or strip):
        raise UsageError("`--gif` and `--strip` draw one seed.", "Add --task and --seed.")
    resolved = resolve(config, overrides)
    if any(map(is_lake, versions)):
        from flywheel.comparison import compare_lakes

        _diff_wholes(lambda: compare_lakes(resolved, *versions), "lakes", task, as_json)
        return
    lake = open_lake(resolved)
    if any(run_named(lake, name) for name in versions):
        from flywheel.comparison import compare_runs

        _diff_wholes(lambda: compare_runs(lake, resolved.budget, *versions), "runs", task, as_json)
    elif task is None:
        from apps.commands.difference import show_difference
        from flywheel.difference import difference_of

        found = difference_of(lake, *versions)
        print_result(as_json, found.as_dict, lambda: show_difference(found))
    elif seed is None:
        from apps.commands.paired import list_pairs

        list_pairs(lake, versions[0], versions[1], task, as_json)
    else:
        from apps.commands.paired import show_pair

        show_pair(lake, versions[0], versions[1], task, seed, gif, strip, as_json)


def _diff_wholes(compare: "Callable[[], HistoryComparison]", kind: str, task: str | None, as_json: bool) -> None:
    """Prints two lakes or two runs."""
    from apps.commands.comparison import show_comparison

    if task is not None:
        raise UsageError("`--task` is of two policies of one lake.", f"Leave it out for two {kind}.")
    found = compare()
    print_result(as_json, found.as_dict, lambda: show_comparison(found))


def forget(
    named: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRAJECTORY_ID... [KEY=VALUE]...", help="Trajectories, then config keys."),
    ] = None,
    config: ConfigFile = None,
    ids: IdsFile = None,
    reason: Annotated[str, typer.Option(help="Reason, which is required and stored with the ids.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the rows to remove, and remove nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove trajectories from the whole lake for good, and list the policies that learned from them."""
    from apps.commands.forgetting import forget_trajectories, show_forgotten

    names, overrides = apart(named)
    names += ids_of(ids)
    if not names:
        raise UsageError("`forget` was given no trajectory.", "Write its id: `flywheel desk` and the report show them.")
    if not (reason.strip() or dry_run):
        raise UsageError("`forget` removes for good, and needs `--reason`.", "Give one; --dry-run shows the rows.")
    found = forget_trajectories(open_lake(resolve(config, overrides)), names, reason, dry_run)
    print_result(as_json, found, lambda: show_forgotten(found))


def tag(
    named: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME... [KEY=VALUE]...",
            help="Trajectories, policies or runs, then config keys.",
            autocompletion=completion.policies_or_keys,
        ),
    ] = None,
    config: ConfigFile = None,
    ids: IdsFile = None,
    tag: Annotated[str, typer.Option(help="Tag of small letters, such as flaky.")] = "",
    note: Annotated[str, typer.Option(help="Free text.")] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the tag.")] = False,
    person: Annotated[str | None, typer.Option(help="Your name; the user's name if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tag trajectories, policies and runs, or write a note on them; without --tag and --note, show both."""
    from apps.commands.trajectories import tag_in_words
    from tasks.shared.tags import add_tag, remove_tag, subject_of, subjects_of, tags_of

    names, overrides = apart(named)
    names += ids_of(ids)
    lake, who = open_lake(resolve(config, overrides)), person or user()
    if remove:
        found = remove_tag(lake, names, tag, who)
    else:
        found = add_tag(lake, names, tag, who, note) if tag or note else tags_of(lake, subjects_of(lake, names))
    done = "removed: " if remove else ""
    print_result(
        as_json, found, lambda: [print_line(f"{subject_of(one)[1]}  {done}{tag_in_words(one)}") for one in found]
    )


VERBS = (rollback, diff, forget, tag)
