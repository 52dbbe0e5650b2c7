"""Chooses the number type of networks on a CPU."""

from functools import cache

import torch


@cache
def compute_dtype() -> torch.dtype:
    """Returns bf16 if the processor has instructions for it, else fp32, since bf16 without them takes ten times as
    long."""
    found = torch.cpu.get_capabilities()
    return torch.bfloat16 if any(there for name, there in found.items() if "bf16" in name) else torch.float32
