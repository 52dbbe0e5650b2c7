"""Run a repository's pytest tests in a sandbox, and report the outcome of each.

The host sends this file into a sandbox; it imports only the standard library, pytest and `flywheel_apart`. It reads a
request from `/tmp/request.json`, and writes `/tmp/answer.json`. The tests run in this process, with the code under
test, so the host adds tests that must fail: see `environments.hybrid.repair.suites`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from flywheel_apart import apart

ROOT = "/work/"
MAX_MESSAGE = 200
"""Maximum characters of a failed test's message."""


class OutcomePlugin:
    """Collects the outcome of each test.

    `passed` only if its setup, its call and its teardown passed; `xfailed` if it failed as its mark expects.
    """

    def __init__(self) -> None:
        self.reports: dict[str, str] = {}
        self.messages: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Reads a report of pytest."""
        if report.when == "call" and report.outcome == "passed":
            self.reports.setdefault(report.nodeid, "passed")
        elif report.outcome != "passed":
            expected = report.outcome == "skipped" and hasattr(report, "wasxfail")
            self.reports[report.nodeid] = "xfailed" if expected else report.outcome
            crash = getattr(report.longrepr, "reprcrash", None)
            self.messages.setdefault(report.nodeid, str(getattr(crash, "message", "")).partition("\n")[0][:MAX_MESSAGE])

    def pytest_collectreport(self, report: Any) -> None:
        """Reads the report of a file that cannot be imported."""
        if report.failed:
            lines = str(report.longrepr).strip().splitlines()
            self.messages[report.nodeid] = (lines or [""])[-1][:MAX_MESSAGE]
            self.reports[report.nodeid] = "failed"


def run(pytest: Any, files: list[str]) -> dict[str, Any]:
    """Runs test files and returns `reports` and `messages` by the tests' ids."""
    recorder = OutcomePlugin()
    options = ["-q", "--rootdir", ROOT, "-p", "no:cacheprovider", "--continue-on-collection-errors", "--tb", "short"]
    pytest.main([*options, *files], plugins=[recorder])
    return {"reports": recorder.reports, "messages": recorder.messages}


def traced(pytest: Any, files: list[str]) -> dict[str, Any]:
    """Runs test files, and also returns the `lines` of the repository that they reach, as `path:line`."""
    lines: set[tuple[str, int]] = set()

    def local(frame: Any, event: str, _: object) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def enter(frame: Any, event: str, _: object) -> Any:
        return local if frame.f_code.co_filename.startswith(ROOT) else None

    sys.settrace(enter)
    try:
        found = run(pytest, files)
    finally:
        sys.settrace(None)
    return {**found, "lines": sorted(f"{path[len(ROOT) :]}:{line}" for path, line in lines)}


def mutants(pytest: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Runs the tests on mutants of one file, each in a process of its own.

    Args:
        pytest: the module.
        request: `files`; `mutants`, each with `path` and the bytes `begin` to `end` that `text` replaces; `wanted`, the
            number of mutants; `mutant_s` and `limit_s`, the seconds for one and for all.

    Returns:
        `found`: index of a mutant, and its reports and messages.
    """
    found: list[Any] = []
    until = time.monotonic() + request["limit_s"]
    counts: dict[str, int] = {}
    for at, mutant in enumerate(request["mutants"]):
        if len(found) >= request["wanted"] or time.monotonic() > until:
            break
        if counts.get(mutant["function"], 0) >= request["per_function"]:
            continue
        path = ROOT + mutant["path"]
        with open(path, "rb") as file:
            source = file.read()
        with open(path, "wb") as file:
            file.write(source[: mutant["begin"]] + mutant["text"].encode() + source[mutant["end"] :])
        ran = apart(lambda: run(pytest, request["files"]), request["mutant_s"])
        with open(path, "wb") as file:
            file.write(source)
        if ran is not None and any(outcome == "failed" for outcome in ran["reports"].values()):
            counts[mutant["function"]] = counts.get(mutant["function"], 0) + 1
            found.append([at, ran])
    return {"found": found}


def main() -> None:
    """Answers the request."""
    with open("/tmp/request.json") as file:
        request = json.load(file)
    standard = sys.path[1:]
    sys.path[:] = [*standard, *request["libraries"]]
    import pytest

    sys.path[:] = [*standard, *request["roots"], *request["libraries"]]
    os.chdir(ROOT)
    if request["kind"] == "mutants":
        answer = mutants(pytest, request)
    elif request["kind"] == "traced":
        answer = traced(pytest, request["files"])
    else:
        answer = run(pytest, request["files"])
    with open("/tmp/answer.json", "w") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
