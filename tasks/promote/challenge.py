"""What every policy that no iteration made goes through: measured as a candidate is, it challenges the champion."""

from typing import Any

from schemas.config import Config
from tasks.evaluate import measure_challenger
from tasks.promote.promote import challenge
from tasks.shared.boundary import boundary
from tasks.shared.console import say
from tasks.shared.events import emit_decision
from tasks.shared.policies import policy_row
from tasks.shared.run import run_of


@boundary("evaluate-challenger")
def evaluate_challenger(config: Config, version: str) -> dict[str, Any]:
    """The policy on both suites' held-out seeds, until it is decided."""
    lake = run_of(config, create=False).lake
    return measure_challenger(config, lake, policy_row(lake, version))


@boundary("challenge")
def challenge_champion(config: Config, version: str) -> dict[str, Any]:
    """Promotes, holds or rejects the policy."""
    lake = run_of(config, create=False).lake
    decided = challenge(config, lake, policy_row(lake, version))
    say(f"{version}: {decided['say']}")
    emit_decision(lake, decided)
    return decided
