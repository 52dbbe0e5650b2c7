"""New weights for SGLang, by its own endpoints (sglang/srt/entrypoints/http_server.py), which need no switch.

`/update_weights_from_disk` waits for what is under way, keeps what comes meanwhile, and empties the cache of prefixes.
What `/abort_request` ends has the reason `abort`.
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
        """Its name becomes the folder of the weights that it was last given. It answers to any other name, too, but for
        one with a colon, whose end it takes for an adapter's."""
        return ":" not in model

    def drop(self) -> None:
        """Ends what is under way with the reason `abort`."""
        self.control.post("/abort_request", {"rid": "", "abort_all": True})

    def replace(self, directory: Path, name: str) -> None:
        """One call, after waking where it sleeps."""
        if self.asleep():
            self.control.post("/resume_memory_occupation")
            self.adopt(LOADING)
        body = {"model_path": str(directory), "weight_version": name, "flush_cache": True, "abort_all_requests": False}
        self._done("/update_weights_from_disk", body)

    def add(self, adapter: Path, name: str) -> None:
        """By `/load_lora_adapter`, which takes them where it was started with `--enable-lora`."""
        self._done("/load_lora_adapter", {"lora_name": name, "lora_path": str(adapter)})

    def remove(self, name: str) -> None:
        """By `/unload_lora_adapter`, which waits for the requests that it answers."""
        self._done("/unload_lora_adapter", {"lora_name": name})

    def asking_for(self, model: str, adapter: str) -> dict[str, Any]:
        """By a field of its own."""
        return {"model": model, "lora_path": adapter}

    def adopt(self, name: str) -> None:
        """Where the server knows names of weights."""
        with suppress(Missing):
            self.control.post("/update_weight_version", {"new_version": name, "abort_all_requests": False})

    def holds(self) -> str | None:
        """What it was last given, where it knows names of weights."""
        for path in ("/model_info", "/get_model_info"):
            with suppress(NoAnswer, FlywheelError, KeyError, TypeError):
                return str(self.control.get(path)["weight_version"])
        return None

    def sleep(self) -> None:
        """Frees weights and caches."""
        self.adopt(ASLEEP)
        self.control.post("/release_memory_occupation")

    def names_in(self, answer: Mapping[str, Any]) -> set[str]:
        """Those of all spans of tokens, or of the whole answer where a release names one alone.

        Source: SGLang 0.5.23, `srt/utils/weight_versions.py`: `weight_version` is that of the last span.
        """
        metadata = answer.get("metadata") or {}
        spans = {str(span["version"]) for span in metadata.get("weight_versions") or ()}
        return spans or ({str(found)} if (found := metadata.get("weight_version")) else set())

    def _done(self, path: str, body: Mapping[str, Any]) -> None:
        """Asks for a change, which has to be told as made."""
        found = self.control.post(path, body)
        if not (isinstance(found, dict) and found.get("success")):
            raise FlywheelError(f"`policy.server.update` is sglang: {path} with {dict(body)} was answered by {found}.")
