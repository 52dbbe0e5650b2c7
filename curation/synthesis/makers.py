"""Create the configured makers of tasks and of rewards."""

from typing import Any

from curation.synthesis.maker import TaskMaker, maker_of
from curation.synthesis.reward import RewardMaker, reward_maker_of
from schemas.config.curating import SynthesisConfig
from schemas.failure import UsageError

REWARD = "reward"
"""Name of the section with the reward maker's own keys."""


def makers_of(config: SynthesisConfig) -> tuple[list[TaskMaker[Any]], RewardMaker[Any]]:
    """Return the makers, in the config's order, and the reward maker.

    Raises:
        UsageError: a maker is unknown or repeated, or an option is unknown or belongs to a maker that is not named.
    """
    for name in config.options.keys() - {*config.makers, REWARD}:
        raise UsageError(
            f"`synthesis.options.{name}`: no maker has this name.",
            f"They are {', '.join(config.makers)}, and `{REWARD}`.",
        )
    if len(set(config.makers)) < len(config.makers):
        raise UsageError("`synthesis.makers` names a maker twice.", "Name each once.")
    makers = [maker_of(name, config.options.get(name, {})) for name in config.makers]
    return makers, reward_maker_of(config.reward, config.options.get(REWARD, {}))
