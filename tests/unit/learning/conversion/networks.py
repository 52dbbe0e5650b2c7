"""Small networks in a Hugging Face directory, and comparisons of weights; shared by the tests of this folder."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

SIZES: dict[str, Any] = {
    "vocab_size": 29,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "dtype": "bfloat16",
}


def qwen(folder: Path, family: str = "qwen2", tied: bool = True) -> Path:
    """Saves a random network of the family."""
    torch.manual_seed(0)
    if family == "qwen2":
        network = Qwen2ForCausalLM(Qwen2Config(**SIZES, tie_word_embeddings=tied))
    else:
        network = Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=6, tie_word_embeddings=tied))
    for name, weight in network.named_parameters():
        if weight.ndim == 1:  # norms and biases are constant at first
            torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(len(name)))
    network.to(torch.bfloat16).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def weights(folder: Path) -> dict[str, Tensor]:
    """Reads all safetensors files of a folder."""
    return {name: one for file in sorted(folder.glob("*.safetensors")) for name, one in load_file(file).items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one
    )
