"""Stage `prepare`, before the first iteration: write the task table, make the first policy, and measure it."""

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import asdict

from environments.catalog import catalog
from environments.pool import SandboxPool
from environments.registry import environments_of
from models.hub import fetched_base, given_revision
from models.safe import carried, require_sound
from models.thinkers.thinker import THINKERS
from models.tiny.layout import CRITIC
from rollout.failures import short
from rollout.runner import run_until_interrupted
from rollout.trajectory import ATTEMPTS
from schemas.config import Config
from schemas.failure import EnvironmentDown, FlywheelError, SandboxFailure, all_of
from schemas.tables.policy import PolicyVersion
from schemas.tables.stage import PREPARE, PlainResult
from schemas.tables.task import GuiTask
from storage.lake import Lake
from tasks.evaluate import explorer_policy, measure, summary
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.paths import work_folder
from tasks.shared.policies import PolicyRecipe, champion, champion_if_any, origin_of, register
from tasks.shared.trajectories import measured_first
from tasks.shared.weights import load_policy

INITIAL = "policy-initial"
PAGES = {"train": 12, "practice": 60}
"""Number of pages per task whose texts train the tokeniser of the first policy."""


@stage("prepare")
def prepare_lake(run: Run, iteration: int) -> PlainResult:
    """Write the task table, make the first policy, and measure it and the explorer on held-out seeds."""
    config, lake = run.config, run.lake
    tasks = catalog(config)
    lake.append("tasks", tasks)
    lake.upsert("tasks", renewed(lake, tasks))
    first_policy(config, lake)
    origin = origin_of(lake)
    assert origin is not None
    seeds = measured_first(config)
    explorer = summary(measure(config, lake, explorer_policy(config), {"suite": seeds["explorer"]}, iteration))
    first = load_policy(config, lake, origin.policy_version)
    start = summary(measure(config, lake, first, {"suite": seeds["untrained"]}, iteration))
    name = "given policy" if config.policy.given else "untrained policy"
    text = f"explorer {explorer.text}; {name} {start.text}"
    if config.policy.given and start.unread:
        text += f"; {start.unread}; check `policy.family`"
    return PlainResult(text=text, numbers={"explorer": asdict(explorer), "untrained": asdict(start)})


def renewed(lake: Lake, tasks: Sequence[GuiTask]) -> list[GuiTask]:
    """Return the lake's tasks whose threshold or grading changed, with the current values of the config."""
    now = {task.task_id: task.model_dump(include={"threshold", "graded"}) for task in tasks}
    known = lake.rows(GuiTask, {"task_id": sorted(now)})
    return [new for old in known if (new := old.model_copy(update=now[old.task_id])) != old]


def first_policy(config: Config, lake: Lake) -> PolicyVersion:
    """Return the champion. If the lake has no policy, make the first one from `policy.base`, and do not measure it."""
    if (row := champion_if_any(lake)) is not None:
        return row
    folder = work_folder(lake, "initial")
    shutil.rmtree(folder)
    source = fetched_base(config.policy)
    if not config.policy.given:
        from models.tiny.build import build_tiny  # late, because most flows do not need `torch`

        phrases = [phrase for name in config.think.thinkers for phrase in THINKERS.class_of(name).phrases]
        tasks = [task for task in catalog(config) if task.split != "held_out"]
        build_tiny(config.policy, run_until_interrupted(_texts(config, tasks)), config.seed, folder, phrases)
        source = folder
    require_sound(source)
    method = "given" if config.policy.given else "random"
    checkpoint = lake.blobs.put_directory(source, f"checkpoints/{INITIAL}", carried(source, {CRITIC}))
    recipe = PolicyRecipe(INITIAL, "", PREPARE, {}, "initial")
    register(lake, config, recipe, method, checkpoint, given_revision(config.policy), config.seed)
    return champion(lake)


async def _texts(config: Config, tasks: list[GuiTask]) -> list[str]:
    """Return the texts for the tokeniser: instructions of training seeds, and names of elements on practice pages.

    Raises:
        EnvironmentDown: all seeds of some tasks failed to start. The message has these tasks.
    """
    pool = SandboxPool(environments_of(config, tasks))
    failures: dict[str, str] = {}
    down: list[FlywheelError] = []

    async def look(task: GuiTask, seed: int) -> list[str]:
        async with pool.lease(task, seed) as sandbox:
            seen = await sandbox.observe(elements=task.split == "practice")
            return [seen.instruction, *(f'"{element.name}"' for element in seen.elements)]

    async def again(task: GuiTask, seed: int) -> list[str]:
        for _ in range(ATTEMPTS):
            try:
                return await look(task, seed)
            except SandboxFailure as failure:
                failures[task.task_id] = failure.reason
        return []

    async def of_task(task: GuiTask) -> list[str]:
        pages = await asyncio.gather(*(again(task, seed) for seed in range(PAGES[task.split])))
        if not any(pages):
            down.append(
                FlywheelError(
                    f"{task.task_id}: it came up with none of {len(pages)} seeds, tried {ATTEMPTS} times each: "
                    f"{short(failures[task.task_id])}.",
                    "`flywheel doctor` looks at its environment; or take the task out of `suite`.",
                )
            )
        return [text for page in pages for text in page]

    async with pool:
        found = await asyncio.gather(*map(of_task, tasks))
    if down:
        told = all_of(down)
        raise EnvironmentDown(told.problem, told.hint)
    return [text for texts in found for text in texts]
