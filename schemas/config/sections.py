"""The config: frozen, typed and closed. Every number that shapes a run is a field here, with its unit."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.failure import UsageError

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0.0)]


class Section(BaseModel):
    """A part of the config; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LakeConfig(Section):
    """Where data rests."""

    uri: str = "lake"
    """A folder, or `s3://bucket/prefix`."""
    endpoint: str | None = None
    """S3 endpoint, if it is not the cloud's own; credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
    region: str = "us-east-1"
    min_free_mb: Whole = 500
    """A run is refused when the lake's or the work folder's disk has less than this left."""


class EnvironmentConfig(Section):
    """Where the agent acts."""

    kind: Literal["miniwob", "fake"] = "miniwob"
    browser: str | None = None
    """Path of a headless Chromium; found by itself if not set."""
    browsers: Count = 2
    pages: Count = 4
    """Pages per browser: how many trajectories are played at the same time in it."""
    step_timeout_s: Positive = 20.0


class SuiteConfig(Section):
    """What is played and what is only measured. A task is named by its template."""

    tasks: tuple[str, ...]
    hard: tuple[str, ...] = ()
    """Tasks of the suite in which the explorer succeeds in under 10 %; reported apart."""
    held_out: tuple[str, ...] = ()
    """Tasks that are evaluated and never played for data."""
    practice: tuple[str, ...] = ()
    """Pages that the explorer plays for their screens, which teach to read and to point; never evaluated."""
    max_steps: dict[str, Count] = {}
    """Step limits that differ from the catalog's."""


class CurriculumConfig(Section):
    """How the next trajectories are shared out."""

    method: Literal["learnable", "uniform"] = "learnable"
    forgetting: Share = 0.5
    """What an iteration's counts are worth one iteration later."""
    floor: Share = 0.25
    """The share that is spread evenly over all tasks whatever was learnt."""


class CollectConfig(Section):
    """How trajectories are played."""

    trajectories_per_task: Count = 80
    """Mean over the suite; the curriculum moves them between tasks."""
    practice_trajectories: Whole = 40
    """Per practice page and iteration."""
    policy_share: Share = 0.5
    """Share of trajectories that the policy plays alone, once there is a trained one."""
    relay_share: Share = 0.0
    """Share that the policy begins and the explorer goes on with from the state reached."""
    temperature: Positive = 1.0
    chunk: Count = 64
    """Finished trajectories per write to the lake."""


class ServerConfig(Section):
    """An OpenAI-compatible server that runs the policy's model, in place of this process."""

    url: str = ""
    """Its address up to the version, such as `http://localhost:8000/v1`; empty for none."""
    model: str = "{checkpoint}"
    """The model's name there: `{checkpoint}` stands for the folder of the policy that plays, `{version}` for its name.
    One of the two must be in it, so that a policy is never measured by another's weights."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key; no key is sent if it is not set."""
    timeout_s: Positive = 120.0
    retries: Whole = 3
    """How often a request that may still succeed is sent again."""
    concurrency: Count = 16
    """Requests that run at the same time."""
    logprobs: bool = False
    """Ask for log probabilities (`grpo` needs them, and token ids, which vLLM gives for `return_token_ids`)."""
    extra: dict[str, Any] = {}
    """Further fields of every request, such as `{"top_k": -1, "return_token_ids": true}`."""

    @model_validator(mode="after")
    def _names_the_policy(self) -> "ServerConfig":
        if "{checkpoint}" not in self.model and "{version}" not in self.model:
            raise ValueError(f"policy.server.model is {self.model!r}: put {{checkpoint}} or {{version}} in it")
        return self


class PolicyConfig(Section):
    """The vision-language policy."""

    base: str = "tiny"
    """`tiny`: a small Qwen3-VL from nothing; else a Hugging Face image-text-to-text directory."""
    dialect: Literal["box_v1", "point", "bbox4"] = "box_v1"
    history_images: Count = 1
    """How many of the last screenshots the policy sees; text of all past steps is always there (UI-TARS, N=5)."""
    max_new_tokens: Count = 32
    precision: Literal["full", "int8"] = "full"
    """What the policy plays and is measured in: `full` as it was saved, `int8` with its linear layers rounded (dynamic
    quantisation on the CPU). Training is not touched; a server decides for itself."""
    server: ServerConfig = ServerConfig()
    hidden: Count = 192
    layers: Count = 2
    vision_hidden: Count = 128
    vision_layers: Count = 2
    patch: Count = 16
    merge: Count = 2


class PreferenceConfig(Section):
    """`train.method=dpo`: of two replies to one context the one that led to success is preferred."""

    beta: Positive = 0.1
    """How much a nat of log ratio to the parent counts (the paper prints none)."""
    epochs: Positive = 1.0
    """How often each pair is trained on."""
    batch: Count = 32
    """Pairs per optimiser step over all processes."""
    learning_rate: Positive = 2e-4


class GroupConfig(Section):
    """Plays of the same task and seed, for `rft`, `grpo`, `ppo` and `dpo`; how `grpo` compares their rewards."""

    groups: Count = 32
    """Groups per iteration; the curriculum shares them out over the tasks that can be learnt from."""
    size: Annotated[int, Field(ge=2)] = 8
    """Plays per group, at `collect.temperature`."""
    highest: Share = 0.75
    """Tasks are played in groups while the policy succeeds in more than 0 and at most this share of its plays."""
    advantage: Literal["pass1", "passk", "full", "bootstrap", "combined", "adaptive", "exceeding"] = "pass1"
    """`pass1`: GRPO. The others are forms of Pass@k training: `passk` is the analytic one."""
    k: Count = 4
    """Pass@k rewards one success among this many plays; at most `size`."""
    spread: Share = 0.0
    """A group whose best reward lies less than this above its mean is left out; 0: only one whose rewards are equal."""
    rise: Share = 1.0
    """A task whose success rose by more than this in the last iteration counts half: it is learnt anyway. 1: none."""
    inject: bool = False
    """Show an all-failed group one stored success of the explorer or of a relay."""
    overlong: Whole = 0
    """Replies within this many tokens of `policy.max_new_tokens` are punished softly; 0 for never. `pass1` only."""
    clip_low: Share = 0.2
    """A token's probability may fall by at most this share in one training before its loss stops pulling."""
    clip_high: Positive = 0.28
    """It may rise by at most this share."""
    most_weight: Positive = 1.0
    """Cap of the importance weight of a token that was drawn by other probabilities than the trainer's."""
    epochs: Positive = 2.0
    """How often each step of the groups is trained on."""
    batch: Count = 64
    """Steps per optimiser step over all processes."""
    learning_rate: Positive = 5e-4

    @model_validator(mode="after")
    def _fits(self) -> "GroupConfig":
        if self.k > self.size:
            raise ValueError(f"k is {self.k}, more than the {self.size} plays of a group")
        if self.overlong and self.advantage != "pass1":
            raise ValueError(f"the penalty needs advantage pass1: {self.advantage} is for rewards of 0 and 1")
        return self


class PpoConfig(Section):
    """`train.method=ppo`: plays of groups, each judged by a critic instead of by the others of its group."""

    critic: Literal["shared", "alone"] = "alone"
    """`alone`: a network of its own, begun as a copy of the policy. `shared`: a value head on the policy's own body,
    which costs half as much and learns little while the body must not move."""
    gamma: Share = 1.0
    """Discount per token of the policy."""
    policy_lambda: Literal["length"] | Share = "length"
    """The policy's lambda; `length`: 1 - 1 / (alpha l), at least 0, with l the policy's tokens of the whole play."""
    alpha: Positive = 0.05
    """UI-TARS-2's and VAPO's, for plays of hundreds of tokens: below 1 / alpha tokens lambda is 0."""
    critic_lambda: Share = 1.0
    """1: the critic learns the return itself."""
    whiten: bool = True
    """Advantages get mean 0 and standard deviation 1 over the tokens of the iteration."""
    value_steps: Whole = 100
    """Before the policy moves, at most so many optimiser steps of the critic alone; 0 for none."""
    value_settled: Share = 0.01
    """They end when three passes in a row raised the explained variance of plays left out by no more than this."""
    value_weight: Positive = 0.5
    """Of the value loss beside the policy's."""
    value_clip: Annotated[float, Field(ge=0.0)] = 0.2
    """How far a value may move in one training before its loss stops pulling; 0 for any way."""
    positive: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the supervised loss on the plays that succeeded; VAPO's is 0.1."""
    no_action: Share = 0.1
    """Taken from the reward of a reply that holds no action."""
    step_cost: Share = 0.0
    """Taken from the reward of every reply, against plays without an end."""
    overlong: Whole = 0
    """Replies within this many tokens of `policy.max_new_tokens` are punished softly; 0 for never."""
    clip_low: Share = 0.2
    """A token's probability may fall by at most this share in one training before its loss stops pulling."""
    clip_high: Positive = 0.28
    """It may rise by at most this share."""
    most_weight: Positive = 1.0
    """Cap of the importance weight of a token that was drawn by other probabilities than the trainer's."""
    epochs: Positive = 2.0
    """How often each step of the plays is trained on."""
    batch: Count = 64
    """Steps per optimiser step over all processes."""
    learning_rate: Positive = 5e-4
    critic_learning_rate: Positive = 1e-3
    """Of the value head, and of the network of a critic that stands alone."""


class LoraConfig(Section):
    """Training of small adapters beside frozen weights (LoRA, arXiv 2106.09685), by peft; not for the small policy.

    The checkpoint that is written has the adapters merged into the weights: a plain directory, as every other.
    """

    rank: Whole = 0
    """Inner width of an adapter; 0 for none: then all weights are trained."""
    alpha: Positive = 32.0
    """An adapter's product is scaled by alpha / rank."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """The last part of the names of the linear layers that get one, wherever they are in the model."""


class StreamConfig(Section):
    """Training while plays go on, for `train.method=grpo`: the trainer takes finished groups, the others play on."""

    on: bool = False
    """Whether collecting and training run side by side; else an iteration first plays all its groups."""
    groups: Count = 8
    """Finished groups that can teach make one batch; after each batch the plays go on with the new weights."""
    stale: Whole = 4
    """A step that was chosen by weights more than so many batches old is left out. It also bounds how far collecting
    runs ahead: at most `stale` + 1 batches' worth of groups are being played or waiting. 0: collecting waits for every
    training, as a synchronous loop does."""


class ContinualConfig(Section):
    """Continual training (CT): learning from failed plays what is true of them, without imitating them."""

    steps: Count = 150
    """Optimiser steps."""
    learning_rate: Positive = 1e-3


class TrainConfig(Section):
    """How the policy changes."""

    method: Literal["sft", "ct", "rft", "grpo", "ppo", "dpo"] = "sft"
    """`sft`: imitate what succeeded. `ct`: learn what failed plays show of screens and actions, without imitating them.
    `rft`: play groups as `grpo` does, and imitate what succeeded in them with everything that did before. `grpo`:
    compare the rewards of plays of the same task and seed. `ppo`: compare them with what a critic expected, token by
    token. `dpo`: prefer what succeeded to what failed where such plays part."""
    steps_first: Count = 520
    """Optimiser steps of the first training, from nothing."""
    steps: Count = 300
    batch: Count = 16
    """Samples per optimiser step over all processes."""
    learning_rate_first: Positive = 3e-3
    learning_rate: Positive = 2e-3
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.05
    warmup: Whole = 15
    """Steps until the learning rate is reached."""
    decay: Share = 0.5
    """The last share of the steps, over which the learning rate falls."""
    clip: Positive = 1.0
    processes: Count = 2
    threads: Count = 1
    balance: bool = True
    """Share a batch out over the processes by what its samples cost (OrchMLLM), instead of by their order."""
    sequence_plans: bool = True
    """Let several processes share a sample that is longer than `token_cap`, in groups of mixed size (FlexSP); where
    there is no `token_cap`, or the processes are not a power of two, nothing is shared. Not for the small policy."""
    token_cap: Count | None = None
    """The most tokens a process holds at once; a larger batch is taken in micro-batches. Not for the small policy."""
    activation_checkpointing: bool = False
    """Compute activations twice instead of keeping them: slower, less memory. Not for the small policy."""
    checkpoint_every: Whole = 100
    """Steps from one checkpoint of an unfinished training to the next, from which a killed one goes on; 0 for none."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models are trained, one process per GPU; the small policy always on the CPU."""
    grounding: Whole = 4
    """Grounding questions (a name, where is it?) answered per sample, about the same screenshot."""
    reading: Whole = 0
    """Reading questions (a place, what is there?) answered per sample, about the same screenshot."""
    copying: Share = 0.2
    """How often a sample also asks to type a quoted text, which teaches to copy."""
    words: Annotated[float, Field(ge=0.0)] = 1.0
    """Weight of the loss that pulls a screen token to the words written there; 0 for none."""
    soft_bins: Annotated[float, Field(ge=0.0)] = 2.0
    """Width, in coordinate bins, of the target's spread over neighbouring bins; 0 for hard targets."""
    shift: Whole = 8
    """Screenshots are moved by up to this many pixels, and their targets with them."""
    practice: Share = 0.1
    """Share of the samples that comes from practice pages, where there are any."""
    task_balance: Share = 1.0
    """0: tasks share the training equally; 1: by their weakness."""
    lora: LoraConfig = LoraConfig()
    ct_every: Whole = 0
    """With `sft`: in every iteration whose number is a multiple of this, continual training comes before the supervised
    one; never in iteration 0. 0 for never."""
    ct: ContinualConfig = ContinualConfig()
    group: GroupConfig = GroupConfig()
    ppo: PpoConfig = PpoConfig()
    preference: PreferenceConfig = PreferenceConfig()
    stream: StreamConfig = StreamConfig()

    @model_validator(mode="after")
    def _streams(self) -> "TrainConfig":
        if self.stream.on and self.method != "grpo":
            raise ValueError(f"stream.on needs method grpo, not {self.method}")
        return self

    @model_validator(mode="after")
    def _in_turn(self) -> "TrainConfig":
        if self.ct_every and self.method != "sft":
            raise ValueError(f"ct_every is {self.ct_every}, and continual training comes before method sft alone")
        return self

    @property
    def in_groups(self) -> bool:
        """Whether the method needs several plays of the same task and seed."""
        return self.method in ("rft", "grpo", "ppo", "dpo")


class JudgeConfig(Section):
    """Who scores plays of tasks whose environment has no verifier."""

    kind: Literal["none", "fake", "endpoint"] = "none"
    """`endpoint`: a model behind OpenAI's chat completions, its key in FLYWHEEL_JUDGE_KEY. `fake`: for tests."""
    url: str = ""
    """The endpoint's base url, for example `http://127.0.0.1:8000/v1`."""
    model: str = ""
    """The model's name there."""
    threshold: Share = 0.5
    """The score from which a play counts as a success; rewards of groups are the scores themselves."""
    screens: Count = 5
    """How many of the last screens the judge sees (UI-TARS-2: 5)."""
    tries: Count = 2
    """A judge that fails so often makes the play an environment failure."""
    timeout_s: Positive = 60.0


class EvaluateConfig(Section):
    """How a candidate is measured."""

    seeds: Count = 15
    """Held-out seeds per task of the suite; the same for every policy, so that comparisons are paired."""
    held_out_seeds: Whole = 5
    """Seeds per held-out task."""
    untrained_seeds: Count = 5
    """Seeds per task on which the untrained policy is measured, once per lake."""
    explorer_seeds: Count = 15
    """Seeds per task on which the explorer is measured, once per lake."""


class PromoteConfig(Section):
    """When the candidate plays next."""

    tolerance: Share = 0.03
    """The candidate may be this much below the champion on the same seeds and still be called not worse. A candidate
    that is kept out takes its training with it; 225 paired plays tell differences of about 0.04 from chance."""


class QualityConfig(Section):
    """The quality gate."""

    keep_docs: Count = 3
    """How many iterations' Data Docs are kept."""


class Config(Section):
    """Everything a run is made of; saved resolved beside all it made."""

    name: str = "laptop"
    seed: Whole = 0
    iterations: Count = 4
    """How many iterations `flywheel run` turns unless told otherwise."""
    lake: LakeConfig = LakeConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    suite: SuiteConfig
    curriculum: CurriculumConfig = CurriculumConfig()
    collect: CollectConfig = CollectConfig()
    policy: PolicyConfig = PolicyConfig()
    train: TrainConfig = TrainConfig()
    judge: JudgeConfig = JudgeConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    promote: PromoteConfig = PromoteConfig()
    quality: QualityConfig = QualityConfig()

    @model_validator(mode="before")
    @classmethod
    def _from_file(cls, value: Any) -> Any:
        """A deployment may name its config file instead of spelling the config out."""
        return read_toml(Path(value)) if isinstance(value, str) else value

    def canonical(self) -> str:
        """The resolved config as JSON."""
        return self.model_dump_json()


def read_toml(path: Path) -> dict[str, Any]:
    """The fields of a config file.

    Raises:
        UsageError: the file is missing or not TOML.
    """
    if not path.is_file():
        raise UsageError(f"There is no config file {path}.", "configs/laptop.toml is the default profile.")
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.", "Mend that line.") from error
