"""What a GPU computes in one kernel is what the library computes in many."""

import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForImageTextToText

from benchmarks.launch_mode import Launches
from benchmarks.launches import stand_in
from models import fused
from models.fused import ROTARY, find_compiler, fuse, gated, kernel_of, lacks_compiler
from models.random_vlm import KINDS, build_random
from models.safe import read_whole
from tests.tiers import NIGHTLY, lacks

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++"))), reason=lacks("no C++ compiler", "apt-get install g++")
)
Function = Callable[..., Any]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Lets a CPU take a GPU's branch, uncompiled; counts the functions that run there."""
    found = Counter[str]()

    def counted(function: Function) -> Function:
        found[getattr(function, "func", function).__name__] += 1
        return function

    monkeypatch.setattr(fused, "kernel_of", counted)
    monkeypatch.setattr(fused, "_is_fused", lambda x, tokens: tokens > 1)
    return found


def gradients(model: Any) -> dict[str, Tensor]:
    """Of a text after a screen."""
    config, numbers = model.config, torch.Generator().manual_seed(0)
    pixels = torch.randn(64, 6 * config.vision_config.patch_size**2, generator=numbers)
    seen = model.base_model.get_image_features(
        pixel_values=pixels, image_grid_thw=torch.tensor([[1, 8, 8]]), return_dict=True
    )
    ids = torch.arange(10, 30)[None]
    embedded = torch.cat([torch.cat(list(seen.pooler_output))[None], model.get_input_embeddings()(ids)], dim=1)
    model.zero_grad()
    model(inputs_embeds=embedded).logits.square().mean().backward()
    return {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_every_rotation_and_every_gated_layer_of_a_family_is_fused_with_equal_gradients(
    kind: Any, tmp_path: Path, ran: Counter[str]
) -> None:
    build_random(kind, ["Click it."], 0, tmp_path / kind, layers=4, vision_layers=3)
    model = read_whole(AutoModelForImageTextToText, tmp_path / kind).float()
    before = gradients(model)
    fuse(model)
    ran.clear()
    after = gradients(model)
    assert before.keys() == after.keys()
    for name, right in before.items():  # a norm's gradient is summed over another layout
        torch.testing.assert_close(after[name], right, rtol=1e-4, atol=1e-8)
    attending = sum(hasattr(layer, "self_attn") for layer in model.base_model.language_model.layers)
    assert ran["apply_rotary_pos_emb"] == attending and ran["apply_rotary_pos_emb_vision"] == 3
    shared = 4 if kind == "qwen3_5_moe" else 0
    assert ran["gated"] == 4 + shared + (3 if kind == "qwen2_5_vl" else 0)


def test_a_cpu_and_a_decoding_step_keep_the_library_s_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_random("qwen2_5_vl", ["Click it."], 0, tmp_path / "model")
    model = read_whole(AutoModelForImageTextToText, tmp_path / "model").float()
    monkeypatch.setattr(fused, "kernel_of", lambda function: pytest.fail(function.__name__))
    before = gradients(model)
    fuse(model)
    after = gradients(model)
    assert all(torch.equal(before[name], after[name]) for name in before)
    one = torch.empty(2, 1, 8, device="meta")
    assert not fused._is_fused(one, 2)
    monkeypatch.setattr(fused, "DEVICES", ("meta",))
    assert not fused._is_fused(one, 1) and fused._is_fused(one, 2)


class Doubled(nn.Module):
    """A gated layer of another kind."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj, self.act_fn = (nn.Identity() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def test_a_layer_with_another_function_keeps_its_own() -> None:
    module = Doubled()
    fuse(module)
    assert "forward" not in vars(module)
    module.act_fn = nn.SiLU()
    fuse(module)
    assert "forward" in vars(module)


def rotary_of(kind: str, name: str) -> Function:
    __import__(f"transformers.models.{kind}.modeling_{kind}")
    found = getattr(sys.modules[f"transformers.models.{kind}.modeling_{kind}"], name)
    return getattr(found, "__wrapped__", found) if hasattr(found, "fused") else found


def inputs_of(name: str, kind: str, tokens: int, dtype: torch.dtype) -> list[Tensor]:
    """Inputs of a function in the layout of a model, with fewer heads of keys in language models."""
    numbers = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=numbers).to(dtype)

    if name == "gated":
        return [drawn(1, tokens, 48).requires_grad_() for _ in range(2)]
    if name == ROTARY[1]:
        q, k = (drawn(tokens, 4, 16).requires_grad_() for _ in range(2))
        return [q, k, *(torch.randn(tokens, 16, generator=numbers) for _ in range(2))]
    q, k = (drawn(1, tokens, heads, 16).transpose(1, 2).requires_grad_() for heads in (4, 2))
    return [q, k, *(drawn(1, tokens, 8 if kind.startswith("qwen3_5") else 16) for _ in range(2))]


def passed(function: Function, inputs: list[Tensor]) -> list[Tensor]:
    """Results and gradients."""
    made = function(*inputs)
    made = [made] if isinstance(made, Tensor) else list(made)
    followed = [one for one in inputs if one.requires_grad]
    return [*made, *torch.autograd.grad(made, followed, [torch.cos(one.detach()) for one in made])]


CASES = [("gated", ""), *((name, kind) for kind in KINDS for name in ROTARY)]


def off(found: list[Tensor], exact: list[Tensor]) -> list[float]:
    """Relative distances from the results and gradients in float64."""
    return [float((one.double() - right).norm() / right.norm()) for one, right in zip(found, exact, strict=True)]


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), CASES if NIGHTLY else [*CASES[:3], CASES[7]])
def test_a_function_is_compiled_once_for_all_lengths_into_no_more_kernels_than_are_counted(
    name: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the concatenations of a GPU, which Inductor does not fuse for a CPU by itself."""
    function, kernels = gated if name == "gated" else rotary_of(kind, name), list[int]()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    kernel_of.cache_clear()
    monkeypatch.setattr(fused, "_is_fused", lambda x, tokens: True)
    compiled = fused._gated if name == "gated" else fused._rotary(function)

    def seen(nodes: list[Any]) -> list[Any]:
        kernels.append(len(nodes))
        return nodes

    as_on_gpu = {"force_pointwise_cat": True, "fx_graph_cache": False, "_post_fusion_custom_pass": seen}
    first = inputs_of(name, kind, 24, torch.bfloat16)
    with torch._inductor.config.patch(as_on_gpu):
        passed(compiled, first)
    with Launches("cpu") as plain:
        passed(function, first)
    on_meta = [one.detach().to("meta").requires_grad_(one.requires_grad) for one in first]
    with Launches("meta") as counted:
        passed(stand_in(function), on_meta)
    made = compiled(*first)
    made = [made] if isinstance(made, Tensor) else [*made]
    slopes = [torch.ones_like(one) for one in made]
    with Launches("cpu") as around:
        torch.autograd.grad(made, [one for one in first if one.requires_grad], slopes)
    assert not around.calls, "no gradient is copied into another layout"
    assert len(kernels) == 2 and sum(kernels) <= counted.calls["kernel"] < plain.calls.total() / 2
    for tokens in (24, 40, 7):
        for dtype, close in ((torch.bfloat16, 1e-2), (torch.float32, 1e-6)):
            inputs = inputs_of(name, kind, tokens, dtype)
            exact = passed(function, [one.detach().double().requires_grad_(one.requires_grad) for one in inputs])
            ours, theirs = (off(passed(one, inputs), exact) for one in (compiled, function))
            assert all(one <= max(1.1 * other, close) for one, other in zip(ours, theirs, strict=True)), (ours, theirs)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2, "one for each type of numbers"


def test_a_gpu_without_a_compiler_keeps_the_library_s_functions_and_one_line_names_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, cpu, rows = torch.device("cuda"), torch.device("cpu"), torch.empty(2, 4, device="meta")
    monkeypatch.setattr(fused, "DEVICES", ("meta",))
    monkeypatch.setattr(fused, "find_spec", lambda _: True)
    monkeypatch.setattr(fused, "_tried", lambda _: "")
    assert not find_compiler(gpu) and fused._is_fused(rows, 2)
    monkeypatch.setattr(fused, "_tried", lambda _: "it fails with FileNotFoundError Python.h")
    line = find_compiler(gpu)
    assert "Python.h" in line and "blocks run uncompiled" in line and "\n" not in line and not fused._is_fused(rows, 2)
    monkeypatch.setattr(fused, "find_spec", lambda _: None)
    assert "the package triton" in find_compiler(gpu)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "there is no gcc here" in find_compiler(gpu) and "there is no g++ here" in lacks_compiler(cpu)
    assert not find_compiler(cpu) and fused._is_fused(rows, 2)


@needs_compiler
def test_a_compiler_that_fails_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "other"))

    def failing(_: Function) -> Function:
        raise RuntimeError("Python.h\nis missing" + 300 * ".")

    monkeypatch.setattr(fused, "kernel_of", failing)
    reason = fused._tried.__wrapped__(torch.device("cpu"))
    assert reason.startswith("it fails with RuntimeError Python.h is missing") and len(reason) == fused.LENGTH
    assert (tmp_path / "flywheel" / "compiled").is_dir()
