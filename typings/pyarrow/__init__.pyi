"""The part of Arrow that the contracts use; of everything else no types are known."""

from collections.abc import Iterator
from typing import Any

class DataType: ...

class Field:
    name: str
    type: DataType
    nullable: bool

class Schema:
    names: list[str]
    metadata: dict[bytes, bytes] | None
    def __iter__(self) -> Iterator[Field]: ...
    def field(self, name: str) -> Field: ...
    def empty_table(self) -> Any: ...
    def __arrow_c_schema__(self) -> object: ...

def __getattr__(name: str) -> Any: ...
