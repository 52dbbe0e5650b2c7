"""The sections of a wheel that is operated: what it may cost, who shares its work out, who watches it."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.config.section import Count, Positive, Section, Whole
from schemas.failure import UsageError


class ClusterConfig(Section):
    """Who shares out what is rolled out, judged, thought and read of an iteration."""

    kind: Literal["local", "ray"] = "local"
    """`ray`: the machines of a Ray cluster, a part of the trajectories each (`pip install 'flywheel[ray]'`)."""
    address: str = ""
    """`ray://HOST:10001`, or `HOST:6379` where this machine is of the cluster; empty starts Ray on this machine."""
    parts: Count = 8
    """Into how many parts an iteration's trajectories are divided; some more than machines, so that none waits long."""
    cpus: Positive = 1.0
    """Processors that Ray keeps for a part."""
    retries: Whole = 3
    """How often a part is begun anew where the machine dies that had it."""


class BudgetConfig(Section):
    """What a lake may cost in all; a run ends at the next boundary between two stages once one of them is spent."""

    steps: Count | None = None
    """Steps that sandboxes take, in collection, corrections and evaluation."""
    hours: Positive | None = None
    """Of the stages' work."""
    tokens: Count | None = None
    """Tokens that policies write, and that servers count (`usage`) for thinkers, judges and proposers."""
    money: Positive | None = None
    """At the prices below, in whatever they are in."""
    hour_price: Annotated[float, Field(ge=0.0)] = 0.0
    """Of an hour of stages' work."""
    million_tokens_price: Annotated[float, Field(ge=0.0)] = 0.0
    """Of a million tokens."""

    @property
    def limits(self) -> dict[str, float]:
        """Those that are set, by name."""
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

    to: Literal["none", "file", "otlp"] = "none"
    """`file`: traces.jsonl in the work folder; `otlp`: a collector at `endpoint`. Both need the extra `traces`."""
    endpoint: str = "http://localhost:4318/v1/traces"
    """Of the collector, OTLP over HTTP; its headers come from OTEL_EXPORTER_OTLP_HEADERS."""
