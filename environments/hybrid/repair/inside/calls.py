"""Call a package's functions in a sandbox: find calls and record their answers, or repeat calls.

The host sends this file into a sandbox; it imports only the standard library and `flywheel_apart`. It reads a request
from `/tmp/request.json` and writes `/tmp/answer.json`. A request never contains an expected answer, except `mutants`,
which runs before any policy does.

- `explore` searches calls of the public functions and classes. Arguments come from docstring examples, the package's
  own literals and samples. A call that returns is kept if it reaches new lines or has a new answer, and is changed
  further.
- `answers` repeats calls, and returns the text of each answer.
- `mutants` repeats calls on changed versions of one file, each in a process of its own.

An answer is a text with the type of each value, so an object that claims to equal everything equals nothing.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from flywheel_apart import apart

ROOT = "/work/"
"""Folder of the repository."""
CALL_S = 0.3
"""Time limit of one call in seconds, while calls are searched."""
REPEAT_S = 1.0
"""Time limit of one repeated call."""
FUNCTION_S = 6.0
"""Time limit of the search for one function or class."""
EXPLORE_S, MUTANTS_S = 60.0, 60.0
"""Time limits of the search for calls, and of the search for mutants."""
MUTANT_S = 4.0
"""Time limit of the calls on one mutant."""
ATTEMPTS = 260
"""Number of calls that are tried for one function."""
MAX_CASES = 14
"""Maximum calls of one function."""
MAX_ITEMS = 50
"""Most items that are read from an iterator."""
MAX_TEXT = 1500
"""Maximum characters of an answer; the rest is replaced by its hash."""
_DUNDERS = ("__len__", "__str__", "__iter__", "__contains__", "__getitem__", "__bool__", "__int__", "__hash__")
_BUILTIN: tuple[Any, ...] = (str, bytes, int, float, list, tuple, dict, set, frozenset)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class _Late(BaseException):
    """Raised if a call exceeds its time limit."""


def _alarm(*_: object) -> None:
    raise _Late


def plain(value: Any, depth: int = 0) -> str:
    """Writes a value as text, with the types of all parts."""
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, bytes):
        return repr(value)
    if depth > 5:
        return "..."
    if kind in (list, tuple):
        parts = ", ".join(plain(one, depth + 1) for one in value)
        return f"[{parts}]" if kind is list else f"({parts},)" if len(value) == 1 else f"({parts})"
    if kind is dict:
        return "{" + ", ".join(f"{plain(key, depth + 1)}: {plain(one, depth + 1)}" for key, one in value.items()) + "}"
    if kind in (set, frozenset):
        return f"{kind.__name__}({sorted(plain(one, depth + 1) for one in value)})"
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, Iterator):
        return f"iterator[{', '.join(plain(one, depth + 1) for one in itertools.islice(value, MAX_ITEMS))}]"
    if isinstance(value, type) or callable(value):
        return f"<{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', name)}>"
    if kind.__module__ in ("datetime", "decimal", "fractions", "re", "pathlib", "uuid", "ipaddress"):
        return repr(value)
    held = dict(getattr(value, "__dict__", {}))
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, slot) and not slot.startswith("__"):
                held[slot] = getattr(value, slot)
    for builtin in _BUILTIN:
        if isinstance(value, builtin):
            held["="] = builtin(value)
    if not held:
        return f"{name}: {_ADDRESS.sub('', repr(value))}"
    return f"{name}(" + ", ".join(f"{key}={plain(held[key], depth + 1)}" for key in sorted(held)) + ")"


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return text[:MAX_TEXT] + " sha256 " + hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def call(case: dict[str, Any], limit_s: float) -> str:
    """Performs a call and returns its answer as text: `returns VALUE` or `raises TYPE`.

    The answer of a method also has the object's state after the call.
    """
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        arguments = ast.literal_eval(case["arguments"])
        module, _, path = case["target"].partition(":")
        value: Any = importlib.import_module(module)
        *above, last = path.split(".")
        for part in above:
            value = getattr(value, part)
        if case["build"] is None:
            return _cut("returns " + plain(getattr(value, last)(*arguments)))
        made = value(*ast.literal_eval(case["build"]))
        text = "returns " + plain(getattr(made, last)(*arguments))
        return _cut(text + (f" and leaves {plain(made)}" if getattr(made, "__dict__", None) else ""))
    except _Late:
        return "takes too long"
    except RecursionError:
        return "takes too long"
    except Exception as error:
        return f"raises {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def answers(cases: list[dict[str, Any]]) -> list[str]:
    """Performs each call in a process of its own, so that no call depends on another one."""
    for module in sorted({case["target"].partition(":")[0] for case in cases}):
        try:
            importlib.import_module(module)
        except Exception:  # each of its calls answers with the error
            continue
    return [apart(lambda case=case: call(case, REPEAT_S), REPEAT_S + 1.0) or "ends its process" for case in cases]


def traced(case: dict[str, Any]) -> tuple[str, list[str]]:
    """Performs a call and returns its answer and the package's lines that it reached, as `path:line`."""
    lines: set[tuple[str, int]] = set()

    def local(frame: Any, event: str, _: object) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def enter(frame: Any, event: str, _: object) -> Any:
        return local if frame.f_code.co_filename.startswith(ROOT) else None

    sys.settrace(enter)
    try:
        answer = call(case, CALL_S)
    finally:
        sys.settrace(None)
    return answer, sorted(f"{path[len(ROOT) :]}:{line}" for path, line in lines)


class Search:
    """Searches calls of one function or class.

    Args:
        target: `module:name` of the function or class, or `module:class.method`.
        value: the object itself.
        samples: values by kind (`str`, `int`, ...), from which arguments are drawn.
        seeds: literal arguments from docstring examples.
        builds: for a method, arguments with which its class was made before.
        chance: the random generator.
    """

    def __init__(
        self, target: str, value: Any, samples: dict[str, list[Any]], seeds: list[tuple[Any, ...]],
        builds: list[str] | None, chance: random.Random,
    ) -> None:  # fmt: skip
        self.target, self.samples, self.seeds, self.builds = target, samples, seeds, builds
        self.chance = chance
        parameters = list(inspect.signature(value).parameters.values())
        if builds is not None:
            parameters = parameters[1:]
        named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self.parameters = [one for one in parameters if one.kind in named]
        self.required = sum(one.default is one.empty for one in self.parameters)
        self.many = any(one.kind is one.VAR_POSITIONAL for one in parameters)
        self.possible = self.required <= 4 and not any(
            one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters
        )

    def cases(self) -> list[dict[str, Any]]:
        """Returns the kept calls, each with its answer and its lines."""
        kept: list[dict[str, Any]] = []
        good: list[tuple[Any, ...]] = []
        seen, lines, answered = set(), set(), set()
        until = time.monotonic() + FUNCTION_S * 0.8
        for number in range(ATTEMPTS if self.possible else 0):
            if time.monotonic() > until or len(kept) >= MAX_CASES:
                break
            if number < len(self.seeds):
                arguments = self.seeds[number]
            elif good and self.chance.random() < 0.6:
                arguments = self._changed(self.chance.choice(good))
            else:
                arguments = self._drawn()
            text = repr(arguments)
            build = None if self.builds is None else self.chance.choice(self.builds)
            if (text, build) in seen or len(text) > 600:
                continue
            seen.add((text, build))
            case = {"target": self.target, "build": build, "arguments": text}
            answer, reached = traced(case)
            if answer == "takes too long" or "'/tmp" in answer:
                continue
            new = not lines.issuperset(reached)
            raised = answer.startswith("raises")
            if not raised:
                good.append(arguments)
            elif not new or answer in ("raises TypeError", "raises AttributeError", "raises RecursionError"):
                continue
            if not new and (answer in answered or self.chance.random() < 0.4):
                continue
            answered.add(answer)
            lines.update(reached)
            kept.append({**case, "answer": answer, "lines": reached})
            if not self.parameters and not self.many and self.builds is None:
                break
        return kept

    def _drawn(self) -> tuple[Any, ...]:
        given = self.required
        while given < len(self.parameters) and self.chance.random() < 0.35:
            given += 1
        arguments = [self._value(one) for one in self.parameters[:given]]
        if self.many and given == len(self.parameters):
            arguments += [self.chance.choice(self.samples["str"]) for _ in range(self.chance.randint(0, 3))]
        return tuple(arguments)

    def _value(self, parameter: inspect.Parameter) -> Any:
        hint = "" if parameter.annotation is parameter.empty else str(parameter.annotation)
        default = parameter.default
        if default is not parameter.empty and type(default).__name__ in self.samples and self.chance.random() < 0.7:
            return self.chance.choice(self.samples[type(default).__name__])
        kinds = [kind for kind in self.samples if re.search(rf"\b{kind}\b", hint, re.IGNORECASE)]
        if re.search(r"iterable|sequence", hint, re.IGNORECASE):
            kinds.append("list")
        if re.search(r"mapping", hint, re.IGNORECASE):
            kinds.append("dict")
        if not kinds:
            weights = {"str": 6, "int": 3, "list": 2, "float": 1, "dict": 1, "bool": 1, "bytes": 1, "tuple": 1}
            kinds = [self.chance.choices(list(weights), list(weights.values()))[0]]
        return self.chance.choice(self.samples[self.chance.choice(kinds)])

    def _changed(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if not arguments:
            return self._drawn()
        at = self.chance.randrange(len(arguments))
        old, chance = arguments[at], self.chance
        new: Any = old
        if isinstance(old, bool):
            new = not old
        elif isinstance(old, int):
            new = chance.choice((old + 1, old - 1, -old, old * 10 + chance.randint(0, 9), chance.randint(0, 3000)))
        elif isinstance(old, float):
            new = chance.choice((-old, old * 10, round(old + 0.25, 4)))
        elif isinstance(old, str) and old:
            begin, end = sorted((chance.randrange(len(old) + 1), chance.randrange(len(old) + 1)))
            other = str(chance.choice(self.samples["str"]))
            new = chance.choice((
                old[:begin] + old[end:], old[:end] + old[begin:], old[:begin] + other[:6] + old[begin:],
                old.upper(), old + other, other,
            ))  # fmt: skip
        elif isinstance(old, (list, tuple)) and old:
            items = list(old)
            chance.shuffle(items)
            new = type(old)(chance.choice((items, items[1:], items + items[:1])))
        elif self.parameters[at:]:
            new = self._value(self.parameters[at])
        return (*arguments[:at], new, *arguments[at + 1 :])


SAMPLES: dict[str, list[Any]] = {
    "str": [
        "", "a", "abc", "Hello World", "foo-bar_baz", "  spaced  out ", "a,b,,c", "1", "-12", "3.50", "1.2.3",
        "a/b/c.txt", "https://user@example.org:8080/a/b?x=1&y=2#top", "2024-02-29", "key = value", "[1, 2, 3]",
        '{"a": {"b": [1, 2]}}', "line one\nline two\n\nline four", "Stra\u00dfe \u00e9t\u00e9", "UPPER lower",
        "x=1; y=2", "%41%20b", "'quoted'", "first second third fourth",
        "**bold** and `code`", "a.b[0].c", "*.py", "-", "tab\there",
    ],
    "int": [0, 1, 2, 3, 5, 7, 10, 12, 60, 99, 100, 365, 999, 1000, 1024, 12345, 1000000, -1, -15],
    "float": [0.0, 0.5, 1.0, 2.25, 3.14159, 99.95, 1234.5678, -0.75],
    "bool": [True, False],
    "bytes": [b"", b"abc", b"a=1&b=2", b"line\r\n", bytes(range(8))],
    "list": [
        [], [1], [3, 1, 2], [1, 2, 2, 5, 8], ["a", "b", "c"], ["x"], [[1, 2], [3]], [{"a": 1}, {"a": 2}], ["b", "a"],
    ],
    "tuple": [(), (1, 2), (1, 2, 3), ("a", "b"), (0, 0, 1)],
    "dict": [{}, {"a": 1}, {"a": {"b": [1, 2, {"c": 3}]}}, {"name": "x", "size": 3}, {"b": 2, "a": 1}],
}  # fmt: skip


def explore(request: dict[str, Any]) -> dict[str, Any]:
    """Finds calls of the package's public functions and classes.

    Returns:
        `cases`, each with `target`, `build`, `arguments`, `answer` and `lines`, and `failed`, the modules that cannot
        be imported, with the reasons.
    """
    modules, failed = [], {}
    for name in request["modules"]:
        try:
            modules.append(importlib.import_module(name))
        except BaseException as error:
            failed[name] = f"{type(error).__name__}: {error}"
    samples = {kind: list(values) for kind, values in SAMPLES.items()}
    sources = [_source(module) for module in modules]
    samples["str"] += _texts(sources)
    targets = list(_targets(modules))
    examples = _examples(sources)
    cases: list[dict[str, Any]] = []
    until = time.monotonic() + EXPLORE_S
    for target, value in targets:
        if time.monotonic() > until:
            break
        chance = random.Random(f"{request['seed']} {target}")
        name = target.rpartition(":")[2]

        def search(target: str = target, value: Any = value, name: str = name, chance: random.Random = chance) -> Any:
            found = list(_searched(target, value, samples, examples.get(name, []), chance))
            if isinstance(value, type):
                builds = [case["arguments"] for case in found if case["answer"].startswith("returns")]
                for method, its in _methods(value) if builds else ():
                    seeds = examples.get(method, [])
                    found += _searched(f"{target}.{method}", its, samples, seeds, chance, builds)
            return found

        cases += apart(search, FUNCTION_S * (3 if isinstance(value, type) else 1)) or []
    return {"cases": cases, "failed": failed}


def _searched(
    target: str, value: Any, samples: dict[str, list[Any]], seeds: list[tuple[Any, ...]], chance: random.Random,
    builds: list[str] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    try:
        return Search(target, value, samples, seeds, builds, chance).cases()
    except (ValueError, TypeError):  # no signature
        return []


def _targets(modules: list[Any]) -> Iterator[tuple[str, Any]]:
    for module in modules:
        for name, value in sorted(vars(module).items()):
            if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
                continue
            is_class = isinstance(value, type) and not issubclass(value, BaseException)
            if (is_class and not inspect.isabstract(value)) or (callable(value) and not isinstance(value, type)):
                yield f"{module.__name__}:{name}", value


def _methods(kind: type) -> Iterator[tuple[str, Any]]:
    for name in sorted(dir(kind)):
        if name.startswith("_") and name not in _DUNDERS:
            continue
        value = inspect.getattr_static(kind, name)
        if inspect.isfunction(value) and value.__module__ == kind.__module__:
            yield name, value


def _source(module: Any) -> str:
    try:
        return inspect.getsource(module)
    except (OSError, TypeError):  # it is empty or compiled
        return ""


def _texts(sources: list[str]) -> list[str]:
    """Returns short texts of the package's own source, such as names of units and formats, without docstrings."""
    found = set()
    for source in sources:
        found.update(
            node.value
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and 2 <= len(node.value) <= 24
        )
    return random.Random(0).sample(sorted(found), min(len(found), 30))


def _examples(sources: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Returns the literal arguments of calls in docstring examples, by the name of the function."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    for source in sources:
        for line in re.findall(r"^\s*>>> (.+)$", source, re.MULTILINE):
            try:
                nodes = list(ast.walk(ast.parse(line)))
            except (SyntaxError, ValueError):
                continue
            for node in nodes:
                if isinstance(node, ast.Call) and not node.keywords:
                    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                    try:
                        found.setdefault(name, []).append(tuple(ast.literal_eval(one) for one in node.args))
                    except (ValueError, SyntaxError, TypeError):
                        continue
    return found


class _Loader(importlib.machinery.SourceFileLoader):
    """Reads a changed source instead of a module's file, and neither reads nor writes its bytecode."""

    source = b""

    def path_stats(self, path: Any) -> Any:
        raise OSError

    def get_data(self, path: Any) -> bytes:
        return self.source


class _Changed:
    """Imports one module from a changed source, and all others as usual."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin != self.path:
            return None
        loader = _Loader(name, self.path)
        loader.source = self.source
        return importlib.util.spec_from_file_location(
            name, self.path, loader=loader, submodule_search_locations=spec.submodule_search_locations
        )


def mutants(request: dict[str, Any]) -> dict[str, Any]:
    """Repeats calls on mutants, until enough of them answer differently.

    Args:
        request: `cases` with answers; `mutants`, each with `path`, the bytes `begin` to `end` that `text` replaces,
            `function`, and the indices of `cases` to repeat; `wanted`, the number of mutants; `differing`, the fewest
            different answers of each; `per_function`, the most mutants of one function.

    Returns:
        `found`: index of a mutant, and its answers that differ, by index of the case.
    """
    found: list[Any] = []
    counts: dict[str, int] = {}
    until = time.monotonic() + MUTANTS_S
    for at, mutant in enumerate(request["mutants"]):
        if len(found) >= request["wanted"] or time.monotonic() > until:
            break
        if counts.get(mutant["function"], 0) >= request["per_function"]:
            continue
        cases = [request["cases"][index] for index in mutant["cases"]]

        def ask(mutant: dict[str, Any] = mutant, cases: list[dict[str, Any]] = cases) -> list[str]:
            path = ROOT + mutant["path"]
            with open(path, "rb") as file:
                source = file.read()
            source = source[: mutant["begin"]] + mutant["text"].encode() + source[mutant["end"] :]
            sys.meta_path.insert(0, _Changed(path, source))  # type: ignore[arg-type]
            for case in cases:
                importlib.import_module(case["target"].partition(":")[0])
            return [call(case, REPEAT_S) for case in cases]

        new = apart(ask, MUTANT_S)
        if new is None or "takes too long" in new:
            continue
        differ = {
            index: text
            for index, text in zip(mutant["cases"], new)  # noqa: B905  (Python 3.9 has no `strict`)
            if text != request["cases"][index]["answer"]
        }
        if len(differ) >= request["differing"]:
            counts[mutant["function"]] = counts.get(mutant["function"], 0) + 1
            found.append([at, differ])
    return {"found": found}


def main() -> None:
    """Answers the request."""
    with open("/tmp/request.json") as file:
        request = json.load(file)
    sys.path[:] = [*request["roots"], *request["libraries"], *sys.path[1:]]
    sys.pycache_prefix, sys.dont_write_bytecode = "/tmp/cache", False
    signal.signal(signal.SIGALRM, _alarm)
    os.makedirs("/tmp/empty", exist_ok=True)
    os.chdir("/tmp/empty")  # a call that lists the current folder finds nothing
    if request["kind"] == "explore":
        answer: Any = explore(request)
    elif request["kind"] == "mutants":
        answer = mutants(request)
    else:
        answer = answers(request["cases"])
    with open("/tmp/answer.json", "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
