"""Computes rotary positions and gated products of a model in one kernel each on a GPU, without compiled blocks.

`transformers` rotates queries and keys in some ten passes over memory, and as many backward; a vision tower does so in
fp32. `torch.compile` compiles only these small functions, for all lengths at once. That takes seconds, and its files
serve later processes, too. A CPU, a compiled block and a decoding step of one token use the library's functions.
"""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial, wraps
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROTARY = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_vision")
"""Names of the library's functions that rotate queries and keys, in the module of each kind of model."""
VARIANTS = 64
"""Variants of a function that may be compiled: with and without gradients, and of each layout."""
DEVICES = ("cuda",)
"""Types of devices on which functions are fused."""
LENGTH = 200
"""Maximum characters of the reason why a compiler fails."""
_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_missing = ""
"""Why this process cannot compile for its GPU; empty if it can. A compiler guards on it."""


def lacks_compiler(device: torch.device) -> str:
    """Finds why `torch.compile` cannot run for a device; for a GPU, it compiles a small function.

    Returns:
        what is missing, without a full stop; empty if nothing is.
    """
    variable, known, other = ("CXX", "g++", "clang++") if device.type == "cpu" else ("CC", "gcc", "clang")
    compiler = os.environ.get(variable, known)
    if not any(map(shutil.which, (compiler, other))):
        return f"a C++ compiler is needed, and there is no {compiler} here"
    if device.type != "cuda":
        return ""
    if find_spec("triton") is None:
        return "the package triton is needed, which is not installed"
    return _tried(device)


@cache
def _tried(device: torch.device) -> str:
    """Compiles a function forward and backward; returns the first line of the error if that fails."""
    _keep_compiled()
    try:
        with torch.inference_mode(False), torch.enable_grad():
            gate, up = (torch.ones(1, 16, 24, dtype=torch.bfloat16, device=device).requires_grad_() for _ in range(2))
            in_one_kernel(gated, (gate, up), (1, 1)).sum().backward()
    except Exception as error:  # a compiler's parts raise many types
        return " ".join(f"it fails with {type(error).__name__} {error}".split())[:LENGTH]
    return ""


def _keep_compiled() -> None:
    """Keeps what is compiled in the user's cache if possible, since a temporary folder may be emptied."""
    folder = Path(os.getenv("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "flywheel", "compiled")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        os.environ.setdefault(_CACHE, str(folder))


def find_compiler(device: torch.device) -> str:
    """Looks for a GPU's compiler, without which functions run in several kernels.

    Returns:
        why there is none and what runs instead, for the log; empty if there is one, or for a CPU.
    """
    global _missing
    _missing = lacks_compiler(device) if device.type == "cuda" else ""
    instead = "blocks run uncompiled, and rotary positions and SwiGLU in several kernels"
    return _missing and f"torch.compile does not work for this GPU ({_missing}): {instead}."


def _is_fused(x: Tensor, tokens: int) -> bool:
    """Checks for a GPU with a compiler, outside of compiled blocks."""
    return x.device.type in DEVICES and tokens > 1 and not _missing and not torch.compiler.is_compiling()


@cache
def kernel_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors at its first call, with constants for all sizes that are not marked."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, VARIANTS)
    return torch.compile(function, dynamic=False)


def in_one_kernel(function: Callable[..., Any], parts: Sequence[Tensor], tokens: Sequence[int]) -> Any:
    """Calls a function in its compiled form, which is one for all lengths.

    Args:
        function: a function of tensors.
        parts: its arguments.
        tokens: for each argument, the dimension of tokens. Only this one varies in the compiled form: a GPU computes
            indices faster with known sizes of the others.
    """
    for part, dimension in zip(parts, tokens, strict=True):
        torch._dynamo.maybe_mark_dynamic(part, dimension % part.ndim)
    return kernel_of(function)(*parts)


def fuse(model: nn.Module) -> None:
    """Replaces functions of a model whose blocks are not compiled.

    Rotary positions are replaced in the library's module of the model, so for all models of its kind. Gated layers are
    replaced one by one; a layer that may compute another function is not changed.
    """
    for name in {type(one).__module__ for one in model.modules() if type(one).__module__.startswith("transformers.")}:
        for rotary in ROTARY:
            found = getattr(sys.modules[name], rotary, None)
            if found is not None and not hasattr(found, "fused"):
                setattr(sys.modules[name], rotary, _rotary(found))
    for module in model.modules():
        if _is_gated(module):
            module.forward = _GatedLayer(module)  # type: ignore[assignment]
        elif _has_gated_experts(module):
            module._apply_gate = _apply_gate  # type: ignore[assignment]


def _rotary(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function of the library that rotates queries and keys by (..., tokens, width) cosines and sines."""
    turned = partial(function, unsqueeze_dim=2)

    @wraps(function)
    def rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *more: Any, **named: Any) -> Any:
        if more or named or not _is_fused(q, cos.shape[-2]):
            return function(q, k, cos, sin, *more, **named)
        if q.ndim == 3:  # a tower's (tokens, heads, width)
            return in_one_kernel(function, (q, k, cos, sin), (0, 0, -2, -2))
        # a language model's (rows, heads, tokens, width) lies in memory by tokens, and so do its gradients
        made = in_one_kernel(turned, (q.transpose(1, 2), k.transpose(1, 2), cos, sin), (1, 1, -2, -2))
        return tuple(one.transpose(1, 2) for one in made)

    rotary.fused = True  # type: ignore[attr-defined]
    return rotary


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """Computes silu(gate) * up."""
    return F.silu(gate) * up


class _GatedLayer:
    """A layer down(silu(gate(x)) * up(x))."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, x: Tensor) -> Tensor:
        """Maps (..., tokens, width) to the same shape."""
        layer = self._module
        return layer.down_proj(_gated(layer.gate_proj(x), layer.up_proj(x)))


def _apply_gate(both: Tensor) -> Tensor:
    return _gated(*both.chunk(2, dim=-1))


def _gated(gate: Tensor, up: Tensor) -> Tensor:
    """Computes silu(gate) * up, (..., tokens, width)."""
    return in_one_kernel(gated, (gate, up), (-2, -2)) if _is_fused(gate, gate.shape[-2]) else gated(gate, up)


def _is_gated(module: Any) -> bool:
    """Finds on a few numbers whether a module computes such a layer."""
    if not all(hasattr(module, name) for name in ("gate_proj", "up_proj", "down_proj", "act_fn")):
        return False
    tried = SimpleNamespace(gate_proj=torch.sin, up_proj=torch.exp, down_proj=torch.tanh, act_fn=module.act_fn)
    return _equal(lambda x: type(module).forward(tried, x), lambda x: gated(x.sin(), x.exp()).tanh())


def _has_gated_experts(module: Any) -> bool:
    """Finds on a few numbers whether the experts of a module have gates in the first half of a product."""
    if not hasattr(module, "_apply_gate") or not hasattr(module, "act_fn"):
        return False
    tried = SimpleNamespace(act_fn=module.act_fn)
    return _equal(lambda x: type(module)._apply_gate(tried, x), lambda x: gated(*x.chunk(2, dim=-1)))


def _equal(one: Callable[[Tensor], Tensor], other: Callable[[Tensor], Tensor]) -> bool:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    try:
        return torch.allclose(one(x), other(x), atol=1e-6)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return False
