"""Saves or loads a distributed checkpoint of Megatron Core on CPUs, and writes the network's logits.

`FAMILY` is qwen2 (fp32, tied, no optimiser) or qwen3 (bf16, with Megatron's distributed optimiser). Tensor parallelism
is over two ranks; qwen3 is saved by four ranks.

    pip install megatron-core==0.16.1 torch==2.13.0 safetensors
    torchrun --standalone --nproc-per-node 2 tests/golden/checkpoints/save_megatron.py save qwen2 FOLDER
    torchrun ... save_megatron.py load qwen2 FOLDER LOGITS   # of a converted checkpoint
"""

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer.transformer_config import TransformerConfig
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

TENSOR, VOCABULARY, PADDED = 2, 29, 32
LAYERS = {"qwen2": 2, "qwen3": 1}


class OnCpu(TorchFunctionMode):
    """Runs code for GPUs on CPUs."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.type and len(args) == 1:
            return func(*args).replace("torch.", "torch.cuda.")
        return func(*("cpu" if isinstance(one, str) and one == "cuda" else one for one in args), **kwargs)


def without_gpu() -> None:
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.FloatTensor, torch.cuda.IntTensor = torch.FloatTensor, torch.IntTensor
    tensor_parallel.random.CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()


def network(family: str) -> tuple[GPTModel, TransformerConfig]:
    newer = family == "qwen3"
    dtype = torch.bfloat16 if newer else torch.float32
    config = TransformerConfig(
        num_layers=LAYERS[family],
        hidden_size=8,
        num_attention_heads=4,
        num_query_groups=2,
        kv_channels=6 if newer else 2,
        ffn_hidden_size=12,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        layernorm_epsilon=1e-6,
        add_bias_linear=False,
        add_qkv_bias=not newer,
        qk_layernorm=newer,
        use_cpu_initialization=True,
        params_dtype=dtype,
        bf16=newer,
        pipeline_dtype=dtype,
        tensor_model_parallel_size=TENSOR,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        init_method_std=0.3,
    )
    spec = get_gpt_layer_local_spec(qk_layernorm=newer, normalization="RMSNorm")
    made = GPTModel(
        config,
        spec,
        vocab_size=PADDED,
        max_sequence_length=16,
        position_embedding_type="rope",
        rotary_base=10000,
        share_embeddings_and_output_weights=not newer,
    )
    for name, weight in sorted(made.named_parameters()):
        if weight.ndim == 1:  # norms and biases are constant at first
            draw = torch.Generator().manual_seed(len(name))
            weight.data.copy_(1 + torch.randn(weight.shape, generator=draw) / 4)
    return made, config


def logits_of(made: GPTModel) -> torch.Tensor:
    ids = torch.arange(12).view(1, 12) % VOCABULARY
    mask = torch.ones(1, 1, 12, 12, dtype=torch.bool).triu(1)
    with torch.no_grad():
        part = made(ids, torch.arange(12).view(1, 12), mask)
    return tensor_parallel.gather_from_tensor_model_parallel_region(part)[..., :VOCABULARY].float().contiguous()


def main(action: str, family: str, folder: Path, logits: Path) -> None:
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=TENSOR)
    torch.manual_seed(7)
    made, config = network(family)
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    state: dict[str, Any] = {}
    if action == "save" and family == "qwen3":
        settings = DistributedDataParallelConfig(use_distributed_optimizer=True, grad_reduce_in_fp32=True)
        wrapped = DistributedDataParallel(config, settings, made)
        rates = OptimizerConfig(
            optimizer="adam", lr=1e-2, bf16=True, params_dtype=torch.bfloat16, use_distributed_optimizer=True
        )
        optimizer = get_megatron_optimizer(rates, [wrapped])
        for _ in range(2):
            for weight in made.parameters():
                weight.main_grad.normal_()
            optimizer.step()
        about = {"distrib_optim_sharding_type": "fully_reshardable", "dp_cp_group": group}
        sharded = made.sharded_state_dict(prefix="", metadata={"dp_cp_group": group})
        state["optimizer"] = optimizer.sharded_state_dict({"model": sharded}, metadata=about)
    state["model"] = made.sharded_state_dict(prefix="", metadata={"dp_cp_group": group})
    if action == "save":
        sizes = {
            "num_layers": LAYERS[family],
            "num_attention_heads": 4,
            "num_query_groups": 2,
            "kv_channels": config.kv_channels,
            "hidden_size": 8,
            "ffn_hidden_size": 12,
            "padded_vocab_size": PADDED,
            "vocab_size": VOCABULARY,
            "untie_embeddings_and_output_weights": family == "qwen3",
            "tensor_model_parallel_size": TENSOR,
            "pipeline_model_parallel_size": 1,
        }
        state.update({"iteration": 3, "checkpoint_version": 3.0, "args": argparse.Namespace(**sizes)})
        place = folder / "iter_0000003"
        place.mkdir(parents=True, exist_ok=True)
        dist_checkpointing.save(state, str(place))
        (folder / "latest_checkpointed_iteration.txt").write_text("3")
    else:
        for weight in made.parameters():
            weight.data.fill_(torch.nan)
        (place,) = folder.glob("iter_*")
        loaded = dist_checkpointing.load({"model": state["model"]}, str(place))
        made.load_state_dict(loaded["model"])
    found = logits_of(made)
    if dist.get_rank() == 0:
        save_file({"logits": found}, logits)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    without_gpu()
    with OnCpu():
        target = Path(sys.argv[3])
        main(
            sys.argv[1], sys.argv[2], target, Path(sys.argv[4]) if len(sys.argv) > 4 else target / "logits.safetensors"
        )
