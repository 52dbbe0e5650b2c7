"""Stage before the first iteration: the task table, the first policy, and what untrained and random play are worth."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

from environments.catalog import catalog
from environments.pool import SandboxPool
from models.tiny import build_tiny
from schemas.config import Config
from schemas.policy import PolicyVersion
from schemas.table import utc_now
from schemas.task import GuiTask
from storage.lake import Lake
from tasks.checkpoints import load_policy
from tasks.evaluate import explorer_policy, explorer_suite, measure, measure_suites, summary
from tasks.places import work_folder
from tasks.stage import stage
from tasks.version import code_version

INITIAL = "policy-initial"
INSTRUCTIONS_PER_TASK = 24


@stage("prepare")
def prepare_lake(config: Config, lake: Lake, iteration: int) -> dict[str, Any]:
    """Writes the task table, makes the first policy, measures it and the explorer on held-out seeds."""
    tasks = catalog(config)
    lake.append("tasks", tasks)
    if lake.read("policies", ["policy_version"], {"policy_version": INITIAL}).num_rows == 0:
        _first_policy(config, lake, [task for task in tasks if task.split == "train"])
    explorer = summary(measure(config, lake, explorer_policy(), explorer_suite(config), iteration, "suite"))
    untrained = measure_suites(config, lake, load_policy(config, lake, INITIAL), iteration)
    said = f"explorer {explorer['success']:.3f}; untrained policy {untrained['suite']['success']:.3f}"
    return {"explorer": explorer, "untrained": untrained["suite"], "say": said}


def _first_policy(config: Config, lake: Lake, tasks: list[GuiTask]) -> None:
    folder = work_folder(lake, "initial")
    shutil.rmtree(folder)
    source = Path(config.policy.base)
    if config.policy.base == "tiny":
        build_tiny(config.policy, asyncio.run(_instructions(config, tasks)), config.seed, folder)
        source = folder
    row = PolicyVersion(
        policy_version=INITIAL,
        parent=None,
        iteration=-1,
        method="random" if config.policy.base == "tiny" else "given",
        checkpoint=lake.blobs.put_directory(source, f"checkpoints/{INITIAL}"),
        data_versions="{}",
        config=config.canonical(),
        code=code_version(),
        seed=config.seed,
        metrics=json.dumps({}),
        status="champion",
        created_at=utc_now(),
    )
    lake.append("policies", [row])


async def _instructions(config: Config, tasks: list[GuiTask]) -> list[str]:
    """Instructions of training seeds: the words the first policy's tokenizer is made for."""
    pool = SandboxPool(config.environment)
    await pool.start()

    async def one(task: GuiTask, seed: int) -> str:
        async with pool.lease(task, seed) as sandbox:
            return (await sandbox.observe()).instruction

    try:
        return await asyncio.gather(*(one(task, seed) for task in tasks for seed in range(INSTRUCTIONS_PER_TASK)))
    finally:
        await pool.close()
