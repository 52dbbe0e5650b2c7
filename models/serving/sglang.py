"""New weights for SGLang, by its own endpoints (sglang/srt/entrypoints/http_server.py), which need no switch.

`/update_weights_from_disk` waits for requests in flight, queues new ones, and empties the cache of prefixes. Requests
that `/abort_request` ends have the reason `abort`.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from models.serving.openai import NoAnswer
from models.serving.updater import ASLEEP, LOADING, Missing, Updater
from schemas.failure import FlywheelError


class SglangUpdater(Updater):
    """SGLang, which loads a checkpoint's folder into the weights that it has."""

    sleeps = True
    fields = {"return_token_ids": True}  # noqa: RUF012
    hint = "Start SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB, and as a release that knows return_token_ids."

    def keeps(self, model: str) -> bool:
        """Returns whether the server answers to this name whatever its weights: to any name without a colon.

        It lists the folder of its last weights as its name, and takes the end of a name with a colon for an adapter's.
        """
        return ":" not in model

    def drop(self) -> None:
        """Ends the requests in flight with the reason `abort`."""
        self.control.post("/abort_request", {"rid": "", "abort_all": True})

    def replace(self, directory: Path, name: str) -> None:
        """Loads the weights in one call, after waking the server where it sleeps."""
        if self.asleep():
            self.control.post("/resume_memory_occupation")
            self.adopt(LOADING)
        body = {"model_path": str(directory), "weight_version": name, "flush_cache": True, "abort_all_requests": False}
        self._done("/update_weights_from_disk", body)

    def add(self, adapter: Path, name: str) -> None:
        """Loads by `/load_lora_adapter`, which works if the server was started with `--enable-lora`."""
        self._done("/load_lora_adapter", {"lora_name": name, "lora_path": str(adapter)})

    def remove(self, name: str) -> None:
        """Unloads by `/unload_lora_adapter`, which waits for the requests that it answers."""
        self._done("/unload_lora_adapter", {"lora_name": name})

    def asking_for(self, model: str, adapter: str) -> dict[str, Any]:
        """Names the adapter by a field of its own."""
        return {"model": model, "lora_path": adapter}

    def adopt(self, name: str) -> None:
        """Names the weights, where the server knows names of weights."""
        with suppress(Missing):
            self.control.post("/update_weight_version", {"new_version": name, "abort_all_requests": False})

    def holds(self) -> str | None:
        """Returns the name of the last weights, where it knows names of weights."""
        for path in ("/model_info", "/get_model_info"):
            with suppress(NoAnswer, FlywheelError, KeyError, TypeError):
                return str(self.control.get(path)["weight_version"])
        return None

    def sleep(self) -> None:
        """Frees weights and caches."""
        self.adopt(ASLEEP)
        self.control.post("/release_memory_occupation")

    def names_in(self, answer: Mapping[str, Any]) -> set[str]:
        """Returns the names of all spans of tokens, or of the whole answer in releases with one name.

        Source: SGLang 0.5.23, `srt/utils/weight_versions.py`: `weight_version` is that of the last span.
        """
        metadata = answer.get("metadata") or {}
        spans = {str(span["version"]) for span in metadata.get("weight_versions") or ()}
        return spans or ({str(found)} if (found := metadata.get("weight_version")) else set())

    def _done(self, path: str, body: Mapping[str, Any]) -> None:
        """Requests a change, which the server must confirm."""
        found = self.control.post(path, body)
        if not (isinstance(found, dict) and found.get("success")):
            raise FlywheelError(f"`policy.server.update` is sglang: {path} with {dict(body)} was answered by {found}.")
