"""The `train` section of the config: one section for each training method, and the settings they share."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from schemas.config.operations import Launch, MachinesConfig
from schemas.config.section import Count, Positive, ReadIf, Section, Share, Whole
from schemas.registry import Registry, seam


class MemoryConfig(Section):
    """Memory of a training (docs/memory.md); not for the small policy. `flywheel plan` chooses these."""

    frozen: Literal["float32", "bfloat16", "nf4"] = "float32"
    """Precision of weights that are not trained, 4 bytes or 2 each: the base of adapters, and a frozen vision tower.
    They compute in `train.precision`. `nf4` is for training adapters (QLoRA): linear layers in the language model's
    blocks are rounded to 4 bits, 0.56 bytes, everything else is in bfloat16; the policy that is written has the rounded
    weights with the adapters in them."""
    freeze_vision: bool = False
    """Whether the vision tower, its merger included, stays as it is: it then has no gradients, moments and kept
    activations."""
    offload: bool = False
    """Whether the fp32 weights, their gradients and moments lie in the machine's memory, and the optimiser steps there;
    the GPU holds only the copies that it computes with. For a GPU, and without adapters."""
    whole_gradients: bool = False
    """Whether each process keeps the whole gradient of a step that is taken in several micro-batches, 4 bytes a trained
    weight, and shares it out after the last one instead of after each."""
    moments: Literal["float32", "8bit"] = "float32"
    """Precision of AdamW's two moments of a trained weight, 4 bytes each or 1; with `8bit` steps are rounded, so the
    result differs a little. The next training loads kept moments if it holds them in the same precision."""
    logits_chunk: Count | None = None
    """Targets whose logits are computed at a time; with more targets logits are computed again in the backward pass,
    chunk by chunk. If not set, the logits of all targets of a micro-batch are held together."""


class ExpertsConfig(Section):
    """Training of a mixture of experts (Qwen3-VL-30B-A3B and the like); not for other models."""

    parallel: bool = False
    """Whether each process holds whole experts, a share of every layer's, and is sent the tokens that ask them (expert
    parallelism), instead of gathering all of a layer's weights. The number of experts is a multiple of the processes',
    and `train.replicas` is 1."""
    balance: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the auxiliary loss that spreads tokens over experts (Switch, arXiv 2101.03961, as `transformers`
    computes it), here the mean over documents and layers, so that it does not depend on the sharing of the work. Qwen's
    `router_aux_loss_coef` is 0.001."""


class RateSection(Section):
    """Settings of every method."""

    learning_rate: Positive | None = None
    """If not set, the method's own for the optimiser of the model: the small policy's is Muon, any other's AdamW."""


class StepSection(RateSection):
    """Settings of a method that takes a number of steps."""

    steps: Count = 300
    """Optimiser steps."""


class EpochSection(RateSection):
    """Settings of a method that goes over its samples a number of times."""

    epochs: Positive = 1.0
    """How often each sample is trained on."""
    batch: Count = 32
    """Samples per optimiser step over all processes."""


class PreferenceConfig(EpochSection):
    """`train.method=dpo`: of two replies to one context the one that led to success is preferred."""

    beta: Positive = 0.1
    """How much a nat of log ratio to the parent counts (the paper prints none)."""


class ClippedConfig(EpochSection):
    """Settings of every training on rewards: PPO's clipped loss over the replies' tokens."""

    overlong: Whole = 0
    """Replies within this many tokens of `policy.max_new_tokens` are punished softly; 0 for never. Pass@k forms of
    `train.group.advantage` have no such penalty."""
    clip_low: Share = 0.2
    """A token's probability may fall by at most this share in one training before its loss stops pulling."""
    clip_high: Positive = 0.28
    """It may rise by at most this share."""
    dual_clip: Annotated[float, Field(gt=1.0)] | None = None
    """The loss of a token that is to become rarer is at most this many times its advantage, however much likelier it
    has become meanwhile (dual clip, arXiv 1912.09729; verl's is 3). No bound if not set."""
    kl: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the KL divergence from the policy before this training (with a stream, before this batch), by token
    (DART-GUI's is 0.1); 0 for none, as in DAPO."""
    most_weight: Positive = 1.0
    """Cap of the importance weight of a token that was drawn by other probabilities than the trainer's."""
    most_mismatch: Positive | None = 1.0
    """Before an update: the mean difference, in nats, between the trainer's log probabilities of the drawn tokens and
    the behaviour log probabilities, above which training stops; with a stream over the tokens of age 0. `none`: no
    limit. A served model of the same weights is within 0.02, and training warns above 0.1."""
    epochs: Positive = 2.0
    """How often each step of the trajectories is trained on."""
    batch: Count = 64
    """Steps per optimiser step over all processes."""


class GroupConfig(ClippedConfig):
    """Trajectories of the same task and seed, for `rft`, `grpo`, `ppo` and `dpo`; how `grpo` compares their rewards."""

    read_if = (ReadIf("train.stream.on", (False,), ("refill",)),)

    groups: Count = 32
    """Groups per iteration; the curriculum shares them out over the tasks that can be learned from."""
    size: Annotated[int, Field(ge=2)] = 8
    """Trajectories per group."""
    temperature: Positive = 1.0
    """Temperature of the trajectories in groups. The small policy spreads places over neighbouring coordinates, so at 1
    many failures are misses that greedy trajectories do not have; below 1 groups show the errors of greedy ones."""
    highest: Share = 0.75
    """Tasks are rolled out in groups while the policy succeeds in more than 0 and at most this share of its
    trajectories."""
    advantage: Literal["pass1", "passk", "full", "bootstrap", "combined", "adaptive", "exceeding"] = "pass1"
    """`pass1`: GRPO. The others are forms of Pass@k training: `passk` is the analytic one."""
    ratio: Literal["token", "sequence"] = "token"
    """Unit of clipping. `token`: each token's ratio to the policy before this training, mean over all tokens.
    `sequence`: the geometric mean of a reply's (GSPO, arXiv 2507.18071), mean over replies; GSPO's clips are 3e-4 and
    4e-4, DART-GUI's 0.1 and 0.28."""
    entropy_share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Share of the steps that is trained on: those whose replies were drawn with the most entropy (DART-GUI's is 0.8),
    estimated by the drawn tokens' mean -log p, so of like states the rarer reply is kept. 1: all."""
    refill: Whole = 0
    """While fewer than `groups` groups can teach, further ones are rolled out, so many times at most (DAPO's dynamic
    sampling); with a stream groups fill batches anyway."""
    k: Count = 4
    """Pass@k rewards one success among this many trajectories; less than `size` where `advantage` is `passk` or
    `full`."""
    spread: Share = 0.0
    """A group whose best reward lies less than this above its mean is left out; 0: only one whose rewards are equal."""
    rise: Share = 1.0
    """A task whose success rose by more than this in the last iteration counts less: it is learned anyway. 1: none."""
    rising: Share = 0.5
    """Factor of such a task's weight. Seed1.5-VL samples them "less often" and prints no number; half leaves room to
    notice that the rise has ended."""
    inject: bool = False
    """Show an all-failed group one stored success of the explorer or of a relay."""

    @model_validator(mode="after")
    def _fits(self) -> "GroupConfig":
        if self.k > self.size:
            raise ValueError(f"k is {self.k}, more than the {self.size} trajectories of a group")
        if self.k == self.size and self.advantage in ("passk", "full"):
            raise ValueError(
                f"k is {self.k}, all trajectories of a group: {self.advantage} then compares nothing; take more"
            )
        if self.overlong and self.advantage != "pass1":
            raise ValueError(f"the penalty needs advantage pass1: {self.advantage} is for rewards of 0 and 1")
        return self


class PpoConfig(ClippedConfig):
    """`train.method=ppo`: trajectories of groups, each judged by a critic instead of by the others of its group."""

    critic: Literal["shared", "alone"] = "alone"
    """`alone`: a network of its own, begun as a copy of the policy. `shared`: a value head on the policy's own body,
    which costs half as much and learns little while the body must not move."""
    gamma: Share = 1.0
    """Discount per token of the policy."""
    policy_lambda: Literal["length"] | Share = "length"
    """The policy's lambda; `length`: 1 - 1 / (alpha l), at least 0, with l the policy's tokens of the whole
    trajectory."""
    alpha: Positive = 0.05
    """UI-TARS-2's and VAPO's, for trajectories of hundreds of tokens: below 1 / alpha tokens lambda is 0."""
    critic_lambda: Share = 1.0
    """1: the critic learns the return itself."""
    whiten: bool = True
    """Advantages get mean 0 and standard deviation 1 over the tokens of the iteration."""
    value_steps: Whole = 100
    """Before the policy moves, at most so many optimiser steps of the critic alone; 0 for none."""
    value_settled: Share = 0.01
    """They end when three passes in a row raised the explained variance of trajectories left out by no more than
    this."""
    value_weight: Positive = 0.5
    """Weight of the value loss relative to the policy's."""
    value_clip: Annotated[float, Field(ge=0.0)] = 0.2
    """How far a value may move in one training before its loss stops pulling; 0 for any way."""
    positive: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the supervised loss on the trajectories that succeeded; VAPO's is 0.1."""
    no_action: Share = 0.1
    """Subtracted from the reward of a reply that holds no action."""
    step_cost: Share = 0.0
    """Subtracted from the reward of every reply, against trajectories without an end."""
    critic_learning_rate: Positive | None = None
    """Learning rate of the value head, or of a separate critic's network. If not set: 1e-3; 1e-5 for the network of a
    separate critic of another model than the small policy."""


class LoraConfig(Section):
    """Training of small adapters on frozen weights (LoRA, arXiv 2106.09685), by peft; not for the small policy.

    The checkpoint that is written has the adapters merged into the weights: a plain directory, as every other. They are
    in its folder `adapter` by themselves, too, for servers that take adapters.
    """

    read_if = (ReadIf("train.lora.rank"),)

    rank: Whole = 0
    """Inner width of an adapter; 0 for none: then all weights are trained."""
    alpha: Positive = 32.0
    """An adapter's product is scaled by alpha / rank."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """The last part of the names of the linear layers that get one."""
    vision: bool = False
    """Whether layers of the vision tower get one too: Qwen2.5-VL's has layers of the same names. Servers that load
    adapters leave those out."""


class StreamConfig(Section):
    """Training while collecting goes on, for `train.method=grpo` and `ppo`: the trainer takes finished groups, the
    others go on."""

    read_if = (ReadIf("train.stream.on"),)

    on: bool = False
    """Whether collecting and training run at the same time; else an iteration first rolls out all its groups."""
    groups: Count = 8
    """Finished groups that can teach make one batch; after each batch collecting goes on with the new weights."""
    stale: Whole = 4
    """A step that was chosen by weights more than so many batches old is left out. It also bounds how far collecting
    runs ahead: at most `stale` + 1 batches' worth of groups are being rolled out or waiting. 0: collecting waits for
    every training, as a synchronous loop does."""


class ContinualConfig(StepSection):
    """Continual training (CT) on failures: on their screens and actions, or on the failed trajectories themselves."""

    read_if = (ReadIf("annotate.perception", keys=("perception",)),)

    steps: Count = 150
    """Optimiser steps."""
    form: Literal["relabelled", "trajectories"] = "relabelled"
    """`relabelled`: labels from screens and actions of failed trajectories, whatever their goal: positions of elements,
    elements at positions, actions between two screens, changes. `trajectories`: their own steps as targets, as
    UI-TARS-2's flywheel has it (D_CT are the trajectories that a verifier turned away); the supervised training after
    it has to correct that."""
    perception: Share = 0.0
    """Share of the samples that is perception data (`annotate.perception`) of any trajectory; 1: nothing else."""


Keep = Literal["nothing", "masters", "masters+moments"]


class TrainConfig(StepSection):
    """Training of the policy."""

    read_if = (ReadIf("annotate.perception", keys=("perception",)),)

    method: str = "sft"
    """`sft`: imitate successes. `ct`: learn from screens and actions of failed trajectories, without imitating them.
    `rft`: roll out groups as `grpo` does, and imitate their successes together with all earlier ones. `grpo`: compare
    the rewards of trajectories of the same task and seed. `ppo`: compare them with a critic's expectation, token by
    token. `dpo`: prefer the success to the failure where two such trajectories part. Or the dotted path of one that is
    yours: `my_package.my_method:METHOD` (docs/extend.md)."""
    options: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    """Settings of a method of your own."""
    steps_first: Count = 520
    """Optimiser steps of the small policy's first training, from nothing; any other model begins trained."""
    batch: Count = 16
    """Samples per optimiser step over all processes."""
    learning_rate_first: Positive | None = None
    """Learning rate of the small policy's first training. If not set: the method's own, else as in other trainings."""
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.05
    """Decoupled from the gradient, as in AdamW."""
    warmup: Whole = 15
    """Steps until the learning rate is reached."""
    decay: Share = 0.5
    """The last share of the steps, over which the learning rate falls."""
    shape: Literal["straight", "cosine"] = "straight"
    """How it falls there."""
    floor: Share = 0.05
    """Share of itself to which it falls."""
    clip: Positive = 1.0
    """Norm to which a longer gradient is cut."""
    launch: Launch = "local"
    """How the processes start. `local`: on this machine. `torchrun`: by torchrun on each of `train.machines.hosts`.
    `command`: by `train.machines.command`, for Slurm, Ray or Kubernetes (docs/machines.md)."""
    machines: MachinesConfig = MachinesConfig()
    restarts: Whole = 2
    """How often a training that hangs, or a process of which dies, is started again from its last checkpoint."""
    hung_s: Annotated[float, Field(ge=1.0)] = 60.0
    """A training hangs where no step ends for so long and for ten times the longest step so far, or where a process
    sends no heartbeat for so long."""
    processes: Count | Literal["auto"] = "auto"
    """Processes of one machine that train together. `auto`: one per GPU that is found there, or two where no GPU is
    used; never more than there are GPUs. Where torchrun was started by hand its own numbers count instead."""
    threads: Count = 1
    """Processor threads of each training process."""
    balance: bool = True
    """Share a batch out over the processes by the cost of its samples (OrchMLLM), instead of by their order."""
    sequence_plans: bool = True
    """Let several processes share a sample that is longer than `token_cap`, in groups of mixed size (FlexSP); where
    there is no `token_cap`, or the processes are not a power of two, nothing is shared. Not for the small policy."""
    token_cap: Count | None = None
    """The most tokens a process holds at once; a larger batch is taken in micro-batches. Not for the small policy."""
    replicas: Count = 1
    """Rows of processes, neighbours each, that hold the weights each and share them out within (HSDP): with as many as
    there are machines, weights are gathered within one, and gradients alone go between them, once a step. 1: all
    processes share one copy. Not for the small policy."""
    compiled: bool = False
    """Compile each block (`torch.compile`): the first steps take minutes, the others less time. Not for the small
    policy."""
    activation_checkpointing: bool = False
    """Compute activations twice instead of keeping them: slower, less memory. Not for the small policy."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number type of forward and backward passes; weights, gradients' sums and moments are fp32. `auto`: bfloat16 on a
    GPU, float32 on a CPU, where bfloat16 is faster only if the processor has instructions for it. Not for the small
    policy."""
    checkpoint_every: Whole = 100
    """Steps from one checkpoint of an unfinished training to the next, from which a killed one goes on; 0 for none."""
    keep: Keep = "masters"
    """Training state that is kept with a policy, for its next training to load. `masters`: the weights in fp32, 4 bytes
    per weight in addition to the 2 of the policy itself. `masters+moments`: the optimiser's moments too, 12 bytes with
    AdamW, 8 for the small policy's matrices. `nothing`: the next training begins from rounded weights, and loses steps
    that were shorter than the rounding."""
    keep_policies: Whole = 3
    """Number of newest policies that, with the champion, keep the data of `keep`; after a promotion the others lose it.
    A training that begins from one of those begins from its rounded weights."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of trainings, one process per GPU; the small policy always on the CPU."""
    profile: Whole = 0
    """Number of steps near the start of a training that are profiled: a trace for each process, in `profiles/POLICY`
    next to the lake's checkpoints; 0 for none."""
    grounding: Whole = 4
    """Grounding questions (a name, where is it?) answered per sample, about the same screenshot."""
    reading: Whole = 0
    """Reading questions (a place, which element is there?) answered per sample, about the same screenshot."""
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
    task_floor: Positive = 0.15
    """With `task_balance` 1 the weight of a task is this plus its failure rate: one that never fails keeps about an
    eighth of the weight of one that always fails, so that it is not forgotten."""
    grounding_share: Share = 0.15
    """The part of a task's training that goes to screens of its failed trajectories, which teach positions of elements
    but not the choice of actions; most stays with steps to imitate."""
    perception: Share = 0.0
    """With `sft` and `rft`: share of the samples that is perception data (`annotate.perception`), where there is
    any."""
    lora: LoraConfig = LoraConfig()
    experts: ExpertsConfig = ExpertsConfig()
    memory: MemoryConfig = MemoryConfig()
    ct_every: Whole = 0
    """With `sft`: in every iteration whose number is a multiple of this, continual training comes before the supervised
    one; never in iteration 0. 0 for never."""
    ct: ContinualConfig = ContinualConfig()
    group: GroupConfig = GroupConfig()
    ppo: PpoConfig = PpoConfig()
    preference: PreferenceConfig = PreferenceConfig()
    stream: StreamConfig = StreamConfig()

    @model_validator(mode="after")
    def _fits_its_method(self) -> "TrainConfig":
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
    def _launches(self) -> "TrainConfig":
        machines = self.machines
        if self.launch == "torchrun" and not machines.hosts:
            raise ValueError("launch is torchrun: name the machines in machines.hosts")
        if self.launch == "command" and "{node}" not in machines.command:
            raise ValueError("launch is command: machines.command has to hold {node}, the command that it starts")
        if machines.store and self.profile:
            raise ValueError(
                f"profile is {self.profile}, and with machines.store traces stay on their machines: take 0"
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
