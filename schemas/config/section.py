"""Base class of every section of the config, and the check of its addresses for credentials."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, TypeGuard, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.failure import UsageError
from schemas.registry import seam

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0.0)]


def is_section(value: object) -> TypeGuard[dict[str, Any]]:
    """Checks whether the value at a key is a table of keys and values."""
    return isinstance(value, dict)


@dataclass(frozen=True, slots=True)
class ReadIf:
    """Keys of a section that are read only while another key has certain values."""

    key: str
    """The other key, dotted from the top of the config."""
    values: tuple[object, ...] = ()
    """Values of the other key under which they are read; if empty, all but none."""
    keys: tuple[str, ...] = ()
    """The keys; if empty, all keys of the section but the other key."""
    refused: bool = True
    """Whether a run refuses the keys, or only names them because another command reads them."""

    def holds(self, value: object) -> bool:
        """Checks whether the keys are read under this value of the other key."""
        return value in self.values if self.values else bool(value) and value != "none"


class Section(BaseModel):
    """A part of the config; unknown keys are refused."""

    read_if: ClassVar[tuple[ReadIf, ...]] = ()
    """Conditions of keys (`tasks.preflight.unused_keys`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _read_none(cls, given: Any) -> Any:
        """Read `none` as no value where a key takes a number or nothing: TOML has no word for that."""
        if not is_section(given):
            return given
        return {name: None if value == "none" and _may_lack(cls, name) else value for name, value in given.items()}


def changed_keys(section: Section, default: Section, among: Iterable[str]) -> list[str]:
    """Lists the dotted keys at or below those of `among` that differ from `default`, in the order of `among`."""
    changed = list(_changed(section, default))
    return [key for one in among for key in changed if f"{key}.".startswith(f"{one}.")]


def _changed(section: Section, default: Section, above: str = "") -> Iterator[str]:
    for key, value in section:
        usual = getattr(default, key)
        if isinstance(value, Section):
            yield from _changed(value, usual, f"{above}{key}.")
        elif value != usual:
            yield f"{above}{key}"


class PartsSection(Section):
    """A section that names parts, such as gates, and has each part's own keys in `options`."""

    parts: ClassVar[str]
    """Reader of the section, as `package.module:name`."""

    @model_validator(mode="after")
    def _read_parts(self) -> Self:
        """Refuse unknown parts and keys; the defaults hold, and are made before parts can be imported."""
        if self.model_fields_set:
            seam(self.parts)(self)
        return self


def _may_lack(section: type[BaseModel], name: str) -> bool:
    """Checks whether a key takes None and no text."""
    field = section.model_fields.get(name)
    kinds = get_args(field.annotation) if field is not None else ()
    return type(None) in kinds and not any(kind is str or get_origin(kind) is Literal for kind in kinds)


_ADDRESS = re.compile(r"(?:([a-z][a-z0-9+.-]*):)?//([^/?#\s]*)([^\s]*)", re.IGNORECASE)
_BARE = ("uri", "url", "endpoint", "address", "to")
"""Keys whose values are addresses even without `scheme://`."""
_SECRET = re.compile(
    r"[?&#;](?:[^=&#;\s]*[-_.])?((?:api|access|secret)?[-_]?key|[^=&#;\s]*(?:token|passwo?r?d|secret|signature|credentials?)"
    r"|pwd|pass|sig|auth|authorization)=[^&#;\s]",
    re.IGNORECASE,
)
_VARIABLES = {
    "lake": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "traces": "OTEL_EXPORTER_OTLP_HEADERS",
    "tracking.options.mlflow": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
}
"""Environment variables of sections that have no `key_variable`."""


def refuse_credentials(config: BaseModel) -> None:
    """Checks every text of a config.

    Raises:
        UsageError: an address holds a user with a password, or a parameter that is named like a key; names the config's
            key and the environment variable to use, and shows nothing of the address.
    """
    for section, name, text, variable in _texts("", config):
        key = f"{section}.{name}" if section else name
        if (found := _credentials(name, text)) is not None:
            raise UsageError(
                f"`{key}`: the address holds {found}, and the config is kept with every policy and printed.",
                f"Take it out, and set {variable} in the environment." if variable else "Take it out.",
            )


def _texts(section: str, value: Any, variable: str | None = None) -> Iterator[tuple[str, str, str, str | None]]:
    """Yields (section, name, text, environment variable of its key) of every text below a section."""
    fields: Mapping[str, Any] = dict(value) if isinstance(value, BaseModel) else value
    own = fields.get("key_variable") or _VARIABLES.get(section)
    if own is None and section.rpartition(".options")[1]:
        own = f"the variable that `{section}.key_variable` names"
    variable = own or variable
    for name, inner in fields.items():
        below = f"{section}.{name}" if section else str(name)
        if isinstance(inner, BaseModel) or is_section(inner):
            yield from _texts(below, inner, variable)
        several = cast(Iterable[Any], inner) if isinstance(inner, list | tuple) else (inner,)
        yield from ((section, str(name), text, variable) for text in several if isinstance(text, str))


def _credentials(name: str, text: str) -> str | None:
    """Describes the secret part of an address; None for an address without one."""
    bare = f"//{text}" if name in _BARE and "//" not in text and not text.startswith("/") else text
    for scheme, host, rest in _ADDRESS.findall(bare):
        user, at, _ = host.rpartition("@")
        if at and (":" in user or scheme.lower() in ("http", "https")):
            return "a user's name or password"
        if secret := _SECRET.search(rest):
            return f"the parameter `{secret.group(1)}`"
    return None
