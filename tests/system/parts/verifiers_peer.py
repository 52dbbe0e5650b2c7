"""verifiers' own package, run by a Python that has it, over this project's environment for it.

`PYTHON verifiers_peer.py SANDBOXES MODEL RESETS` plays each task with the model at that address, by verifiers' own
chat program and interception, and prints a line of JSON for each: what is on its record.
"""

import asyncio
import json
import sys
from typing import Any

import flywheel_gui  # pyright: ignore[reportMissingImports]
import verifiers.v1 as vf  # pyright: ignore[reportMissingImports]


async def play(sandboxes: str, model: str, resets: list[dict[str, Any]]) -> None:
    """Each reset is a task."""
    kind = vf.env_config_type("flywheel_gui")
    assert vf.environment_class("flywheel_gui") is flywheel_gui.VerifiersGuiEnv
    config = kind.model_validate({"taskset": {"id": "flywheel_gui", "url": sandboxes, "resets": resets}})
    env = vf.load_environment(config)
    context = vf.ModelContext(model="scripted", client=vf.EvalClientConfig(base_url=model, api_key_var="NO_KEY"))
    async with env.serving():
        for task in env.taskset:
            (slot,) = env.slots(task)
            episode = await env.run_slot(slot, context)
            rewards = [one.score for trace in episode.traces for one in trace.rewards.values()]
            turns = [trace.num_turns for trace in episode.traces]
            errors = [one.message for one in (*episode.errors, *(e for t in episode.traces for e in t.errors))]
            print(
                json.dumps(
                    {"task": task.data.name, "ok": episode.ok, "rewards": rewards, "turns": turns, "errors": errors}
                )
            )


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
