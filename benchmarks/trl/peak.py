"""Measure the peak memory of a training, alike on both sides."""

import resource

import torch


def peak_mib() -> float:
    """The most memory so far: the GPU's where there is one in use, else the process's."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
