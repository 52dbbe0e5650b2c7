"""Find the parts that a config names: built-in parts by name, and your parts by dotted path (`my_package.part:MyPart`).

Each kind of part has a registry in the module of its abstract class. The registry has the dotted paths of the built-in
parts, so only parts that a config names are imported.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from importlib import import_module
from traceback import walk_tb
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from schemas.failure import FlywheelError, UsageError
from schemas.problem import explain, fix

T = TypeVar("T")
S = TypeVar("S", bound=BaseModel)


class Registry(Generic[T]):
    """Parts of one kind.

    Args:
        key: the config key that names a part, for messages.
        base: class of which every part is an instance or a subclass.
        built_in: dotted paths of the built-in parts, by name.
    """

    def __init__(self, key: str, base: type[T], built_in: Mapping[str, str]) -> None:
        self.key, self.names = key, tuple(built_in)
        self._base, self._paths = base, dict(built_in)

    def class_of(self, name: str, key: str = "") -> type[T]:
        """Imports the class of this name or dotted path.

        Args:
            name: the text in the config.
            key: config key of the part, if it differs from the registry's key.

        Raises:
            UsageError: the class does not exist, or is not a subclass of the base. The message has the key and the
                known parts.
        """
        key = key or self.key
        found = self._found(name, key)
        if not (isinstance(found, type) and issubclass(found, self._base)):
            raise UsageError(f"`{key}`: {name} is not a subclass of {self._base.__module__}.{self._base.__name__}.")
        return found

    def instance_of(self, name: str) -> T:
        """Imports the object of this name or dotted path. Raises the errors of `class_of`."""
        found = self._found(name, self.key)
        if not isinstance(found, self._base):
            raise UsageError(f"`{self.key}`: {name} is not a {self._base.__module__}.{self._base.__name__}.")
        return found

    def read(self, section: Any) -> dict[str, Any]:
        """Reads the options of each part that a section of the config names. Raises the errors of `options`."""
        return self.options(getattr(section, self.key.rpartition(".")[2]), section.options)

    def options(self, names: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Reads the options of each named part, using the attribute `section` of its class.

        Args:
            names: the parts' names in the config.
            given: options of each part, by its name.

        Raises:
            UsageError: a part or an option is unknown, or a part with options is not named.
        """
        key = f"{self.key.rpartition('.')[0]}.options"
        for name in given.keys() - set(names):
            hint = f"It names {', '.join(names)}." if names else f"Name it in `{self.key}`, or leave its options out."
            raise UsageError(f"`{key}.{name}`: `{self.key}` does not name it.", hint)
        parts: dict[str, Any] = {name: self.class_of(name) for name in names}
        return {name: options_of(part.section, given.get(name, {}), f"{key}.{name}") for name, part in parts.items()}

    def require(self, names: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> None:
        """Checks the requirements of each named part, using `require` of its class.

        Raises:
            FlywheelError: a requirement is missing.
            UsageError: as in `options`.
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
    """Returns the file and line of a failed import in brackets; empty if the failure is outside the module's
    package."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    package = module.partition(".")[0]
    frames = [(frame, line) for frame, line in walk_tb(error.__traceback__) if frame.f_globals is not globals()]
    own = [at for at in frames if str(at[0].f_globals.get("__name__")).partition(".")[0] == package]
    return f" ({own[-1][0].f_code.co_filename}, line {own[-1][1]})" if own else ""


def options_of(section: type[S], given: Mapping[str, Any], key: str) -> S:
    """Reads the options of a part as its section, from the values under a config key.

    Raises:
        UsageError: a key is unknown, or a value has the wrong type. The message has the dotted key.
    """
    try:
        return section.model_validate(dict(given))
    except ValidationError as error:
        found = explain(error, section, key)
        raise UsageError(found[0].upper() + found[1:], fix(error, section, key)) from error


def seam(path: str) -> Any:
    """Imports the object at `package.module:name`. The config must not import these packages directly."""
    module, _, name = path.partition(":")
    return reduce(getattr, name.split("."), import_module(module))
