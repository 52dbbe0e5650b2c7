"""Chooses the fastest settings with which a training fits on GPUs, and predicts its pace.

The user chooses the training. This module chooses only settings that change memory and time, never the result. Settings
that would change it (adapters, a frozen vision tower) or cost money (more GPUs) are only suggested.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from learning.planning.balance import BalanceCost
from learning.planning.memory import (
    EIGHT_BIT,
    MemoryRecipe,
    Network,
    Prediction,
    checkpointable,
    holds_copies,
    predict,
    recomputed,
    with_fewest,
)
from schemas.failure import UsageError

USABLE = 0.975
"""GiB of a GPU per GB of its nominal size: an H100 of 80 GB has about 78, and an H200 of 141 GB about 139."""
CAPS = (16_384, 8_192, 4_096)
"""Numbers of tokens of a micro-batch to try; the first is enough for six screens of 1920 x 1080 with text."""
TARGETS = 8
"""Tokens per target; assumed, since replies are shorter than their prompts."""
CHUNK = 512
"""Number of targets whose logits are held at a time if logits are chunked."""
SAMPLE = 4_096
"""Assumed number of tokens of a sample, of which a screen is half, for the cost of attention."""
MOST_GPUS = 4_096
"""Maximum number of suggested GPUs."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs available to a training."""

    nodes: int
    each: int
    """Number of GPUs of a node."""
    size: int
    """Nominal memory of a GPU in GB."""

    @property
    def ranks(self) -> int:
        """Counts all GPUs."""
        return self.nodes * self.each

    @property
    def room(self) -> int:
        """Computes usable bytes of one GPU."""
        return int(self.size * USABLE * 2**30)

    def __str__(self) -> str:
        return f"{self.nodes}x{self.each}x{self.size}" if self.nodes > 1 else f"{self.each}x{self.size}"


@dataclass(frozen=True, slots=True)
class Speed:
    """Speeds from which a pace is computed."""

    operations: float
    """Achieved operations per second and GPU."""
    near: float
    """GB per second between the GPUs of a node."""
    far: float
    """GB per second between nodes."""
    block: float
    """Overhead in seconds per block of a micro-batch."""


@dataclass(frozen=True, slots=True)
class TriedRecipe:
    """A recipe, its memory, and its differences from the simplest recipe."""

    recipe: MemoryRecipe
    prediction: Prediction
    why: tuple[tuple[str, str], ...]
    """Config keys as `key=value`, each with its reason."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change with which the training would fit."""

    change: str
    peak: int
    """Predicted bytes of a GPU with this change."""


def read_gpus(text: str) -> Gpus:
    """Parses `8x80` (GPUs and GB of each) or `2x8x80` (with nodes first); raises `UsageError` for any other text."""
    found = re.fullmatch(r"(?:(\d{1,4})x)?(\d{1,4})x(\d{1,4})", text, re.ASCII)
    numbers = [int(one or 1) for one in found.groups()] if found else []
    if not numbers or not all(numbers):
        raise UsageError(
            f"`--gpus {text}` is not of the form GPUSxGB or NODESxGPUSxGB.", "Write, for example, 1x80, 8x80 or 2x8x80."
        )
    return Gpus(*numbers)


def choose(network: Network, gpus: Gpus, asked: MemoryRecipe, cap: int | None = None) -> tuple[TriedRecipe, bool]:
    """Finds the first recipe that fits, else the recipe nearest to fitting, and whether it fits.

    Args:
        network: the sizes of the model, including adapters if the recipe has a rank.
        gpus: the GPUs available.
        asked: the requested training; this function sets its ranks, tokens, targets and patches.
        cap: number of tokens of a micro-batch, if given.
    """
    nearest: TriedRecipe | None = None
    for recipe, why in _variants(network, gpus, asked, (cap,) if cap else CAPS):
        tried = TriedRecipe(recipe, predict(network, recipe), tuple(why.items()))
        if tried.prediction.peak <= gpus.room:
            return tried, True
        if nearest is None or tried.prediction.peak < nearest.prediction.peak:
            nearest = tried
    assert nearest is not None
    return nearest, False


def suggestions(
    network: Network, adapted: Network, gpus: Gpus, asked: MemoryRecipe, cap: int | None = None, rank: int = 16
) -> list[Suggestion]:
    """Lists changes with which a training that does not fit would fit.

    Args:
        network, gpus, asked, cap: as in `choose`.
        adapted: the sizes of the model with adapters of this rank.
        rank: the adapters' rank.
    """
    found: list[Suggestion] = []
    more = gpus
    while more.ranks < MOST_GPUS:
        more = replace(more, nodes=2 * more.nodes) if more.each >= 8 else replace(more, each=2 * more.each)
        tried, fits = choose(network, more, asked, cap)
        if fits:
            found.append(Suggestion(f"--gpus {more}", tried.prediction.peak))
            break
    others: dict[str, tuple[Network, MemoryRecipe]] = {}
    if not asked.rank:
        others[f"--lora: adapters of rank {rank} on bf16 weights"] = (adapted, replace(asked, rank=rank, frozen=2))
        if not asked.freeze_vision:
            others["train.memory.freeze_vision=true"] = (network, replace(asked, freeze_vision=True, frozen=2))
    found += _fitting(others, gpus, cap)
    if not network.language.experts and not any(
        one.change.startswith("--lora") for one in found
    ):  # otherwise it only rounds more
        four = replace(asked, rank=asked.rank or rank, frozen=2, four_bits=True)
        change = f"{'' if asked.rank else '--lora '}train.memory.frozen=nf4: adapters on 4-bit weights"
        found += _fitting({change: (adapted, four)}, gpus, cap)
    return found


def instead_of_offloading(
    network: Network, gpus: Gpus, asked: MemoryRecipe, cap: int | None = None
) -> list[Suggestion]:
    """Suggests moments in 8 bits, if weights, gradients and moments then fit into the GPUs; arguments as in
    `choose`."""
    for recipe, _ in _variants(network, gpus, replace(asked, moment=EIGHT_BIT), (cap,) if cap else CAPS):
        peak = predict(network, recipe).peak
        if not recipe.offload and peak <= gpus.room:
            return [Suggestion("train.memory.moments=8bit, without train.memory.offload", peak)]
    return []


def _fitting(others: dict[str, tuple[Network, MemoryRecipe]], gpus: Gpus, cap: int | None) -> list[Suggestion]:
    """Selects the changes with which the training fits."""
    tried = {change: choose(sizes, gpus, recipe, cap) for change, (sizes, recipe) in others.items()}
    return [Suggestion(change, one.prediction.peak) for change, (one, fits) in tried.items() if fits]


def pace(
    language: BalanceCost,
    vision: BalanceCost,
    network: Network,
    gpus: Gpus,
    recipe: MemoryRecipe,
    forwards: int,
    by: Speed,
) -> float:
    """Predicts tokens per second of all GPUs together.

    A forward pass is 2 operations per weight that a token uses, a backward pass 4 (Kaplan et al., arXiv 2001.08361), or
    2 with adapters. Recomputed activations cost one more forward pass of their blocks. At the same time, weights are
    gathered twice and gradients reduced once; the longer of computation and communication counts.

    Args:
        language, vision: costs of a sample per token, and of a screen per patch, in units of 6 operations. network,
        gpus, recipe: the training and its GPUs.
        forwards: forward passes in addition to those of the gradient: 1 if the loss compares with the parent's weights.
        by: speeds of a GPU and of its links.
    """
    samples = recipe.tokens / SAMPLE
    screens = recipe.patches / (SAMPLE / 2 * network.merge)
    read, seen = samples * float(language.of(SAMPLE)), screens * float(vision.of(int(SAMPLE / 2 * network.merge)))
    seen_twice, read_twice = recomputed(network, recipe)
    again = read * read_twice / network.language.blocks + seen * seen_twice / network.vision.blocks
    passes = (1 + forwards) * 2 + (2 if recipe.rank else 4)
    computing = recipe.networks * (passes * (read + seen) + 2 * again) / by.operations
    within = gpus.nodes == 1 or recipe.replicas % gpus.nodes == 0  # weights are gathered only within nodes
    link = (by.near if within else by.far) * 1e9
    gathers = 0 if gpus.ranks == recipe.replicas else 2 if recipe.rank else 3
    moved = gathers * recipe.networks * recipe.compute * network.weights
    fixed = by.block * (network.language.blocks + network.vision.blocks)
    return gpus.ranks * recipe.tokens / (max(computing, moved / link) + fixed)


def _variants(
    network: Network, gpus: Gpus, asked: MemoryRecipe, caps: tuple[int, ...]
) -> Iterator[tuple[MemoryRecipe, dict[str, str]]]:
    """Yields recipes from the fastest to the slowest, with keys and reasons; all keep the requested settings."""

    if gpus.nodes > 1 and asked.replicas == 1:
        rows = {f"train.replicas={gpus.nodes}": "each node holds the weights, so that none are gathered between nodes"}
        for recipe, why in _variants(network, gpus, replace(asked, replicas=gpus.nodes), caps):
            if not recipe.offload or asked.offload:
                yield recipe, rows | why

    def at(cap: int, **knobs: object) -> MemoryRecipe:
        sizes = {"tokens": cap, "targets": cap // TARGETS, "patches": cap * network.merge}
        made = replace(asked, ranks=gpus.ranks, **sizes, **knobs)  # type: ignore[arg-type]
        return replace(made, copies=holds_copies(network, made, gpus.room))

    size = asked.logits_chunk or CHUNK
    chunk = {f"train.memory.logits_chunk={size}": "all at once did not fit; costs one more product with the head"}

    def again(recipe: MemoryRecipe) -> dict[str, str]:
        if not recipe.checkpointing or recipe.checkpointing == asked.checkpointing:
            return {}
        more = f"{asked.checkpointing} of your config do not suffice: " if asked.checkpointing else ""
        if recipe.checkpointing is True:
            return {"train.activation_checkpointing=true": f"{more}no block's fit; costs one more forward pass"}
        every, number = sum(checkpointable(network, recipe)), recipe.checkpointing
        why = f"{more}those of {every - number} of {every} blocks fit; the others cost one more forward pass each"
        return {f"train.activation_checkpointing={number}": why}

    host = {"train.memory.offload=true": "weights, gradients and moments do not fit next to the buffers of a step"}
    yield at(caps[0]), {}
    yield at(caps[0], logits_chunk=size), chunk
    for cap in caps:
        recipe = with_fewest(network, at(cap, logits_chunk=size), gpus.room)
        yield recipe, chunk | again(recipe)
    if not asked.rank:
        for cap in caps:
            recipe = with_fewest(network, at(cap, logits_chunk=size, offload=True), gpus.room)
            yield recipe, chunk | again(recipe) | host
