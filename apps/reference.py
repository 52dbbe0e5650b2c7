"""Write the reference pages from the code.

`python -m apps.reference` rewrites docs/tables.md, docs/config.md and apps/config_keys.txt, which shells complete.
"""

from collections.abc import Iterator, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from apps import completion
from apps.commented import about
from curation.gates.registry import GATES
from curation.synthesis.maker import MAKERS, REWARDS
from environments.registry import ENVIRONMENTS
from learning.algorithms.method import METHODS
from learning.tracking import TRACKERS
from models.families.registry import FAMILIES
from models.judges.registry import JUDGES
from models.language_model import BACKENDS
from models.policy import EXPLORERS
from models.proposers import PROPOSERS
from models.readers import READERS
from models.serving.updater import UPDATERS
from models.thinkers.thinker import THINKERS
from schemas.config.sections import Config
from schemas.registry import Registry
from schemas.table import SCHEMA_VERSION, Table
from schemas.tables import TABLES

NAMED_BY: tuple[Registry[Any], ...] = (
    METHODS, JUDGES, FAMILIES, BACKENDS, READERS, EXPLORERS, UPDATERS, REWARDS
)  # fmt: skip
"""Registries whose names are the values of one config key."""
DOCS = Path(__file__).parent.parent / "docs"


def tables_page() -> str:
    """Every table: key, partitions, columns, expectations."""
    head = f"# Tables\n\nSchema version {SCHEMA_VERSION}. Written from `schemas/` by `python -m apps.reference`.\n"
    return "\n".join([head, *(_table(table) for table in TABLES.values())])


def config_page() -> str:
    """Every config key with its default; of environments, gates and other parts, the built-in ones'."""
    lines = ["# Configuration keys\n\nWritten from `schemas/config/` by `python -m apps.reference`.\n"]
    lines += _section("", Config)
    for name in ENVIRONMENTS.names:
        lines += _section(f"environments.{name}.", ENVIRONMENTS.class_of(name).section)
    for registry in (GATES, MAKERS, PROPOSERS, THINKERS, TRACKERS):
        key = f"{registry.key.partition('.')[0]}.options."
        for name in registry.names:
            lines += _options(f"{key}{name}.", registry.class_of(name), f"`{name}` of `{registry.key}`")
    for registry, key in ((REWARDS, "synthesis.options.reward."), (JUDGES, "judge.options.")):
        for name in registry.names:
            lines += _options(key, registry.class_of(name), f"`{registry.key}={name}`")
    return "\n".join(lines)


def config_keys() -> str:
    """Every config key, with the values of a key that has a few, for `apps.completion`."""
    keys = dict(_values("", Config))
    for name in ENVIRONMENTS.names:
        keys |= dict(_values(f"environments.{name}.", ENVIRONMENTS.class_of(name).section))
    keys |= {registry.key: list(registry.names) for registry in NAMED_BY}
    return "".join(f"{key} {'|'.join(values)}".rstrip() + "\n" for key, values in sorted(keys.items()))


def _values(prefix: str, section: type[BaseModel]) -> Iterator[tuple[str, Sequence[str]]]:
    for name, field in section.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _values(f"{prefix}{name}.", kind)
        else:
            values = ("true", "false") if kind is bool else get_args(kind) if get_origin(kind) is Literal else ()
            yield f"{prefix}{name}", [str(one) for one in values]


def _options(prefix: str, part: Any, named: str) -> list[str]:
    """The options of a part that the config names; none where it has none."""
    title = f"{prefix.rstrip('.')}, {named}"
    return _section(prefix, part.section, title, part.__doc__ or "") if part.section.model_fields else []


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


def _section(prefix: str, section: type[BaseModel], title: str = "", doc: str = "") -> list[str]:
    lines = [
        f"## {title or prefix.rstrip('.') or 'top level'}\n",
        cleandoc((doc or section.__doc__ or "").partition("\n\n")[0]) + "\n",
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
    """Rewrites the pages and the list of keys."""
    (DOCS / "tables.md").write_text(tables_page())
    (DOCS / "config.md").write_text(config_page())
    completion.KEYS.write_text(config_keys())


if __name__ == "__main__":
    main()
