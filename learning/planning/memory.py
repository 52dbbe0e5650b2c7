"""Predicts a training's memory on one GPU only from the sizes of a model, with a formula for each part.

Weights are sharded over R ranks (ZeRO-3, Rajbhandari et al., arXiv 1910.02054, section 5) by FSDP2. A trained weight
takes 4 bytes, its gradient 4, and AdamW's two moments 8 (or 2 and scales in 8 bits), each divided by R. A frozen weight
takes 4 / R or 2 / R bytes, or 0.56 / R in 4 bits. A step also has temporary buffers. Their formulas follow the engine's
code (`learning.engines.fsdp`), where c is the number of bytes per computed number:

- The weights outside of blocks (tables, head, mergers) stay gathered during a step. A gathered block takes c bytes per
  weight, and twice as much while it is unpacked. In the backward pass, a block's gradient and the buffer of its
  reduction are held together.
- A block in 4 bits is gathered as bytes; in both passes, one of its matrices at a time is unpacked to c bytes per
  weight.
- For each token, a block keeps the tensors that autograd saves for its operations. The counts are exact for the classes
  of `transformers` (`Stack.saved`; a test compares them with the saved tensors). With checkpointing, a block keeps only
  its input, with c bytes per number, and one block at a time is computed again (Chen et al., arXiv 1604.06174). If only
  some blocks are, they are the vision tower's first, which save the most bytes per operation, then blocks with a
  DeltaNet, then the others.
- Documents that share tokens attend to copies of keys and values: of all tokens of each document, and of each shared
  opening.
- A target's logits take 12 bytes per word of the vocabulary: log probabilities, their gradient, and the logits'
  gradient.

The peak is the maximum over three points of a step: the end of the forward pass, a block's backward pass, and the
root's backward pass.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from learning.planning.step_rules import PieceMemory
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig

N = TypeVar("N", int, float)
MASTER = 4
"""Bytes of a trained weight, and of each number that is kept for the weight."""
EIGHT_BIT = 1 + 4 / 256
"""Bytes of a moment in 8 bits, with its share of a block's scale."""
NF4 = 0.5 + 4 / 64
"""Bytes of a frozen weight in 4 bits, with its share of a block's scale."""
LOGIT = 12
"""Bytes per target and word of the vocabulary, in fp32: log probabilities, their gradient, the logits' gradient."""
FRAGMENTS = 0.05
"""Share of a step's temporary buffers that a GPU's allocator cannot use. The value is assumed."""
COPIES = 0.55
"""Maximum share of a GPU's memory of weights, gradients, moments and copies to compute with; beyond it, one GPU gathers
blocks one by one like many. Source: assumed, the rest is for activations."""
CONTEXT = 1.5 * 2**30
"""Bytes of a GPU that the driver, libraries and communicator use before a model is loaded. The value is assumed."""


CHUNK = 64
"""Tokens of a chunk of the gated delta rule, the default of its kernels."""


@dataclass(frozen=True, slots=True)
class DeltaBlocks:
    """The blocks of a stack whose mixer is a gated DeltaNet (arXiv 2412.06464) in place of attention."""

    blocks: int
    weights: int
    """Number of weights of one block."""
    adapted: int
    """Number of weights of the adapters in one block."""
    heads: int
    """Number of value heads; each has a state of its own."""
    key: int
    """Width of a key."""
    value: int
    """Width of a value."""
    convolved: int
    """Width of queries, keys and values together, which a short convolution reads."""

    def saved(self, compute: int, kernels: bool) -> float:
        """Computes bytes per token that the mixer saves for the backward pass.

        The numbers without kernels are fitted to saved tensors of several chunks (a test compares them). Those of the
        kernels are read from `ChunkGatedDeltaRuleFunction` of flash-linear-attention 0.6.0, and not measured.

        Args:
            compute: bytes per computed number.
            kernels: whether the GPU's kernels compute the rule.
        """
        values = self.heads * self.value
        found = compute * (2 * self.convolved + 3 * values)
        if kernels:
            return found + compute * (self.convolved - values) + self.heads * (compute * (CHUNK + 1) + 8)
        state = self.key * self.value / CHUNK
        return found + MASTER * self.heads * (6.8 * (self.key + self.value) + 5 * CHUNK + 10 + state)


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack of blocks: the language model's or the vision tower's. All but those of `delta` are equal."""

    blocks: int
    weights: int
    """Number of weights of one block."""
    adapted: int
    """Number of weights of the adapters in one block."""
    width: int
    inner: int
    """Width of the feed-forward part; for experts, the width of one expert."""
    queries: int
    """Width of all query heads together."""
    keys: int
    """Width of all key heads together."""
    gated: bool = True
    """Whether the feed-forward part is gated."""
    normed: bool = False
    """Whether queries and keys have norms of their own."""
    fused: bool = False
    """Whether one product computes queries, keys and values, as in a vision tower."""
    experts: int = 0
    """Number of experts that a token uses; 0 for a model without experts."""
    shared: int = 0
    """Number of weights of all experts of a block."""
    shared_expert: int = 0
    """Width of an expert that every token uses besides its experts; 0 for none."""
    query_gates: bool = False
    """Whether gates as wide as the queries scale the attention's output."""
    delta: DeltaBlocks | None = None
    """The blocks without attention; they count among `blocks`."""

    @property
    def total(self) -> int:
        """Counts the weights of all blocks, without adapters."""
        return self._sum(self.weights, self.delta.weights if self.delta else 0)

    @property
    def total_adapted(self) -> int:
        """Counts the weights of all blocks' adapters."""
        return self._sum(self.adapted, self.delta.adapted if self.delta else 0)

    @property
    def largest(self) -> int:
        """Counts the weights of the largest block."""
        return max(self.weights, self.delta.weights if self.delta else 0)

    @property
    def most_adapted(self) -> int:
        """Counts the weights of the largest adapters of a block."""
        return max(self.adapted, self.delta.adapted if self.delta else 0)

    def _sum(self, each: N, delta: N) -> N:
        others = self.delta.blocks if self.delta else 0
        return (self.blocks - others) * each + others * delta

    def kinds(self, compute: int, rank: int, kernels: bool) -> tuple[tuple[int, float], ...]:
        """Lists the number of blocks of each kind, and bytes per token that one saves; arguments as in
        `saved_by_delta`."""
        others = self.delta.blocks if self.delta else 0
        attending = (self.blocks - others, self.saved(compute, rank))
        return ((others, self.saved_by_delta(compute, rank, kernels)), attending)

    def saved_by_delta(self, compute: int, rank: int = 0, kernels: bool = False) -> float:
        """Computes bytes per token that a block with a DeltaNet saves for the backward pass; 0 if there is none.

        Args:
            compute: bytes per computed number.
            rank: rank of adapters on all linear layers of the block; 0 for none.
            kernels: whether the GPU's kernels compute the rule.
        """
        if self.delta is None:
            return 0.0
        return 4 * compute * self.width + self._fed(compute) + self.delta.saved(compute, kernels) + 8 * rank * compute

    def _fed(self, compute: int) -> float:
        """Computes bytes per token that the feed-forward part saves."""
        inner = (4 if self.gated else 2) * compute * self.inner
        common = compute * (4 * self.shared_expert + self.width) if self.shared_expert else 0
        return inner * max(1, self.experts) + 2 * compute * self.width * self.experts + common

    def saved(self, compute: int, rank: int = 0, frozen: bool = False) -> float:
        """Computes bytes per token that a block's operations save for the backward pass.

        Args:
            compute: bytes per computed number.
            rank: rank of adapters on all linear layers of the block; 0 for none.
            frozen: whether nothing before or in the block is trained, so that nothing is saved.
        """
        if frozen:
            return 0.0
        if self.fused:
            return 9 * compute * self.width + self._fed(compute)
        found = 4 * compute * self.width + 3 * compute * self.queries + 2 * compute * self.keys
        found += compute * (self.queries + self.keys) * self.normed + 3 * compute * self.queries * self.query_gates
        return found + self._fed(compute) + 7 * rank * compute  # every adapter saves its inner activations

    def working(self, compute: int) -> float:
        """Computes temporary bytes per token of one block in the backward pass, in addition to the saved ones."""
        return compute * (3 * self.inner * max(1, self.experts) + 3 * self.width)


@dataclass(frozen=True, slots=True)
class Network:
    """The sizes of a model."""

    language: Stack
    vision: Stack
    outside: int
    """Number of weights outside of blocks: tables, head, mergers."""
    outside_vision: int
    """Number of weights outside of blocks in the vision tower."""
    head: int
    """Number of weights of the head; a tied head shares them with the table."""
    vocabulary: int
    merge: int
    """Number of patches per token."""
    mergers: int = 1
    """Number of mergers from the tower to the language model: one, and those of DeepStack."""

    @property
    def weights(self) -> int:
        """Counts all weights, without adapters."""
        return self.language.total + self.vision.total + self.outside

    @property
    def adapters(self) -> int:
        """Counts weights of all adapters."""
        return self.language.total_adapted + self.vision.total_adapted

    @property
    def tower(self) -> int:
        """Counts weights of the whole vision tower."""
        return self.vision.total + self.outside_vision


@dataclass(frozen=True, slots=True)
class MemoryRecipe:
    """Settings of a training that affect memory; its fields are those of `train` and `train.memory`."""

    ranks: int
    tokens: int
    """Number of tokens of one rank in a micro-batch (`train.token_cap`)."""
    targets: int
    """Number of these tokens that have a target."""
    patches: int
    """Number of patches of the vision tower in a micro-batch."""
    copied: int = 0
    """Number of tokens whose keys and values are copied, for documents that share tokens."""
    compute: int = 2
    """Bytes per computed number: 2 for bf16, 4 for fp32."""
    rank: int = 0
    """Rank of adapters; 0 if all weights are trained."""
    frozen: int = MASTER
    """Bytes of a frozen weight."""
    four_bits: bool = False
    """Whether frozen weights of the language model's blocks are in 4 bits."""
    moment: float = MASTER
    """Bytes of each of the two moments of a trained weight: 4, or `EIGHT_BIT`."""
    freeze_vision: bool = False
    offload: bool = False
    checkpointing: bool | int = False
    """Whether activations are computed twice, or the number of blocks of which they are."""
    logits_chunk: int | None = None
    replicas: int = 1
    """Number of rows of ranks that each hold all weights."""
    whole_gradients: bool = False
    parallel_experts: bool = False
    """Whether a rank holds a share of each block's experts, and experts are never gathered."""
    copies: bool = False
    """Whether one rank keeps all weights, and a copy of them in the computing type, so that it gathers nothing."""
    networks: int = 1
    """Number of networks: 2 with a separate critic."""
    repeated: bool = True
    """Whether a step has several micro-batches, so that gradients of earlier ones exist during the later ones."""
    generator: int = 0
    """Bytes of a process that rolls out on the same GPU meanwhile (`generator_bytes`)."""
    cuda: bool = True
    """Whether a GPU computes; driver and allocator then use memory, too."""

    @classmethod
    def of(cls, train: TrainConfig, **sizes: Any) -> "MemoryRecipe":
        """Builds a recipe from a config; `sizes` are the fields that the config lacks."""
        memory = train.memory
        return cls(
            rank=train.lora.rank,
            frozen=4 if memory.frozen == "float32" else 2,
            four_bits=memory.frozen == "nf4",
            moment=EIGHT_BIT if memory.moments == "8bit" else MASTER,
            freeze_vision=bool(memory.freeze_vision),
            offload=memory.offload,
            checkpointing=train.activation_checkpointing,
            logits_chunk=memory.logits_chunk,
            replicas=train.replicas,
            whole_gradients=memory.whole_gradients,
            parallel_experts=train.experts.parallel,
            **sizes,
        )


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted bytes of one rank at its peak."""

    parts: Mapping[str, int]
    """Bytes by purpose; they add up to `peak`."""
    host: int
    """Bytes of offloaded data in the machine's memory, for each rank."""
    moment: str
    """Phase of the step at the peak."""

    @property
    def peak(self) -> int:
        """Sums the parts, which are bytes of the GPU, or of the process on a CPU."""
        return sum(self.parts.values())


def predict(network: Network, recipe: MemoryRecipe) -> Prediction:
    """Predicts the peak memory of one rank of a training."""
    kept = _kept(network, recipe)
    host = 0
    if recipe.offload:  # the generator belongs to another process
        host, kept = sum(kept.values()) - recipe.generator, dict.fromkeys(kept, 0) | {"generator": recipe.generator}
    moments = {name: one for name, one in _moments(network, recipe).items() if one}
    moment = max(moments, key=lambda name: sum(moments[name].values()))
    parts = {**kept, **moments[moment]}
    if recipe.cuda:
        parts["overhead"] = CONTEXT + FRAGMENTS * sum(moments[moment].values())
    return Prediction({name: round(size) for name, size in parts.items()}, round(host), moment)


def _kept(network: Network, recipe: MemoryRecipe) -> dict[str, float]:
    """Computes the bytes that are kept between steps."""
    trained, frozen = _trained(network, recipe)
    share = recipe.networks * recipe.replicas / recipe.ranks
    summed = recipe.networks if recipe.whole_gradients else share
    return {
        "weights": MASTER * trained * share,
        "frozen weights": (recipe.frozen * frozen - (recipe.frozen - NF4) * _in_four_bits(network, recipe)) * share,
        "gradients": MASTER * trained * summed * recipe.repeated,
        "moments": 2 * _moment_bytes(recipe) * trained * share,
        "copies": recipe.compute * trained * recipe.networks * (recipe.copies and recipe.compute != MASTER),
        "generator": recipe.generator,
    }


def generator_bytes(network: Network, policy: PolicyConfig, train: TrainConfig) -> int:
    """Estimates the bytes of the process that rolls out on the same GPU while a training streams; 0 if none does.

    It holds bf16 weights, the caches of `policy.prefix_mb` and `policy.seen_screens_mb`, and replies, for which as much
    is assumed as for kept prompts.
    """
    if not train.stream.on or policy.acts_on_server or policy.device == "cpu" or policy.precision == "int8":
        return 0
    caches = 2 * policy.prefix_mb + policy.seen_screens_mb
    return int(CONTEXT) + 2 * network.weights + caches * 1_000_000


def holds_copies(network: Network, recipe: MemoryRecipe, room: int) -> bool:
    """Checks whether one rank keeps its weights whole and in the type that it computes in.

    Args:
        network: the sizes of the model.
        recipe: the training.
        room: bytes of the GPU.
    """
    trained, frozen = _trained(network, recipe)
    if recipe.ranks > 1 or recipe.offload or recipe.parallel_experts or (frozen and recipe.frozen != recipe.compute):
        return False
    each = 2 * MASTER + 2 * recipe.moment + recipe.compute
    return recipe.networks * (each * trained + recipe.compute * frozen) <= COPIES * (room - recipe.generator)


def _in_four_bits(network: Network, recipe: MemoryRecipe) -> int:
    """Counts weights in 4 bits. The norms of a block are not in 4 bits, but they are only a thousandth of it."""
    return network.language.total if recipe.four_bits else 0


def _moment_bytes(recipe: MemoryRecipe) -> float:
    """Computes the bytes of a moment.

    Half of the adapters' matrices have rows of the rank's length. A row of at least 16 numbers is one block; shorter
    rows keep moments in fp32.
    """
    if not recipe.rank or recipe.moment == MASTER:
        return recipe.moment
    short = 1 + MASTER / min(256, recipe.rank) if recipe.rank >= 16 else MASTER
    return (recipe.moment + short) / 2


def _trained(network: Network, recipe: MemoryRecipe) -> tuple[int, int]:
    """Counts trained and frozen weights."""
    if recipe.rank:
        return network.adapters, network.weights
    frozen = network.tower if recipe.freeze_vision else 0
    return network.weights - frozen, frozen


def _moments(network: Network, recipe: MemoryRecipe) -> dict[str, dict[str, float]]:
    """Computes temporary bytes at each point of a step that may be the peak."""
    compute, root = recipe.compute, recipe.compute * network.outside * (not recipe.copies)
    full = recipe.rank == 0
    block, dense = (0.0, 0.0) if recipe.copies else _gathered(network, recipe)
    trained, _ = _trained(network, recipe)
    saved, again = _activations(network, recipe)
    chunk = recipe.targets if recipe.logits_chunk is None else min(recipe.targets, recipe.logits_chunk)
    head = compute * network.head if full else 0.0
    largest = max(_at_once(network, recipe), network.vision.weights) if full else 0
    summed = max(largest, network.language.most_adapted, network.vision.most_adapted)
    outside = network.outside - (network.outside_vision if recipe.freeze_vision else 0) if full else 0
    back = max(2 * block + dense, block + dense + compute * summed, (compute + MASTER) * summed) + MASTER * summed
    last = max((compute + MASTER) * outside, compute * (network.outside + outside)) + MASTER * summed
    if recipe.copies:  # each weight's gradient is added to the sum as soon as it is complete
        back, last = compute * summed, compute * outside
    return {
        "logits": {
            "gathered": root + block + dense,
            "activations": saved,
            "logits": LOGIT * network.vocabulary * chunk,
            "unfinished gradients": head * (recipe.logits_chunk is not None and chunk < recipe.targets),
        },
        "a block's backward pass": {
            "gathered": root,
            "activations": saved + again,
            "unfinished gradients": head + back,
        },
        "the root module's backward pass": {
            **(
                {}
                if recipe.repeated
                else {"gradients": MASTER * trained * recipe.networks * recipe.replicas / recipe.ranks}
            ),
            "gathered": root if not full else 0.0,
            "unfinished gradients": last,
        },
    }


def _gathered(network: Network, recipe: MemoryRecipe) -> tuple[float, float]:
    """Computes the bytes of the largest gathered block, and of a matrix that is unpacked from 4 bits."""
    compute, language, seen = recipe.compute, network.language, recipe.compute * network.vision.weights
    if not recipe.four_bits:
        return max(compute * _at_once(network, recipe), seen), 0.0
    return max((NF4 * language.largest, compute * language.width * language.inner), (seen, 0.0), key=sum)


def _at_once(network: Network, recipe: MemoryRecipe) -> float:
    """Counts the weights of a language model's block that a rank holds while it computes."""
    elsewhere = network.language.shared * (1 - 1 / recipe.ranks) if recipe.parallel_experts else 0
    return network.language.largest - elsewhere


def _activations(network: Network, recipe: MemoryRecipe) -> tuple[float, float]:
    """Computes bytes saved for the backward pass, and bytes of one block during it."""
    compute, kept, again = recipe.compute, 0.0, 0.0
    left = math.inf if recipe.checkpointing is True else int(recipe.checkpointing)
    still = _still(network, recipe)
    sizes = ((network.vision, recipe.patches, 0, still), (network.language, recipe.tokens, recipe.copied, False))
    for stack, tokens, copied, frozen in sizes:
        copies = 2 * compute * stack.keys * copied
        # their gradients, of which one is summed in fp32
        working = tokens * stack.working(compute) + copies + MASTER * stack.keys * copied
        again = max(again, working)
        for blocks, saved in () if frozen else stack.kinds(compute, recipe.rank, recipe.cuda):
            twice = min(blocks, left)
            left -= twice
            kept += tokens * twice * compute * stack.width + (blocks - twice) * (tokens * saved + copies)
            again = max(again, tokens * saved + copies + working if twice else 0.0)
    merged = 0.0 if still else recipe.patches * network.vision.width * 3 * compute * network.mergers
    embedded = recipe.tokens * network.language.width * (8 + (2 + network.mergers) * compute)
    return kept + merged + embedded, again


def checkpointable(network: Network, recipe: MemoryRecipe) -> tuple[int, int]:
    """Counts the blocks of the vision tower and of the language model that save activations."""
    return 0 if _still(network, recipe) else network.vision.blocks, network.language.blocks


def recomputed(network: Network, recipe: MemoryRecipe) -> tuple[int, int]:
    """Counts the blocks of the vision tower and of the language model whose activations are computed twice."""
    seen, read = checkpointable(network, recipe)
    number = seen + read if recipe.checkpointing is True else int(recipe.checkpointing)
    return min(seen, number), min(read, max(0, number - seen))


def with_fewest(network: Network, recipe: MemoryRecipe, room: int) -> MemoryRecipe:
    """Chooses the smallest number of blocks whose activations are computed twice so that the training fits.

    Args:
        network: the sizes of the model.
        recipe: the training; at least as many blocks as in it are computed twice.
        room: usable bytes of the GPU.

    Returns:
        the recipe with this number; with True if all blocks are, whether that fits or not.
    """
    every = sum(checkpointable(network, recipe))
    numbers = range(every if recipe.checkpointing is True else int(recipe.checkpointing), every)

    def fits(number: int) -> bool:
        return predict(network, replace(recipe, checkpointing=number)).peak <= room

    fewest = bisect_left(numbers, True, key=fits)
    return replace(recipe, checkpointing=numbers[fewest] if fewest < len(numbers) else True)


FAR = 2**30
"""Number of tokens, patches or targets beyond which the same point of a step is always the peak."""


def piece_memory(network: Network, recipe: MemoryRecipe, room: int, shares: bool = False) -> PieceMemory:
    """Computes the memory that a rank has for a micro-batch, and what a token, patch, target and copy take of it.

    The peak is a maximum of sums that are linear in these numbers. Each takes its largest factor of all sums, so that a
    micro-batch that fits by these bytes also fits by `predict`.

    Args:
        network: the sizes of the model.
        recipe: the training; its tokens, patches and targets are not used.
        room: usable bytes of the GPU.
        shares: whether documents share tokens.
    """
    chunk = recipe.logits_chunk
    empty = replace(recipe, tokens=0, patches=0, targets=0 if chunk is None else chunk + 1)

    def each(name: str) -> int:
        near, far = (predict(network, replace(empty, **{name: size})).peak for size in (FAR, 2 * FAR))
        return -(-(far - near) // FAR)

    free = room - predict(network, empty).peak
    return PieceMemory(free, each("tokens"), each("patches"), each("targets"), each("copied") if shares else 0)


def _still(network: Network, recipe: MemoryRecipe) -> bool:
    """Checks whether nothing in the vision tower is trained."""
    return recipe.freeze_vision or (recipe.rank > 0 and network.vision.adapted == 0)
