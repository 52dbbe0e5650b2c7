"""Define the config: immutable sections of typed keys, without unknown keys.

Every number that shapes a run is a key of the config, with its unit.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from schemas.config.curating import (
    AnnotateConfig,
    FilterConfig,
    GeneralConfig,
    JudgeConfig,
    ReflectConfig,
    SynthesisConfig,
    ThinkConfig,
    VideoConfig,
)
from schemas.config.operations import (
    BudgetConfig,
    ClusterConfig,
    OpenLineageConfig,
    TracesConfig,
    TrackingConfig,
    TriggersConfig,
)
from schemas.config.policy import PolicyConfig
from schemas.config.profiles import read_toml
from schemas.config.section import Count, Positive, ReadIf, Section, Share, Whole, is_section, refuse_credentials
from schemas.config.training import TrainConfig
from schemas.failure import UsageError
from schemas.registry import options_of, seam


class LakeConfig(Section):
    """Location and upkeep of the lake."""

    uri: Annotated[str, Field(min_length=1)] = "lake"
    """Location of the lake: a folder, or `s3://bucket/prefix`."""
    endpoint: str | None = None
    """S3 endpoint of a store other than AWS. Credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
    region: str = "us-east-1"
    """Region of the bucket, for a lake on S3."""
    patience_s: Annotated[float, Field(ge=0.0)] = 600.0
    """Seconds that a run waits for an unreachable object store before the run ends; 0 for no wait. A command that
    cannot reach the store at its start ends at once."""
    keep_hours: Positive = 72.0
    """Hours that upkeep keeps a file that no table's latest version needs, rounded up to whole hours. Table versions
    that a policy was made from are always kept. Set it longer than the longest training, because the versions of a
    training are kept only after its end. A file without a commit is kept for at least an hour, because its commit may
    follow."""
    cache_mb: Whole = 4096
    """For a lake on S3: size in MB of the tables' cache in the work folder; 0 for none. Queries read all other data
    from S3."""
    min_free_mb: Whole = 500
    """Minimum free space in MB on the disks of the lake and of the work folder; with less, a run is refused."""


class EnvironmentConfig(Section):
    """One environment of the suite: `[environments.NAME]`. Each kind of environment has further keys."""

    kind: str = ""
    """Built-in environment, or `package.module:Environment`. If not set, the section's name."""
    optional: bool = False
    """Skip the environment and its tasks on a machine that lacks its requirements, and report that. If false, the run
    is refused."""
    start_timeout_s: Positive = 20.0
    """Maximum seconds that a sandbox may take to start a task; a slower sandbox is given up."""
    step_timeout_s: Positive = 20.0
    """Maximum seconds that a sandbox may take for an action, a screenshot or a verification; a slower sandbox is
    given up."""
    lease_s: Positive = 1800.0
    """Seconds without a call after which a leased sandbox is taken back. Set it longer than the policy needs for a
    reply."""


def _environment(name: str, given: Any) -> EnvironmentConfig:
    """Reads the section of an environment as its kind does; raises UsageError."""
    key = f"environments.{name}"
    if isinstance(given, EnvironmentConfig):
        return given.model_copy(update={"kind": given.kind or name})
    if not is_section(given) or not name or "/" in name:
        raise UsageError(
            f"`{key}` is not a section of an environment.", "Write, for example, environments.miniwob.pages=2."
        )
    fields = {"kind": name, **given}
    if not isinstance(fields["kind"], str):
        problem = f"`{key}.kind`: {fields['kind']!r} is not the name of an environment."
        raise UsageError(problem, f"Write, for example, {key}.kind=miniwob.")
    kind = seam("environments.registry:ENVIRONMENTS").class_of(fields["kind"], f"{key}.kind")
    return options_of(kind.section, fields, key)


class SuiteConfig(Section):
    """Tasks of a run. A task has the name of its template, or `environment/template` if several environments have such
    a template."""

    tasks: tuple[str, ...]
    """Tasks that are rolled out and evaluated: templates of any configured environment, such as `click-test`."""
    hard: tuple[str, ...] = ()
    """Tasks of the suite that the explorer solves in under 10 % of its trajectories. `benchmarks.wheel` reports them
    separately; a run treats them as any other task."""
    held_out: tuple[str, ...] = ()
    """Tasks that are evaluated and never rolled out for data."""
    practice: tuple[str, ...] = ()
    """Pages that the explorer visits for their screens, to train reading and pointing; never evaluated."""
    max_steps: dict[str, Count] = {}  # noqa: RUF012  (pydantic copies it)
    """Step limits by task that replace the catalog's."""


WEIGHING = (
    "floor", "most_shown", "saturated", "hopeless_below", "saturated_above", "shown_rate", "hopeless_share",
)  # fmt: skip
"""Keys of `curriculum` that divide single trajectories by success."""


class CurriculumConfig(Section):
    """Distribution of trajectories over the tasks."""

    read_if = (ReadIf("curriculum.method", ("learnable",), WEIGHING),)

    method: Literal["learnable", "uniform"] = "learnable"
    """`learnable`: tasks that sometimes succeed get the most trajectories. `uniform`: every task gets the same
    number."""
    forgetting: Share = 0.5
    """Factor by which an iteration's success counts are multiplied at each later iteration."""
    floor: Share = 0.25
    """Share of the trajectories that is spread evenly over all tasks."""
    most_shown: Positive = 3.0
    """Maximum weight of a task that the explorer has to demonstrate. A task that the policy solves in half of its
    trajectories weighs 1. A higher value favours tasks that are hardly ever solved; a lower value favours tasks that
    the policy can learn by itself."""
    saturated: Positive = 0.1
    """Weight of a task that the policy always solves. A higher value detects forgetting sooner; a lower value leaves
    more trajectories for tasks that can still be learned."""
    hopeless_below: Share = 0.05
    """A task is hopeless while the posterior mean of the policy's success is at most this. The policy then succeeds in
    at most about one of twenty trajectories, so the explorer demonstrates the task."""
    saturated_above: Share = 0.95
    """A task is saturated while the posterior mean of the policy's success is at least this. At most about one of
    twenty trajectories then fails, so trajectories add little information."""
    shown_rate: Positive = 0.3
    """Success rate of the explorer at which a task for the explorer weighs 1. The weight rises as the rate falls, so
    that a success costs about the same in every task. The explorer's mean over the default suite is 0.33."""
    hopeless_share: Share = 0.25
    """In hopeless and unseen tasks, the policy and the relay get this fraction of their usual share of the
    trajectories. It is enough to detect the policy's first successes while the explorer demonstrates the task. In other
    tasks they get more of it, by the policy's success relative to the explorer's, and all from equal success on."""

    @model_validator(mode="after")
    def _require_ordered_limits(self) -> "CurriculumConfig":
        if self.hopeless_below >= self.saturated_above:
            raise ValueError(
                f"hopeless_below is {self.hopeless_below}, not below saturated_above, {self.saturated_above}: "
                "a task would be both"
            )
        return self


class CollectConfig(Section):
    """Collection of trajectories."""

    trajectories_per_task: Count = 80
    """Mean number of trajectories per task and iteration; the curriculum distributes them over the tasks."""
    practice_trajectories: Whole = 40
    """Trajectories per practice page and iteration."""
    policy_share: Share = 0.5
    """Maximum share of the trajectories that the policy makes alone (`curriculum.hopeless_share`): in every iteration
    if `policy.base` is a given model, else from iteration 1 on, after a training."""
    relay_share: Share = 0.0
    """Share of the trajectories that the policy starts and the explorer continues from the state reached."""
    explorer: str = "page"
    """Explorer: `page`, which clicks, types and drags at random among the page's elements; `scripted`, which plays the
    environment's script of a task, and is `page` for tasks without one; or a dotted path to a
    `models.policy.Explorer`."""
    temperature: Positive = 1.0
    """Sampling temperature of the policy in collection."""
    chunk: Count = 64
    """Finished trajectories per write to the lake."""

    @model_validator(mode="after")
    def _require_shares(self) -> "CollectConfig":
        if self.policy_share + self.relay_share > 1:
            raise ValueError(
                f"policy_share {self.policy_share:g} and relay_share {self.relay_share:g} are more than 1 together; "
                "lower one of them"
            )
        return self


class EvaluateConfig(Section):
    """Evaluation of a candidate."""

    seeds: Count = 15
    """Held-out seeds per task of the suite, the same for every policy, so that comparisons are paired."""
    held_out_seeds: Whole = 5
    """Seeds per held-out task."""
    untrained_seeds: Count = 5
    """Seeds per task for the first policy, given or untrained, which is evaluated once per lake."""
    explorer_seeds: Count = 15
    """Seeds per task for the explorer, which is evaluated once per lake."""
    keep_failures: Share = 1.0
    """Share of the trajectories without a success whose steps and screenshots are kept, for people to look at. Training
    never reads them. With 0 here and for `keep_successes`, evaluations keep their outcomes alone."""
    keep_successes: Share = 1.0
    """The same for successes. The share is drawn by task and seed, so that all policies keep the same seeds."""


ErrorRate = Annotated[float, Field(ge=1e-6, lt=0.5)]


class PromoteConfig(Section):
    """Promotion of a candidate to champion."""

    tolerance: Share = 0.03
    """A candidate counts as not worse if its success is at most this much below the champion's on the same seeds. A
    rejected candidate's training is lost; 225 paired trajectories distinguish differences of about 0.04 from chance."""
    resolution: Positive = 0.05
    """Half the distance between the test's two hypotheses: a difference of -tolerance - resolution, at which a
    candidate should be rejected, and -tolerance + resolution, at which it should be promoted. A reproduction has to
    win: its hypotheses are 0 and twice this value."""
    alpha: ErrorRate = 0.05
    """Probability that a candidate at the first hypothesis of `resolution` passes the test. It does not bound
    promotions of undecided tests."""
    beta: ErrorRate = 0.05
    """Probability that the test rejects a candidate at the second hypothesis of `resolution`."""
    look_seeds: Count = 5
    """Seeds per task between two interim looks of the test. Evaluation stops at the look that decides."""
    complete: bool = True
    """Evaluate a promoted policy on all of `evaluate.seeds`, even if the test decided earlier. Later candidates are
    compared with these results, the curriculum reads them, and the curves show them."""
    undecided: Literal["tolerance", "bounded", "hold"] = "tolerance"
    """Decision on a candidate if the test is undecided after all seeds. `tolerance`: promote it if it is at most
    `tolerance` below the champion, so that the next training starts from it; the decision states the risk. `bounded`:
    promote it only if its difference is also, beyond chance, above -tolerance - resolution. `alpha` then bounds every
    promotion. Use `bounded` for suites of about 200 pairs or more; with few pairs it holds even equal candidates.
    `hold`: hold the candidate. `docs/promotion.md` has the simulated rates."""
    unparsable: Share = 0.5
    """A candidate is broken if more than this share of its trajectories ends in a reply without an action, and its
    share exceeds the champion's."""
    step_s: Positive | None = None
    """Maximum seconds per reply, as the mean over steps; a slower candidate is broken. No limit if not set."""
    same_screens: Literal["hold", "ignore"] = "hold"
    """`hold`: hold a candidate whose successes on a held-out task end on the screens of a trained task: at least half
    of their distinct last screens are near-identical (at most 8 of 512 hash bits differ). Both may be the same task
    under two names. `ignore`: for suites where different tasks end on the same screen, such as one page of thanks."""

    @model_validator(mode="after")
    def _differences_are_below_one(self) -> "PromoteConfig":
        if (lowest := self.tolerance + self.resolution) >= 1:
            problem = f"tolerance + resolution is {lowest:g}, and success differs by less than 1"
            raise ValueError(f"{problem}: they are shares, such as 0.03 and 0.05")
        return self


class QualityConfig(Section):
    """Quality gate."""

    keep_docs: Count = 3
    """Number of iterations whose Data Docs are kept."""
    drift_above: Annotated[float, Field(ge=0)] = 0.25
    """Population stability index above which an iteration is reported as different from earlier iterations. Values
    within chance are never reported."""
    drift_window: Count = 5
    """Number of earlier iterations to compare with."""


class RenderConfig(Section):
    """Rendering of pages for pretraining (`flywheel pretrain render`, docs/pretrain.md)."""

    pages: Count = 4000
    """Pages for training; each has two to seven screens."""
    held_back: Count = 200
    """Pages for validation, and pages for tests."""
    batch: Count = 128
    """Pages per write to the lake. A killed rendering repeats at most one batch."""
    browsers: Count = 2
    """Number of browsers that render at the same time. More than the machine's cores do not help."""
    suite_seeds: Whole = 2
    """Seeds per task of the suites with which the pages are compared at the end; 0 for no comparison."""


class DeskConfig(Section):
    """Review desk."""

    host: str = "127.0.0.1"
    """Address that the desk listens on. On any other address than the loopback address, the desk asks every client for
    a token."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8750
    """Port of the desk; 0 for any free port."""
    token_variable: str = "FLYWHEEL_DESK_TOKEN"
    """Environment variable with the token."""
    page_size: Annotated[int, Field(ge=1, le=200)] = 20
    """Trajectories per page of the queue."""
    idle_s: Positive = 900.0
    """Seconds without a decision after which a live session ends and frees its sandbox."""
    speech: str = "pocketsphinx"
    """Speech recognizer for recorded thoughts: `pocketsphinx` (offline, English; the extra `speech`), or a dotted path
    to an `apps.desk.speech.Recognizer`."""


class Config(Section):
    """All settings of a run. The resolved config is saved with every result of the run."""

    name: str = "laptop"
    """Name of this config in reports and in Prefect."""
    seed: Whole = 0
    """Seed of all randomness: trajectory seeds, sampling and training. Two lakes made with the same config and seed
    agree."""
    iterations: Count = 4
    """Number of iterations of `flywheel run`, unless its command line sets a number."""
    lake: LakeConfig = LakeConfig()
    environments: dict[str, SerializeAsAny[EnvironmentConfig]] = Field({"miniwob": {}}, validate_default=True)
    """Environments in which policies act. Each environment has a section with its own keys. MiniWoB++ if not set."""
    suite: SuiteConfig
    synthesis: SynthesisConfig = SynthesisConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    collect: CollectConfig = CollectConfig()
    policy: PolicyConfig = PolicyConfig()
    train: TrainConfig = TrainConfig()
    tracking: TrackingConfig = TrackingConfig()
    filter: FilterConfig = FilterConfig()
    judge: JudgeConfig = JudgeConfig()
    annotate: AnnotateConfig = AnnotateConfig()
    video: VideoConfig = VideoConfig()
    general: GeneralConfig = GeneralConfig()
    reflect: ReflectConfig = ReflectConfig()
    think: ThinkConfig = ThinkConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    promote: PromoteConfig = PromoteConfig()
    quality: QualityConfig = QualityConfig()
    pretrain: RenderConfig = RenderConfig()
    openlineage: OpenLineageConfig = OpenLineageConfig()
    budget: BudgetConfig = BudgetConfig()
    cluster: ClusterConfig = ClusterConfig()
    triggers: TriggersConfig = TriggersConfig()
    desk: DeskConfig = DeskConfig()
    traces: TracesConfig = TracesConfig()

    @model_validator(mode="before")
    @classmethod
    def _from_file(cls, value: Any) -> Any:
        """Accepts the name of a config file in place of the config, for deployments."""
        return read_toml(Path(value)) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits_together(self) -> "Config":
        refuse_credentials(self)
        if self.reflect.on and not seam("learning.algorithms.method:METHODS").instance_of(self.train.method).corrects:
            raise UsageError(
                f"`reflect.on`: method {self.train.method} learns from no correction.", "Take sft, rft or dpo."
            )
        if self.cluster.kind != "local" and self.train.stream.on:
            raise UsageError(
                "`cluster.kind`: streamed training and its rollouts run on one machine.",
                "Set `train.stream.on=false`, or `cluster.kind=local`.",
            )
        server = self.policy.server
        if server.command and self.cluster.kind != "local":
            raise UsageError(
                "`policy.server.command`: machines of a cluster share one server, and each would start its own.",
                "Start it yourself and set `policy.server.url`, or set `cluster.kind=local`.",
            )
        if server.while_training != "run" and self.train.stream.on:
            raise UsageError(
                f"`policy.server.while_training` is {server.while_training}: streamed training rolls out meanwhile.",
                "Set it to run, or `train.stream.on=false`.",
            )
        return self

    @field_validator("environments", mode="before")
    @classmethod
    def _of_their_kinds(cls, value: Any) -> Any:
        """Reads each environment's section as its kind does."""
        if not is_section(value) or not value:
            raise UsageError("`environments` names no environment.", "Write, for example, [environments.miniwob].")
        return {name: _environment(name, given) for name, given in value.items()}

    @property
    def temperature(self) -> float:
        """Returns the sampling temperature of data collection: the temperature of groups if the method collects
        groups."""
        return self.train.group.temperature if self.train.in_groups else self.collect.temperature

    def canonical(self) -> str:
        """Writes the resolved config as JSON."""
        return self.model_dump_json()
