"""Measure a policy that no iteration made like a candidate, and let it challenge the champion."""

from schemas.config import Config
from schemas.table import Metrics
from tasks.evaluate import measure_challenger
from tasks.promote.promote import challenge, numbers_of
from tasks.running.boundary import boundary
from tasks.running.console import print_line
from tasks.running.events import emit_decision
from tasks.running.run import run_of
from tasks.shared.policies import policy_row


@boundary("evaluate")
def evaluate_challenger(config: Config, version: str) -> Metrics:
    """Evaluate the policy on both suites' held-out seeds, until it is decided."""
    lake = run_of(config, create=False).lake
    return measure_challenger(config, lake, policy_row(lake, version))


@boundary("challenge")
def challenge_champion(config: Config, version: str) -> None:
    """Promote, hold or reject the policy."""
    lake = run_of(config, create=False).lake
    decided = numbers_of(challenge(config, lake, policy_row(lake, version)))
    print_line(f"{version}: {decided['say']}")
    emit_decision(lake, decided)
