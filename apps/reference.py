"""Write the reference pages from the code: `python -m apps.reference` rewrites docs/tables.md and docs/config.md."""

from pathlib import Path

from pydantic import BaseModel

from apps.commented import about
from environments.registry import ENVIRONMENTS
from schemas.config.sections import Config
from schemas.table import SCHEMA_VERSION, Table
from schemas.tables import TABLES

DOCS = Path(__file__).parent.parent / "docs"


def tables_page() -> str:
    """Every table: key, partitions, columns, expectations."""
    head = f"# Tables\n\nSchema version {SCHEMA_VERSION}. Written from `schemas/` by `python -m apps.reference`.\n"
    return "\n".join([head, *(_table(table) for table in TABLES.values())])


def config_page() -> str:
    """Every config key with its default; of the environments, the built-in ones'."""
    head = "# Configuration keys\n\nWritten from `schemas/config/` by `python -m apps.reference`.\n"
    parts = [(f"environments.{name}.", ENVIRONMENTS.class_of(name).section) for name in ENVIRONMENTS.names]
    return "\n".join([head, *_section("", Config), *(line for part in parts for line in _section(*part))])


def _table(table: Table) -> str:
    key = ", ".join(f"`{column}`" for column in table.key)
    partitions = ", ".join(f"`{column}`" for column in table.partition_by) or "none"
    doc = (table.row.__doc__ or "").strip().splitlines()[0]
    lines = [
        f"## {table.name}\n",
        f"{doc} Key: {key}. Partitions: {partitions}.\n",
        "| column | type | |",
        "|---|---|---|",
    ]
    for field in table.schema:
        kind = f"{field.type}{' or null' if field.nullable else ''}"
        lines.append(f"| `{field.name}` | {kind} | {about(table.row, field.name)} |")
    lines += ["", "| expectation | on | severity | because |", "|---|---|---|---|"]
    for one in table.expectations:
        columns = ", ".join(f"`{column}`" for column in one.columns)
        lines.append(f"| {one.kind.removeprefix('Expect')} | {columns} | {one.severity} | {one.because} |")
    return "\n".join([*lines, ""])


def _section(prefix: str, section: type[BaseModel]) -> list[str]:
    lines = [
        f"## {prefix.rstrip('.') or 'top level'}\n",
        (section.__doc__ or "").strip() + "\n",
        "| key | default | |",
        "|---|---|---|",
    ]
    inner: list[str] = []
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            inner += _section(f"{prefix}{name}.", field.annotation)
        else:
            default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)!r}`"
            lines.append(f"| `{prefix}{name}` | {default} | {about(section, name)} |")
    return [*lines, "", *inner]


def main() -> None:
    """Rewrites the pages."""
    (DOCS / "tables.md").write_text(tables_page())
    (DOCS / "config.md").write_text(config_page())


if __name__ == "__main__":
    main()
