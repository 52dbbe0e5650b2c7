"""The vision tower over all screens at once is what it is over each by itself."""

from pathlib import Path
from typing import Any

import pytest
import torch

from learning.engines.fsdp.model import load_model
from learning.engines.fsdp.phases import precomputed_of
from learning.parallel.packed_attention import SCREENS, WINDOWED, PatchWindows, packed_attention
from models.attention import by_length, find_kernel, has_kernel
from models.random_vlm import KINDS, build_random
from tests.tiers import NIGHTLY

GRIDS = torch.tensor([[1, 8, 12], [1, 2, 2], [1, 10, 14], [1, 8, 12]])
"""Screens of several sizes; their edges cut windows of Qwen2.5-VL short."""


def tower(folder: Path, kind: Any) -> Any:
    if not folder.exists():
        build_random(kind, ["Click it."], 0, folder, vision_layers=3)
    return load_model(folder).double()


def features(model: Any, pixels: torch.Tensor, grids: torch.Tensor, **more: Any) -> list[torch.Tensor]:
    seen = model.base_model.get_image_features(pixel_values=pixels, image_grid_thw=grids, return_dict=True, **more)
    deeper = getattr(seen, "deepstack_features", None) or ()
    return [torch.cat(list(seen.pooler_output)), *(torch.cat(list(one)) for one in deeper)]


@pytest.mark.parametrize("kind", KINDS)
def test_features_and_gradients_of_many_screens_are_those_of_each(kind: str, tmp_path: Path) -> None:
    model = tower(tmp_path / kind, kind)
    rows = torch.randn(int(GRIDS.prod(-1).sum()), 6 * model.config.vision_config.patch_size**2, dtype=torch.float64)
    model.config.vision_config._attn_implementation = "sdpa"
    each = [
        features(model, pixels, grid[None])
        for pixels, grid in zip(rows.split(GRIDS.prod(-1).tolist()), GRIDS, strict=True)
    ]
    alone = [torch.cat(level) for level in zip(*each, strict=True)]
    sum(level.square().sum() for level in alone).backward()
    wanted = {name: one.grad.clone() for name, one in model.base_model.visual.named_parameters()}
    model.zero_grad()
    model.config.vision_config._attn_implementation = SCREENS
    together = features(model, rows, GRIDS, **precomputed_of(model.base_model.visual, GRIDS))
    assert all(torch.allclose(one, other, atol=1e-10) for one, other in zip(alone, together, strict=True))
    sum(level.square().sum() for level in together).backward()
    found = {name: one.grad for name, one in model.base_model.visual.named_parameters()}
    assert all(torch.allclose(wanted[name], found[name], rtol=1e-8, atol=1e-8) for name in wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS if NIGHTLY else KINDS[1:2])
def test_a_layer_asks_for_all_screens_and_all_their_windows_in_one_call(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    calls = []

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(1)
        return packed_attention(*given, **named)

    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, SCREENS, counted)
    model = tower(tmp_path / kind, kind)
    grids = torch.tensor([[1, 78, 138]])  # 1932 x 1092 pixels in patches of 14
    rows = torch.zeros(int(grids.prod()), 6 * model.config.vision_config.patch_size**2, dtype=torch.float64)
    with torch.no_grad():
        features(model, rows, grids, **precomputed_of(model.base_model.visual, grids))
    assert len(calls) == model.config.vision_config.depth == 3


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_made_beforehand_leaves_the_tower_nothing_to_work_out_of_the_grids(kind: str, tmp_path: Path) -> None:
    """Its forward pass then never hands numbers back from a GPU: with grids that say nothing it gives the same."""
    model = tower(tmp_path / kind, kind)
    rows = torch.randn(int(GRIDS.prod(-1).sum()), 6 * model.config.vision_config.patch_size**2, dtype=torch.float64)
    made = {name.removeprefix("image_"): one for name, one in precomputed_of(model.base_model.visual, GRIDS).items()}
    with torch.no_grad():
        known = model.base_model.visual(rows, grid_thw=GRIDS).pooler_output
        blind = model.base_model.visual(rows, grid_thw=GRIDS * 0, **made).pooler_output
    assert torch.equal(known, blind)


LENGTHS = [[16], [16, 16], [16, 16, 8, 16, 8, 4], [4, 16, 4, 4], [8, 4, 16], [4, 8, 8, 16, 12, 16, 8]]
"""Patches of the windows of some screens; those at a screen's edge are short."""


def layer(windowed: bool) -> torch.nn.Module:
    module = torch.nn.Module()
    setattr(module, WINDOWED, windowed)
    return module


@pytest.mark.parametrize("lengths", LENGTHS)
def test_windows_of_one_size_as_a_dense_batch_are_what_each_is_bit_for_bit(lengths: list[int]) -> None:
    numbers = torch.Generator().manual_seed(0)
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    windows, ordered = PatchWindows.of(torch.tensor(lengths))
    assert sorted(ordered.tolist()) == [*range(len(lengths))] and windows.number == lengths.count(windows.size)
    parts = [torch.randn(1, 2, sum(lengths), 8, generator=numbers, requires_grad=True) for _ in range(3)]
    held = [part[:, :, windows.order] for part in parts]
    made, _ = packed_attention(
        layer(True), *held, None, is_causal=False, windows=windows, cu_seq_lens_q=starts, max_length_q=max(lengths)
    )
    wanted = by_length(*(part[0].transpose(0, 1) for part in parts), lengths, None, causal=False)
    assert torch.equal(made[0, windows.places], wanted)
    slope = torch.randn(wanted.shape, generator=numbers)
    found = torch.autograd.grad(made[0, windows.places], parts, slope, retain_graph=True)
    assert all(map(torch.equal, found, torch.autograd.grad(wanted, parts, slope)))


@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_layer_over_whole_screens_reads_them_in_their_own_order(lengths: list[int]) -> None:
    numbers = torch.Generator().manual_seed(0)
    total = sum(lengths)
    windows, _ = PatchWindows.of(torch.tensor(lengths))
    edges = torch.tensor([0, lengths[0], total]).unique().int()
    parts = [torch.randn(1, 2, total, 8, generator=numbers) for _ in range(3)]
    more: Any = {"is_causal": False, "cu_seq_lens_q": edges, "max_length_q": total}
    held = [part[:, :, windows.order] for part in parts]
    made, _ = packed_attention(layer(False), *held, None, windows=windows, **more)
    wanted, _ = packed_attention(layer(False), *parts, None, **more)
    assert torch.equal(made[0, windows.places], wanted[0])


@pytest.mark.parametrize("windowed", [True, False])
def test_attention_in_windows_breaks_no_graph_and_is_compiled_once(windowed: bool) -> None:
    """The meta device takes a GPU's branches."""
    compiled = torch.compile(packed_attention, backend="eager", fullgraph=True, dynamic=True)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for lengths in ([16, 16, 8, 4], [16, 16, 16, 8], [16, 8, 16, 4, 4, 16]):
        parts = [torch.empty(1, 2, sum(lengths), 16, device="meta", dtype=torch.bfloat16) for _ in range(3)]
        windows, _ = PatchWindows.of(torch.tensor(lengths))
        windows.order, windows.places = windows.order.to("meta"), windows.places.to("meta")
        windows.starts = windows.starts.to("meta")
        edges = torch.zeros(2, dtype=torch.int32, device="meta")
        made, _ = compiled(
            layer(windowed), *parts, None, is_causal=False, windows=windows, cu_seq_lens_q=edges, max_length_q=16
        )
        assert made.shape == (1, sum(lengths), 2, 16)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_a_gpu_without_a_flash_kernel_is_named_with_what_runs_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    half, gpu = torch.empty(4, 2, 8, device="meta", dtype=torch.bfloat16), torch.device("cuda")
    available = torch.backends.cuda.is_flash_attention_available
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert not find_kernel(gpu) and has_kernel(half) and not has_kernel(half.float())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    line = find_kernel(gpu)
    assert "compute capability is 7.5" in line and "once for each length" in line and not has_kernel(half)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: False)
    assert "this build of PyTorch lacks it" in find_kernel(gpu) and not has_kernel(half)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", available)
    assert not find_kernel(torch.device("cpu")) and has_kernel(half)
