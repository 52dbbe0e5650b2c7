"""A server of a model with vLLM's or SGLang's endpoints: `python -m tests.system.parts.model_server KIND DIRECTORY PORT
LOG [raw] [lora [stiff]] [PAUSE_S]`.

The model is real, and what is told of the endpoints is what the servers' sources say: paths, bodies, statuses, the
names of fields. It is stricter than they are where a mistake would stay unseen: weights are only loaded while it is
paused (vLLM), and until the cache of prefixes is emptied it goes on with the old ones. `raw` gives log probabilities
from before the temperature, as vLLM does by default. With `lora` it takes adapters, which peft applies; `stiff` refuses
to change the weights below them, as vLLM up to 0.17 does. Every call is a line of JSON in the log.
"""

import asyncio
import base64
import json
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from peft import PeftModel

from models.completion import Completion
from models.families.processor import prompt_tokens
from models.families.prompt import Message
from models.serving.local import TransformersModel
from models.serving.rows import Reply
from models.tiny.generator import TinyModel
from models.tiny.layout import is_tiny, read_config
from schemas.config.policy import PolicyConfig
from schemas.observation import Observation

DEFAULT = "default"


class Recorder(TinyModel):
    """The small policy, with the logits of every token that it chose for its only chat."""

    seen: list[torch.Tensor]

    def _choose(self, logits: torch.Tensor, *rest: Any) -> torch.Tensor:
        self.seen.append(logits[0].double())
        return super()._choose(logits, *rest)


class Adaptable(TransformersModel):
    """Any model, the same, with adapters beside it."""

    seen: list[torch.Tensor]

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, PolicyConfig(prefix_mb=0, seen_screens_mb=0))
        self.model.float()
        self.adapters: dict[str, str] = {}
        self.adapted: Any = None

    @property
    def tokenizer(self) -> Any:
        return self.processor.tokenizer.backend_tokenizer

    def add(self, name: str, path: str) -> None:
        known = f"adapter{len(self.adapters)}"
        if self.adapted is None:
            self.adapted = PeftModel.from_pretrained(self.model, path, adapter_name=known)
        else:
            self.adapted.load_adapter(path, adapter_name=known)
        self.adapters[name] = known

    def choose(self, adapter: str) -> None:
        if self.adapted is None:
            return
        if adapter:
            self.adapted.base_model.enable_adapter_layers()
            self.adapted.set_adapter(self.adapters[adapter])
        else:
            self.adapted.base_model.disable_adapter_layers()

    def _generate(self, inputs: Any, sampler: Any, max_tokens: int) -> list[Reply]:
        def seeing(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            self.seen.append(scores[0].double())
            return sampler(ids, scores)

        seeing.by_row = sampler.by_row  # type: ignore[attr-defined]
        return super()._generate(inputs, cast(Any, seeing), max_tokens)


def loaded(directory: Path) -> "Recorder | Adaptable":
    return Recorder(directory) if is_tiny(read_config(directory)) else Adaptable(directory)


@dataclass
class State:
    """What the server is at."""

    directory: Path
    log: Path
    raw: bool
    pause_s: float
    lora: bool = False
    stiff: bool = False
    model: Recorder | Adaptable = field(init=False)
    fresh: Recorder | Adaptable | None = None
    """Loaded weights that no request sees before the caches are empty."""
    version: str = DEFAULT
    paused: bool = False
    asleep: bool = False
    under_way: dict[int, asyncio.Event] = field(default_factory=dict)
    """What gives a request up, by its number."""
    numbers: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.model = loaded(self.directory)
        self.open.set()

    def note(self, **fields: Any) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps({"under_way": len(self.under_way), "version": self.version, **fields}) + "\n")

    def load(self, directory: str) -> None:
        self.fresh = loaded(Path(directory))

    @property
    def adapters(self) -> dict[str, str]:
        return self.model.adapters if isinstance(self.model, Adaptable) else {}

    def add(self, name: str, path: str) -> str:
        """What is wrong with an adapter, if anything."""
        if not (self.lora and isinstance(self.model, Adaptable)):
            return "LoRA is not enabled."
        if name in self.adapters:
            return f"The lora adapter '{name}' has already been loaded."
        with self.lock:
            self.model.add(name, path)
        return ""

    def empty_caches(self) -> None:
        if self.fresh is not None:
            self.model, self.fresh = self.fresh, None

    async def drained(self) -> None:
        while self.under_way:
            await asyncio.sleep(0.005)

    def abort(self) -> int:
        for given_up in self.under_way.values():
            given_up.set()
        return len(self.under_way)


def chat_of(body: dict[str, Any]) -> list[Message]:
    """The messages as a model of ours takes them."""
    found: list[Message] = []
    for message in body["messages"]:
        given = message["content"]
        parts = [{"type": "text", "text": given}] if isinstance(given, str) else given
        found.append({"role": message["role"], "content": [_part(part) for part in parts]})
    return found


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return part
    png = base64.b64decode(part["image_url"]["url"].partition(",")[2])
    return {"type": "image", "observation": Observation(png, 0, 0, "")}


def generated(state: State, body: dict[str, Any], adapter: str) -> tuple[Completion, list[torch.Tensor]]:
    """A completion and, by token, the log probabilities that this server tells."""
    temperature = body["temperature"]
    with state.lock:
        state.model.seen = []
        if isinstance(state.model, Adaptable):
            state.model.choose(adapter)
        (made,) = state.model.generate([chat_of(body)], [body["seed"]], temperature, body["max_tokens"])
        scale = 1.0 if state.raw else temperature or 1.0
        return made, [(logits / scale).log_softmax(-1) for logits in state.model.seen]


def choice_of(state: State, body: dict[str, Any], made: Completion, shares: list[torch.Tensor]) -> dict[str, Any]:
    """A choice as the protocol has it, without what the two servers add."""
    tokens = [str(state.model.tokenizer.id_to_token(one)) for one in made.token_ids]
    content = [
        {
            "token": token,
            "logprob": float(known[number]),
            "bytes": None,
            "top_logprobs": [
                {"token": str(state.model.tokenizer.id_to_token(int(at))), "logprob": float(value), "bytes": None}
                for value, at in zip(*known.topk(body.get("top_logprobs", 0)), strict=True)
            ],
        }
        for token, number, known in zip(tokens, made.token_ids, shares, strict=True)
    ]
    return {
        "index": 0,
        "message": {"role": "assistant", "content": made.text},
        "logprobs": {"content": content} if body.get("logprobs") else None,
        "finish_reason": "stop",
    }


async def answered(
    state: State,
    body: dict[str, Any],
    adapter: str,
    more: Callable[[Completion, str], tuple[dict[str, Any], dict[str, Any]]],
) -> JSONResponse:
    """A chat completion; half of one, with the reason `abort`, where it was given up on its way."""
    number, given_up = state.numbers, asyncio.Event()
    state.numbers += 1
    state.under_way[number] = given_up
    version = state.version
    try:
        made, shares = await asyncio.to_thread(generated, state, body, adapter)
        with suppress(TimeoutError):
            await asyncio.wait_for(given_up.wait(), state.pause_s)
        choice = choice_of(state, body, made, shares)
        ours, whole = more(made, version)
        choice |= ours
        if given_up.is_set():
            choice |= {"finish_reason": "abort", "message": {"role": "assistant", "content": made.text[:3]}}
        sampling = {name: value for name, value in body.items() if name != "messages"}
        state.note(path="chat", sampling=sampling, ended=choice["finish_reason"], by=version, adapter=adapter)
    finally:
        del state.under_way[number]
    return JSONResponse(
        {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "model": body["model"],
            "choices": [choice],
            "usage": {"prompt_tokens": 1, "completion_tokens": len(made.token_ids), "total_tokens": 1},
            **whole,
        }
    )


def common(state: State, name: str) -> FastAPI:
    """What both servers have."""
    app = FastAPI()

    @app.middleware("http")
    async def noted(request: Request, call: Any) -> Any:
        if request.url.path not in ("/v1/chat/completions", "/v1/models", "/health"):
            text = (await request.body()).decode()
            state.note(path=request.url.path, query=dict(request.query_params), body=json.loads(text or "null"))
        return await call(request)

    @app.get("/health")
    async def health() -> Response:
        return Response(status_code=200)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": one, "object": "model"} for one in (name, *state.adapters)]}

    return app


def vllm_adapters(app: FastAPI, state: State) -> None:
    """vLLM's endpoints for adapters."""

    @app.post("/v1/load_lora_adapter")
    async def load_lora_adapter(request: Request) -> Response:
        body = await request.json()
        if wrong := await asyncio.to_thread(state.add, body["lora_name"], body["lora_path"]):
            return JSONResponse({"error": {"message": wrong, "type": "InvalidUserInput", "code": 400}}, 400)
        return Response(f"Success: LoRA adapter '{body['lora_name']}' added successfully.")

    @app.post("/v1/unload_lora_adapter")
    async def unload_lora_adapter(request: Request) -> Response:
        name = (await request.json())["lora_name"]
        if state.adapters.pop(name, None) is None:
            return JSONResponse({"error": {"message": f"The lora adapter '{name}' cannot be found."}}, 404)
        return Response(f"Success: LoRA adapter '{name}' removed successfully.")


def vllm(state: State) -> FastAPI:
    """vLLM in its development mode."""
    app = common(state, str(state.directory))

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> JSONResponse:
        body = await request.json()
        if state.paused or state.asleep:
            return JSONResponse({"error": {"message": "generation is paused", "type": "ServiceUnavailable"}}, 503)
        adapter = body["model"] if body["model"] in state.adapters else ""
        if not adapter and body["model"] != str(state.directory):
            return JSONResponse({"error": {"message": "The model does not exist.", "code": 404}}, 404)

        def more(made: Completion, version: str) -> tuple[dict[str, Any], dict[str, Any]]:
            ours: dict[str, Any] = {"stop_reason": None}
            whole: dict[str, Any] = {}
            if body.get("return_token_ids"):
                ours["token_ids"] = list(made.token_ids)
                whole["prompt_token_ids"] = prompt_tokens(state.directory, chat_of(body))
            if body.get("return_weight_versions"):
                ours["weight_versions"] = [{"version": version, "start": 0, "end": len(made.token_ids)}]
            return ours, whole

        return await answered(state, body, adapter, more)

    if state.lora:  # with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True
        vllm_adapters(app, state)

    @app.post("/pause")
    async def pause(mode: str = "abort", clear_cache: bool = True) -> JSONResponse:
        if mode not in ("abort", "wait", "keep"):
            return JSONResponse({"error": f"Invalid pause mode: {mode}"}, 400)
        state.paused = True
        if mode == "abort":
            state.abort()
        if mode != "keep":
            await state.drained()
        return JSONResponse({"status": "paused"})

    @app.post("/resume")
    async def resume() -> JSONResponse:
        state.paused = False
        return JSONResponse({"status": "resumed"})

    @app.get("/is_paused")
    async def is_paused() -> JSONResponse:
        return JSONResponse({"is_paused": state.paused})

    @app.post("/abort_requests")
    async def abort_requests(request: Request) -> JSONResponse:
        await request.json()
        return JSONResponse({"status": "aborted", "aborted": state.abort()})

    @app.post("/collective_rpc")
    async def collective_rpc(request: Request) -> JSONResponse:
        body = await request.json()
        assert body["method"] == "reload_weights"
        if not (state.paused or state.asleep) or state.under_way:
            return JSONResponse({"error": "weights were to change below requests"}, 500)
        if state.stiff:
            return JSONResponse({"error": "KeyError: 'layers.0.self_attn.qkv_proj.weight'"}, 500)
        await asyncio.to_thread(state.load, body["kwargs"]["weights_path"])
        return JSONResponse({"results": [None]})

    @app.post("/update_weight_version")
    async def update_weight_version(request: Request) -> JSONResponse:
        state.version = (await request.json())["new_version"]
        return JSONResponse({"success": True, "new_version": state.version})

    @app.get("/weight_info")
    async def weight_info() -> JSONResponse:
        return JSONResponse({"weight_version": state.version})

    @app.post("/reset_prefix_cache")
    async def reset_prefix_cache() -> Response:
        state.empty_caches()
        return Response(status_code=200)

    @app.post("/reset_encoder_cache")
    async def reset_encoder_cache() -> Response:
        return Response(status_code=200)

    @app.post("/sleep")
    async def sleep(level: int = 1) -> Response:
        assert level == 2
        state.asleep = True
        state.abort()
        await state.drained()
        del state.model
        return Response(status_code=200)

    @app.get("/is_sleeping")
    async def is_sleeping() -> JSONResponse:
        return JSONResponse({"is_sleeping": state.asleep})

    @app.post("/wake_up")
    async def wake_up(request: Request) -> Response:
        if "kv_cache" in request.query_params.getlist("tags"):
            state.asleep = False
        return Response(status_code=200)

    return app


def sglang_adapters(app: FastAPI, state: State) -> None:
    """SGLang's endpoints for adapters."""

    @app.post("/load_lora_adapter")
    async def load_lora_adapter(request: Request) -> JSONResponse:
        body = await request.json()
        wrong = await asyncio.to_thread(state.add, body["lora_name"], body["lora_path"])
        found = {"success": not wrong, "error_message": wrong, "loaded_adapters": dict.fromkeys(state.adapters, "")}
        return JSONResponse(found, 400 if wrong else 200)

    @app.post("/unload_lora_adapter")
    async def unload_lora_adapter(request: Request) -> JSONResponse:
        known = state.adapters.pop((await request.json())["lora_name"], None) is not None
        return JSONResponse({"success": known, "error_message": "" if known else "not found"}, 200 if known else 400)


def sglang(state: State) -> FastAPI:
    """SGLang, which keeps requests waiting while weights change."""
    app = common(state, "default")

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> JSONResponse:
        body = await request.json()
        await state.open.wait()
        adapter = body.get("lora_path") or ""
        if adapter and adapter not in state.adapters:
            return JSONResponse({"object": "error", "message": f"LoRA adapter {adapter} is not loaded."}, 400)

        def more(made: Completion, version: str) -> tuple[dict[str, Any], dict[str, Any]]:
            ours: dict[str, Any] = {"matched_stop": None}
            if body.get("return_token_ids"):
                ours["response_token_ids"] = list(made.token_ids)
                ours["prompt_token_ids"] = prompt_tokens(state.directory, chat_of(body))
            return ours, {"metadata": {"weight_version": version}}

        return await answered(state, body, adapter, more)

    sglang_adapters(app, state)

    @app.post("/update_weights_from_disk")
    async def update_weights_from_disk(request: Request) -> JSONResponse:
        body = await request.json()
        waiting = len(state.under_way)
        state.open.clear()
        try:
            if body.get("abort_all_requests"):
                state.abort()
            await state.drained()
            await asyncio.to_thread(state.load, body["model_path"])
        except Exception as error:
            problem = {"success": False, "message": f"Failed to get weights iterator: {error}."}
            return JSONResponse({**problem, "num_paused_requests": 0}, 400)
        else:
            if body.get("flush_cache", True):
                state.empty_caches()
            state.version = body.get("weight_version") or state.version
            done = {"success": True, "message": "Succeeded to update model weights."}
            return JSONResponse({**done, "num_paused_requests": waiting})
        finally:
            state.open.set()

    @app.post("/update_weight_version")
    async def update_weight_version(request: Request) -> JSONResponse:
        body = await request.json()
        if body.get("abort_all_requests", True):
            state.abort()
        state.version = body["new_version"]
        return JSONResponse({"success": True, "message": "updated", "new_version": state.version})

    @app.get("/model_info")
    async def model_info() -> JSONResponse:
        return JSONResponse({"model_path": str(state.directory), "weight_version": state.version})

    @app.post("/abort_request")
    async def abort_request(request: Request) -> Response:
        if (await request.json()).get("abort_all"):
            state.abort()
        return Response(status_code=200)

    @app.post("/release_memory_occupation")
    async def release_memory_occupation() -> Response:
        state.open.clear()
        del state.model
        return Response(status_code=200)

    @app.post("/resume_memory_occupation")
    async def resume_memory_occupation() -> Response:
        state.open.set()
        return Response(status_code=200)

    return app


def main(kind: str, directory: str, port: str, log: str, *rest: str) -> None:
    """Serves until it is ended."""
    torch.set_num_threads(1)
    words = {"raw", "lora", "stiff"}
    pause_s = next((float(one) for one in rest if one not in words), 0.0)
    state = State(Path(directory), Path(log), "raw" in rest, pause_s, "lora" in rest, "stiff" in rest)
    app = {"vllm": vllm, "sglang": sglang}[kind](state)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
