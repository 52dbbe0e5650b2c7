"""Loads new weights into SGLang by its own endpoints (sglang/srt/entrypoints/http_server.py), which need no flag.

`/update_weights_from_disk` waits for requests in flight, queues new requests, and empties the cache of prefixes. A
request that `/abort_request` ends has the reason `abort`.
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from models.serving.openai import NoAnswer
from models.serving.updater import ASLEEP, LOADING, Missing, Updater
from schemas.failure import FlywheelError


class SglangUpdater(Updater):
    """Updater of SGLang, which replaces its weights by those of a checkpoint's folder."""

    sleeps = True
    fields = {"return_token_ids": True}  # noqa: RUF012
    hint = "Start SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB, and as a release that knows return_token_ids."

    def keeps(self, model: str) -> bool:
        """Returns whether the server answers to this name with any weights, which holds for names without a colon.

        The server lists the folder of its last weights as its name. It reads the text after a name's colon as an
        adapter's name.
        """
        return ":" not in model

    def drop(self) -> None:
        """Ends the requests in flight with the reason `abort`."""
        self.control.post("/abort_request", {"rid": "", "abort_all": True})

    def replace(self, directory: Path, name: str) -> None:
        """Loads the weights in one call, after waking a sleeping server."""
        if self.asleep():
            self.control.post("/resume_memory_occupation")
            self.adopt(LOADING)
        body = {"model_path": str(directory), "weight_version": name, "flush_cache": True, "abort_all_requests": False}
        self._done("/update_weights_from_disk", body)

    def add(self, adapter: Path, name: str) -> None:
        """Loads by `/load_lora_adapter`, which works if the server was started with `--enable-lora`."""
        self._done("/load_lora_adapter", {"lora_name": name, "lora_path": str(adapter)})

    def remove(self, name: str) -> None:
        """Unloads by `/unload_lora_adapter`, which waits for the adapter's running requests."""
        self._done("/unload_lora_adapter", {"lora_name": name})

    def asking_for(self, model: str, adapter: str) -> dict[str, Any]:
        """Names the adapter in a separate field."""
        return {"model": model, "lora_path": adapter}

    def adopt(self, name: str) -> None:
        """Names the weights, if the server supports names of weights."""
        with suppress(Missing):
            self.control.post("/update_weight_version", {"new_version": name, "abort_all_requests": False})

    def holds(self) -> str | None:
        """Returns the name of the last weights, if the server supports names of weights."""
        for path in ("/model_info", "/get_model_info"):
            with suppress(NoAnswer, FlywheelError, KeyError, TypeError):
                return str(self.control.get(path)["weight_version"])
        return None

    def sleep(self) -> None:
        """Frees weights and caches."""
        self.adopt(ASLEEP)
        self.control.post("/release_memory_occupation")

    def names_in(self, answer: Mapping[str, Any]) -> set[str]:
        """Returns the names of all spans of tokens, or of the whole answer in releases with a single name.

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
