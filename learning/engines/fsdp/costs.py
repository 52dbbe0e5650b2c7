"""Computes samples' costs in operations from lengths alone: every rank and machine gets the same.

Forward and backward of a token take 6 operations per weight that it meets (Kaplan et al., arXiv 2001.08361), and
attention 12 per layer, width and pair of tokens, half of that where a token sees only those before it. Divided by 6.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from learning.planning.balance import BalanceCost
from learning.planning.sequence_plan import ClusterCost, legal_degrees
from learning.planning.step_plan import SampleLengths
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
    """Numbers per token that the all-to-alls of a step move, forward and backward, over all layers."""
    weights: int = 0
    """Number of all weights: every micro-batch gathers them twice and shares their gradients out once."""
    blocks: int = 0
    """Number of layers of both phases."""
    head: int = 0
    """Number of weights of the output layer, which only targets use."""

    def operations(self, items: Iterable[SampleLengths], targets: int) -> float:
        """Counts the operations of forward and backward passes over these samples with so many targets."""
        read = sum(
            int(self.language.of(item.tokens)) + sum(int(self.vision.of(screen.patches)) for screen in item.screens)
            for item in items
        )
        return 6.0 * (read + self.head * targets)


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
    """Overhead in seconds of every block of a micro-batch: launching kernels, gathering weights."""


GPU = Speeds(operations=2.6e14, near=100.0, far=10.0, bytes=2, block=1e-3)
"""Speeds of an H100: operations and blocks as measured on one (docs/measurements.md).

NVLink and 400 Gb InfiniBand follow FlexSP's measured ratio (their release has 96 to 120 GB/s inside a node, 5 to 10
between nodes), assumed.
"""
CPU = Speeds(operations=3e10, near=1.0, far=1.0, bytes=4, block=8e-3)
"""Speeds of one core and shared memory. Assumed, not measured here."""


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

Source: NVIDIA's data sheets, whose numbers with sparsity are twice these.
"""


def peak_of(device: str) -> float | None:
    """Looks up the peak bf16 operations per second of a device by its name; None for an unknown one."""
    return next((peak for name, peak in PEAKS if name in device and "MIG" not in device), None)


def shape_of(model: Any) -> Shape:
    """Computes the costs of a model's phases.

    Raises:
        CheckpointError: its config lacks the numbers of heads and layers.
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
    experts = getattr(text, "num_experts", 0) or 0
    share = text.num_experts_per_tok / experts if experts else 1.0
    full = getattr(vision, "fullatt_block_indexes", None)
    language_weights = _weights(model.base_model.language_model, share)
    vision_weights = _weights(model.base_model.visual, 1.0)
    return Shape(
        vision=BalanceCost(vision_weights, 2 * seen * (len(full) if full else depth)),
        language=BalanceCost(language_weights, layers * heads * head),
        query_heads=heads,
        key_heads=keys,
        exchanged=2 * layers * head * (2 * heads + 2 * keys),
        weights=sum(weight.numel() for weight in model.parameters()),
        blocks=layers + depth,
        head=width * text.vocab_size,
    )


def cluster_cost(shape: Shape, ranks: int, per_node: int, cap: int, speeds: Speeds) -> ClusterCost:
    """Builds the cost model of sequence plans (FlexSP, eqs. 11 to 14): operations at assumed speeds, memory as tokens.

    Args:
        shape: of the model.
        ranks: how many there are.
        per_node: of which so many share a node.
        cap: tokens that a rank takes.
        speeds: of the cluster.

    Raises:
        PlanError: not a power of two of ranks.
    """
    degrees = legal_degrees(ranks, shape.query_heads, shape.key_heads)
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
    """Raises `PlanError`, naming the sample, if the longest of all fits on no rank and no group."""
    if cap is None or longest <= cap:
        return
    if cost is None:
        raise PlanError(
            f"sample {sample} has {longest} tokens, a rank takes {cap} (train.token_cap).",
            "Raise train.token_cap, show fewer screenshots (policy.history_images), or train with sequence plans "
            "(train.sequence_plans) on a power of two of ranks.",
        )
    try:
        cost.least_degree(longest)
    except PlanError as error:
        heads = f"the model's heads and the ranks allow groups of {', '.join(map(str, cost.degrees))}"
        raise PlanError(f"sample {sample}: {error.problem} ({heads}).", error.hint) from error


def _weights(module: Any, expert_share: float) -> int:
    """Counts weights of the matrices that a token uses; tables are looked up and cost nothing."""
    total = 0.0
    for name, weight in module.named_parameters():
        if weight.ndim >= 2 and "embed" not in name.replace("patch_embed", ""):
            total += weight.numel() * (expert_share if weight.ndim == 3 and "experts" in name else 1.0)
    return int(total)
