"""Checks that the installed packages are the pinned ones, and looks up vulnerabilities; part of `make check`.

    python scripts/audit.py [--complete]

The first part needs no network. The second asks `pip-audit` (`pipx install pip-audit`), which needs one. It prints how
many packages were looked up; with `--complete` (`make check AUDIT=--complete`) it fails unless all of them were.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)")
OURS = frozenset({"flywheel", "pip", "setuptools", "wheel"})
"""Packages that are not pinned: the project itself, and the tools of the environment."""


def pins_of(lock: str) -> dict[str, str]:
    """Reads the version by normalised name; raises ValueError for a line that is no exact pin."""
    found: dict[str, str] = {}
    for line in lock.splitlines():
        match = PIN.fullmatch(line.strip())
        if match is None:
            raise ValueError(f"requirements.lock: {line!r} is no exact pin")
        found[normal(match[1])] = match[2]
    return found


def normal(name: str) -> str:
    """Normalises a package's name as PEP 503 does."""
    return re.sub(r"[-_.]+", "-", name).lower()


def unpinned(pyproject: str, pins: dict[str, str]) -> list[str]:
    """Lists requirements of pyproject, extras included, in another version than the lock's."""
    project = tomllib.loads(pyproject)["project"]
    asked = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    wanted = {(normal(match[1]), match[2]) for one in asked if (match := PIN.fullmatch(one))}
    loose = [one for one in asked if not PIN.fullmatch(one)]
    return sorted(loose + [f"{name}=={version}" for name, version in wanted if pins.get(name) != version])


def differing(installed: dict[str, str], pins: dict[str, str]) -> list[str]:
    """Lists installed packages that differ from the pins; a local build such as `2.0+cpu` counts as its version."""
    return sorted(
        f"{name} {version} ({f'pinned {pins[name]}' if name in pins else 'not pinned'})"
        for name, version in installed.items()
        if name not in OURS and pins.get(name) != version.partition("+")[0]
    )


def known_vulnerable(pins: dict[str, str], complete: bool = False) -> int:
    """Prints pip-audit's findings about the pinned packages, and how many of them it looked up.

    Args:
        pins: version by name.
        complete: fail unless all of them were looked up.

    Returns:
        The exit status: 1 for a known vulnerability, or for packages that were not looked up where `complete` is set.
    """
    asked = pip_audit()
    if isinstance(asked, str):
        looked_up, found, why = 0, list[str](), asked
    else:
        looked_up, found, why = looked_at(asked, pins)
    for line in found:
        print(f"audit: {line}")
    missing = f": {why}" if looked_up < len(pins) else ""
    print(f"audit: {looked_up} of {len(pins)} packages were looked up for known vulnerabilities{missing}")
    return int(bool(found) or (complete and looked_up < len(pins)))


def pip_audit() -> dict[str, Any] | str:
    """Runs pip-audit; returns its report, or why there is none."""
    program = shutil.which("pip-audit")
    if program is None:
        return "pip-audit is not installed (pipx install pip-audit)"
    words = ["--no-deps", "--disable-pip", "--progress-spinner", "off", "-f", "json"]
    command = [program, *words, "-r", str(ROOT / "requirements.lock")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return f"pip-audit ended with {done.returncode}: {last}"


def looked_at(report: dict[str, Any], pins: dict[str, str]) -> tuple[int, list[str], str]:
    """Lists how many packages a report of pip-audit looked up, the vulnerable ones, and why it skipped another.

    Source: pypa/pip-audit 2.10.1, `_format/json.py`: a package it skips has `skip_reason` and no `vulns`, and the exit
    status is 0 even where it skips all.
    """
    about = {normal(one["name"]): one for one in report["dependencies"]}
    looked_up = [one for one in about.values() if "vulns" in one and "skip_reason" not in one]
    found = [
        f"{one['name']} {one['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions']) or 'no version'}"
        for one in looked_up
        for flaw in one["vulns"]
    ]
    left = [name for name in pins if "vulns" not in about.get(name, {})]
    reason = about.get(left[0], {}).get("skip_reason", f"it does not list {left[0]}") if left else ""
    return len({normal(one["name"]) for one in looked_up} & pins.keys()), found, reason


def main(words: list[str] | None = None) -> int:
    """Checks pins, installed packages and vulnerabilities; returns 0 if all is well, 1 with the names if not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--complete", action="store_true", help="fail unless every package was looked up")
    asked = parser.parse_args(words)
    pins = pins_of((ROOT / "requirements.lock").read_text())
    installed = {normal(one.name): one.version for one in metadata.distributions()}
    wrong = {
        "pyproject.toml and requirements.lock differ": unpinned((ROOT / "pyproject.toml").read_text(), pins),
        "installed otherwise than pinned": differing(installed, pins),
    }
    for problem, names in wrong.items():
        if names:
            print(f"audit: {problem}: {', '.join(names)}")
    if any(wrong.values()):
        return 1
    print(f"audit: {len(pins)} packages are as pinned")
    return known_vulnerable(pins, asked.complete)


if __name__ == "__main__":
    sys.exit(main())
