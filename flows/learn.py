"""Run the half of an iteration that changes the policy."""

from schemas.config import Config
from tasks.evaluate import evaluate_candidate
from tasks.promote.promote import promote_candidate
from tasks.quality.gate import check_again
from tasks.train.train import continue_training, train_policy


def learn(config: Config, iteration: int) -> None:
    """Trains a candidate, measures it, and makes it the champion if it is not worse than the current one.

    A part of its flow's table of contents, not a flow of its own: Prefect takes a second to begin and end one.
    """
    continue_training(config, iteration)
    train_policy(config, iteration)
    evaluate_candidate(config, iteration)
    check_again(config, iteration)
    promote_candidate(config, iteration)
