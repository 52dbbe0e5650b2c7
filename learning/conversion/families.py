"""Maps weights between Megatron Core's GPT and Hugging Face's names, for families of text networks.

Megatron keeps the queries, keys and values of a layer in one tensor: for each group of queries its queries, then its
key, then its value. It keeps the gate and the up projection of the MLP in one tensor, in this order on all ranks
together. Its checkpoints stack the layers of a network. The embedding is padded for tensor parallelism.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learning.checkpoint.state import Shape
from learning.conversion.stored import StoredTensor, joined, layer_of, rows, stacked
from schemas.failure import CheckpointError, UsageError

_NAME = "Name the family and the parent's config of the network that was trained."
_EMBEDDING = ("embedding.word_embeddings.weight", "model.embed_tokens.weight")
_HEAD = ("output_layer.weight", "lm_head.weight")
_NORM = ("decoder.final_layernorm.weight", "model.norm.weight")
_QKV, _FC1 = "self_attention.linear_qkv", "mlp.linear_fc1.weight"


@dataclass(frozen=True, slots=True)
class TextFamily:
    """Differences between the families."""

    bias: bool
    """Whether queries, keys and values have a bias."""
    norms: bool
    """Whether queries and keys are normalised."""


FAMILIES = {"qwen2": TextFamily(True, False), "qwen2.5": TextFamily(True, False), "qwen3": TextFamily(False, True)}
"""Families by name, which is also `model_type` of the config (Qwen2.5 has that of Qwen2)."""


@dataclass(frozen=True, slots=True)
class TextSizes:
    """Sizes of a network."""

    layers: int
    heads: int
    groups: int
    """Number of heads of keys and values."""
    head: int
    """Size of a head."""
    hidden: int
    inner: int
    """Size of the MLP's inner layer."""
    vocabulary: int
    tied: bool

    @property
    def parts(self) -> dict[str, int]:
        """Returns the rows of queries, keys and values of one group."""
        return {"q": self.heads // self.groups * self.head, "k": self.head, "v": self.head}


def network_of(config: Mapping[str, Any], where: Path) -> TextSizes:
    """Reads the sizes of a network from a Hugging Face config; raises UsageError if one is missing."""
    wanted = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "vocab_size")
    for name in wanted:
        if not isinstance(config.get(name), int):
            problem = f"The config for {where} has no `{name}`, which the mapping of names needs."
            raise UsageError(problem, "Give `--parent`, a Hugging Face directory of the network.")
    heads = config["num_attention_heads"]
    return TextSizes(
        layers=config["num_hidden_layers"],
        heads=heads,
        groups=config.get("num_key_value_heads") or heads,
        head=config.get("head_dim") or config["hidden_size"] // heads,
        hidden=config["hidden_size"],
        inner=config["intermediate_size"],
        vocabulary=config["vocab_size"],
        tied=bool(config.get("tie_word_embeddings")),
    )


def family_of(name: str | None, config: Mapping[str, Any]) -> TextFamily:
    """Returns the family of a name, or of a config; raises UsageError if it is not known."""
    found = name or config.get("model_type")
    if found not in FAMILIES:
        known = ", ".join(FAMILIES)
        source = f"`--family {name}`" if name else f"`model_type` {found!r} of the config"
        raise UsageError(f"{source} has no mapping between Megatron's names and Hugging Face's.", f"One of {known}.")
    return FAMILIES[found]


def to_hugging_face(
    tensors: Mapping[str, StoredTensor], family: TextFamily, network: TextSizes, where: Path
) -> tuple[dict[str, StoredTensor], list[str]]:
    """Renames, cuts and unstacks Megatron's tensors.

    Returns:
        The tensors by Hugging Face's names, and notes about cut padding.

    Raises:
        CheckpointError: a tensor is missing, has another shape, or has no place in the family.
    """
    rest = dict(tensors)
    notes: list[str] = []

    def take(name: str, shape: Shape) -> StoredTensor:
        return _shaped(name, rest.pop(name, None), shape, where)

    def padded(names: tuple[str, str]) -> StoredTensor:
        ours, height = names[0], network.vocabulary
        found = rest.pop(ours, None)
        if found is not None and found.shape[0] > height:
            notes.append(f"`{ours}` is cut from {found.shape[0]} to {height} rows: the others pad the vocabulary")
            found = rows(found, 0, height)
        return _shaped(ours, found, (height, network.hidden), where)

    found = {_EMBEDDING[1]: padded(_EMBEDDING), _NORM[1]: take(_NORM[0], (network.hidden,))}
    if not network.tied:
        found[_HEAD[1]] = padded(_HEAD)
    stacks = {
        name: _layers(rest, name, shape, network.layers, where)
        for name, shape in {
            **{ours: shape for ours, _, shape in _plain(family, network)},
            **{f"{_QKV}.{kind}": shape for kind, shape in _fused(family, network).items()},
            _FC1: (2 * network.inner, network.hidden),
        }.items()
    }
    if rest:
        problem = f"{where}: `{next(iter(rest))}` has no place in a network of this family."
        raise CheckpointError(problem, _NAME)
    for number in range(network.layers):
        start = f"model.layers.{number}"
        for ours, theirs, _ in _plain(family, network):
            found[f"{start}.{theirs}"] = stacks[ours][number]
        for kind in _fused(family, network):
            whole = stacks[f"{_QKV}.{kind}"][number]
            for part, tensor in _split(whole, network).items():
                found[f"{start}.self_attn.{part}_proj.{kind}"] = tensor
        gate_up = stacks[_FC1][number]
        found[f"{start}.mlp.gate_proj.weight"] = rows(gate_up, 0, network.inner)
        found[f"{start}.mlp.up_proj.weight"] = rows(gate_up, network.inner, 2 * network.inner)
    return found, notes


def to_megatron(
    tensors: Mapping[str, StoredTensor], family: TextFamily, network: TextSizes, where: Path
) -> dict[str, StoredTensor]:
    """Renames, joins and stacks Hugging Face's tensors.

    Raises:
        CheckpointError: a tensor is missing, has another shape or type, or has no place in the family.
    """
    rest = dict(tensors)

    def take(name: str, *shape: int) -> StoredTensor:
        return _shaped(name, rest.pop(name, None), shape, where)

    found = {
        _EMBEDDING[0]: take(_EMBEDDING[1], network.vocabulary, network.hidden),
        _NORM[0]: take(_NORM[1], network.hidden),
    }
    if network.tied:
        rest.pop(_HEAD[1], None)
    else:
        found[_HEAD[0]] = take(_HEAD[1], network.vocabulary, network.hidden)
    stacks: dict[str, list[StoredTensor]] = {}
    for number in range(network.layers):
        start = f"model.layers.{number}"
        for ours, theirs, shape in _plain(family, network):
            stacks.setdefault(ours, []).append(take(f"{start}.{theirs}", *shape))
        for kind, shape in _fused(family, network).items():
            parts = {
                part: take(f"{start}.self_attn.{part}_proj.{kind}", network.groups * height, *shape[1:])
                for part, height in network.parts.items()
            }
            stacks.setdefault(f"{_QKV}.{kind}", []).append(_of_one_type(_groups(parts, network), start, where))
        halves = [take(f"{start}.mlp.{name}_proj.weight", network.inner, network.hidden) for name in ("gate", "up")]
        stacks.setdefault(_FC1, []).append(_of_one_type(halves, start, where))
    if rest:
        problem = f"{where}: `{next(iter(rest))}` has no place in Megatron's network of this family."
        raise CheckpointError(problem, _NAME)
    for name, layers in stacks.items():
        if len({layer.dtype for layer in layers}) > 1:
            raise _mixed(f"decoder.layers.{name}", where)
        found[f"decoder.layers.{name}"] = stacked(layers)
    return found


def _plain(family: TextFamily, network: TextSizes) -> list[tuple[str, str, Shape]]:
    """Lists the tensors of a layer that differ in their names alone: Megatron's, Hugging Face's and the shape."""
    norms = [
        (f"self_attention.{one}_layernorm.weight", f"self_attn.{one}_norm.weight", (network.head,)) for one in "qk"
    ]
    return [
        (f"{_QKV}.layer_norm_weight", "input_layernorm.weight", (network.hidden,)),
        (
            "self_attention.linear_proj.weight",
            "self_attn.o_proj.weight",
            (network.hidden, network.heads * network.head),
        ),
        ("mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight", (network.hidden,)),
        ("mlp.linear_fc2.weight", "mlp.down_proj.weight", (network.hidden, network.inner)),
        *(norms if family.norms else []),
    ]


def _fused(family: TextFamily, network: TextSizes) -> dict[str, Shape]:
    height = network.groups * sum(network.parts.values())
    return {"weight": (height, network.hidden), **({"bias": (height,)} if family.bias else {})}


def _split(whole: StoredTensor, network: TextSizes) -> dict[str, StoredTensor]:
    """Cuts the fused tensor of a layer into queries, keys and values."""
    height, start = sum(network.parts.values()), 0
    found = {}
    for part, size in network.parts.items():
        firsts = [group * height + start for group in range(network.groups)]
        found[part] = joined([rows(whole, first, first + size) for first in firsts])
        start += size
    return found


def _groups(parts: Mapping[str, StoredTensor], network: TextSizes) -> list[StoredTensor]:
    """Lists the rows of each group's queries, key and value, in the order of the fused tensor."""
    return [
        rows(parts[part], group * size, (group + 1) * size)
        for group in range(network.groups)
        for part, size in network.parts.items()
    ]


def _layers(rest: dict[str, StoredTensor], name: str, shape: Shape, count: int, where: Path) -> list[StoredTensor]:
    """Takes a tensor of every layer: from a stack, or from tensors with the layer's number in the name."""
    stack = rest.pop(f"decoder.layers.{name}", None)
    if stack is not None:
        whole = _shaped(f"decoder.layers.{name}", stack, (count, *shape), where)
        return [layer_of(whole, number) for number in range(count)]
    numbered = [f"decoder.layers.{number}.{name}" for number in range(count)]
    if numbered[0] not in rest:
        return [_shaped(f"decoder.layers.{name}", None, shape, where)]
    return [_shaped(one, rest.pop(one, None), shape, where) for one in numbered]


def _shaped(name: str, tensor: StoredTensor | None, shape: Shape, where: Path) -> StoredTensor:
    if tensor is None:
        raise CheckpointError(f"{where} has no tensor `{name}`.", _NAME)
    if tensor.shape != tuple(shape):
        raise CheckpointError(f"{where}: `{name}` is {tensor.shape}, and {tuple(shape)} by the config.", _NAME)
    return tensor


def _of_one_type(parts: list[StoredTensor], start: str, where: Path) -> StoredTensor:
    if len({part.dtype for part in parts}) > 1:
        raise _mixed(start, where)
    return joined(parts)


def _mixed(name: str, where: Path) -> CheckpointError:
    problem = f"{where}: the parts of `{name}`, which Megatron keeps in one tensor, have several types of numbers."
    return CheckpointError(problem, "Save all weights in one type.")
