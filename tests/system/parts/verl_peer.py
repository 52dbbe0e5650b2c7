"""verl's own package, run by a Python that has it: its tool registry, agent loop, reward manager in a Ray actor and
trainer's worker, with our tool and our reward function. Stand-ins are the model, its tokens and the store of samples.

`PYTHON verl_peer.py SANDBOXES FOLDER` prints a line of JSON for each trajectory.
"""

import asyncio
import contextlib
import io
import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hydra  # pyright: ignore[reportMissingImports]
import numpy as np
import ray  # pyright: ignore[reportMissingImports]
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict  # pyright: ignore[reportMissingImports]
from verl.experimental.agent_loop import agent_loop, tool_agent_loop  # pyright: ignore[reportMissingImports]
from verl.experimental.agent_loop.tool_parser import FunctionCall  # pyright: ignore[reportMissingImports]
from verl.protocol import DataProto  # pyright: ignore[reportMissingImports]
from verl.tools.tool_registry import initialize_tools_from_config  # pyright: ignore[reportMissingImports]
from verl.trainer.ppo.reward import get_custom_reward_fn  # pyright: ignore[reportMissingImports]
from verl.trainer.ppo.v1 import agent_loop_tq  # pyright: ignore[reportMissingImports]

TURNS = 4
PLAIN = {(255, 255, 255), (255, 255, 0)}
WAIT = {"type": "wait"}


class Loop(tool_agent_loop.ToolAgentLoop):
    """verl's loop, whose model makes the calls of `script`, a list of them for each turn."""

    def __init__(self, *, tools: Any, script: list[list[Any]]) -> None:
        self.tools = {one.name: one for one in tools.tools}
        self.tool_schemas = [
            one.tool_schema.model_dump(exclude_unset=True, exclude_none=True) for one in self.tools.values()
        ]
        self.max_tool_response_length, self.tool_response_truncate_side, self.max_parallel_calls = 256, "middle", 8
        self.max_user_turns, self.max_assistant_turns = None, TURNS
        self.prompt_length, self.response_length = 10, 100
        self.rollout_config = SimpleNamespace(full_determinism=False)
        self.processor, self.tokenizer = SimpleNamespace(image_processor=True), None
        self.script = list(script)
        self.tool_parser = SimpleNamespace(stop_token_ids=None, extract_tool_calls=self._calls)
        self.server_manager = SimpleNamespace(generate=self._generate)

    async def _handle_generating_state(self, agent_data: Any, *given: Any, **more: Any) -> Any:
        self._seen = agent_data.image_data
        return await super()._handle_generating_state(agent_data, *given, **more)

    async def _calls(self, *_: Any) -> tuple[str, list[Any]]:
        calls = self.script.pop(0) if self.script else []
        written = [json.dumps(press(self._seen[-1]) if one == "press" else one) for one in calls]
        return "", [FunctionCall(name="gui", arguments=one) for one in written]

    async def _generate(self, **_: Any) -> Any:
        fields = {"token_ids": [5], "log_probs": None, "num_preempted": None, "routed_experts": None}
        return SimpleNamespace(**fields, extra_fields={"global_steps": 1})

    async def process_multi_modal_info(self, messages: Any) -> dict[str, Any]:
        return {}

    def _get_mm_processor_kwargs(self, audio_data: Any = None) -> dict[str, Any]:
        return {}

    def _assert_mm_supported(self, has_multi_modal: bool) -> None: ...

    def build_sglang_video_payload(self, *_: Any) -> None: ...

    async def ct_build_initial_tokens(self, *_: Any, **__: Any) -> list[int]:
        return [1, 2]

    async def ct_merge_assistant_token(self, prompt: Any, reply: Any, mask: Any, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(token_ids=prompt + reply), [*mask, 1], None

    async def ct_merge_context_msg(self, _: Any, __: Any, prompt: Any, mask: Any, *___: Any, **____: Any) -> Any:
        return SimpleNamespace(token_ids=[*prompt, 9]), [*mask, 0], None


def press(picture: Any) -> dict[str, Any]:
    """A click on the button that is seen."""
    pixels = picture.load()
    x, y = next((x, y) for y in range(60, 210) for x in range(160) if pixels[x, y] not in PLAIN)
    return {"type": "click", "x": (x + 5) / 160, "y": (y + 5) / 210}


@ray.remote
class Scorer:
    """verl's own reward manager with our reward function, found as its config names it."""

    def __init__(self) -> None:
        from verl.experimental.reward_loop.reward_manager import (  # pyright: ignore[reportMissingImports]
            get_reward_manager_cls,
        )

        named = {"path": "pkg://environments.openenv.verl", "name": "compute_score"}
        config = OmegaConf.create({"reward": {"custom_reward_function": named}})
        self._tokenizer = SimpleNamespace(decode=lambda *_, **__: "")
        self._manager = get_reward_manager_cls("naive")(config, self._tokenizer, get_custom_reward_fn(config))

    async def compute_score(self, data: Any) -> dict[str, Any]:
        self._manager.loop = asyncio.get_running_loop()
        return await self._manager.run_single(data)


class Worker(agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class.__mro__[1]):
    """The trainer's worker, in this process."""

    def __init__(self, tools: list[Any]) -> None:
        rollout = {"n": 1, "val_kwargs": {"n": 1}}
        self.config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
        self.tools, self.reward_loop_worker_handles = tools, [Scorer.remote()]
        self.llm_client = self.tokenizer = self.processor = self.hf_model_type = self.dataset_cls = None
        self.outputs: dict[str, Any] = {}

    async def _run_agent_loop(self, sampling_params: Any, trajectory: Any, *, trace: bool, **prompt: Any) -> None:
        """As verl's: by hydra."""
        handed = {"tools": agent_loop.ToolListWrap(self.tools), "script": prompt.pop("script")}
        loop = hydra.utils.instantiate({"_target_": "__main__.Loop", "_convert_": "all"}, **handed)
        output = self.outputs[prompt["uid"]] = await loop.run(sampling_params, **prompt)
        await self._agent_loop_postprocess(output, trajectory["validate"], **prompt)

    async def _compute_teacher_logprobs(self, *_: Any, **__: Any) -> None: ...

    def _compute_multi_modal_inputs(self, *_: Any) -> dict[str, Any]:
        return {}

    def _compute_position_ids(self, ids: Any, *_: Any) -> Any:
        return torch.arange(ids.shape[-1]).unsqueeze(0)


SCRIPTS: dict[str, tuple[dict[str, Any], list[list[Any]]]] = {
    "cut": ({"task_id": "click-one", "seed": 5}, [[WAIT]] * 9),
    "pressed": ({"task_id": "click-one", "seed": 6}, [[WAIT], ["press"], [WAIT]]),
    "silent": ({"task_id": "click-one", "seed": 7}, []),
    "several": ({"task_id": "click-one", "seed": 8}, [[WAIT, WAIT], ["press", WAIT]]),
    "dies": ({"task_id": "dies", "seed": 3}, [[WAIT], [WAIT]]),
    "unknown": ({"task_id": "nothing", "seed": 3}, [[WAIT]]),
}


async def main(url: str, folder: Path) -> None:
    """Each script is a trajectory, all at once."""
    puts: dict[str, Any] = {}

    async def put(key: str, partition_id: str, tag: dict[str, Any]) -> None:
        puts[key] = tag["status"]

    async def put_all(keys: list[str], fields: Any, tags: Any, partition_id: str) -> None:
        puts.update({key: fields[number] for number, key in enumerate(keys)})

    agent_loop_tq.tq = SimpleNamespace(async_kv_put=put, async_kv_batch_put=put_all)
    place = folder / "tools.yaml"
    place.write_text(
        f'tools:\n  - class_name: environments.openenv.verl.verl_tool\n    config: {{type: native, url: "{url}"}}\n'
    )
    with contextlib.redirect_stdout(io.StringIO()):
        worker = Worker(initialize_tools_from_config(str(place)))

    def prompt(uid: str) -> dict[str, Any]:
        reset, script = SCRIPTS[uid]
        about = {"data_source": "flywheel", "reward_model": {"ground_truth": None}, "extra_info": {}}
        asked = {"gui": {"create_kwargs": reset}}
        messages = [{"role": "user", "content": "Act."}]
        return {"uid": uid, "raw_prompt": messages, "tools_kwargs": asked, "script": script, "global_steps": 1, **about}

    await asyncio.gather(*(worker._run_prompt(prompt(uid), {}, {"validate": False}) for uid in SCRIPTS))
    for uid in SCRIPTS:
        output, sample = worker.outputs[uid], puts.get(f"{uid}_0_0")
        line = {
            "uid": uid,
            "status": puts[uid],
            "score": output.reward_score,
            "sample": sample is not None,
            "images": len(output.multi_modal_data.get("images", [])),
            "fields": sorted(output.extra_fields),
        }
        print(json.dumps(line))
    print(len(DataProto.concat([_batch(one) for one in worker.outputs.values() if one.reward_score is not None])))


def _batch(output: Any) -> Any:
    """A worker's batch of one, with its extra fields as verl's older trainer writes them."""
    fields = {}
    for key in {"turn_scores", "tool_rewards", *output.extra_fields}:
        fields[key] = np.empty(1, dtype=object)
        fields[key][:] = [output.extra_fields.get(key)]
    return DataProto(batch=TensorDict({"x": torch.zeros(1, 1)}, batch_size=1), non_tensor_batch=fields)


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
    ray.shutdown()
