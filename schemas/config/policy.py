"""Define the section `policy`: the model that acts, and the server that runs the model."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, model_validator

from schemas.config.hub import PRETRAINED, SMALL, hub_model, snapshot_of
from schemas.config.section import Count, Positive, ReadIf, Section, Whole
from schemas.context import ContextRule

TEXT_HEAD, VISION_HEAD, WINDOW_HEAD = 32, 64, 16
"""Widths of an attention head of the small policy's text stack, of its vision tower, and of a vision tower with
windows. A tower without windows has few heads, because each head computes a costly softmax over all patches."""
SIZES = ("hidden", "layers", "vision_hidden", "vision_layers", "patch", "merge", "window")
"""Keys of the small policy's sizes."""
OURS = {
    "model", "messages", "seed", "n", "stream", "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs",
    "return_token_ids", "generation_config", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "presence_penalty", "frequency_penalty", "skip_special_tokens", "watermarking", "watermark",
}  # fmt: skip
"""Fields that each request sets itself, so that it goes to the right policy and samples from all tokens."""
LISTED = {"tools", "tool_choice", "functions", "function_call"}
"""Fields with which a server would list functions in the prompt a second time."""
MAX_REPLY_TOKENS = 2**20
"""Maximum of `max_new_tokens`: the longest context of a known model."""
BASE = Path(__file__).resolve().parents[2] / "models" / "base"
"""Folder of the base that comes with flywheel."""
TYPES = {"string", "number", "integer", "boolean", "object", "array", "null"}
"""Types of JSON schemas."""


def _base(text: str) -> str:
    """Returns a value of `policy.base` in its usual form."""
    return SMALL if text == "none" else os.path.expanduser(text)


class ServerConfig(Section):
    """An OpenAI-compatible server that runs the policy's model in place of this process."""

    read_if = (ReadIf("policy.server.command", keys=("start_timeout_s",)),)

    url: str = ""
    """Address of a running server up to the version, such as `http://localhost:8000/v1`; empty for none."""
    command: str = ""
    """Command that starts a server, instead of `url`: a program and its arguments, run without a shell. The server is
    monitored, restarted and ended. `{port}` is replaced by the port to listen on, `{checkpoint}` by the folder of the
    current policy."""
    update: str = "path"
    """How new weights reach the server. `path`: the model's name in a request selects them. `vllm`, `sglang`: through
    the server's own endpoints, from the checkpoint's folder, which the server must be able to read. `restart`: the
    command is restarted. Or a dotted path to a `models.serving.updater.Updater`."""
    model: str = "{checkpoint}"
    """Name of the model on the server. `{checkpoint}` is replaced by the folder of the current policy, `{version}` by
    its name. `update=path` needs one of the two, so that a policy is never evaluated with another policy's weights.
    Other updates change the weights under one name: requests use that name, unless this key is a plain name."""
    in_flight: Literal["finish", "drop"] = "finish"
    """Requests in flight when weights change: `finish` waits for them, `drop` cancels them and sends them again."""
    while_training: Literal["run", "stop", "sleep"] = "run"
    """The server during training. `run`: it keeps its memory. `stop`: its command is ended. `sleep`: it is asked to
    free its GPU (`vllm` with `--enable-sleep-mode`, `sglang` with `--enable-memory-saver`)."""
    start_timeout_s: Positive = 900.0
    """Maximum seconds from the start of the command until its server answers."""
    patience_s: Positive = 600.0
    """Maximum seconds to wait for a server that is pausing, updating or starting."""
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable with the API key; no key is sent if the variable is not set."""
    timeout_s: Positive = 120.0
    """Seconds without a received byte after which a request fails."""
    retries: Whole = 3
    """Retries of a request that may still succeed."""
    concurrency: Count = 16
    """Maximum concurrent requests."""
    logprobs: bool = False
    """Request token ids and their log probabilities, which `grpo`, `ppo` and `opd` need."""
    extra: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """Additional fields of every request, such as `{"chat_template_kwargs": {"enable_thinking": false}}`. Each request
    sets its model, its sampling and its length itself."""

    @property
    def named(self) -> bool:
        """Whether there is a server."""
        return bool(self.url or self.command)

    @model_validator(mode="after")
    def _one_server(self) -> "ServerConfig":
        if self.url and self.command:
            raise ValueError("policy.server.url and policy.server.command are both set: remove one of them")
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
    def _sets_no_other_fields(self) -> "ServerConfig":
        if given := sorted(OURS & self.extra.keys()):
            raise ValueError(f"policy.server.extra has {given[0]}: every request sets it; remove it")
        if given := sorted(LISTED & self.extra.keys()):
            raise ValueError(f"policy.server.extra has {given[0]}: list functions in policy.tools")
        return self


class ToolConfig(Section):
    """One function of the environment, such as a tool of an MCP server, in OpenAI's form."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=128)]
    """Name by which the policy calls the function: letters, digits, `_`, `.` and `-`, as MCP allows."""
    description: str = ""
    """Description in the prompt."""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}  # noqa: RUF012  (pydantic copies it)
    """JSON schema of the arguments."""

    @model_validator(mode="after")
    def _readable(self) -> "ToolConfig":
        where, known = f"policy.tools: `parameters` of {self.name}", self.parameters.get("properties", {})
        if self.parameters.get("type") != "object":
            raise ValueError(f"{where} is no schema of an object: write {{type: object, properties: {{...}}}}")
        if not isinstance(known, dict):
            raise ValueError(f"{where} has `properties` that are no table: name the arguments in it")
        for name, schema in cast(dict[str, Any], known).items():
            if not isinstance(schema, dict):
                raise ValueError(f"{where} has {name}, which is no schema: write, for example, {{type: string}}")
            kinds = cast(dict[str, Any], schema).get("type", [])
            for kind in cast(list[object], kinds if isinstance(kinds, list) else [kinds]):
                if kind not in TYPES:
                    raise ValueError(f"{where} has {name} of type {kind!r}: use {', '.join(sorted(TYPES))}")
        return self


class PolicyConfig(Section):
    """The vision-language policy."""

    read_if = (
        ReadIf("policy.base", ("tiny",), SIZES),
        ReadIf("policy.context", ("slide",), ("history_images", "history_turns", "older")),
        ReadIf("policy.context", ("fold",), ("live_images", "fold_images")),
    )

    base: Annotated[str, AfterValidator(_base)] = SMALL
    """`pretrained`: the small base that comes with flywheel (docs/base.md). `tiny`, or `none`: a small Qwen3-VL, or
    with `window` a small Qwen2.5-VL, with random weights. Else a Hugging Face image-text-to-text model: a directory, or
    a name on the Hub, such as `Qwen/Qwen3-VL-4B-Instruct` or `Qwen/Qwen3-VL-4B-Instruct@REVISION`."""
    dialect: Literal["box_v1", "point", "bbox4"] = "box_v1"
    """Text format of actions (docs/families.md). A family without `box_v1` uses its own format for it."""
    context: Literal["slide", "fold"] = "slide"
    """Screenshots in the prompt (docs/folding.md). `slide`: the latest `history_images`. `fold`: all since the last
    fold; a text replaces older ones, so that prompts keep their beginning between folds, and a training sequence holds
    the replies between two folds."""
    history_images: Count = 1
    """With `slide`, number of latest screenshots in the prompt (UI-TARS: 5). The prompt always has the text of past
    steps."""
    live_images: Count = 20
    """With `fold`, maximum number of screenshots in the prompt."""
    fold_images: Count = 10
    """With `fold`, number of screenshots that are replaced at once; at most `live_images`."""
    history_turns: Count | None = None
    """Number of latest replies in the prompt; the instruction states how many came before. All if not set."""
    older: Literal["dropped", "summarised"] = "dropped"
    """Replies that `history_turns` leaves out. `dropped`: left out. `summarised`: the instruction also counts their
    actions by type."""
    max_new_tokens: Annotated[int, Field(ge=1, le=MAX_REPLY_TOKENS)] | None = None
    """Maximum tokens of a reply, below the model's context and at most 1,048,576. If not set, the family's own: 32 for
    the small policy, 128 to 32,768 for others. Except for the small policy, a reply that reaches the maximum counts as
    no action."""
    thoughts: bool = True
    """Ask the policy to think before it acts. If false, the prompt asks for the action alone, and samples of supervised
    training hold no thoughts. `think.keep_without` trains one policy for both."""
    family: str = "auto"
    """Prompt and action format of the model: a name of docs/families.md, such as `ui-tars-1.5` or `qwen3-vl`, or a
    dotted path to a `models.families.family.ModelFamily`. `auto` follows the checkpoint's architecture. The small
    policy has its own format."""
    template: Literal["computer", "browser", "mobile", "grounding", "hybrid"] = "computer"
    """Prompt of the family. `computer`: a desktop or a browser. `browser`: a browser, for families with a prompt of its
    own. `mobile`: a phone. `grounding`: point at one element. `hybrid`: a screen with a shell and files
    (docs/hybrid.md)."""
    tools: list[ToolConfig] = []  # noqa: RUF012  (pydantic copies it)
    """Functions of the environment that the prompt lists, for families with tools (docs/tools.md). Their calls are the
    action `tool`."""
    backend: str = "auto"
    """Backend of the model: `tiny` (the small policy's own fast network), `transformers`, `server`, or a dotted path to
    a `models.language_model.LanguageModel`. `auto` takes the server if one is set, else the fastest of the others."""
    options: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """Keys of your own backend."""
    precision: Literal["full", "int8"] = "full"
    """Precision of the policy in rollouts and evaluation. `full`: as saved. `int8`: linear layers are rounded (dynamic
    quantisation on the CPU). Training ignores this key, and a server uses its own precision."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of a model other than the small policy in rollouts; `auto` takes a GPU if there is one. `int8` needs the
    CPU."""
    batch: Count = 8
    """Replies that a model other than the small policy generates at the same time, without a server. A larger number
    takes more memory."""
    seen_screens_mb: Whole = 1024
    """Memory in MB for the vision tower's outputs of recent screens, which the next steps reuse; 0 for none. A screen
    of 1920 x 1080 takes about 20 MB in a model of 7 billion weights."""
    prefix_mb: Whole = 2048
    """Memory in MB for keys, values and states of recent prompts; 0 for none. A step computes only the tokens after the
    longest prefix that its prompt shares with a recent prompt. 4,000 tokens take about 230 MB in Qwen2.5-VL of 7
    billion weights, so a batch of 8 fits. With more concurrent trajectories, steps reuse little more than the common
    beginning of all prompts."""
    server: ServerConfig = ServerConfig()
    hidden: Annotated[int, Field(ge=TEXT_HEAD, multiple_of=TEXT_HEAD)] = 192
    """Width of the small policy's text stack: a multiple of 32, the width of an attention head."""
    layers: Count = 2
    """Layers of the small policy's text stack."""
    vision_hidden: Annotated[int, Field(ge=WINDOW_HEAD, multiple_of=WINDOW_HEAD)] = 128
    """Width of the small policy's vision tower: a multiple of 64, the width of an attention head; of 16 with
    `window`."""
    vision_layers: Count = 2
    """Layers of the small policy's vision tower."""
    patch: Count = 16
    """Side of a patch, in pixels."""
    merge: Count = 2
    """Patches along each side of an image token; a token covers `merge` x `merge` patches."""
    window: Whole = 0
    """Side in pixels of the windows within which patches attend: whole image tokens, which makes a small Qwen2.5-VL.
    With 0, patches attend to the whole screen, as in Qwen3-VL."""

    @property
    def folder(self) -> Path:
        """The directory of `base`; for a model of the Hub, its directory in the local cache if it has one."""
        if self.base == PRETRAINED:
            return BASE
        model = hub_model(self.base)
        return (model and snapshot_of(model)) or Path(self.base)

    @property
    def given(self) -> bool:
        """Whether the first policy is a given model, which can act, and not one with random weights."""
        return self.base != SMALL

    @property
    def acts_on_server(self) -> bool:
        """Whether a server runs the model."""
        return self.backend == "server" or (self.backend == "auto" and self.server.named)

    @property
    def asked(self) -> dict[str, Any]:
        """Returns the keys that shape a checkpoint's prompt for an action, as a trajectory records them."""
        named = {"template", "dialect", "history_images", "history_turns", "older", "thoughts"}
        if self.context == "fold":
            named |= {"context", "live_images", "fold_images"}
        if self.tools:
            named |= {"tools"}
        return {**self.model_dump(include=named), "backend": "server" if self.acts_on_server else self.backend}

    @property
    def context_rule(self) -> ContextRule:
        """Returns the rule for the screens of a prompt."""
        if self.context == "fold":
            return ContextRule(self.live_images, self.fold_images, folds=True)
        return ContextRule(self.history_images)

    @model_validator(mode="after")
    def _has_heads(self) -> "PolicyConfig":
        check_tower(self.vision_hidden, self.patch * self.merge, self.window)
        return self

    @model_validator(mode="after")
    def _each_tool_once(self) -> "PolicyConfig":
        names = [tool.name for tool in self.tools]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"policy.tools lists {twice} twice: remove one of them")
        return self

    @model_validator(mode="after")
    def _require_history(self) -> "PolicyConfig":
        if self.fold_images > self.live_images:
            raise ValueError(
                f"policy.fold_images is {self.fold_images}, more than policy.live_images, {self.live_images}: the "
                f"current screen would be folded; lower it to {self.live_images}"
            )
        if self.context == "fold" and self.history_turns is not None:
            raise ValueError(
                "policy.context is fold, and policy.history_turns leaves out a reply at each step, which changes the "
                "beginning of every prompt: remove policy.history_turns"
            )
        if self.history_turns is not None and self.history_turns < self.history_images - 1:
            raise ValueError(
                f"policy.history_turns is {self.history_turns}, fewer than the past screens of policy.history_images, "
                f"{self.history_images}: raise it to {self.history_images - 1}"
            )
        if self.older != "dropped" and self.history_turns is None:
            raise ValueError(f"policy.older is {self.older}, but no reply is left out: set policy.history_turns")
        return self

    @model_validator(mode="after")
    def _one_backend(self) -> "PolicyConfig":
        if self.backend == "server" and not self.server.named:
            raise ValueError("policy.backend is server: set policy.server.url or policy.server.command")
        if self.backend in ("tiny", "transformers") and self.server.named:
            raise ValueError(f"policy.backend is {self.backend}: remove policy.server, or set policy.backend to server")
        if self.options and ":" not in self.backend:
            raise ValueError(
                f"policy.options is set, and policy.backend is {self.backend}: only your own backend has options"
            )
        return self


def check_tower(vision_hidden: int, token: int, window: int) -> None:
    """Checks the sizes of a small policy's vision tower.

    Args:
        vision_hidden: width of the tower.
        token: side of an image token in pixels.
        window: side of a window in pixels; 0 for none.

    Raises:
        ValueError: a size does not fit.
    """
    if not window and vision_hidden % VISION_HEAD:
        raise ValueError(
            f"vision_hidden is {vision_hidden}, and without window it is a multiple of {VISION_HEAD}: take "
            f"{max(1, round(vision_hidden / VISION_HEAD)) * VISION_HEAD}, or set window"
        )
    if window % token:
        raise ValueError(
            f"window is {window}, no multiple of patch x merge, {token}: take {max(1, round(window / token)) * token}"
        )
