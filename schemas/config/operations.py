"""The sections of a flywheel in operation: budget, cluster, machines, traces, lineage, triggers, trackers."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from schemas.config.section import Count, PartsSection, Positive, ReadIf, Section, Share, Whole
from schemas.failure import UsageError

Launch = Literal["local", "torchrun", "command"]


class ClusterConfig(Section):
    """Distribution of an iteration's rollouts, judgements, thoughts and readings over machines."""

    read_if = (ReadIf("cluster.kind", ("ray",)),)

    kind: Literal["local", "ray"] = "local"
    """`ray`: the machines of a Ray cluster, a part of the trajectories each (`pip install 'flywheel[ray]'`)."""
    address: str = ""
    """`ray://HOST:10001`, or `HOST:6379` where this machine is of the cluster; empty starts Ray on this machine."""
    parts: Count = 8
    """Number of parts of an iteration's trajectories; some more than machines, so that none waits long."""
    cpus: Positive = 1.0
    """Processors that Ray keeps for a part."""
    retries: Whole = 3
    """How often a part is restarted if its machine dies."""


class MachinesConfig(Section):
    """Trainings on several machines (docs/machines.md); read where `train.launch` is `torchrun` or `command`."""

    read_if = (
        ReadIf("train.launch", ("torchrun",), ("hosts", "reach")),
        ReadIf("train.launch", ("command",), ("command", "cancel", "nodes")),
        ReadIf("train.launch", ("torchrun", "command"), ("python", "least", "join_s", "store")),
    )

    hosts: tuple[str, ...] = ()
    """With `train.launch=torchrun`: the machines; `localhost` is this one."""
    reach: str = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host}"
    """With `train.launch=torchrun`: program that runs a command on another machine; the command follows as one word."""
    command: str = ""
    """With `train.launch=command`: command that starts `{node}` once on each of `{nodes}` machines and lasts until all
    have ended: `srun`, `ray job submit`, `kubectl`. A shell runs it. It may hold {node}, {python}, {name}, {nodes},
    {least}, {processes}, {board} and {log}."""
    cancel: str = ""
    """With `train.launch=command`: command that ends it if ending the first one does not: `scancel --name {name}`."""
    nodes: Count = 1
    """With `train.launch=command`: number of machines; otherwise that of the hosts."""
    python: str = ""
    """The interpreter on those machines, with this code; if not set, this one's path there too."""
    least: Count | None = None
    """The fewest machines to go on with where one is gone; if not set, all are waited for."""
    join_s: Positive = 30.0
    """How long machines wait for one that is missing, once there are `least`."""
    store: str = ""
    """`s3://bucket/prefix`, if the machines share no folder: the job, its checkpoints and its result go through it.
    Empty: they lie in the work folder (FLYWHEEL_HOME), which then is one that all machines share, under one path."""

    @model_validator(mode="after")
    def _fits(self) -> "MachinesConfig":
        if self.reach.count("{host}") != 1:
            raise ValueError(f"reach is {self.reach!r}, and has to name {{host}} once")
        if self.least is not None and self.least > max(self.nodes, len(self.hosts)):
            raise ValueError(f"least is {self.least}, more than there are machines")
        if self.store and not self.store.startswith("s3://"):
            raise ValueError(f"store is {self.store}: s3://bucket/prefix, or nothing for the work folder")
        return self


def filled(template: str, blanks: dict[str, str]) -> str:
    """Fills in the blanks of a template; other braces stay as they are, for shells have their own."""
    for name, value in blanks.items():
        template = template.replace(f"{{{name}}}", value)
    return template


class BudgetConfig(Section):
    """Limits of a lake's total cost; a run ends at the next boundary between two stages once one of them is spent."""

    steps: Count | None = None
    """Steps that sandboxes take, in collection, corrections and evaluation."""
    hours: Positive | None = None
    """Hours of the stages' work."""
    tokens: Count | None = None
    """Tokens that policies write, and that servers count (`usage`) for thinkers, judges and proposers."""
    money: Positive | None = None
    """Money at the prices below, in their currency."""
    hour_price: Annotated[float, Field(ge=0.0)] = 0.0
    """Price of an hour of stages' work."""
    million_tokens_price: Annotated[float, Field(ge=0.0)] = 0.0
    """Price of a million tokens."""

    @property
    def limits(self) -> dict[str, float]:
        """Returns the limits that are set, by name."""
        named = {"steps": self.steps, "hours": self.hours, "tokens": self.tokens, "money": self.money}
        return {name: value for name, value in named.items() if value is not None}

    @model_validator(mode="after")
    def _has_prices(self) -> "BudgetConfig":
        if self.money is not None and not self.hour_price and not self.million_tokens_price:
            raise UsageError(
                "`budget.money`: nothing has a price.", "Set `budget.hour_price` or `budget.million_tokens_price`."
            )
        return self


class TracesConfig(Section):
    """OpenTelemetry traces: a span for every run, and in it one for every stage, with its numbers."""

    read_if = (ReadIf("traces.to", ("otlp",), ("endpoint",)),)

    to: Literal["none", "file", "otlp"] = "none"
    """`file`: traces.jsonl in the work folder; `otlp`: a collector at `endpoint`. Both need the extra `traces`."""
    endpoint: Annotated[str, Field(pattern=r"^https?://[^/ ]+")] = "http://localhost:4318/v1/traces"
    """Endpoint of the collector, OTLP over HTTP; its headers come from OTEL_EXPORTER_OTLP_HEADERS."""


class OpenLineageConfig(Section):
    """Events in OpenLineage's form, at the begin and end of every stage and retraining."""

    read_if = (ReadIf("openlineage.to"),)

    to: Annotated[str, Field(pattern=r"^(https?://.+|[^:]*)$")] = ""
    """A file that a line of JSON is added to for each event, or the `http://` or `https://` address that they are
    posted to, such as `http://marquez:5000/api/v1/lineage`; nothing is sent if empty."""
    namespace: str = "flywheel"
    """Namespace of the jobs. Data sets are named by their place: `s3://BUCKET` and `PREFIX/tables/steps`, or `file` and
    the path."""
    key_variable: str = "OPENLINEAGE_API_KEY"
    """The environment variable that holds the key of the address; none is sent if it is not set."""
    timeout_s: Positive = 5.0
    """An event whose delivery takes longer is lost, and so are those of the minute that follows; the loss is reported
    once. No run waits for it, but for so long at its very end."""


class TriggersConfig(Section):
    """Thresholds for a retraining that a Prefect server begins by itself, counted since the last training. The
    deployment `watch` checks them; `flywheel schedule on watch` switches it on."""

    steps: Whole = 2000
    """New accepted steps; 0 for never."""
    decisions: Whole = 20
    """New decisions of people; 0 for never."""
    success_drop: Share = 0.1
    """Drop of the policy's success in its newest iteration below the one before, over the same tasks and beyond chance
    (95 %); 0 for never."""


class TrackingConfig(PartsSection):
    """Trackers of trainings; the lake has the same numbers always, in the table `training_steps` (docs/tracking.md)."""

    parts = "learning.tracking.tracker:TRACKERS.read"

    trackers: tuple[str, ...] = ()
    """`tensorboard`, `wandb`, `mlflow` (an extra of the same name each), or `my_package.my_tracker:MyTracker`. Keys and
    passwords come from the environment."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Each tracker's own keys, under its name: `tracking.options.wandb.project`."""
