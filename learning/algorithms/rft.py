"""Rejection fine-tuning: roll out groups as `grpo` does, and imitate what succeeded in them and before."""

from dataclasses import replace

from learning.algorithms import sft

METHOD = replace(sft.METHOD, in_groups=True)
