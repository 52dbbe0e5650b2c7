"""The end of a page: once two lamps were switched."""

from typing import Any


def is_episode_terminated(env: Any) -> bool:
    return sum(env.state["lamps"]) >= 2
