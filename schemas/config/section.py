"""Define the base class of the config's sections, and refuse addresses with credentials."""

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
    """Condition of keys: a run reads them only if another key has certain values."""

    key: str
    """The other key, dotted from the top of the config."""
    values: tuple[object, ...] = ()
    """Values of the other key with which the keys are read; if empty, all values except false, empty and none."""
    keys: tuple[str, ...] = ()
    """The keys; if empty, all keys of the section except the other key."""
    refused: bool = True
    """Whether a run refuses unused keys. If false, a run only lists them, because another command reads them."""

    def holds(self, value: object) -> bool:
        """Checks whether the keys are read with this value of the other key."""
        return value in self.values if self.values else bool(value) and value != "none"


class Section(BaseModel):
    """A section of the config. Unknown keys are refused."""

    read_if: ClassVar[tuple[ReadIf, ...]] = ()
    """Conditions of keys (`tasks.preflight.unused_keys`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _read_none(cls, given: Any) -> Any:
        """Read the text `none` as null for keys that accept null but no text, because TOML has no null."""
        if not is_section(given):
            return given
        return {name: None if value == "none" and _may_lack(cls, name) else value for name, value in given.items()}


def changed_keys(section: Section, default: Section, among: Iterable[str]) -> list[str]:
    """Lists the dotted keys whose values differ from `default`, at or below the keys of `among`, in their order."""
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
        """Refuse unknown parts and options. Default values are valid, and are not checked."""
        if self.model_fields_set:
            seam(self.parts)(self)
        return self


def _may_lack(section: type[BaseModel], name: str) -> bool:
    """Checks whether a key accepts None but no text."""
    field = section.model_fields.get(name)
    kinds = get_args(field.annotation) if field is not None else ()
    return type(None) in kinds and not any(kind is str or get_origin(kind) is Literal for kind in kinds)


_ADDRESS = re.compile(r"(?:([a-z][a-z0-9+.-]*):)?//([^/?#\s]*)([^\s]*)", re.IGNORECASE)
_BARE = ("uri", "url", "endpoint", "address", "to")
"""Keys whose values are always addresses, also without `scheme://`."""
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
"""Environment variables with the credentials of sections that have no `key_variable`."""


def refuse_credentials(config: BaseModel) -> None:
    """Checks every text of a config for addresses with credentials.

    Raises:
        UsageError: an address has a user with a password, or a parameter with the name of a secret. The message has the
            config key and the environment variable to use, and not the address.
    """
    for section, name, text, variable in _texts("", config):
        key = f"{section}.{name}" if section else name
        if (found := _credentials(name, text)) is not None:
            raise UsageError(
                f"`{key}`: the address holds {found}, and the config is kept with every policy and printed.",
                f"Take it out, and set {variable} in the environment." if variable else "Take it out.",
            )


def _texts(section: str, value: Any, variable: str | None = None) -> Iterator[tuple[str, str, str, str | None]]:
    """Yields the section, name, text and credentials' environment variable of every text in a section."""
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
    """Describes the secret part of an address; None if the address has no secret."""
    bare = f"//{text}" if name in _BARE and "//" not in text and not text.startswith("/") else text
    for scheme, host, rest in _ADDRESS.findall(bare):
        user, at, _ = host.rpartition("@")
        if at and (":" in user or scheme.lower() in ("http", "https")):
            return "a user's name or password"
        if secret := _SECRET.search(rest):
            return f"the parameter `{secret.group(1)}`"
    return None
