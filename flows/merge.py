"""Define the flow that merges policies. It has its own module, because it loads torch."""

from prefect import flow

from schemas.config import Config
from tasks.merge import merge_policies
from tasks.promote.promote import challenge_champion, evaluate_challenger
from tasks.running.run import open_run, run_name


@flow(name="merge", flow_run_name=run_name)
def merge(config: Config, policies: list[str], weights: list[float] | None = None, parts: int = 4) -> str:
    """Interpolates policies with a common origin, evaluates the result, and promotes it if it is not worse.

    Args:
        config: the resolved config.
        policies: policy versions in the lake, at least two.
        weights: one weight per policy, with the sum 1; searched by held-out success if not given.
        parts: the search tries weights that are multiples of 1 / parts.

    Returns:
        The version of the merged policy.
    """
    with open_run(config, create=False):
        version = merge_policies(config, policies, weights, parts)
        evaluate_challenger(config, version)
        challenge_champion(config, version)
        return version
