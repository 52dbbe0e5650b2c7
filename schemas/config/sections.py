"""The config: frozen, typed and closed. Every number that shapes a run is a field here, with its unit."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from schemas.config.curating import (
    AnnotateConfig,
    FilterConfig,
    JudgeConfig,
    ReflectConfig,
    SynthesisConfig,
    ThinkConfig,
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
    """Location of the data."""

    uri: Annotated[str, Field(min_length=1)] = "lake"
    """A folder, or `s3://bucket/prefix`."""
    endpoint: str | None = None
    """S3 endpoint, if it is not the cloud's own; credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
    region: str = "us-east-1"
    """Region of the bucket, where the lake is on S3."""
    patience_s: Annotated[float, Field(ge=0.0)] = 600.0
    """How long a run that is under way waits for an object store that does not answer, before it ends; 0: not at all.
    A command that does not reach it at its start ends at once."""
    keep_hours: Positive = 72.0
    """Upkeep removes files that no table's latest version needs after so long, except those of versions that a policy
    was made from. Longer than the longest training: its versions are known as pinned when it ends. In whole hours,
    rounded up; an uncommitted file stays at least an hour, as its commit may be about to come."""
    cache_mb: Whole = 4096
    """Of a lake on S3: size of the tables' cache on this machine, in the work folder; 0: none. Further data of a query
    is read from S3."""
    min_free_mb: Whole = 500
    """A run is refused when the lake's or the work folder's disk has less than this left."""


class EnvironmentConfig(Section):
    """One environment of the suite: `[environments.NAME]`. Each kind has further keys of its own."""

    kind: str = ""
    """A built-in environment, or `package.module:Environment`; the section's name if not set."""
    optional: bool = False
    """Whether a machine that lacks its requirements leaves it out with its tasks, and the run reports that; false
    refuses."""
    start_timeout_s: Positive = 20.0
    """A sandbox that takes longer to bring a task up is given up."""
    step_timeout_s: Positive = 20.0
    """A sandbox that takes longer to act, to show itself or to be verified is given up."""
    lease_s: Positive = 1800.0
    """A sandbox that is leased and not called for so long is taken back: longer than a policy ever thinks."""


def _environment(name: str, given: Any) -> EnvironmentConfig:
    """Reads the section of an environment as its kind does; raises UsageError."""
    key = f"environments.{name}"
    if isinstance(given, EnvironmentConfig):
        return given.model_copy(update={"kind": given.kind or name})
    if not is_section(given) or not name or "/" in name:
        raise UsageError(
            f"`{key}` is no section of an environment.", "Write, for example, environments.miniwob.pages=2."
        )
    fields = {"kind": name, **given}
    kind = seam("environments.registry:ENVIRONMENTS").class_of(fields["kind"], f"{key}.kind")
    return options_of(kind.section, fields, key)


class SuiteConfig(Section):
    """Tasks that are rolled out for data, and tasks that are only measured. A task is named by its template, or as
    `environment/template` where several environments have one of that name."""

    tasks: tuple[str, ...]
    """Tasks that are rolled out and measured: templates of any configured environment, such as `click-test`."""
    hard: tuple[str, ...] = ()
    """Tasks of the suite in which the explorer succeeds in under 10 %: `benchmarks.wheel` reports them apart, a run
    takes them as any other."""
    held_out: tuple[str, ...] = ()
    """Tasks that are evaluated and never rolled out for data."""
    practice: tuple[str, ...] = ()
    """Pages that the explorer visits for their screens, which teach to read and to point; never evaluated."""
    max_steps: dict[str, Count] = {}  # noqa: RUF012  (pydantic copies it)
    """Step limits that differ from the catalog's."""


WEIGHING = (
    "floor", "most_shown", "saturated", "hopeless_below", "saturated_above", "shown_rate", "hopeless_share",
)  # fmt: skip
"""Keys of `curriculum` that divide single trajectories by success."""


class CurriculumConfig(Section):
    """Distribution of the next trajectories over the tasks."""

    read_if = (ReadIf("curriculum.method", ("learnable",), WEIGHING),)

    method: Literal["learnable", "uniform"] = "learnable"
    """`learnable`: most for tasks that succeed sometimes; `uniform`: the same for every task."""
    forgetting: Share = 0.5
    """Weight of an iteration's counts one iteration later."""
    floor: Share = 0.25
    """The share that is spread evenly over all tasks whatever was learned."""
    most_shown: Positive = 3.0
    """Maximum weight of a task that the explorer has to show; one that the policy solves every second time weighs 1.
    More reaches for tasks that are hardly ever solved, less stays with those that the policy can learn by itself."""
    saturated: Positive = 0.1
    """Weight of a task that the policy always solves. More notices forgetting sooner, less leaves more trajectories for
    tasks that can still be learned."""
    hopeless_below: Share = 0.05
    """A task counts as hopeless while the posterior mean of the policy's success is at most this: of twenty of its own
    trajectories not one would teach, so the explorer has to show it."""
    saturated_above: Share = 0.95
    """A task counts as saturated from this posterior mean on: of twenty trajectories not one fails, so none adds
    information."""
    shown_rate: Positive = 0.3
    """A task that has to be shown weighs 1 where the explorer succeeds in this share of the trajectories, and more the
    rarer that is, so that a success costs every task about as much. The explorer's mean over the default suite is
    0.33."""
    hopeless_share: Share = 0.25
    """In hopeless and unseen tasks the policy and the relay get this part of their usual share of the trajectories:
    enough to notice when the policy begins to succeed, while the explorer shows how."""

    @model_validator(mode="after")
    def _apart(self) -> "CurriculumConfig":
        if self.hopeless_below >= self.saturated_above:
            raise ValueError(
                f"hopeless_below is {self.hopeless_below}, not below saturated_above, {self.saturated_above}: "
                "a task would be both"
            )
        return self


class CollectConfig(Section):
    """Production of trajectories."""

    trajectories_per_task: Count = 80
    """Mean over the suite; the curriculum moves them between tasks."""
    practice_trajectories: Whole = 40
    """Per practice page and iteration."""
    policy_share: Share = 0.5
    """Share of trajectories that the policy makes alone, once there is a trained one."""
    relay_share: Share = 0.0
    """Share that the policy begins and the explorer goes on with from the state reached."""
    explorer: str = "page"
    """The explorer: `page`, which clicks, types and drags at random among the page's elements, or a dotted path to a
    `models.policy.Explorer`."""
    temperature: Positive = 1.0
    """Temperature at which the policy samples its replies for data."""
    chunk: Count = 64
    """Finished trajectories per write to the lake."""

    @model_validator(mode="after")
    def _whole(self) -> "CollectConfig":
        if self.policy_share + self.relay_share > 1:
            raise ValueError(
                f"policy_share {self.policy_share:g} and relay_share {self.relay_share:g} are more than 1 together; "
                "lower one of them"
            )
        return self


class EvaluateConfig(Section):
    """Measurement of a candidate."""

    seeds: Count = 15
    """Held-out seeds per task of the suite; the same for every policy, so that comparisons are paired."""
    held_out_seeds: Whole = 5
    """Seeds per held-out task."""
    untrained_seeds: Count = 5
    """Seeds per task on which the untrained policy is measured, once per lake."""
    explorer_seeds: Count = 15
    """Seeds per task on which the explorer is measured, once per lake."""


ErrorRate = Annotated[float, Field(ge=1e-6, lt=0.5)]


class PromoteConfig(Section):
    """Promotion of a candidate to champion."""

    tolerance: Share = 0.03
    """The candidate may be this much below the champion on the same seeds and still be called not worse. A candidate
    that is kept out takes its training with it; 225 paired trajectories distinguish differences of about 0.04 from
    chance."""
    resolution: Positive = 0.05
    """Resolution of the test: it distinguishes a difference of -tolerance - resolution, at which the candidate is to be
    turned away, from one of -tolerance + resolution, at which it is to be promoted. A reproduction has to win: 0 from
    twice this."""
    alpha: ErrorRate = 0.05
    """How often the test may promote a candidate at the first of the two."""
    beta: ErrorRate = 0.05
    """How often the test may reject a candidate at the second."""
    look_seeds: Count = 5
    """Seeds per task between two interim looks of the test, which stops measuring where it is decided."""
    complete: bool = True
    """Measure a promoted policy on all of `evaluate.seeds` though the decision fell earlier: the next candidates are
    compared with it, the curriculum reads it, and the curves quote it."""
    undecided: Literal["tolerance", "bounded", "hold"] = "tolerance"
    """Decision on an iteration's candidate that the test has not decided at the last seed. `tolerance`: promoted if it
    is at most `tolerance` below, so that the next training starts from it (at a risk that the decision states).
    `bounded`: only if it is beyond chance no worse than -tolerance - resolution, too, so that `alpha` bounds every
    promotion; for suites of some 200 pairs or more: with few even an equal candidate is held, and with one to five
    tasks, where policies seldom differ, 0.056 to 0.093 of those that are worse by that much are promoted at an `alpha`
    of 0.05, the more the smaller `look_seeds` is. `hold`: held (with five tasks 0.021 to 0.065 are promoted there)."""
    unparsable: Share = 0.5
    """A candidate is broken if more than this share of its trajectories, and more than of the champion's, ends in a
    reply that holds no action."""
    step_s: Positive | None = None
    """A candidate that takes longer to reply, in the mean over its steps, is broken; no limit if not set."""
    same_screens: Literal["hold", "ignore"] = "hold"
    """A candidate that solves a held-out task on the very screens of a trained one is held, for they may be one task
    under two names; `ignore` where different tasks end alike, such as on one page of thanks."""

    @model_validator(mode="after")
    def _differences_are_below_one(self) -> "PromoteConfig":
        if (lowest := self.tolerance + self.resolution) >= 1:
            problem = f"tolerance + resolution is {lowest:g}, and success differs by less than 1"
            raise ValueError(f"{problem}: they are shares, such as 0.03 and 0.05")
        return self


class QualityConfig(Section):
    """The quality gate."""

    keep_docs: Count = 3
    """Number of iterations whose Data Docs are kept."""
    drift_above: Annotated[float, Field(ge=0)] = 0.25
    """The population stability index above which an iteration is reported as unlike earlier ones; values within chance
    are never reported."""
    drift_window: Count = 5
    """Number of earlier iterations that it is compared with."""


class DeskConfig(Section):
    """The review desk."""

    host: str = "127.0.0.1"
    """Address of the desk. Elsewhere than on this machine it asks every client for a token."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8750
    """Port of the desk; 0 takes any that is free."""
    token_variable: str = "FLYWHEEL_DESK_TOKEN"
    """The environment variable that holds the token."""
    page_size: Annotated[int, Field(ge=1, le=200)] = 20
    """Trajectories on a page of the queue."""
    idle_s: Positive = 900.0
    """A live session without a decision for so long ends, and its sandbox is free again."""
    speech: str = "pocketsphinx"
    """Recognizer of recorded thoughts: `pocketsphinx` (offline, English; the extra `speech`), or a dotted path to an
    `apps.desk.speech.Recognizer`."""


class Config(Section):
    """All settings of a run; saved resolved with everything that the run makes."""

    name: str = "laptop"
    """Name of this config, in reports and on Prefect's pages."""
    seed: Whole = 0
    """Seed of all randomness: seeds of trajectories, sampling, the training. Two lakes of one config agree."""
    iterations: Count = 4
    """How many iterations `flywheel run` runs unless asked otherwise."""
    lake: LakeConfig = LakeConfig()
    environments: dict[str, SerializeAsAny[EnvironmentConfig]] = Field({"miniwob": {}}, validate_default=True)
    """Environments in which agents act: each section is one, with keys of its own; MiniWoB++ if there is none."""
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
    reflect: ReflectConfig = ReflectConfig()
    think: ThinkConfig = ThinkConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    promote: PromoteConfig = PromoteConfig()
    quality: QualityConfig = QualityConfig()
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
        """Returns the temperature of the policy's trajectories for data: of groups where the method collects those."""
        return self.train.group.temperature if self.train.in_groups else self.collect.temperature

    def canonical(self) -> str:
        """Writes the resolved config as JSON."""
        return self.model_dump_json()
