"""Computes samples' costs in operations only from lengths, so that all ranks and machines get the same result.

The forward and backward pass of a token takes 6 operations per weight that it uses (Kaplan et al., arXiv 2001.08361).
Attention takes 12 operations per layer, width and pair of tokens, and half as many if a token attends only to earlier
tokens. Costs are these numbers divided by 6.

The module also counts the sizes of a model on the model itself, for the memory model (`learning.planning.memory`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from learning.parallel.packed_attention import LINEAR
from learning.planning.balance import BalanceCost
from learning.planning.memory import CHUNK
from learning.planning.sequence_plan import ClusterCost, legal_degrees
from schemas.failure import CheckpointError, PlanError


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model that determine its costs."""

    vision: BalanceCost
    """Cost of a screen, per patch."""
    language: BalanceCost
    """Cost of a sample, per token."""
    query_heads: int
    key_heads: int
    exchanged: int
    """Number of values per token that the all-to-alls of a step move, forward and backward, over all layers."""
    weights: int = 0
    """Number of all weights; every micro-batch gathers them twice and distributes their gradients once."""
    blocks: int = 0
    """Number of layers of both phases."""
    head: int = 0
    """Number of weights of the output layer, which only targets use."""
    undivided: bool = False
    """Whether a document stays on one rank, because layers carry a state from token to token."""

    def operations(self, spans: Iterable[tuple[int, int]], patches: Iterable[int], targets: int) -> float:
        """Counts the operations of forward and backward passes.

        Args:
            spans: for each sequence of tokens, the earlier tokens that it attends to, and its own.
            patches: patches of each screen.
            targets: number of targets.
        """
        read = sum(int(self.language.of(before + own)) - int(self.language.of(before)) for before, own in spans)
        return 6.0 * (read + sum(int(self.vision.of(one)) for one in patches) + self.head * targets)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Assumed speeds of a cluster; only the ratio of computing to exchanging affects a plan."""

    operations: float
    """Operations per second and rank."""
    near: float
    """All-to-all inside a node, GB/s."""
    far: float
    """All-to-all between nodes, GB/s."""
    bytes: int
    """Bytes per number exchanged."""
    block: float
    """Overhead in seconds per block of a micro-batch, for launching kernels and gathering weights."""


GPU = Speeds(operations=2.6e14, near=100.0, far=10.0, bytes=2, block=1e-3)
"""Speeds of an H100: operations and blocks as measured on one (docs/measurements.md).

The speeds of NVLink and 400 Gb InfiniBand are assumed from FlexSP's measured ratio: FlexSP's release has 96 to 120 GB/s
inside a node, and 5 to 10 between nodes.
"""
CPU = Speeds(operations=3e10, near=1.0, far=1.0, bytes=4, block=8e-3)
"""Assumed speeds of one core and shared memory, without a measurement."""


PEAKS = (
    ("A100", 312e12),
    ("H100 NVL", 835e12),
    ("H100 PCIe", 756e12),
    ("H100", 989e12),
    ("H200 NVL", 835e12),
    ("H200", 989e12),
    ("B200", 2250e12),
    ("L40S", 362e12),
)
"""Peak dense bf16 operations per second by a substring of the device's name; the first match counts.

Source: NVIDIA's data sheets, which state twice these numbers for sparse matrices.
"""


def peak_of(device: str) -> float | None:
    """Looks up the peak bf16 operations per second of a device by its name; None for an unknown device."""
    return next((peak for name, peak in PEAKS if name in device and "MIG" not in device), None)


def shape_of(model: Any) -> Shape:
    """Computes the costs of a model's phases.

    Raises:
        CheckpointError: the model's config lacks the numbers of heads and layers.
    """
    text, vision = model.config.get_text_config(), model.config.vision_config
    try:
        heads, layers, width = text.num_attention_heads, text.num_hidden_layers, text.hidden_size
        keys = getattr(text, "num_key_value_heads", None) or heads
        depth = getattr(vision, "depth", None) or vision.num_hidden_layers
        seen = vision.hidden_size
    except AttributeError as error:
        raise CheckpointError(f"config.json: {error}.", "The trainer cannot compute the cost of this model.") from error
    head = getattr(text, "head_dim", None) or width // heads
    linear = (getattr(text, "layer_types", None) or []).count(LINEAR)
    experts = getattr(text, "num_experts", 0) or 0
    share = text.num_experts_per_tok / experts if experts else 1.0
    full = getattr(vision, "fullatt_block_indexes", None)
    language_weights = _weights(model.base_model.language_model, share)
    vision_weights = _weights(model.base_model.visual, 1.0)
    return Shape(
        vision=BalanceCost(vision_weights, 2 * seen * (len(full) if full else depth)),
        language=BalanceCost(language_weights + linear * _recurrence(text), (layers - linear) * heads * head),
        query_heads=heads,
        key_heads=keys,
        exchanged=2 * (layers - linear) * head * (2 * heads + 2 * keys),
        weights=sum(weight.numel() for weight in model.parameters()),
        blocks=layers + depth,
        head=width * text.vocab_size,
        undivided=linear > 0,
    )


def _recurrence(text: Any) -> int:
    """Counts a DeltaNet layer's operations per token besides its matrices, divided by 6 like all costs.

    A head reads and writes a state of key by value numbers. Within a chunk, a token meets the keys and values of the
    chunk's tokens twice (arXiv 2412.06464, section 3.3).
    """
    if not hasattr(text, "linear_num_value_heads"):
        return 0
    key, value = text.linear_key_head_dim, text.linear_value_head_dim
    return text.linear_num_value_heads * (2 * key * value + 2 * CHUNK * (key + value))


def cluster_cost(shape: Shape, ranks: int, per_node: int, cap: int, speeds: Speeds) -> ClusterCost:
    """Builds the cost model of sequence plans (FlexSP, eqs. 11 to 14): operations at assumed speeds, memory as tokens.

    Args:
        shape: shape of the model.
        ranks: number of ranks.
        per_node: number of ranks in a node.
        cap: maximum number of tokens of a rank.
        speeds: speeds of the cluster.

    Raises:
        PlanError: the number of ranks is no power of two.
    """
    degrees = (1,) if shape.undivided else legal_degrees(ranks, shape.query_heads, shape.key_heads)
    gathered = 3 * shape.weights * speeds.bytes / 1e6 / (speeds.near if ranks <= per_node else speeds.far)
    return ClusterCost(
        quadratic=6e3 * shape.language.quadratic / speeds.operations,
        linear=6e3 * shape.language.linear / speeds.operations,
        fixed=gathered + 1e3 * shape.blocks * speeds.block,
        exchanged=shape.exchanged * speeds.bytes / 2**20,
        bandwidth=tuple(
            (degree, speeds.near if degree <= per_node else speeds.far) for degree in degrees if degree > 1
        ),
        token=1.0,
        states=0.0,
        memory=float(cap),
        degrees=degrees,
    )


def check_fit(longest: int, sample: int, cost: ClusterCost | None, cap: int | None) -> None:
    """Raises `PlanError`, naming the sample, if the longest sample fits on no rank and no group of ranks."""
    if cap is None or longest <= cap:
        return
    if cost is None:
        raise PlanError(
            f"sample {sample} has {longest} tokens, a rank takes {cap} (train.token_cap).",
            "Raise train.token_cap, show fewer screenshots (policy.history_images or policy.live_images), or train "
            "with sequence plans (train.sequence_plans) on a power of two of ranks.",
        )
    try:
        cost.least_degree(longest)
    except PlanError as error:
        heads = f"the model's heads and the ranks allow groups of {', '.join(map(str, cost.degrees))}"
        raise PlanError(f"sample {sample}: {error.problem} ({heads}).", error.hint) from error


def _weights(module: Any, expert_share: float) -> int:
    """Counts weights of the matrices that a token uses; looking up a table costs no operations."""
    total = 0.0
    for name, weight in module.named_parameters():
        if weight.ndim >= 2 and "embed" not in name.replace("patch_embed", ""):
            total += weight.numel() * (expert_share if weight.ndim == 3 and "experts" in name else 1.0)
    return int(total)
