"""Implement `flywheel plan`: check whether a training fits on some GPUs, choose its knobs, and estimate its speed."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.options import AsJson, ConfigFile, Overrides, print_line, print_result, resolve
from apps.process import SPENT_NOTHING, Interrupts
from schemas.failure import UsageError

if TYPE_CHECKING:
    from schemas.config.sections import Config

RANK = 16
"""Rank of the adapters of `--lora`."""
GIB = 2**30
MEASURED = "one H100 as measured (2.6e14 operations a second, a quarter of its peak)"
ASSUMED = (
    f"{MEASURED}; links between GPUs and nodes are assumed, and no run on several GPUs has been made",
    "a GPU has 97.5 % of its name's GB in GiB, of which 1.5 GiB go to the driver and 5 % of a step to fragmentation",
    "all tokens are of screens, and one of eight has a target",
)


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The result of the search."""

    model: str
    weights: int
    trained: int
    method: str
    gpus: str
    fits: bool
    gib: float
    """Memory that a GPU needs."""
    room_gib: float
    """Usable memory of a GPU."""
    host_gib: float
    """Required memory of the machine for each GPU."""
    parts_gib: dict[str, float]
    moment: str
    """Phase of a step in which a GPU uses the most memory."""
    knobs: dict[str, str]
    """Config keys as `key=value`, and why."""
    tokens_per_s: float
    seconds_per_step: float
    """Seconds for the number of tokens that all GPUs hold at once."""
    would_fit: dict[str, float]
    """Changes with which the training would fit, or would fit without the machine's memory, each with the GiB of a
    GPU."""
    assumed: tuple[str, ...]
    written: str | None


def plan(
    model: Annotated[Path, typer.Option("--model", metavar="DIR", help="Model directory; only config.json is read.")],
    gpus: Annotated[str, typer.Option("--gpus", metavar="NxGB", help="GPUs x GB: 8x80; with nodes: 2x8x80.")],
    overrides: Overrides = None,
    config: ConfigFile = None,
    method: Annotated[
        str | None, typer.Option("--method", help="Method, such as sft; the config's if not given.")
    ] = None,
    lora: Annotated[
        bool,
        typer.Option("--lora", help=f"Adapters of rank {RANK} over bf16 weights, unless other keys differ."),
    ] = False,
    write: Annotated[Path | None, typer.Option("--write", metavar="FILE", help="File to write the config to.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a training fits on given GPUs, choose its memory options, and write the config."""
    Interrupts.kept = SPENT_NOTHING
    given = list(overrides or ())
    if write is not None and write.exists():
        raise UsageError(f"`--write`: there is a {write} already.", "Name another file; nothing was written.")
    given += [f"train.method={method}"] if method else []
    given = [f"train.lora.rank={RANK}", "train.memory.frozen=bfloat16", *given] if lora else given
    found = planned(resolve(config, given), model, gpus)
    if write is not None and found.fits:
        _write(write, config, [*given, *_keys(found, model)])
        found = replace(found, written=str(write.absolute()))
    print_result(as_json, found, lambda: _show(found, write))
    if not found.fits:
        raise typer.Exit(1)


def planned(config: "Config", model: Path, gpus: str) -> TrainingPlan:
    """Makes the plan.

    Raises:
        UsageError: the GPUs or an option cannot be parsed, or the config sets a key that the plan chooses.
        CheckpointError: the directory has no trainable model.
    """
    from learning.planning.recipes import choose, instead_of_offloading, read_gpus, suggestions

    there = read_gpus(gpus)
    train = config.train
    _refuse_small(model)
    from learning.algorithms.method import method_of
    from learning.engines.fsdp.census import sizes_at
    from learning.planning.memory import MemoryRecipe, generator_bytes

    method = method_of(train)
    network, shape = sizes_at(model, train.lora)
    asked = MemoryRecipe.of(
        train, ranks=there.ranks, tokens=0, targets=0, patches=0, compute=4 if train.precision == "float32" else 2,
        networks=method.networks(train), generator=generator_bytes(network, config.policy, train),
    )  # fmt: skip
    if asked.four_bits and network.language.experts:
        raise UsageError(
            "`train.memory.frozen=nf4`: the experts of this model are not linear layers.",
            "Take train.memory.frozen=bfloat16.",
        )
    cap = None if train.token_cap == "auto" else train.token_cap
    tried, fits = choose(network, there, asked, cap)
    others = {}
    if fits and tried.recipe.offload and not asked.offload:
        others = {one.change: one.peak / GIB for one in instead_of_offloading(network, there, asked, cap)}
    if not fits:
        adapted, _ = sizes_at(model, train.lora.model_copy(update={"rank": train.lora.rank or RANK}))
        found = suggestions(network, adapted, there, asked, cap, RANK)
        others = {one.change: one.peak / GIB for one in found}
    speed = _pace(shape, network, there, tried.recipe, int(method.compares))
    trained = network.adapters if train.lora.rank else network.weights
    trained -= network.tower if train.memory.freeze_vision and not train.lora.rank else 0
    prediction = tried.prediction
    return TrainingPlan(
        model=str(model.absolute()), weights=network.weights, trained=trained, method=train.method, gpus=str(there),
        fits=fits, gib=prediction.peak / GIB, room_gib=there.room / GIB, host_gib=prediction.host / GIB,
        parts_gib={name: size / GIB for name, size in prediction.parts.items() if size}, moment=prediction.moment,
        knobs={
            f"train.token_cap={train.token_cap or tried.recipe.tokens}": _cap(train.token_cap, tried.recipe.tokens),
            **dict(tried.why),
        },
        tokens_per_s=speed, seconds_per_step=there.ranks * tried.recipe.tokens / speed, would_fit=others,
        assumed=ASSUMED, written=None,
    )  # fmt: skip


def _refuse_small(model: Path) -> None:
    from models.tiny.layout import is_tiny, read_config

    if not (model / "config.json").is_file():
        raise UsageError(f"`--model`: {model} has no config.json.", "Name a Hugging Face model directory.")
    if is_tiny(read_config(model)):
        raise UsageError(f"`--model`: {model} is the small policy, which trains on a CPU.", "It needs no plan.")


def _cap(given: int | str | None, chosen: int) -> str:
    from learning.planning.recipes import CAPS

    if given:
        return "as asked for"
    if chosen == CAPS[0]:
        return "holds six screens of 1920 x 1080 and their text"
    return f"{CAPS[0]:,} do not fit; a longer sample is shared by several GPUs, or refused on one"


def _pace(shape: Any, network: Any, gpus: Any, recipe: Any, forwards: int) -> float:
    from learning.engines.fsdp.costs import GPU
    from learning.planning.recipes import Speed, pace

    by = Speed(GPU.operations, GPU.near, GPU.far, GPU.block)
    return pace(shape.language, shape.vision, network, gpus, recipe, forwards, by)


def _keys(found: TrainingPlan, model: Path) -> list[str]:
    """Lists the config keys to set, in addition to the given ones."""
    nodes = found.gpus.count("x") == 2
    each = found.gpus.split("x")[-2]
    return [
        f"policy.base={model.resolve()}",
        "train.device=cuda",
        *found.knobs,
        *([] if nodes else [f"train.processes={each}"]),
    ]


def _write(file: Path, config: Path | None, keys: list[str]) -> None:
    from apps.commented import commented
    from learning.engines.choice import without_ignored
    from schemas.config.load import load_config

    made = load_config(config, keys)
    made = made.model_copy(update={"train": without_ignored(made.train, small=False)})
    try:
        with file.open("x") as opened:
            opened.write(commented(made))
    except OSError as error:
        raise UsageError(f"`--write`: {file} cannot be written: {error.strerror}.", "Name another file.") from error


def _weights(number: int) -> str:
    return f"{number / 1e9:.2f} billion" if number >= 10_000_000 else f"{number / 1e6:.2f} million"


def _show(found: TrainingPlan, write: Path | None) -> None:
    """Prints the plan."""
    verdict = "fits" if found.fits else "does not fit"
    print_line(f"{found.model}: {_weights(found.weights)} weights, {_weights(found.trained)} trained by {found.method}")
    print_line(
        f"on {found.gpus}: {verdict}, {found.gib:.1f} GiB of {found.room_gib:.1f} on each GPU, most at {found.moment}"
    )
    for name, size in found.parts_gib.items():
        print_line(f"  {name:<24}{size:>8.2f} GiB")
    if found.host_gib:
        print_line(f"  {'in the machine, each GPU':<24}{found.host_gib:>8.2f} GiB")
    for key, why in found.knobs.items():
        print_line(f"  {key}: {why}")
    if found.fits:
        print_line(
            f"about {found.tokens_per_s:,.0f} tokens per second; {found.seconds_per_step:.1f} s for a batch of all GPUs"
        )
    for change, size in found.would_fit.items():
        print_line(f"would fit: {change}, {size:.1f} GiB")
    if not found.fits and not found.would_fit:
        print_line("neither more GPUs of this size nor adapters would make it fit: take GPUs with more memory")
    for one in found.assumed:
        print_line(f"assumed: {one}")
    if found.written:
        print_line(f"{found.written} is written")
    elif write is not None:
        print_line("nothing was written, as it does not fit")
