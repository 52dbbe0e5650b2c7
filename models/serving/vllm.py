"""Loads new weights into vLLM by the endpoints of its development mode (`VLLM_SERVER_DEV_MODE=1`).

The endpoints are `/pause` and `/resume` (vllm/entrypoints/rl/online), `/collective_rpc`, `/sleep` and `/wake_up`,
`/reset_prefix_cache` and `/reset_encoder_cache` (vllm/entrypoints/serve/dev), `/v1/load_lora_adapter`
(vllm/entrypoints/serve/lora). A paused server keeps new requests or answers them with 503; aborted requests end with
the reason `abort`. From 0.17 a paused server reports that it sleeps, and its `/wake_up` resumes requests
(`v1/engine/core.py`, 0.17.0 to 0.33.0). So a server that reports sleep is woken and then paused. Names of weights
(`/update_weight_version`, `/weight_info`, and `weight_versions` in answers) exist only in newer releases. Releases up
to at least 0.17 refuse to change the base weights of adapters (vllm-project/vllm issue 39934). A server of
`policy.server.command` is then restarted.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from models.serving.openai import NoAnswer, Unready, pause_before
from models.serving.updater import ASLEEP, LOADING, Missing, Updater, UpdateUnsupported
from schemas.failure import FlywheelError

DEV_MODE = "Start vLLM with VLLM_SERVER_DEV_MODE=1, which has these endpoints."
RESETS = 5
"""Maximum attempts to empty a cache of prefixes that is still in use, for example by transfers that end soon."""


class VllmUpdater(Updater):
    """Updater of vLLM, which replaces its weights by those of a checkpoint's folder."""

    sleeps = True
    fields = {"return_token_ids": True, "return_weight_versions": True}  # noqa: RUF012
    hint = "Start vLLM with --logprobs-mode processed_logprobs."

    def drop(self) -> None:
        """Ends the requests in flight with the reason `abort`; uses a pause for releases without `/abort_requests`."""
        try:
            self.control.post("/abort_requests", {"request_ids": []})
        except Missing:
            self._call("/pause", mode="abort")
            self._call("/resume")

    def replace(self, directory: Path, name: str) -> None:
        """Pauses, loads, empties the caches that the old weights filled, and resumes."""
        asleep = self.asleep()
        if asleep:
            self._call("/wake_up", tags="weights")
        self._call("/pause", mode="wait")
        self.adopt(LOADING)
        load = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
        try:
            self._call("/collective_rpc", load)
        except FlywheelError:
            if not asleep and self.holds() == LOADING:  # other clients see this name, and need not wait for ever
                with suppress(NoAnswer, FlywheelError):
                    self._call("/resume")
            raise
        self._empty_prefixes()
        with suppress(Missing):
            self.control.post("/reset_encoder_cache")
        self.adopt(name)
        if asleep:
            self._call("/wake_up", tags="kv_cache")
        self._call("/resume")

    def add(self, adapter: Path, name: str) -> None:
        """Loads by `/v1/load_lora_adapter`, which exists with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`."""
        self.control.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(adapter)})

    def remove(self, name: str) -> None:
        """Unloads by `/v1/unload_lora_adapter`."""
        self.control.post("/v1/unload_lora_adapter", {"lora_name": name})

    def asking_for(self, model: str, adapter: str) -> dict[str, Any]:
        """Names an adapter as a model of its own."""
        return {"model": adapter}

    def adopt(self, name: str) -> None:
        """Names the weights, if the server supports names of weights."""
        with suppress(Missing):
            self.control.post("/update_weight_version", {"new_version": name})

    def holds(self) -> str | None:
        """Returns the name of the last weights, if the server supports names of weights."""
        try:
            return str(self.control.get("/weight_info")["weight_version"])
        except (NoAnswer, FlywheelError, KeyError, TypeError):
            return None

    def sleep(self) -> None:
        """Frees weights and caches: level 2."""
        self.adopt(ASLEEP)
        self._call("/sleep", level="2")

    def _empty_prefixes(self) -> None:
        """Empties the cache of prefixes; raises Unready if the cache stays in use, so that no request reads it under
        new weights.

        Source: vLLM 0.31.0 to 0.33.0, `entrypoints/serve/dev/cache/api_router.py`: `success` is false while blocks are
        held. Earlier releases do not report it.
        """
        for attempt in range(1, RESETS + 1):
            answer = self._call("/reset_prefix_cache", reset_running_requests="true")
            if not (isinstance(answer, dict) and answer.get("success") is False):
                return
            pause_before(attempt)
        raise Unready(f"{self.control.root}/reset_prefix_cache: the cache of prefixes is held after {RESETS} tries")

    def asleep(self) -> bool:
        """Asks the server's own endpoint; also true if the server is only paused."""
        with suppress(NoAnswer, FlywheelError, KeyError, TypeError):
            return bool(self.control.get("/is_sleeping")["is_sleeping"])
        return super().asleep()

    def names_in(self, answer: Mapping[str, Any]) -> set[str]:
        """Returns the names of all spans of tokens."""
        return {str(span["version"]) for span in answer.get("weight_versions") or ()}

    def _call(self, path: str, body: Mapping[str, Any] | None = None, **query: str) -> Any:
        try:
            return self.control.post(path, body, **query)
        except Missing as missing:
            raise UpdateUnsupported(f"`policy.server.update` is vllm: {missing}.", DEV_MODE) from None
