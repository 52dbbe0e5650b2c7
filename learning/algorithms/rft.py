"""Trains by rejection fine-tuning: rolls out groups as `grpo` does, and imitates their successes and earlier
successes."""

from dataclasses import replace

from learning.algorithms import sft

METHOD = replace(sft.METHOD, in_groups=True)
