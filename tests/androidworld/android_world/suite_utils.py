"""Makes tasks with parameters that a seed determines."""

import random
from typing import Any


def create_suite(kinds: dict[str, Any], instances: int, seed: int, env: Any) -> dict[str, list[Any]]:
    found = dict[str, list[Any]]()
    for name, kind in kinds.items():
        for number in range(instances):
            random.seed(f"{seed}_{name}_{number}")
            found.setdefault(name, []).append(kind({**kind.generate_random_params(), "seed": seed}))
    return found
