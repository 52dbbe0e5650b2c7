"""The section `policy.server`: the server that runs the policy's model, and its updates to new weights."""

from typing import Any, Literal

from pydantic import model_validator

from schemas.config.section import Count, Positive, Section, Whole

SAMPLING = {
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "watermarking", "watermark",
}  # fmt: skip
"""Fields of a request that change the distribution of its tokens."""


class ServerConfig(Section):
    """An OpenAI-compatible server that runs the policy's model, in place of this process."""

    url: str = ""
    """The address of a running server up to the version, such as `http://localhost:8000/v1`; empty for none."""
    command: str = ""
    """Or the command of a server, which is then watched, restarted and ended: a program and its arguments, with
    `{port}` for the port it is to listen at and `{checkpoint}` for the folder of the policy that acts. No shell reads
    it."""
    update: str = "path"
    """How new weights reach it. `path`: the model's name in a request selects them. `vllm`, `sglang`: by the server's
    own endpoints, from the checkpoint's folder, which it must be able to read. `restart`: the command is restarted. Or
    a dotted path to a `models.serving.updater.Updater`."""
    model: str = "{checkpoint}"
    """Name of the model on the server: `{checkpoint}` is replaced by the folder of the policy that acts, `{version}` by
    its name. With `update=path` one of the two must be in it, so that a policy is never measured by another's weights;
    where weights are changed below one name, requests use that name, unless this one is plain."""
    in_flight: Literal["finish", "drop"] = "finish"
    """Requests that are in flight when weights change: `finish` waits for them, `drop` gives them up and sends them
    again."""
    while_training: Literal["run", "stop", "sleep"] = "run"
    """Whether the server keeps its memory while the policy is trained: `stop` ends the command, `sleep` asks the server
    to free its GPU (`vllm` with `--enable-sleep-mode`, `sglang` with `--enable-memory-saver`)."""
    start_timeout_s: Positive = 900.0
    """How long the command may take until its server answers."""
    patience_s: Positive = 600.0
    """How long a server that is pausing, updating or starting is waited for."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; no key is sent if it is not set."""
    timeout_s: Positive = 120.0
    """Seconds without a byte after which a request has failed."""
    retries: Whole = 3
    """How often a request that may still succeed is sent again."""
    concurrency: Count = 16
    """Requests that run at the same time."""
    logprobs: bool = False
    """Ask for token ids and their log probabilities, which `grpo` and `ppo` need."""
    extra: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """Further fields of every request, such as `{"chat_template_kwargs": {"enable_thinking": false}}`."""

    @property
    def named(self) -> bool:
        """Whether there is a server."""
        return bool(self.url or self.command)

    @model_validator(mode="after")
    def _one_server(self) -> "ServerConfig":
        if self.url and self.command:
            raise ValueError("policy.server.url and policy.server.command are both set: take one away")
        if self.command and "{port}" not in self.command:
            raise ValueError("policy.server.command has no {port}: put it where the program reads its port")
        if self.command and "{checkpoint}" not in self.command and self.update in ("vllm", "sglang", "restart"):
            raise ValueError("policy.server.command has no {checkpoint}: put it where the program reads its model")
        return self

    @model_validator(mode="after")
    def _samples_from_all(self) -> "ServerConfig":
        if "generation_config" in self.extra:
            raise ValueError(
                "policy.server.extra has generation_config: every request sets its own sampling; remove it"
            )
        if self.logprobs and (cut := sorted(SAMPLING & self.extra.keys())):
            raise ValueError(
                f"policy.server.extra has {cut[0]}: with logprobs tokens are drawn from the whole distribution; "
                "remove it"
            )
        return self

    @model_validator(mode="after")
    def _needs_the_command(self) -> "ServerConfig":
        for key, wanted in (("update", "restart"), ("while_training", "stop")):
            if getattr(self, key) == wanted and not self.command:
                raise ValueError(f"policy.server.{key} is {wanted}: that needs policy.server.command")
        return self

    @model_validator(mode="after")
    def _names_the_policy(self) -> "ServerConfig":
        if self.update == "path" and "{checkpoint}" not in self.model and "{version}" not in self.model:
            raise ValueError(f"policy.server.model is {self.model!r}: put {{checkpoint}} or {{version}} in it")
        return self
