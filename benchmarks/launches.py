"""Count what a GPU would be asked to do in one training step and for one generated token, for each trained family.

`python -m benchmarks.launches [--short] [--json PATH]`

The trainer's own step runs on the meta device, which has no numbers and takes a GPU's branches, under a dispatch mode.
**Calls** are operators that compute or copy, but no views and allocations; a custom operator counts as the operators
inside it. **Waits** are reads of a number by the host, and copies to the device that block, until the update is queued.
**Weight copies** are the numbers read from trained weights to cast or gather them, in multiples of the weights.

Norms, rotary positions and SwiGLU of blocks that are not compiled count as the kernels that a GPU launches for them.
Attention is one call, as in PyTorch's kernel for variable lengths: no time chooses another kernel here.

`compiled_calls` counts for each block what Inductor launches: generated kernels and library calls, forward and
backward, of a block that is compiled for a CPU and one whole sequence. Attention is one library call, as on a GPU.

`token_calls` are the operators of a generated token. `token_launches` are what the host launches for it on a GPU, where
the decoding step is a captured graph: one replay, and its share of the look at which rows have ended. The bars are
ratios to `launches_baseline.json`, the counts of earlier commits, which neither compiled nor captured anything.
"""

import argparse
import copy
import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._inductor.utils import run_and_get_code
from torch.utils._pytree import tree_leaves, tree_map_only
from transformers.modeling_layers import GradientCheckpointingLayer

from benchmarks.gpu.mixed_samples import NAMES, mixed_job, mixed_samples
from benchmarks.harness import Bar, finish, options
from benchmarks.launch_mode import Launches
from learning.engines.engine import SampleRef
from learning.engines.fsdp.engine import FsdpEngine
from learning.learner import Learner
from learning.parallel.packed_attention import Copied
from models.fused import gated
from models.random_vlm import KINDS, build_random
from models.serving.local import TransformersModel
from models.serving.rows import EVERY, rows_attention_of
from models.tiny.layout import read_config
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig

BASELINE = Path(__file__).with_name("launches_baseline.json")
SIZE: dict[str, Any] = {"hidden": 64, "layers": 4, "vision_hidden": 64, "vision_layers": 4, "vision_intermediate": 84}
"""Sizes of the models; calls depend on the numbers of layers alone. 84 is no multiple of 8, as Qwen2.5-VL's 3420."""
TEXTS = [f'Click on the "{one}" button.' for one in NAMES] * 8
"""Sample texts of the models' tokenisers."""
BATCH, CAP = 12, 1536
"""Samples of the step, and tokens of a micro-batch: the step has several."""
TOKENS = (4, 12)
"""New tokens of two replies, whose difference is what a further token costs."""
STEP_BAR, TOKEN_BAR = 0.35, 0.2
_RMS_NORM = "torch.nn.functional.rms_norm"
_NONZERO = "torch.fx.experimental._config.meta_nonzero_assume_all_nonzero"
Row = dict[str, Any]


@torch.library.custom_op("benchmarks::kernel", mutates_args=())
def _kernel(read: list[Tensor], like: list[Tensor]) -> list[Tensor]:
    """Stands for one kernel of a GPU, which makes tensors like these from those that it reads."""
    return [torch.empty_like(one) for one in like]


_kernel.register_fake(lambda read, like: [torch.empty_like(one) for one in like])


class _Fused(torch.autograd.Function):
    """Stands for a function that is one kernel in each direction on a GPU; other devices compute it in parts."""

    @staticmethod
    def forward(ctx: Any, shape: torch.Size, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return _kernel(list(inputs), [inputs[0].new_empty(shape)])[0]

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        followed = ctx.needs_input_grad[1:]
        like = [one for one, asked in zip(ctx.saved_tensors, followed, strict=True) if asked]
        made = iter(_kernel([*ctx.saved_tensors, *slopes], like))
        return None, *(next(made) if asked else None for asked in followed)


def _norm(x: Tensor, shape: Any, weight: Tensor, epsilon: float) -> Tensor:
    return _Fused.apply(x.shape, x, weight)


def stand_in(function: Any) -> Any:
    """Stands for a function of `models.fused` that is compiled for a GPU: a kernel for each result in each direction.

    Inductor makes no more of them, and for a tower, whose queries and keys have one shape, half as many.
    """
    if function is gated:
        return lambda gate, up: _Fused.apply(gate.shape, gate, up)
    return lambda q, k, cos, sin: (_Fused.apply(q.shape, q, cos, sin), _Fused.apply(k.shape, k, cos, sin))


@contextmanager
def _on_a_gpu() -> Iterator[None]:
    """Lets the meta device run the kernels of a GPU."""
    fused = patch("models.fused.DEVICES", ("meta",)), patch("models.fused.kernel_of", stand_in)
    with patch(_NONZERO, True), patch(_RMS_NORM, _norm), fused[0], fused[1]:
        yield


_LAUNCH = re.compile(r"^\s+(?:cpp_fused\w*\(|(?:\w+ = )?(?:extern_kernels|torch\.ops\.\w+)\.[\w.]+\()", re.MULTILINE)
"""A generated kernel or a call of a library in the code that Inductor writes."""


def count_step(model: Path, folder: Path) -> Row:
    """Counts one training step of a model directory: its gradient, in several micro-batches, and its update."""
    counted, net, pieces = traced_step(model, folder)
    row, weights = counted.row(), sum(weight.numel() for weight in net.parameters())
    compiled = row["calls"] - pieces * sum(count_saved(net))
    return {"compiled_calls": compiled, **row, "weight_copies": round(counted.gathered / weights, 2), "pieces": pieces}


def traced_step(model: Path, folder: Path) -> tuple[Launches, Any, int]:
    """Runs a training step on the meta device; returns its counts, the network, and the number of micro-batches."""
    samples, pngs = mixed_samples(2 * BATCH, 0)
    config = TrainConfig(batch=BATCH, processes=1, device="cpu", token_cap=CAP, precision="bfloat16", compiled=False)
    (folder / "model").symlink_to(model)
    job = mixed_job(folder, (samples, pngs), 2, 1e-5, config)
    if read_config(model)["model_type"].startswith("qwen3_5"):  # the random template has no calls, which name a family
        job = job.model_copy(update={"policy": job.policy.model_copy(update={"family": "thousandths"})})
    engine = FsdpEngine(job, 0, 1, device=torch.device("meta"))
    learner = Learner(job, samples, 0, 1, engine)
    _keep_inputs(engine._net)
    _counted_step(learner, engine, 0)  # also makes what later steps have
    counted, pieces = _counted_step(learner, engine, 1)
    learner.close()
    return counted, engine._net, pieces


def _counted_step(learner: Learner, engine: FsdpEngine, step: int) -> tuple[Launches, int]:
    batch = engine.ready(learner.prepare([SampleRef(at, at) for at in range(step * BATCH, (step + 1) * BATCH)]))
    with Launches("meta", engine._net.parameters()) as counted, _on_a_gpu():
        learner.gradient(batch)
        engine.update(1e-5)
    return counted, len(batch.pieces)


def _keep_inputs(net: Any) -> None:
    """Keeps the last inputs of each block, and of each mixer in it."""
    net.inputs = {}
    for block in (one for one in net.modules() if isinstance(one, GradientCheckpointingLayer)):
        for module in filter(None, (block, getattr(block, "linear_attn", None))):
            module.register_forward_pre_hook(
                lambda one, given, named: net.inputs.__setitem__(one, (given, named)), with_kwargs=True
            )


def count_saved(net: Any) -> Iterator[int]:
    """Yields by how many launches a pass of each compiled block, forward and backward, is less than its calls."""
    known: dict[Any, int] = {}
    for block, (given, named) in list(net.inputs.items()):  # a copy of a block adds its own
        if not isinstance(block, GradientCheckpointingLayer):
            continue
        mixer = getattr(block, "linear_attn", None)
        kind = (type(block), mixer is None)
        if kind not in known:
            net._copies.begin()
            one_sequence = {name: one for name, one in named.items() if name != "windows"}  # as it is compiled below
            calls = _passed(block, given, one_sequence).calls.total()
            if mixer is not None:  # it is not compiled
                calls -= _passed(mixer, (), net.inputs[mixer][1]).calls.total()
            net._copies.end()
            known[kind] = calls - compiled_launches(block, given, named)
            if mixer is None and getattr(named.get("packed"), "seen", None) is not None:
                known[kind] -= 2 * repeated_launches()
        yield known[kind]


@cache
def repeated_launches() -> int:
    """Counts what Inductor launches to select keys, or values, of shared tokens, forward and backward."""
    rows, order = torch.zeros(64, 2, 16, dtype=torch.bfloat16, requires_grad=True), torch.zeros(96, dtype=torch.long)
    torch._dynamo.reset()
    compiled = torch.compile(lambda one, chosen: Copied.apply(one, chosen), dynamic=True)
    _, codes = run_and_get_code(lambda: compiled(rows, order).float().sum().backward())
    return sum(len(_LAUNCH.findall(code[code.index("def call(") :])) for code in codes)


def _passed(module: Any, given: Any, named: Mapping[str, Any]) -> Launches:
    """Counts a pass of a module forward and backward, without adding gradients to those of weights."""
    given, named = _with_gradient(given, named)
    followed = [one for one in tree_leaves((given, named, [*module.parameters()])) if _follows(one)]
    with Launches("meta") as counted, _on_a_gpu():
        made = module(*given, **named)
        torch.autograd.grad(made, followed, torch.empty_like(made), allow_unused=True)
    return counted


def compiled_launches(block: Any, given: Any, named: Mapping[str, Any]) -> int:
    """Counts what Inductor launches for a block of the meta device, forward and backward, with one whole sequence."""
    real = copy.deepcopy(block).to_empty(device="cpu").to(torch.bfloat16)
    for module in real.modules():
        for name in ("forward", "_apply_gate"):  # what is compiled is not replaced
            vars(module).pop(name, None)
    kept = {name: None if name == "cu_seqlens" else one for name, one in named.items() if name != "packed"}
    given, kept = tree_map_only(Tensor, lambda one: torch.zeros(one.shape, dtype=one.dtype), (given, kept))
    given, kept = _with_gradient(given, kept)
    torch._dynamo.reset()
    compiled = torch.compile(real.forward, dynamic=True)
    _, codes = run_and_get_code(lambda: compiled(*given, **kept).float().sum().backward())
    return sum(len(_LAUNCH.findall(code[code.index("def call(") :])) for code in codes)


def _with_gradient(given: Any, named: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Copies the inputs of a module; only hidden states have a gradient."""
    given, named = tree_map_only(Tensor, Tensor.detach, (given, dict(named)))
    assert isinstance(named, dict)
    for one in (*given[:1], *(named[name] for name in ("hidden_states",) if name in named)):
        one.requires_grad_()
    return given, named


def _follows(one: Any) -> bool:
    return isinstance(one, Tensor) and one.requires_grad


def count_token(model: Path) -> Row:
    """Counts one further generated token of a model directory, and what the host launches for it on a GPU."""
    local = TransformersModel(model, PolicyConfig())
    local.batch._start = local.batch._work  # type: ignore[method-assign]  # calls are counted in this thread alone
    chat: Any = [[{"role": "user", "content": [{"type": "text", "text": "Click on ok."}]}]] * 4
    found = []
    with _endless(local):
        for tokens in TOKENS:
            local.generate(chat, range(4), 1.0, tokens)
            with Launches("cpu") as counted:
                local.generate(chat, range(4), 1.0, tokens)
            found.append(counted.calls.total())
    calls = (found[1] - found[0]) / (TOKENS[1] - TOKENS[0])
    if (slots := local.batch.slots) is None:  # `generate` of the library captures nothing
        return {"token_calls": calls, "token_launches": calls}
    with torch.inference_mode(), rows_attention_of(local.model), Launches("cpu") as counted:
        slots._step()
    others = calls - counted.calls.total()
    return {"token_calls": calls, "token_launches": 1 + others / EVERY["cuda"]}


@contextmanager
def _endless(local: TransformersModel) -> Iterator[None]:
    """Lets no reply end early."""
    held = local.model.generation_config.eos_token_id, local.batch.ends
    local.model.generation_config.eos_token_id, local.batch.ends = None, []
    yield
    local.model.generation_config.eos_token_id, local.batch.ends = held


def measure(chosen: argparse.Namespace) -> list[Row]:
    """Counts a step and a token of each family; with `--short`, of two."""
    rows = []
    for kind in KINDS[:2] if chosen.short else KINDS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            build_random(kind, TEXTS, 0, folder / "built", **SIZE)  # type: ignore[arg-type]
            rows.append({"family": kind, **count_step(folder / "built", folder), **count_token(folder / "built")})
    return rows


def main() -> int:
    """Prints the counts; returns 1 if a bar is missed."""
    chosen = options(__doc__ or "")
    rows, before = measure(chosen), json.loads(BASELINE.read_text())["families"]
    bars = []
    for row in rows:
        kind, was = row["family"], before[row["family"]]
        step, token = row["compiled_calls"] / was["calls"], row["token_launches"] / was["token_calls"]
        bars += [
            Bar(f"{kind}: calls of a step, share", step, STEP_BAR, "lower"),
            Bar(f"{kind}: waits of a step", row["waits"], 0, "lower"),
            Bar(f"{kind}: weight copies of a step", row["weight_copies"], 1, "lower"),
            Bar(f"{kind}: launches of a token, share", token, TOKEN_BAR, "lower"),
        ]
    return finish("launches", rows, bars, chosen)


if __name__ == "__main__":
    raise SystemExit(main())
