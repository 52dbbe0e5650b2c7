"""Write OpenTelemetry traces: a span for every run, and inside it a span for every stage.

Prefect installs OpenTelemetry's interface, and the extra `traces` installs the exporters. If a program has configured
its own tracer, the spans go to this tracer.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opentelemetry import trace

from schemas.config import Config
from schemas.failure import FlywheelError

MODULES = {"file": "opentelemetry.sdk.trace.export", "otlp": "opentelemetry.exporter.otlp.proto.http.trace_exporter"}
"""Modules of the exporters, by `traces.to`."""
FILE = "traces.jsonl"
_set_up: list[str] = []


def require_traces(config: Config) -> str:
    """Return the destination of traces. Raise FlywheelError if traces are configured and a package is missing."""
    chosen = config.traces
    if chosen.to == "none":
        return "none: `traces.to` is not set"
    try:
        importlib.import_module(MODULES[chosen.to])
    except ImportError as error:
        raise FlywheelError(
            f"`traces.to={chosen.to}`: OpenTelemetry's SDK is not installed.",
            "Install the extra: pip install 'flywheel[traces]'; or set `traces.to` to none.",
        ) from error
    return chosen.endpoint if chosen.to == "otlp" else f"{FILE} in the work folder"


def set_up(config: Config, folder: Path) -> None:
    """Send the spans of this process to the configured destination, if there is one. Do this once per process.

    Args:
        config: config with the section `traces`.
        folder: folder for the file of spans, which has one JSON object per line.

    Raises:
        FlywheelError: the extra is missing.
    """
    if config.traces.to == "none" or _set_up:
        return
    require_traces(config)
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider(resource=Resource.create({"service.name": "flywheel"}))
    provider.add_span_processor(_processor(config, folder))
    trace.set_tracer_provider(provider)
    _set_up.append(config.traces.to)


def _processor(config: Config, folder: Path) -> Any:
    from opentelemetry.sdk.trace import export

    if config.traces.to == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return export.BatchSpanProcessor(OTLPSpanExporter(endpoint=config.traces.endpoint))
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / FILE).open("a")
    return export.SimpleSpanProcessor(
        export.ConsoleSpanExporter(out=file, formatter=lambda one: one.to_json(indent=None) + "\n")
    )


@contextmanager
def span(name: str, about: Mapping[str, Any]) -> Iterator[trace.Span]:
    """Open a span inside the current span, and record an exception in it. Without an exporter this takes
    microseconds."""
    with trace.get_tracer("flywheel").start_as_current_span(name) as made:
        note(made, about)
        yield made


def note(made: trace.Span, about: Mapping[str, Any]) -> None:
    """Add the numbers and texts of a mapping to a span, as `flywheel.KEY`. Nested values are left out."""
    for key, value in about.items():
        if isinstance(value, str | int | float):
            made.set_attribute(f"flywheel.{key}", value)
