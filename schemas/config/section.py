"""Base class of every section of the config."""

from typing import Annotated, Any, Literal, TypeGuard, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, model_validator

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0.0)]


def is_section(value: object) -> TypeGuard[dict[str, Any]]:
    """Checks whether the value at a key is a table of keys and values."""
    return isinstance(value, dict)


class Section(BaseModel):
    """A part of the config; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_none(cls, given: Any) -> Any:
        """Read `none` as no value where a key takes a number or nothing: TOML has no word for that."""
        if not is_section(given):
            return given
        return {name: None if value == "none" and _may_lack(cls, name) else value for name, value in given.items()}


def _may_lack(section: type[BaseModel], name: str) -> bool:
    """Checks whether a key takes None and no text."""
    field = section.model_fields.get(name)
    kinds = get_args(field.annotation) if field is not None else ()
    return type(None) in kinds and not any(kind is str or get_origin(kind) is Literal for kind in kinds)
