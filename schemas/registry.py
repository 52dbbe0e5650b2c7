"""Registries of the parts that a config names: built-in ones by name, yours by a dotted path
(`my_package.part:MyPart`).

One registry per kind of part, in the module of the part's abstract class. The built-in parts are registered by dotted
paths as well, so only parts that a config names are imported, and your parts are found in the same way as ours.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from importlib import import_module
from traceback import walk_tb
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from schemas.failure import FlywheelError, UsageError
from schemas.problem import explain

T = TypeVar("T")
S = TypeVar("S", bound=BaseModel)


class Registry(Generic[T]):
    """Parts of one kind.

    Args:
        key: the config key that names a part, for messages.
        base: the class that every part is an instance or a subclass of.
        built_in: dotted paths by name.
    """

    def __init__(self, key: str, base: type[T], built_in: Mapping[str, str]) -> None:
        self.key, self.names = key, tuple(built_in)
        self._base, self._paths = base, dict(built_in)

    def class_of(self, name: str, key: str = "") -> type[T]:
        """Imports the class of this name or dotted path.

        Args:
            name: the text in the config.
            key: its config key, where there is one per part.

        Raises:
            UsageError: there is none, or it is no subclass of the base; names the key and the known parts.
        """
        key = key or self.key
        found = self._found(name, key)
        if not (isinstance(found, type) and issubclass(found, self._base)):
            raise UsageError(f"`{key}`: {name} is no subclass of {self._base.__module__}.{self._base.__name__}.")
        return found

    def instance_of(self, name: str) -> T:
        """Imports the object of this name or dotted path; raises UsageError as `class_of` does."""
        found = self._found(name, self.key)
        if not isinstance(found, self._base):
            raise UsageError(f"`{self.key}`: {name} is no {self._base.__module__}.{self._base.__name__}.")
        return found

    def read(self, section: Any) -> dict[str, Any]:
        """Reads the options of each part that a section of the config names; raises UsageError as `options` does."""
        return self.options(getattr(section, self.key.rpartition(".")[2]), section.options)

    def options(self, names: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Reads the options of each named part by its class's `section`; their key is next to the key that names parts.

        Args:
            names: the texts in the config.
            given: each part's own keys, by its name.

        Raises:
            UsageError: an unknown part, an unknown option, or options of a part that is not named.
        """
        key = f"{self.key.rpartition('.')[0]}.options"
        for name in given.keys() - set(names):
            hint = f"It names {', '.join(names)}." if names else f"Name it in `{self.key}`, or leave its options out."
            raise UsageError(f"`{key}.{name}`: `{self.key}` does not name it.", hint)
        parts: dict[str, Any] = {name: self.class_of(name) for name in names}
        return {name: options_of(part.section, given.get(name, {}), f"{key}.{name}") for name, part in parts.items()}

    def require(self, names: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> None:
        """Checks the requirements of each named part (its class's `require`).

        Raises FlywheelError for a missing one, and UsageError as `options` does.
        """
        for name, options in self.options(names, given).items():
            part: Any = self.class_of(name)
            part.require(options)

    def _found(self, name: str, key: str) -> object:
        module, colon, attribute = self._paths.get(name, name).partition(":")
        hint = f"One of {', '.join(self.names)}, or a dotted path such as `my_package.my_module:MyPart`."
        if not (module and colon and attribute):
            raise UsageError(f"`{key}`: there is no {name!r}.", hint)
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise UsageError(f"`{key}`: {name} cannot be imported: {error}{_place(error, module)}.", hint) from error
        except FlywheelError:
            raise
        except Exception as error:
            if name in self._paths:
                raise
            reason = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
            problem = f"`{key}`: {name} cannot be imported: {reason}{_place(error, module)}."
            raise UsageError(problem, "Correct that, or name another.") from error


def _place(error: Exception, module: str) -> str:
    """Finds file and line of the module's package where an import failed, in brackets; empty if it failed before."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    package = module.partition(".")[0]
    frames = [(frame, line) for frame, line in walk_tb(error.__traceback__) if frame.f_globals is not globals()]
    own = [at for at in frames if str(at[0].f_globals.get("__name__")).partition(".")[0] == package]
    return f" ({own[-1][0].f_code.co_filename}, line {own[-1][1]})" if own else ""


def options_of(section: type[S], given: Mapping[str, Any], key: str) -> S:
    """Reads a part's own section of the config from the keys given under the config key `key`.

    Raises:
        UsageError: an unknown key or a value of the wrong kind; names it with its place in the config.
    """
    try:
        return section.model_validate(dict(given))
    except ValidationError as error:
        found = explain(error, section, key)
        raise UsageError(found[0].upper() + found[1:]) from error


def seam(path: str) -> Any:
    """Imports the registry or function at `package.module:name`, for the config, which imports nothing above it."""
    module, _, name = path.partition(":")
    return reduce(getattr, name.split("."), import_module(module))
