"""Tasks."""

from bench_env.task.registry import TaskRegistry

__all__ = ["TaskRegistry"]
