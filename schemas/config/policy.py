"""The section `policy`: the model that acts, and the server that runs it."""

import os
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from schemas.config.section import Count, Positive, ReadIf, Section, Whole

TEXT_HEAD, VISION_HEAD = 32, 64
"""Widths of an attention head of the small policy's text stack and of its vision tower; there few, since
the softmax over patches costs more than it brings."""
SAMPLING = {
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
    "watermarking", "watermark",
}  # fmt: skip
"""Fields of a request that change the distribution of its tokens."""


class ServerConfig(Section):
    """An OpenAI-compatible server that runs the policy's model, in place of this process."""

    read_if = (ReadIf("policy.server.command", keys=("start_timeout_s",)),)

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
        for key, wanted in (("update", "restart"), ("while_training", "stop")):
            if getattr(self, key) == wanted and not self.command:
                raise ValueError(f"policy.server.{key} is {wanted}: that needs policy.server.command")
        if self.update == "path" and "{checkpoint}" not in self.model and "{version}" not in self.model:
            raise ValueError(f"policy.server.model is {self.model!r}: put {{checkpoint}} or {{version}} in it")
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


class PolicyConfig(Section):
    """The vision-language policy."""

    read_if = (
        ReadIf("policy.base", ("tiny",), ("hidden", "layers", "vision_hidden", "vision_layers", "patch", "merge")),
    )

    base: Annotated[str, AfterValidator(os.path.expanduser)] = "tiny"
    """`tiny`: a small Qwen3-VL from nothing; else a Hugging Face image-text-to-text directory."""
    dialect: Literal["box_v1", "point", "bbox4"] = "box_v1"
    """Text form of actions (docs/families.md); `box_v1` means the family's own form where it has no such."""
    history_images: Count = 1
    """How many of the last screenshots the policy sees; text of all past steps is always there (UI-TARS, N=5)."""
    history_turns: Count | None = None
    """Number of last replies in its prompt; the instruction gives the number of earlier ones. All if not set."""
    older: Literal["dropped", "summarised"] = "dropped"
    """With `history_turns`, the treatment of older replies. `summarised`: the instruction also counts their actions, by
    kind of action."""
    max_new_tokens: Count | None = None
    """Maximum tokens of a reply; if not set, the family's own (32 of the small policy, 128 to 4,096 of others). A reply
    of another model that ends there is no action of the policy."""
    thoughts: bool = True
    """Whether it is asked to think before it acts. Without, the prompt asks for the action alone, and so do the samples
    of supervised training, which hold no thought then; `think.keep_without` trains one policy for both."""
    family: str = "auto"
    """Prompt format and action format of the model: a name of docs/families.md, such as `ui-tars-1.5` or `qwen3-vl`, or
    a dotted path to a `models.families.family.ModelFamily`; `auto` goes by the checkpoint's architecture. The small
    policy has its own."""
    template: Literal["computer", "mobile", "grounding", "hybrid"] = "computer"
    """The family's prompt that is used: for a desktop or a browser, for a phone, to point at one element, or for a
    screen with a shell and files behind it (docs/hybrid.md)."""
    backend: str = "auto"
    """Backend of the model: `tiny` (the small policy's own fast network), `transformers`, `server`, or a dotted path to
    a `models.language_model.LanguageModel`; `auto` takes the server if there is one, else the fastest of the others."""
    options: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """Keys of a backend of your own."""
    precision: Literal["full", "int8"] = "full"
    """Precision in which the policy acts and is measured: `full` as it was saved, `int8` with its linear layers rounded
    (dynamic quantisation on the CPU). Training is not touched; a server decides for itself."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device on which another model than the small policy acts: `auto` takes a GPU if there is one. Int8 is for the
    CPU."""
    batch: Count = 8
    """Chats that another model than the small policy goes on with at once where no server runs it: more take memory."""
    seen_screens_mb: Whole = 1024
    """Memory for the vision tower's outputs of the last screens, which the next steps show again; 0: none. A screen of
    1920 x 1080 takes some 20 MB in a model of 7 billion weights."""
    prefix_mb: Whole = 2048
    """Memory for keys and values of the last prompts, so that a step computes only the tokens after the longest
    beginning that its prompt shares with one of them; 0: none. 4,000 tokens take some 230 MB in Qwen2.5-VL of 7 billion
    weights, so a batch of 8 fits; with more trajectories at once little is found but the beginning of all prompts."""
    server: ServerConfig = ServerConfig()
    hidden: Annotated[int, Field(ge=TEXT_HEAD, multiple_of=TEXT_HEAD)] = 192
    """Width of the small policy's text stack: whole attention heads of 32."""
    layers: Count = 2
    """Layers of its text stack."""
    vision_hidden: Annotated[int, Field(ge=VISION_HEAD, multiple_of=VISION_HEAD)] = 128
    """Width of its vision tower: whole attention heads of 64."""
    vision_layers: Count = 2
    """Layers of its vision tower."""
    patch: Count = 16
    """Side of a patch, in pixels."""
    merge: Count = 2
    """Patches along each side of a token: so many by so many patches are one token."""

    @property
    def acts_on_server(self) -> bool:
        """Whether a server runs the model."""
        return self.backend == "server" or (self.backend == "auto" and self.server.named)

    @property
    def asked(self) -> dict[str, Any]:
        """Returns the keys that shape a checkpoint's prompt for an action, as a trajectory records them."""
        named = {"template", "dialect", "history_images", "history_turns", "older", "thoughts"}
        return {**self.model_dump(include=named), "backend": "server" if self.acts_on_server else self.backend}

    @model_validator(mode="after")
    def _remembers(self) -> "PolicyConfig":
        if self.history_turns is not None and self.history_turns < self.history_images - 1:
            raise ValueError(
                f"policy.history_turns is {self.history_turns}, fewer than the past screens of policy.history_images, "
                f"{self.history_images}: raise it to {self.history_images - 1}"
            )
        if self.older != "dropped" and self.history_turns is None:
            raise ValueError(f"policy.older is {self.older}, and no reply is left out: set policy.history_turns")
        return self

    @model_validator(mode="after")
    def _one_backend(self) -> "PolicyConfig":
        if self.backend == "server" and not self.server.named:
            raise ValueError("policy.backend is server: set policy.server.url or policy.server.command")
        if self.backend in ("tiny", "transformers") and self.server.named:
            raise ValueError(f"policy.backend is {self.backend}: take policy.server away, or set it to server")
        if self.options and ":" not in self.backend:
            raise ValueError(f"policy.options has keys of a backend of your own, and policy.backend is {self.backend}")
        return self
