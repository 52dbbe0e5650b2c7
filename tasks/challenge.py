"""What every policy that no iteration made goes through: measured as a candidate is, it challenges the champion."""

from typing import Any

from schemas.config import Config
from tasks.evaluate import measure_suites
from tasks.promote import challenge
from tasks.shared.boundary import boundary
from tasks.shared.policies import policy_row
from tasks.shared.run import run_of
from tasks.shared.weights import load_policy


@boundary("evaluate-challenger")
def evaluate_challenger(config: Config, version: str) -> dict[str, Any]:
    """The policy on both suites' held-out seeds."""
    lake = run_of(config, create=False).lake
    return measure_suites(config, lake, load_policy(config, lake, version), policy_row(lake, version).iteration)


@boundary("challenge")
def challenge_champion(config: Config, version: str) -> dict[str, Any]:
    """Promotes the policy if it is not worse than the champion."""
    lake = run_of(config, create=False).lake
    return challenge(config, lake, policy_row(lake, version))
