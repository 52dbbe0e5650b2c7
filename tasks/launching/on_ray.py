"""Start `tasks.launching.node` once on each machine of a Ray cluster, with all of its GPUs. Runs as a Ray job.

`ray job submit` runs `python -m tasks.launching.on_ray --nodes LEAST:MOST -- NODE...`, where NODE is the placeholder
`{node}`. The job uses the machines with the most GPUs.
"""

import argparse
import subprocess
import sys
from typing import Any

from common import log
from schemas.failure import UsageError

FEW = 2.0
"""Processors that the job reserves on each machine; all processors if the machine has fewer."""


def machines_of(nodes: list[dict[str, Any]], least: int, most: int) -> list[dict[str, Any]]:
    """Choose machines from the result of `ray.nodes()`.

    Raises:
        UsageError: fewer than `least` machines are alive.
    """
    found = [node for node in nodes if node["Alive"]]
    if len(found) < least:
        raise UsageError(
            f"The Ray cluster has {len(found)} machines, and the training needs {least}.",
            "Lower train.machines.nodes, or set train.machines.least.",
        )
    return sorted(found, key=lambda one: -one["Resources"].get("GPU", 0.0))[:most]


def main() -> int:
    """Wait for all machines, and return the first exit status other than 0, or 0."""
    parser = argparse.ArgumentParser(prog="python -m tasks.launching.on_ray")
    parser.add_argument("--nodes", required=True, metavar="LEAST:MOST")
    parser.add_argument("node", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    words = [word for word in asked.node if word != "--"]
    least, most = map(int, asked.nodes.split(":"))

    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(address="auto", log_to_driver=True)
    try:
        machines = machines_of(ray.nodes(), least, most)
    except UsageError as error:
        log.write("error", str(error))
        return error.exit_code
    count = f"{min(least, len(machines))}:{len(machines)}"  # a training must not wait for more machines
    words[words.index("--nodes") + 1] = count
    run = ray.remote(max_retries=0)(_run)
    started = [
        run.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(one["NodeID"], soft=False),
            num_gpus=one["Resources"].get("GPU", 0.0),
            num_cpus=min(FEW, one["Resources"].get("CPU", 0.0)),
        ).remote(words)
        for one in machines
    ]
    codes = ray.get(started)
    return next((code for code in codes if code), 0)


def _run(words: list[str]) -> int:
    return subprocess.run(words, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
