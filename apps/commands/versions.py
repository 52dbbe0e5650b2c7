"""Implement the verbs of versions: roll back the champion, compare two versions, forget a trajectory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps import completion
from apps.options import AsJson, ConfigFile, IdsFile, apart, ids_of, open_lake, print_line, print_result, resolve, user
from schemas.failure import UsageError

if TYPE_CHECKING:
    from schemas.config import Config


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
        typer.Argument(metavar="A B [KEY=VALUE]...", help="Policies, `now`, times like 2026-11-20T12:00; or lakes."),
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
    """Show the changes between two data versions, policies or lakes, or two policies on one task and seed."""
    from apps.commands.lakes import is_lake

    versions, overrides = apart(named)
    if len(versions) != 2:
        raise UsageError(f"`diff` compares two versions, not {len(versions)}.", "Write, for example, policy-0001 now.")
    if task is None and seed is not None:
        raise UsageError("`--seed` is of a task.", "Add --task, such as --task click-test.")
    if seed is None and (gif or strip):
        raise UsageError("`--gif` and `--strip` draw one seed.", "Add --task and --seed.")
    resolved = resolve(config, overrides)
    if any(map(is_lake, versions)):
        _diff_lakes(resolved, versions, task, as_json)
        return
    lake = open_lake(resolved)
    if task is None:
        from apps.commands.difference import difference_of, show_difference

        found = difference_of(lake, *versions)
        print_result(as_json, found.as_dict, lambda: show_difference(found))
    elif seed is None:
        from apps.commands.paired import list_pairs

        list_pairs(lake, versions[0], versions[1], task, as_json)
    else:
        from apps.commands.paired import show_pair

        show_pair(lake, versions[0], versions[1], task, seed, gif, strip, as_json)


def _diff_lakes(config: "Config", names: list[str], task: str | None, as_json: bool) -> None:
    from apps.commands.lakes import compare_lakes, show_lakes

    if task is not None:
        raise UsageError("`--task` is of two policies of one lake.", "Leave it out for two lakes.")
    found = compare_lakes(config, names[0], names[1])
    print_result(as_json, found.as_dict, lambda: show_lakes(found))


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
        typer.Argument(metavar="NAME... [KEY=VALUE]...", help="Trajectories, policies or runs, then config keys."),
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
    from tasks.shared.tags import add_tag, remove_tag, tags_of

    names, overrides = apart(named)
    names += ids_of(ids)
    lake, who = open_lake(resolve(config, overrides)), person or user()
    if remove:
        found = remove_tag(lake, names, tag, who)
    else:
        found = add_tag(lake, names, tag, who, note) if tag or note else tags_of(lake, names)
    print_result(as_json, found, lambda: [print_line(tag_in_words(one)) for one in found])


VERBS = (rollback, diff, forget, tag)
