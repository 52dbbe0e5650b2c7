"""Implement `flywheel checkpoint`: inspect, verify, reshard, export and show checkpoints, and convert them."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.options import (
    AsJson,
    ConfigFile,
    Overrides,
    print_json,
    print_line,
    print_note,
    print_result,
    resolve,
    sweep_exports,
)
from common.text import counted

if TYPE_CHECKING:
    from learning.checkpoint.offline import Inspected
    from learning.conversion.source import Source

Place = Annotated[
    str, typer.Argument(metavar="PLACE", help="A training's checkpoints: a folder or s3://bucket/prefix.")
]
NAMED, SHOWN = 3, 10
"""Maximum names of tensors in a printed line, and maximum printed lines about files."""
Folder = Annotated[Path, typer.Argument(metavar="PATH", help="Folder of a checkpoint, or of a trainer's checkpoints.")]
Prefix = Annotated[
    str | None,
    typer.Option("--prefix", help="Prefix of the weights' names in DCP's format; found by the names if not given."),
]
INTERVAL_S = 5.0
"""Minimum time between two lines of progress, in seconds."""
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


def show(path: Folder, step: Step = None, prefix: Prefix = None, as_json: AsJson = False) -> None:
    """Show the contents of any trainer's checkpoint: trainer, step, parallel layout and tensors."""
    from learning.conversion.opening import open_checkpoint

    source = open_checkpoint(path, step, prefix)
    print_result(as_json, _described(source), lambda: _show_source(source))


def convert(
    path: Folder,
    to: Annotated[Path, typer.Argument(metavar="TO", help="A new folder; it appears whole or not at all.")],
    form: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format to write: hf, dcp, flywheel or megatron.")
    ],
    shards: Annotated[int, typer.Option("--shards", help="Number of files, or of ranks in DCP's format.")] = 1,
    parent: Annotated[
        Path | None,
        typer.Option("--parent", metavar="DIR", help="Hugging Face directory with the config of the network."),
    ] = None,
    family: Annotated[
        str | None,
        typer.Option(
            "--family", help="Family that maps Megatron's names: qwen2, qwen2.5, qwen3; the config's if not given."
        ),
    ] = None,
    step: Step = None,
    prefix: Prefix = None,
    as_json: AsJson = False,
) -> None:
    """Convert a trainer's checkpoint to another format and number of shards, tensor by tensor."""
    from learning.conversion.convert import convert as write

    sweep_exports(to)
    last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > INTERVAL_S:
            last = time.monotonic()
            print_note(f"converted {_size(done)} of {_size(total)}")

    made = write(path, to, form, shards, parent, step, prefix, family, report)
    for note in made.notes:
        print_note(note)
    written = f"{counted(made.tensors, 'tensor')}, {_size(made.bytes)}, in {counted(made.files, 'file')}"
    print_result(as_json, made, f"{made.directory}: {written} ({made.format})")


def _described(source: "Source") -> dict[str, Any]:
    from learning.conversion.source import MASTER, WEIGHT

    tensors = {
        entry.name: {
            "dtype": str(entry.tensor.dtype).removeprefix("torch."),
            "shape": entry.tensor.shape,
            "bytes": entry.tensor.nbytes,
            "kind": entry.kind,
            "weight": entry.weight,
            "optimizer_state": entry.kind not in (WEIGHT, MASTER),
        }
        for entry in source.entries
    }
    return {
        "place": str(source.place),
        "format": source.format,
        "trainer": source.trainer,
        "step": source.step,
        "layout": dict(source.layout),
        "tied": dict(source.tied),
        "notes": source.notes,
        "tensors": tensors,
    }


def _show_source(source: "Source") -> None:
    from tasks.running.console import make_table, out

    console = out()
    layout = ", ".join(f"{kind} {number}" for kind, number in source.layout.items())
    step = "" if source.step is None else f", step {source.step}"
    console.print(f"{source.place}: format {source.format}, by {source.trainer}{step}; {layout or 'layout unknown'}")
    for kind in source.kinds:
        found = source.of_kind(kind).values()
        console.print(f"{kind}: {counted(len(found), 'tensor')}, {_size(sum(one.nbytes for one in found))}")
    for name, other in source.tied.items():
        console.print(f"{name} is the same tensor as {other}")
    for note in source.notes:
        console.print(note)
    table = make_table("<tensor", "<type", "<shape", "bytes", "<kind")
    for entry in source.entries:
        one = entry.tensor
        shape = " x ".join(map(str, one.shape))
        table.add_row(entry.name, str(one.dtype).removeprefix("torch."), shape, f"{one.nbytes:,}", entry.kind)
    console.print(table)


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


VERBS = (inspect, verify, reshard, export, show, convert)
