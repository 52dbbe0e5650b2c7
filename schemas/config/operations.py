"""Define the sections of operation: budget, cluster, machines, traces, lineage, triggers and trackers."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from schemas.config.section import Count, PartsSection, Positive, ReadIf, Section, Share, Whole
from schemas.failure import UsageError

Launch = Literal["local", "torchrun", "command"]


class ClusterConfig(Section):
    """Distribution of an iteration's rollouts, judgements, thoughts and readings over machines."""

    read_if = (ReadIf("cluster.kind", ("ray",)),)

    kind: Literal["local", "ray"] = "local"
    """`local`: this machine. `ray`: the machines of a Ray cluster, each with a part of the trajectories (`pip install
    'flywheel[ray]'`)."""
    address: str = ""
    """`ray://HOST:10001`, or `HOST:6379` if this machine is part of the cluster. Empty starts Ray on this machine."""
    parts: Count = 8
    """Number of parts of an iteration's trajectories. A few more parts than machines keep waiting short."""
    cpus: Positive = 1.0
    """CPUs that Ray reserves for a part."""
    retries: Whole = 3
    """Restarts of a part whose machine dies."""


class MachinesConfig(Section):
    """Training on several machines (docs/machines.md); used if `train.launch` is `torchrun` or `command`."""

    read_if = (
        ReadIf("train.launch", ("torchrun",), ("hosts", "reach")),
        ReadIf("train.launch", ("command",), ("command", "cancel", "nodes")),
        ReadIf("train.launch", ("torchrun", "command"), ("python", "least", "join_s", "store")),
    )

    hosts: tuple[str, ...] = ()
    """With `train.launch=torchrun`: the machines; `localhost` is this machine."""
    reach: str = "ssh -o BatchMode=yes -o ConnectTimeout=10 {host}"
    """With `train.launch=torchrun`: program that runs a command on another machine. The command is added as its last
    argument."""
    command: str = ""
    """With `train.launch=command`: command that starts `{node}` once on each of `{nodes}` machines and lasts until all
    have ended, such as `srun`, `ray job submit` or `kubectl`. A shell runs it. Its placeholders are {node}, {python},
    {name}, {nodes}, {least}, {processes}, {board} and {log}."""
    cancel: str = ""
    """With `train.launch=command`: command that ends the job if ending the first command does not: `scancel --name
    {name}`."""
    nodes: Count = 1
    """With `train.launch=command`: number of machines. With `torchrun` it is the number of hosts."""
    python: str = ""
    """Python interpreter on these machines, with this code. If not set, this interpreter's path."""
    least: Count | None = None
    """Minimum number of machines that a training continues with after it lost a machine. If not set, training waits for
    all."""
    join_s: Positive = 30.0
    """Seconds to wait for a missing machine, once there are `least`."""
    store: str = ""
    """`s3://bucket/prefix` for the job, its checkpoints and its result, if the machines share no folder. If empty, the
    work folder (FLYWHEEL_HOME) has them, and all machines must share this folder under one path."""

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
    """Replaces placeholders such as `{node}` in a template. Other braces stay, because shells use braces too."""
    for name, value in blanks.items():
        template = template.replace(f"{{{name}}}", value)
    return template


class BudgetConfig(Section):
    """Limits of a lake's total cost. A run ends at the next boundary between two stages once a limit is reached."""

    steps: Count | None = None
    """Sandbox steps of collection, corrections and evaluation."""
    hours: Positive | None = None
    """Hours of the stages' work."""
    tokens: Count | None = None
    """Tokens that policies write, plus the tokens that servers report for thinkers, judges, proposers and teachers."""
    money: Positive | None = None
    """Cost at the prices below, in their currency."""
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
    """OpenTelemetry traces: a span per run, which holds a span per stage with the stage's numbers."""

    read_if = (ReadIf("traces.to", ("otlp",), ("endpoint",)),)

    to: Literal["none", "file", "otlp"] = "none"
    """`file`: traces.jsonl in the work folder. `otlp`: a collector at `endpoint`. Both need the extra `traces`."""
    endpoint: Annotated[str, Field(pattern=r"^https?://[^/ ]+")] = "http://localhost:4318/v1/traces"
    """Address of the collector, OTLP over HTTP. Its headers come from OTEL_EXPORTER_OTLP_HEADERS."""


class OpenLineageConfig(Section):
    """OpenLineage events at the start and end of every stage and retraining."""

    read_if = (ReadIf("openlineage.to"),)

    to: Annotated[str, Field(pattern=r"^(https?://.+|[^:]*)$")] = ""
    """A file, to which each event is added as a line of JSON. Or an address (`http://` or `https://`) to which events
    are posted, such as `http://marquez:5000/api/v1/lineage`. Empty for no events."""
    namespace: str = "flywheel"
    """Namespace of the jobs. Data sets are named by their location: `s3://BUCKET` and `PREFIX/tables/steps`, or `file`
    and the path."""
    key_variable: str = "OPENLINEAGE_API_KEY"
    """Environment variable with the API key of the address; no key is sent if the variable is not set."""
    timeout_s: Positive = 5.0
    """Maximum seconds for the delivery of an event. If a delivery takes longer, the event and all events of the next
    minute are lost, and the loss is reported once. A run waits for deliveries only at its end, and at most this
    long."""


class TriggersConfig(Section):
    """Thresholds, since the last training, for a retraining by the deployment `watch` (`flywheel schedule on
    watch`)."""

    steps: Whole = 2000
    """New accepted steps that start a retraining; 0 for never."""
    decisions: Whole = 20
    """New decisions of reviewers that start a retraining; 0 for never."""
    success_drop: Share = 0.1
    """Drop of the policy's success that starts a retraining; 0 for never. The drop is measured between the two newest
    iterations, over the same tasks, and must be beyond chance (95 %)."""


class TrackingConfig(PartsSection):
    """Trackers of training. The lake's table `training_steps` always has the same numbers (docs/tracking.md)."""

    parts = "learning.tracking:TRACKERS.read"

    trackers: tuple[str, ...] = ()
    """`tensorboard`, `wandb`, `mlflow` (each needs the extra of the same name), or `my_package.my_tracker:MyTracker`.
    Keys and passwords come from the environment."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Keys of each tracker, under its name: `tracking.options.wandb.project`."""
