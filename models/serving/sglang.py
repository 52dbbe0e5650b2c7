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

    def drop(self) -> None:
        """Ends what is under way with the reason `abort`."""
        self.control.post("/abort_request", {"rid": "", "abort_all": True})

    def replace(self, directory: Path, name: str) -> None:
        """One call, after waking where it sleeps."""
        if self.asleep():
            self.control.post("/resume_memory_occupation")
            self.adopt(LOADING)
        body = {"model_path": str(directory), "weight_version": name, "flush_cache": True, "abort_all_requests": False}
        found = self.control.post("/update_weights_from_disk", body)
        if not (isinstance(found, dict) and found.get("success")):
            raise FlywheelError(f"`policy.server.update` is sglang: it did not load {directory}: {found}.")

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
        """What the whole answer says."""
        found = (answer.get("metadata") or {}).get("weight_version")
        return {str(found)} if found else set()
