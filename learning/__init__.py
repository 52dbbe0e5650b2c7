"""Trains policies: data, algorithms, engines, planning, parallelism, checkpoints, and the trainer's process."""

from common.process import collect_garbage_seldom

collect_garbage_seldom()
