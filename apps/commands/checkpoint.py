"""Implement `flywheel checkpoint`: inspect a training's checkpoints, verify them, reshard them, extract the weights."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.options import AsJson, ConfigFile, Overrides, print_json, print_line, print_result, resolve, sweep_exports
from common.text import counted

if TYPE_CHECKING:
    from learning.checkpoint.offline import Inspected

Place = Annotated[
    str, typer.Argument(metavar="PLACE", help="A training's checkpoints: a folder or s3://bucket/prefix.")
]
NAMED, SHOWN = 3, 10
"""Maximum names of tensors in a printed line, and maximum printed lines about files."""
Step = Annotated[int | None, typer.Option("--step", help="Step of the checkpoint; the last one if not given.")]


def inspect(
    place: Place, overrides: Overrides = None, config: ConfigFile = None, step: Step = None, as_json: AsJson = False
) -> None:
    """Show the contents of a checkpoint."""
    from learning.checkpoint import inspect as look

    found = look(_store(place, config, overrides), step)
    print_result(as_json, found, lambda: _show(found))


def verify(
    place: Place, overrides: Overrides = None, config: ConfigFile = None, step: Step = None, as_json: AsJson = False
) -> None:
    """Read every byte of a checkpoint and compare it with the recorded checksums; exit status 1 if it differs."""
    from learning.checkpoint import verify as check

    found = check(_store(place, config, overrides), step)
    if as_json:
        print_json(found)
    else:
        damaged = found.damaged
        for file in sorted(damaged)[:SHOWN]:
            print_line(f"{file} differs from the saved data; {_in_it(damaged[file])}")
        if len(damaged) > SHOWN:
            print_line(f"{len(damaged) - SHOWN:,} more files differ from the saved data (--json has all)")
        print_line(f"step {found.step}: {found.files} files, {_size(found.bytes)}, {_verdict(found.ok)}")
    if not found.ok:
        sys.exit(1)


def reshard(
    place: Place,
    to: Annotated[str, typer.Option("--to", metavar="PLACE", help="Location of the new checkpoint.")],
    ranks: Annotated[int, typer.Option("--ranks", help="Number of ranks of the new checkpoint.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    step: Step = None,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint again for another number of ranks; loading does not need it."""
    from learning.checkpoint import reshard as cut

    made = cut(_store(place, config, overrides), _store(to, config, overrides), ranks, step)
    print_result(
        as_json,
        {"place": to, "step": made.step, "ranks": made.ranks},
        f"step {made.step} is in {to} for {made.ranks} ranks",
    )


def export(
    place: Place,
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new or empty folder.")],
    parent: Annotated[
        Path, typer.Option("--parent", metavar="DIR", help="Hugging Face directory that the training started from.")
    ],
    overrides: Overrides = None,
    config: ConfigFile = None,
    step: Step = None,
    prefix: Annotated[str, typer.Option("--prefix", help="Prefix of the modules' names.")] = "model.",
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint's weights as a folder that plain transformers loads."""
    from learning.export import export as write

    sweep_exports(to)
    made = write(_store(place, config, overrides), parent, to, step, prefix)
    print_result(as_json, made, f"step {made.step} is in {made.directory}")


def _store(place: str, config: Path | None, overrides: list[str] | None) -> Any:
    """Opens the store of a path; uses the settings of the config's lake for S3."""
    from learning.checkpoint import open_store
    from storage.address import resolve as reach

    if not place.startswith("s3://"):
        return open_store(place)
    address = reach(resolve(config, overrides).lake.model_copy(update={"uri": place}))
    return open_store(address.uri, address.filesystem)


def _show(found: "Inspected") -> None:
    from tasks.running.console import make_table, out

    console = out()
    console.print(f"{found.place}, step {found.step}, saved {found.created} by {found.ranks} ranks")
    console.print(f"{len(found.tensors)} tensors, {_size(found.tensor_bytes)}; steps there: {found.steps}")
    if found.extra:
        console.print(f"extra: {found.extra}")
    table = make_table("<tensor", "<type", "<shape")
    for name, entry in found.tensors.items():
        table.add_row(name, entry.dtype, " x ".join(map(str, entry.shape)))
    console.print(table)


def _in_it(tensors: list[str]) -> str:
    more = f" and {len(tensors) - NAMED:,} more (--json has all)" if len(tensors) > NAMED else ""
    return (
        f"{counted(len(tensors), 'tensor')} in it: {', '.join(tensors[:NAMED])}{more}" if tensors else "no tensor in it"
    )


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _verdict(ok: bool) -> str:
    return "all as saved" if ok else "damaged"


VERBS = (inspect, verify, reshard, export)
