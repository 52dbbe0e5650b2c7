"""The `train` section of the config: one section for each training method, and the settings they share."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from schemas.config.operations import Launch, MachinesConfig
from schemas.config.policy import TEXT_HEAD, WINDOW_HEAD, check_tower
from schemas.config.section import Count, Positive, ReadIf, Section, Share, Whole
from schemas.registry import Registry, seam


class MemoryConfig(Section):
    """Memory options of training (docs/memory.md), of which the small policy has `freeze_vision`. `flywheel plan`
    chooses them."""

    frozen: Literal["float32", "bfloat16", "nf4"] = "float32"
    """Precision of frozen weights: the base of adapters, and a frozen vision tower. `float32`: 4 bytes per weight.
    `bfloat16`: 2 bytes. Frozen weights compute in `train.precision`. `nf4` (QLoRA) needs adapters: linear layers in the
    language model's blocks are rounded to 4 bits, 0.56 bytes per weight, and everything else is in bfloat16. The saved
    policy has the rounded weights with the adapters merged in."""
    freeze_vision: bool | None = None
    """Freeze the vision tower and its merger. A frozen tower needs no gradients, moments or stored activations. If not
    set, it is frozen if the small policy begins from a base (`policy.base`), whose tower knows screens already."""
    offload: bool = False
    """Keep the fp32 weights, their gradients and moments in host memory, and run the optimiser there. The GPU holds
    only the copies that it computes with. Needs a GPU, and no adapters."""
    whole_gradients: bool = False
    """Keep the whole gradient of a step with several micro-batches in each process, 4 bytes per trained weight. The
    processes then share out the gradient once a step, after the last micro-batch. If false, they share it out after
    every micro-batch."""
    moments: Literal["float32", "8bit"] = "float32"
    """Precision of AdamW's two moments per trained weight. `float32`: 4 bytes each. `8bit`: 1 byte each; steps are
    rounded, so the result differs slightly. The next training loads stored moments only if it has the same
    precision."""
    logits_chunk: Count | None = None
    """Targets whose logits are computed at a time. With more targets, the backward pass computes logits again, chunk by
    chunk. If not set, the logits of all targets of a micro-batch are held at once."""


class ExpertsConfig(Section):
    """Training of a mixture of experts, such as Qwen3-VL-30B-A3B; not for other models."""

    parallel: bool = False
    """Expert parallelism: each process holds a share of the experts of every layer, and receives the tokens routed to
    them. If false, each process gathers all weights of a layer. The number of experts must be a multiple of the number
    of processes, and `train.replicas` must be 1."""
    balance: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the auxiliary loss that spreads tokens over experts (Switch, arXiv 2101.03961, as in `transformers`).
    It is the mean over documents and layers, so it does not depend on how the work is distributed. Qwen's
    `router_aux_loss_coef` is 0.001."""


class RateSection(Section):
    """Settings of every method."""

    learning_rate: Positive | None = None
    """Learning rate. If not set, the method's default for the optimiser: Muon for the small policy, AdamW for other
    models."""


class StepSection(RateSection):
    """Settings of a method that takes a number of steps."""

    steps: Count = 300
    """Optimiser steps."""


class EpochSection(RateSection):
    """Settings of a method that goes over its samples a number of times."""

    epochs: Positive = 1.0
    """Passes over the samples."""
    batch: Count = 32
    """Samples per optimiser step, over all processes."""


class PreferenceConfig(EpochSection):
    """`train.method=dpo`: prefer the reply that led to success over another reply to the same context."""

    beta: Positive = 0.1
    """Weight of the log ratio to the parent policy, per nat. The paper gives no value."""


class ClippedConfig(EpochSection):
    """Settings of all methods that train on rewards, with PPO's clipped loss over the tokens of replies."""

    overlong: Whole = 0
    """Replies within this many tokens of `policy.max_new_tokens` get a soft penalty; 0 for none. Pass@k forms of
    `train.group.advantage` have no such penalty."""
    clip_low: Share = 0.2
    """Maximum fall of a token's probability in one training, as a share. Beyond this share, the token's loss is
    clipped."""
    clip_high: Positive = 0.28
    """Maximum rise of a token's probability in one training, as a share. Beyond this share, the token's loss is
    clipped."""
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None
    """Maximum loss of a token with a negative advantage, as a multiple of the advantage, for any rise of its
    probability (dual clip, arXiv 1912.09729; verl: 3). No bound if not set."""
    kl: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight per token of the KL divergence from the policy before this training; with a stream, from the policy before
    this batch. 0 for none, as in DAPO. DART-GUI uses 0.1."""
    most_weight: Positive = 1.0
    """Maximum importance weight of a token that was sampled with other probabilities than the trainer's."""
    most_mismatch: Positive | None = 1.0
    """Maximum mean difference, in nats, between the trainer's log probabilities of the sampled tokens and the behaviour
    log probabilities, before an update. Training stops above this difference. With a stream, only tokens of age 0
    count. `none` for no limit. A served model of the same weights is within 0.02, and training warns above 0.1."""
    epochs: Positive = 2.0
    """Passes over the steps of the trajectories."""
    batch: Count = 64
    """Trajectory steps per optimiser step, over all processes."""


class GroupConfig(ClippedConfig):
    """Groups of trajectories of one task and seed, for `rft`, `grpo`, `ppo` and `dpo`. `grpo` also reads the keys that
    compare rewards within a group."""

    read_if = (
        ReadIf("train.stream.on", (False,), ("refill",)),
        ReadIf("train.group.ratio", ("token", "sequence"), ("clip_low", "clip_high", "dual_clip")),
        ReadIf("train.group.ratio", ("soft",), ("gate_positive", "gate_negative")),
        ReadIf("train.group.recompute", (False,), ("most_weight", "most_mismatch", "overlong", "entropy_share")),
    )

    groups: Count = 32
    """Groups per iteration; the curriculum distributes them over the tasks that can be learned from."""
    size: Annotated[int, Field(ge=2)] = 8
    """Trajectories per group."""
    temperature: Positive = 1.0
    """Sampling temperature of the trajectories in groups. The small policy spreads clicks over neighbouring
    coordinates, so at 1 many failures are misses that greedy trajectories do not have. Below 1, groups show the errors
    of greedy trajectories."""
    highest: Share = 0.75
    """Maximum success rate of a task that is rolled out in groups. Tasks with a rate of 0 are not rolled out either."""
    advantage: Literal["pass1", "passk", "full", "bootstrap", "combined", "adaptive", "exceeding"] = "pass1"
    """`pass1`: GRPO. The others are forms of Pass@k training; `passk` is the analytic form."""
    ratio: Literal["token", "sequence", "soft"] = "token"
    """How ratios to the policy before this training are limited. `token`: each token's ratio is clipped, averaged over
    all tokens. `sequence`: the geometric mean of a reply's token ratios is clipped (GSPO, arXiv 2507.18071), averaged
    over replies; GSPO clips at 3e-4 and 4e-4, DART-GUI at 0.1 and 0.28. `soft`: each token's ratio passes a sigmoid
    gate instead of a clip (SAPO, arXiv 2511.20347), averaged over a reply's tokens, then over replies."""
    gate_positive: Positive = 1.0
    """Steepness of the gate of `ratio=soft` for positive advantages, tau in the paper."""
    gate_negative: Positive = 1.05
    """Steepness of the gate for negative advantages. A steeper gate limits changes of a token's probability more."""
    entropy_share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of the steps to train on; steps whose replies have the highest entropy come first (DART-GUI: 0.8). 1 for
    all. The mean -log p of the sampled tokens estimates the entropy, so rarer replies to similar states are kept."""
    refill: Whole = 0
    """Maximum times that further groups are rolled out while fewer than `groups` groups can teach (DAPO's dynamic
    sampling). With a stream, groups fill batches anyway."""
    k: Count = 4
    """Number of trajectories among which Pass@k rewards one success. It must be less than `size` if `advantage` is
    `passk` or `full`."""
    spread: Share = 0.0
    """Minimum difference between the best reward of a group and its mean reward. Groups with a smaller difference are
    left out. 0: only groups of equal rewards are left out."""
    rise: Share = 1.0
    """Rise of a task's success in the last iteration above which its weight is multiplied by `rising`, because the
    policy learns it anyway. 1 for none."""
    rising: Share = 0.5
    """Factor of the weight of a task that rose by more than `rise`. Seed1.5-VL samples such tasks "less often" and
    gives no number; half leaves enough trajectories to detect the end of the rise."""
    inject: bool = False
    """Add one stored success of the explorer or of a relay to a group whose trajectories all failed."""
    recompute: bool = False
    """With `grpo`: train on replies of a server that returns no log probabilities (`transformers serve`). The trainer
    encodes their text, and computes their log probabilities with the weights that it starts from. A difference between
    server and trainer is then neither measured nor corrected."""

    @model_validator(mode="after")
    def _fits(self) -> "GroupConfig":
        if self.k > self.size:
            raise ValueError(f"k is {self.k}, more than the {self.size} trajectories of a group")
        if self.k == self.size and self.advantage in ("passk", "full"):
            raise ValueError(
                f"k is {self.k}, all trajectories of a group: {self.advantage} then compares nothing; take more"
            )
        if self.recompute and self.advantage == "adaptive":
            raise ValueError("recompute is set, and advantage adaptive needs the server's log probabilities: take one")
        if self.overlong and self.advantage != "pass1":
            raise ValueError(f"the penalty needs advantage pass1: {self.advantage} is for rewards of 0 and 1")
        return self


class PpoConfig(ClippedConfig):
    """`train.method=ppo`: a critic judges each trajectory of a group, instead of the group's other trajectories."""

    critic: Literal["shared", "alone"] = "alone"
    """`alone`: a separate network that starts as a copy of the policy. `shared`: a value head on the policy's own body,
    which costs half as much and learns little while the body must not change."""
    gamma: Share = 1.0
    """Discount per policy token."""
    policy_lambda: Literal["length"] | Share = "length"
    """Lambda of the policy's advantages. `length`: 1 - 1 / (alpha l), at least 0, where l is the number of policy
    tokens in the trajectory."""
    alpha: Positive = 0.05
    """Alpha of `policy_lambda=length`, as in UI-TARS-2 and VAPO for trajectories of hundreds of tokens. Lambda is 0 for
    trajectories of fewer than 1 / alpha tokens."""
    critic_lambda: Share = 1.0
    """Lambda of the critic's targets; with 1 the critic learns the return itself."""
    whiten: bool = True
    """Scale advantages to mean 0 and standard deviation 1 over the tokens of the iteration."""
    value_steps: Whole = 100
    """Maximum optimiser steps of the critic alone, before the policy is trained; 0 for none."""
    value_settled: Share = 0.01
    """Minimum gain of the critic's explained variance on left-out trajectories, over its best value so far. The steps
    of the critic alone end after three passes in a row without this gain."""
    value_weight: Positive = 0.5
    """Weight of the value loss relative to the policy's."""
    value_clip: Annotated[float, Field(ge=0.0)] = 0.2
    """Maximum change of a value in one training. Beyond this change, the value's loss is clipped. 0 for no limit."""
    positive: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the supervised loss on successful trajectories (VAPO: 0.1)."""
    no_action: Share = 0.1
    """Penalty that is subtracted from the reward of a reply without an action."""
    step_cost: Share = 0.0
    """Penalty that is subtracted from the reward of every reply, against endless trajectories."""
    critic_learning_rate: Positive | None = None
    """Learning rate of the value head, or of a separate critic's network. If not set: 1e-5 for a separate critic of a
    model other than the small policy, else 1e-3."""


class DistillConfig(EpochSection):
    """`train.method=opd`: a served teacher scores the policy's own replies, token by token (docs/distill.md)."""

    url: str = ""
    """Address of the teacher's SGLang server up to the version, such as `http://localhost:30000/v1`."""
    model: str = ""
    """Name of the teacher on the server. Scores are stored under this name, so another teacher needs another name."""
    key_variable: str = "FLYWHEEL_TEACHER_KEY"
    """Environment variable with the API key; no key is sent if the variable is not set."""
    timeout_s: Positive = 300.0
    """Seconds without a received byte after which a request fails."""
    retries: Whole = 3
    """Retries of a request that may still succeed."""
    concurrency: Count = 16
    """Maximum concurrent requests. Each is one prefill of a prompt and its reply."""
    max_fall: Share = 0.2
    """Maximum fall of a token's probability since it was sampled. Beyond this fall, the teacher's score of the token is
    ignored (prime-rl)."""
    ratio_penalty: Annotated[float, Field(ge=0.0)] = 1e-3
    """Weight of the squared log ratio to the probability at sampling, per token (prime-rl)."""


class LoraConfig(Section):
    """Training of LoRA adapters on frozen weights (arXiv 2106.09685), by peft; not for the small policy."""

    read_if = (ReadIf("train.lora.rank"),)

    rank: Whole = 0
    """Rank of an adapter; 0 trains all weights without adapters. The saved checkpoint is a plain directory with the
    adapters merged into the weights. Its folder `adapter` holds the adapters alone, for servers that load adapters."""
    alpha: Positive = 32.0
    """Scale of the adapters: an adapter's product is multiplied by alpha / rank."""
    targets: tuple[str, ...] = (
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        *("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"),
    )
    """Last part of the names of the linear layers that get an adapter."""
    vision: bool = False
    """Add adapters to the vision tower too: Qwen2.5-VL's tower has layers of the same names. Servers that load adapters
    ignore the adapters of the tower."""


class StreamConfig(Section):
    """Collection and training at the same time, for `train.method=grpo` and `ppo`. Training uses groups as they
    finish."""

    read_if = (ReadIf("train.stream.on"),)

    on: bool = False
    """Collect and train at the same time. If false, an iteration first rolls out all its groups."""
    groups: Count = 8
    """Number of finished groups that can teach, per batch. After each batch, collection continues with the new
    weights."""
    stale: Whole = 4
    """Maximum age of a step's weights, in batches; older steps are left out. It also limits how far collection runs
    ahead: groups for at most `stale` + 1 batches are being rolled out or waiting. 0: collection waits for every
    training, as in a synchronous loop."""


ASKED = (
    ReadIf("annotate.perception", keys=("perception",)),
    ReadIf("video.questions", keys=("video",)),
    ReadIf("general.samples", keys=("general",)),
)
"""Conditions of the shares of questions."""


def _check_shares(shares: "ContinualConfig | TrainConfig") -> None:
    named = {name: getattr(shares, name) for name in ("perception", "video", "general")}
    if sum(named.values()) > 1:
        listed = ", ".join(f"{name} is {share:g}" for name, share in named.items() if share)
        raise ValueError(f"{listed}: lower them to at most 1 together")


class ContinualConfig(StepSection):
    """Continual training (CT) on failures: on their screens and actions, or on the failed trajectories themselves."""

    read_if = ASKED

    steps: Count = 150
    """Optimiser steps."""
    form: Literal["relabelled", "trajectories"] = "relabelled"
    """`relabelled`: labels from the screens and actions of failed trajectories, independent of their goals: positions
    of elements, elements at positions, actions between two screens, changes. `trajectories`: the failed steps
    themselves as targets, as in UI-TARS-2's flywheel, where D_CT holds the trajectories that a verifier rejected. The
    supervised training that follows has to correct their errors."""
    perception: Share = 0.0
    """Share of perception samples (`annotate.perception`), from any trajectory; 1 for no other samples."""
    video: Share = 0.0
    """Share of questions about recordings (`video.questions`), of any trajectory, for models that take video."""
    general: Share = 0.0
    """Share of general questions (`general.samples`)."""

    @model_validator(mode="after")
    def _has_shares(self) -> "ContinualConfig":
        _check_shares(self)
        return self


class PretrainConfig(StepSection):
    """Training of a base policy from rendered pages (`flywheel pretrain train`)."""

    steps: Count = 8000
    """Optimiser steps."""
    letters_steps: Whole = 2000
    """Number of first steps that train only the vision tower, on letters. Reading begins sooner if the tower knows
    letters."""
    batch: Count = 4
    """Screens per optimiser step, over all processes."""
    questions: Count = 16
    """Maximum questions about one screen, which share its encoding."""
    typing: Whole = 2
    """Questions about one screen that give a text and ask to type it. Without them a base hardly learns to copy."""
    kinds: Whole = 2
    """Maximum questions about one screen that ask for the place of the only element of a kind."""
    pairs: Share = 0.15
    """Share of the screens that are shown after the screen before them, with questions about the action between."""
    letters: Annotated[float, Field(ge=0.0)] = 1.0
    """Weight of the loss on the letter in each cell of 4 x 8 pixels; 0 for none."""
    copying: Annotated[float, Field(ge=0.0)] = 1.0
    """Weight of the loss on the letter that a reading head of the last text layer writes if it looks at any one letter
    of the screen; 0 for none. Without it a base learns to write letters only from those that a question asks for."""
    places: Annotated[float, Field(ge=0.0)] = 1.0
    """Weight of the loss on the row and column of each screen token, before the last text layer; 0 for none. Without it
    a base finds a name sooner than it learns to write the place."""
    looking: Annotated[float, Field(ge=0.0)] = 1.0
    """Weight of the loss that makes heads of the last text layer look at the next letter to write, at the letters of a
    name, and at the place to act on; 0 for none."""
    crop_width: Count = 256
    """Maximum width of a picture in pixels. Larger screens are cropped, with the questions inside the crop."""
    crop_height: Count = 224
    """Maximum height of a picture in pixels."""
    crop_growth: Annotated[float, Field(ge=1.0)] = 1.0
    """Maximum factor for both sides of a step's pictures. A step's factor is random; each size of pictures takes about
    equal time, so that most steps have small ones. A larger factor makes a base point on larger screens."""
    whole_share: Share = 0.05
    """Share of the steps, at the end, that show whole screens without crops."""
    phrases: Whole = 300
    """Maximum phrases that the tokeniser learns from instructions and changes. It learns no whole words."""
    validate_every: Count = 500
    """Optimiser steps between measurements on pages of the split `validation`."""
    validation: Count = 48
    """Screens of a measurement."""
    hidden: Annotated[int, Field(ge=TEXT_HEAD, multiple_of=TEXT_HEAD)] = 192
    """Width of the text stack."""
    layers: Count = 2
    """Layers of the text stack."""
    vision_hidden: Annotated[int, Field(ge=WINDOW_HEAD, multiple_of=WINDOW_HEAD)] = 32
    """Width of the vision tower: a multiple of 16; of 64 if `window` is 0."""
    vision_layers: Count = 2
    """Layers of the vision tower."""
    patch: Annotated[int, Field(ge=4, multiple_of=4)] = 4
    """Side of a patch in pixels; 4 or a multiple."""
    merge: Count = 4
    """Patches along each side of an image token, which covers a multiple of 8 pixels."""
    window: Whole = 32
    """Side in pixels of the windows within which patches attend: whole image tokens. With 0, patches attend to the
    whole screen."""

    @model_validator(mode="after")
    def _makes_grids(self) -> "PretrainConfig":
        block = self.patch * self.merge
        if not self.window and self.patch < 8:
            raise ValueError(
                f"window is 0 and patch is {self.patch}, so every patch would attend to all of a large screen: take "
                "patch=16, merge=1 and vision_hidden=128, or set window"
            )
        check_tower(self.vision_hidden, block, self.window)
        if block % 8:
            raise ValueError(f"patch x merge is {block}, no multiple of 8: take patch=4 and merge=4")
        for key in ("crop_width", "crop_height"):
            if getattr(self, key) % block:
                raise ValueError(
                    f"{key} is {getattr(self, key)}, no multiple of patch x merge, {block}: take "
                    f"{max(1, round(getattr(self, key) / block)) * block}"
                )
        if self.letters_steps >= self.steps:
            raise ValueError(f"letters_steps is {self.letters_steps} and steps is {self.steps}: lower letters_steps")
        return self


_FIRST = 520
"""Optimiser steps that usually teach the small policy from random weights."""
_RATIOS = {"gspo": "sequence", "sapo": "soft"}
"""Published methods that are `grpo` with another `group.ratio`."""
Keep = Literal["nothing", "masters", "masters+moments"]


class TrainConfig(StepSection):
    """Training of the policy."""

    read_if = ASKED

    method: str = "sft"
    """`sft`: imitate successes. `ct`: learn from the screens and actions of failed trajectories, without imitating
    them. `rft`: roll out groups as `grpo` does, and imitate their successes with all earlier successes. `grpo`:
    compare the rewards of trajectories of the same task and seed. `ppo`: compare rewards with a critic's values, token
    by token. `dpo`: prefer the success over the failure at the step where two such trajectories part. `opd`: move the
    policy's own replies towards a served teacher, token by token. Or the dotted path of your own method:
    `my_package.my_method:METHOD` (docs/extend.md)."""
    options: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """Keys of your own method."""
    steps_first: Count | None = None
    """Optimiser steps of the small policy's first training, from random weights or a base, which knows no task. If not
    set: `steps` if that has another value than its default, else 520."""
    batch: Count = 16
    """Samples per optimiser step, over all processes."""
    learning_rate_first: Positive | None = None
    """Learning rate of the small policy's first training from random weights. If not set: the method's default for a
    first training, else the rate of later trainings."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.05
    """Weight decay, decoupled from the gradient as in AdamW."""
    warmup: Whole = 15
    """Optimiser steps until the full learning rate is reached."""
    decay: Share = 0.5
    """Share of the steps, at the end, over which the learning rate falls."""
    shape: Literal["straight", "cosine"] = "straight"
    """Shape of the learning rate's fall: `straight` or `cosine`."""
    floor: Share = 0.05
    """Last learning rate, as a share of the full one."""
    clip: Positive = 1.0
    """Maximum norm of a gradient; a longer gradient is scaled down to it."""
    launch: Launch = "local"
    """How the processes start. `local`: on this machine. `torchrun`: by torchrun on each of `train.machines.hosts`.
    `command`: by `train.machines.command`, for Slurm, Ray or Kubernetes (docs/machines.md)."""
    machines: MachinesConfig = MachinesConfig()
    restarts: Whole = 2
    """Restarts, from the last checkpoint, of a training that hangs or loses a process."""
    hung_s: Annotated[float, Field(ge=1.0)] = 60.0
    """Seconds without a heartbeat of a process after which a training counts as hung. It also counts as hung if no step
    ends for this long and for ten times the longest step so far."""
    processes: Count | Literal["auto"] = "auto"
    """Training processes per machine. `auto`: one per GPU of the machine, or two if no GPU is used; never more than
    there are GPUs. If you start torchrun yourself, its own numbers hold instead."""
    threads: Count = 1
    """CPU threads of each training process."""
    balance: bool = True
    """Distribute a batch over the processes by the cost of its samples (OrchMLLM), instead of by their order."""
    sequence_plans: bool = True
    """Let several processes share a sample that is longer than `token_cap`, in groups of mixed size (FlexSP). Samples
    are not shared without a `token_cap`, or if the number of processes is not a power of two. Not for the small
    policy."""
    token_cap: Count | Literal["auto"] | None = None
    """Maximum tokens in a process at a time; a larger batch is split into micro-batches of equal work. Shared tokens
    count once. `auto`: as many tokens, screens and targets as fit the GPU by the memory model (docs/memory.md); all of
    them on a CPU. Not for the small policy."""
    share_prompts: bool = True
    """Compute tokens and screens with which several prompts of a micro-batch begin only once. With `balance`, samples
    with one prompt are kept together. Gradients are those of separate prompts. Without effect on models with gated
    DeltaNets (Qwen3.5), with `experts.balance`, and on documents that several processes share. Not for the small
    policy."""
    replicas: Count = 1
    """Copies of the weights, each sharded over neighbouring processes (HSDP). With as many copies as machines, weights
    are gathered within a machine, and only gradients go between machines, once a step. 1: all processes share one copy.
    Not for the small policy."""
    compiled: bool | Literal["auto"] = "auto"
    """Compile each block (`torch.compile`): the first steps take a minute or more, later ones less time. `auto`: on a
    GPU, for trainings of at least 100 steps. Not for the small policy."""
    activation_checkpointing: bool | Count = False
    """Compute activations twice instead of storing them: slower, less memory. A number: only those of this many blocks,
    first the vision tower's. `flywheel plan` finds the smallest number that fits. Not for the small policy."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number type of the forward and backward passes; weights, gradient sums and moments are fp32. `auto`: bfloat16 on
    a GPU, float32 on a CPU, where bfloat16 is faster only if the processor has instructions for it. Not for the small
    policy."""
    checkpoint_every: Whole = 100
    """Optimiser steps between checkpoints of a training; 0 for no checkpoints. A killed training resumes from the last
    checkpoint."""
    keep: Keep = "masters"
    """Training state that is stored with a policy for its next training. `masters`: the master weights in fp32, 4 bytes
    per weight in addition to the 2 of the policy itself. `masters+moments`: the optimiser's moments too, 12 bytes with
    AdamW, 8 for the small policy's matrices. `nothing`: the next training starts from rounded weights, and loses steps
    that were smaller than the rounding."""
    keep_policies: Whole = 3
    """Number of newest policies that keep the training state of `keep`; the champion keeps it too. Other policies lose
    this state after a promotion, and a training from such a policy starts from its rounded weights."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of training, with one process per GPU. The small policy always trains on the CPU."""
    profile: Whole = 0
    """Number of steps to profile near the start of a training; 0 for none. Each process writes a trace to
    `profiles/POLICY` next to the lake's checkpoints."""
    grounding: Whole = 4
    """Grounding questions per sample, about the same screenshot: where is the element of a name?"""
    reading: Whole = 0
    """Reading questions per sample, about the same screenshot: which element is at a position?"""
    copying: Share = 0.2
    """Share of the samples that also ask to type a quoted text, to train copying."""
    words: Annotated[float, Field(ge=0.0)] = 1.0
    """Weight of the loss that pulls a screen token towards the words at its position; 0 for none."""
    soft_bins: Annotated[float, Field(ge=0.0)] = 2.0
    """Width, in coordinate bins, over which a target is spread to neighbouring bins; 0 for hard targets."""
    shift: Whole = 8
    """Maximum pixels by which a screenshot and its targets are moved."""
    practice: Share = 0.1
    """Share of the samples from practice pages, if there are any."""
    task_balance: Share = 1.0
    """0: every task has the same share of the training. 1: shares follow `task_floor` and the tasks' failure rates."""
    task_floor: Positive = 0.15
    """With `task_balance` 1, a task's weight is this plus its failure rate. A task that never fails keeps about an
    eighth of the weight of a task that always fails, so that the policy does not forget it."""
    grounding_share: Share = 0.15
    """Share of a task's training on the screens of its failed trajectories, which teach positions of elements but not
    the choice of actions. Most of the training stays with steps to imitate."""
    perception: Share = 0.0
    """With `sft` and `rft`: share of perception samples (`annotate.perception`), if there are any."""
    video: Share = 0.0
    """With `sft` and `rft`: share of questions about recordings (`video.questions`), if there are any. For models that
    take video: Qwen2.5-VL, Qwen3-VL and Qwen3.5 (docs/video.md)."""
    general: Share = 0.0
    """With `sft` and `rft`: share of general questions (`general.samples`), against forgetting (docs/general.md)."""
    lora: LoraConfig = LoraConfig()
    experts: ExpertsConfig = ExpertsConfig()
    memory: MemoryConfig = MemoryConfig()
    ct_every: Whole = 0
    """With `sft`: number of iterations from one continual training to the next; 0 for never. Continual training comes
    before the supervised training of every iteration whose number is a multiple of this, except iteration 0."""
    ct: ContinualConfig = ContinualConfig()
    group: GroupConfig = GroupConfig()
    ppo: PpoConfig = PpoConfig()
    preference: PreferenceConfig = PreferenceConfig()
    opd: DistillConfig = DistillConfig()
    pretrain: PretrainConfig = PretrainConfig()
    stream: StreamConfig = StreamConfig()

    @property
    def first(self) -> int:
        """Optimiser steps of the small policy's first training."""
        if self.steps_first is not None:
            return self.steps_first
        return _FIRST if self.steps == type(self).model_fields["steps"].default else self.steps

    @model_validator(mode="after")
    def _fits_its_method(self) -> "TrainConfig":
        _check_shares(self)
        if ratio := _RATIOS.get(self.method.lower()):
            raise ValueError(f"method is {self.method!r}: set method to grpo, and group.ratio to {ratio}")
        names = _methods().names if "method" in self.model_fields_set else (self.method,)
        if self.method not in names and ":" not in self.method:
            raise ValueError(f"method is {self.method!r}: one of {', '.join(names)}, or a dotted path")
        if self.options:
            _methods().instance_of(self.method).settings(self)
        if self.stream.on and not _methods().instance_of(self.method).streams:
            raise ValueError(f"stream.on needs a method that streams, such as grpo or ppo, not {self.method}")
        if self.ct_every and (self.in_groups or _methods().instance_of(self.method).source != "accepted"):
            raise ValueError(f"ct_every is {self.ct_every}, and continual training does not come before {self.method}")
        return self

    @model_validator(mode="after")
    def _require_launch_keys(self) -> "TrainConfig":
        machines = self.machines
        if self.launch == "torchrun" and not machines.hosts:
            raise ValueError("launch is torchrun: name the machines in machines.hosts")
        if self.launch == "command" and "{node}" not in machines.command:
            raise ValueError("launch is command: machines.command has to hold {node}, the command that it starts")
        if machines.store and self.profile:
            raise ValueError(
                f"profile is {self.profile}, and with machines.store traces stay on their machines: take 0"
            )
        if self.stream.on and self.group.recompute:
            raise ValueError(
                "group.recompute is set, and with stream.on several versions of the weights write replies: take one"
            )
        if self.launch != "local" and self.stream.on:
            raise ValueError(f"stream.on is set: it trains on this machine, and launch is {self.launch}")
        return self

    @model_validator(mode="after")
    def _fits_its_memory(self) -> "TrainConfig":
        if self.keep == "masters+moments" and self.lora.rank:
            raise ValueError("keep is masters+moments, and the moments of adapters end with them: take masters")
        if self.keep == "masters+moments" and self.memory.freeze_vision:
            raise ValueError("keep is masters+moments, and a frozen vision tower has no moments: take masters")
        if self.memory.frozen == "nf4" and not self.lora.rank:
            raise ValueError("memory.frozen is nf4, and weights in 4 bits are not trained: set lora.rank")
        if self.memory.frozen != "float32" and not (self.lora.rank or self.memory.freeze_vision):
            raise ValueError("memory.frozen is bfloat16 and nothing is frozen: set lora.rank or memory.freeze_vision")
        if self.memory.freeze_vision and self.lora.rank and self.lora.vision:
            raise ValueError("memory.freeze_vision is set, and lora.vision trains the vision tower: take one")
        if self.memory.offload and self.lora.rank:
            raise ValueError("memory.offload is set, and adapters have little to offload: take memory.frozen=bfloat16")
        if self.experts.parallel and (self.replicas > 1 or self.memory.offload):
            raise ValueError(
                "experts.parallel is set, and with replicas or memory.offload experts stay together: take one"
            )
        if self.memory.offload and self.device == "cpu":
            raise ValueError("memory.offload is set and device is cpu: there is nowhere else to hold weights")
        return self

    @property
    def in_groups(self) -> bool:
        """Whether the method needs several trajectories of the same task and seed."""
        return _methods().instance_of(self.method).in_groups


def _methods() -> Registry[Any]:
    return seam("learning.algorithms.method:METHODS")
