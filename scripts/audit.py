"""Whether what is installed is what was pinned, and whether anything pinned is known to be vulnerable; `make check`.

    python scripts/audit.py

The first part needs no network. The second asks `pip-audit` (`pipx install pip-audit`), which needs one; where it is
not installed or cannot reach its sources, that is reported, and nothing fails for it.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)")
OURS = frozenset({"flywheel", "pip", "setuptools", "wheel"})
"""Not pinned: the project itself, and what makes the environment."""


def pins_of(lock: str) -> dict[str, str]:
    """Version by normalised name; raises ValueError for a line that is no exact pin."""
    found: dict[str, str] = {}
    for line in lock.splitlines():
        match = PIN.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"requirements.lock: {line!r} is no exact pin")
        found[normal(match[1])] = match[2]
    return found


def normal(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def unpinned(pyproject: str, pins: dict[str, str]) -> list[str]:
    """What pyproject asks for, extras included, in another version than the lock's."""
    project = tomllib.loads(pyproject)["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    wanted = {(normal(match[1]), match[2]) for one in asked if (match := PIN.fullmatch(one))}
    loose = [one for one in asked if not PIN.fullmatch(one)]
    return sorted(loose + [f"{name}=={version}" for name, version in wanted if pins.get(name) != version])


def differing(installed: dict[str, str], pins: dict[str, str]) -> list[str]:
    """What is installed otherwise than pinned; a local build such as `2.0+cpu` counts as the version it is of."""
    return sorted(
        f"{name} {version} ({f'pinned {pins[name]}' if name in pins else 'not pinned'})"
        for name, version in installed.items()
        if name not in OURS and pins.get(name) != version.partition("+")[0]
    )


def known_vulnerable() -> int:
    """What pip-audit finds, shown as it says it; its exit status, 0 where it cannot be asked."""
    program = shutil.which("pip-audit")
    if program is None:
        print("audit: known vulnerabilities were not looked up: pip-audit is not installed (pipx install pip-audit)")
        return 0
    done = subprocess.run([program, "--no-deps", "--disable-pip", "-r", str(ROOT / "requirements.lock")], check=False)
    if done.returncode not in (0, 1):
        print("audit: known vulnerabilities were not looked up: pip-audit could not reach its sources")
        return 0
    return done.returncode


def main() -> int:
    """0 where all is well; 1 with the names where it is not."""
    pins = pins_of((ROOT / "requirements.lock").read_text())
    installed = {normal(one.name): one.version for one in metadata.distributions()}
    wrong = {
        "pyproject.toml and requirements.lock differ": unpinned((ROOT / "pyproject.toml").read_text(), pins),
        "installed otherwise than pinned": differing(installed, pins),
    }
    for what, names in wrong.items():
        if names:
            print(f"audit: {what}: {', '.join(names)}")
    if any(wrong.values()):
        return 1
    print(f"audit: {len(pins)} packages are as pinned")
    return known_vulnerable()


if __name__ == "__main__":
    sys.exit(main())
