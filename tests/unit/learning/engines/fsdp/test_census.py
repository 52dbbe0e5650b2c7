"""A model's sizes, and what its blocks save for the way back, as the memory model has them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from learning.engines.fsdp.adapters import add_adapters, is_adapter
from learning.engines.fsdp.census import network_of, sizes_at
from learning.engines.fsdp.model import load_model, use_faster
from learning.parallel.packed_attention import PackedDocuments
from learning.planning.shared_prompts import Segment
from models.random_vlm import KINDS, build_random
from schemas.config.training import LoraConfig
from schemas.failure import CheckpointError

TOKENS = 64
LONG = 256
"""Several chunks of the delta rule, which save states between them."""
RANK = 4
BLOCKS = [(kind, rank) for kind in KINDS for rank in (0, RANK) if not rank or not kind.endswith("_moe")]
"""Experts are no linear layers, so they get no adapters."""
SEVEN: dict[str, Any] = {
    "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584},
}  # fmt: skip
"""Qwen2.5-VL-7B's."""


def test_a_config_alone_tells_the_sizes_of_seven_billion_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SEVEN))
    network, shape = sizes_at(tmp_path, LoraConfig(rank=16))
    assert network.weights == shape.weights == 8_292_166_656
    assert network.tower == 676_550_144 and network.language.weights == 233_057_792
    assert network.adapters == 40_370_176


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("kind", "rank"), BLOCKS)
def test_what_a_block_saves_is_what_the_memory_model_says(kind: Any, half: bool, rank: int, tmp_path: Path) -> None:
    build_random(kind, ["Click it."], 0, tmp_path / kind, hidden=128, heads=4, kv_heads=2, head_width=32, layers=3)
    model = load_model(tmp_path / kind)
    add_adapters(model, LoraConfig(rank=rank), 0)
    use_faster(model.to(torch.bfloat16 if half else torch.float32), norms=True)
    network, core, compute = network_of(model), model.base_model, 2 if half else 4
    language = _saved(model, core.language_model.layers[2], lambda: _read(core))
    assert language / TOKENS == pytest.approx(network.language.saved(compute, rank), rel=0.04)
    if network.language.delta:
        mixed = _saved(model, core.language_model.layers[1], lambda: _read(core, LONG))
        assert mixed / LONG == pytest.approx(network.language.saved_by_delta(compute, rank), rel=0.04)
    assert network.weights == sum(one.numel() for name, one in model.named_parameters() if not is_adapter(name))
    if not rank:
        seen = _saved(model, core.visual.blocks[1], lambda: _see(model))
        assert seen / TOKENS == pytest.approx(network.vision.saved(compute), rel=0.12)


@pytest.mark.parametrize("half", [False, True])
def test_documents_that_share_tokens_save_copies_of_their_keys_and_values(half: bool, tmp_path: Path) -> None:
    build_random("qwen3_vl", ["Click it."], 0, tmp_path / "model", hidden=128, heads=4, kv_heads=2, head_width=32)
    model = load_model(tmp_path / "model").to(torch.bfloat16 if half else torch.float32)
    network, core, block = network_of(model).language, model.base_model, model.base_model.language_model.layers[1]
    opening, rest = TOKENS // 2, TOKENS // 4
    shared = [Segment(0, 0, opening, ()), *(Segment(one, opening, opening + rest, (0,)) for one in range(2))]
    alone = _saved(model, block, lambda: _read(core))
    both = _saved(model, block, lambda: _read(core, packed=PackedDocuments.sharing(shared)))
    copied, each = opening + 2 * (opening + rest), 2 * (2 if half else 4) * network.keys
    assert each * (copied - TOKENS) <= both - alone <= each * copied  # the originals are counted, but not saved


def test_a_directory_without_a_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        sizes_at(tmp_path, LoraConfig())


def _read(core: Any, tokens: int = TOKENS, packed: PackedDocuments | None = None) -> None:
    ids, places = torch.arange(10, 10 + tokens)[None], torch.arange(tokens)[None, None].expand(3, 1, tokens)
    core(input_ids=ids, position_ids=places, packed=packed or PackedDocuments.of((0, tokens), None), use_cache=False)


def _see(model: Any) -> None:
    size = 3 * 2 * model.config.vision_config.patch_size**2
    pixels = torch.randn(TOKENS, size, dtype=next(model.parameters()).dtype)
    model.base_model.get_image_features(pixel_values=pixels, image_grid_thw=torch.tensor([[1, 8, 8]]), return_dict=True)


def _saved(model: Any, block: Any, run: Any) -> int:
    """Bytes that a block's operations save, each memory once; tables of angles, which all blocks share, not."""
    weights = {one.untyped_storage().data_ptr() for one in model.parameters()}
    found: dict[int, int] = {}
    forward = block.forward

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.data_ptr() not in weights | given:
            found[storage.data_ptr()] = storage.nbytes()
            held.append(tensor)
        return tensor

    def watched(*args: Any, **more: Any) -> Any:
        angles = more.get("position_embeddings") or ()
        given.update(one.untyped_storage().data_ptr() for one in angles)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            return forward(*args, **more)

    given: set[int] = set()
    held: list[torch.Tensor] = []
    block.forward = watched
    run()
    block.forward = forward
    return sum(found.values())
