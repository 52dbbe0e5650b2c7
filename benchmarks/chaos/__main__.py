"""Kill processes of a run at random moments, repeat the same command until it ends, and compare the lakes.

The first run uses the fake environment. SIGKILL hits the process of its flow, its trainer or the trainer's second
process, each kind with the same probability: while the command starts, at any time, or soon after a stage began. Then a
second lake of the same config and lake id makes as many iterations undisturbed. The comparison covers the rows of every
table, without columns of time, run ids, the commit of the code and numbers of commits (`benchmarks.chaos.outcome`), and
the sha256 of every policy's weights. Log probabilities must agree within the rounding of bf16.

The second run uses MiniWoB++ pages and loses browsers while it collects. A trajectory whose browser died is kept as a
failure, and its next attempt draws other actions. So each planned trajectory must be there once, and those of the first
attempt must equal an undisturbed run, step by step.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.chaos.outcome import accepted, compared, differences, half_written, most_apart, outcome
from benchmarks.chaos.victims import FLOW, Wheel
from benchmarks.harness import Bar, add_options, finish
from environments.chromium.browser import find_browser
from schemas.config import load_config
from schemas.failure import FlywheelError, is_environment_failure
from schemas.table import SCHEMA_VERSION
from schemas.tables.stage import STAGES
from storage.lake import Lake
from tasks.shared.lease import lease_owner

CONFIG = """
name = "chaos"
[lake]
uri = "{lake}"
min_free_mb = 10
[environments.{environment}]
{size}
[suite]
tasks = {tasks}
[collect]
trajectories_per_task = {trajectories}
chunk = 4
relay_share = 0.2
[policy]
hidden = 64
vision_hidden = 64
layers = 1
vision_layers = 1
max_new_tokens = 8
[train]
steps_first = 8
steps = 8
batch = 4
warmup = 1
checkpoint_every = 2
[evaluate]
seeds = 4
explorer_seeds = 4
[promote]
unparsable = 1
"""
FAKE = {
    "environment": "fake", "size": "sandboxes = 4", "tasks": '["click-target", "two-steps"]', "trajectories": "10",
}  # fmt: skip
PAGES = {
    "environment": "miniwob", "size": "pages = 4", "tasks": '["click-test", "click-button"]', "trajectories": "400",
}  # fmt: skip
ROUNDING = 0.02
"""What a token's log probability may differ by; of one that was -8.24, 0.002 was seen."""
MANY = 10_000
HUNG_S = 900.0
SOON_S = 2.0
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what was killed and what came of it; exit code 1 if a bar is missed."""
    options = _options(arguments)
    with TemporaryDirectory(prefix="flywheel-chaos-") as folder:
        rows = [_killed_wheel(Path(folder), options)]
        _say(json.dumps(rows[0]))
        if not options.no_browser:
            rows.append(_browsers(Path(folder), options))
    wanted = {row["scenario"]: row["asked"] for row in rows}
    bars = [Bar(f"{row['scenario']}: {name}", row[name], 0, "lower") for row in rows for name in ZERO if name in row]
    bars.append(Bar("fake: log probabilities apart", rows[0]["log probabilities apart"], ROUNDING, "lower"))
    bars += [Bar(f"{row['scenario']}: kills", row["kills"], wanted[row["scenario"]], "higher") for row in rows]
    return finish("chaos", rows, bars, options, [[row] for row in rows])


ZERO = ("tables that differ", "accepted lost", "accepted doubled", "half-written versions", "processes left", "hung")
"""What a row counts that must not be."""


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.chaos",
        description=__doc__,
        epilog="--short: 10 kills in place of 100, and 3 of browsers in place of 15.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, help="how many processes of the first wheel are killed")
    parser.add_argument("--minutes", type=float, default=120.0, help="kill no more after so long; the bar then misses")
    parser.add_argument("--most-s", type=float, default=30.0, help="the most seconds before a kill at any time")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the victims")
    parser.add_argument("--no-browser", action="store_true", help="leave the second wheel out")
    options = add_options(parser).parse_args(arguments)
    options.kills = options.kills or (10 if options.short else 100)
    options.browsers = 3 if options.short else 15
    return options


def _killed_wheel(folder: Path, options: argparse.Namespace) -> Row:
    """The first wheel: killed as often as asked for, finished, and compared with an undisturbed one."""
    disturbed, calm = (_config(folder / name, FAKE) for name in ("disturbed", "calm"))
    began, seen = time.monotonic(), _Seen()
    _disturb(disturbed, options, seen)
    Wheel(disturbed, 1).finish(HUNG_S)
    iterations = len(_finished(disturbed))
    _say(f"finished after {seen.killed.total()} kills; now {iterations} iterations undisturbed")
    Wheel(calm, iterations).finish(HUNG_S + 120 * iterations)
    return {
        "scenario": "fake", "asked": options.kills, "kills": seen.killed.total(), "starts": seen.starts + 1,
        "hung": seen.hung, "processes left": seen.left, "iterations": iterations,
        "by kind": ", ".join(f"{count} {kind}" for kind, count in sorted(seen.killed.items())),
        "minutes": (time.monotonic() - began) / 60, **_compared(disturbed, calm),
    }  # fmt: skip


@dataclass
class _Seen:
    """What happened to a wheel while it was killed."""

    killed: Counter[str] = field(default_factory=Counter[str])
    starts: int = 0
    hung: int = 0
    """Starts that came to no end and no stage for `HUNG_S`."""
    left: int = 0
    """Processes that were there half a minute after their command."""


def _disturb(config: Path, options: argparse.Namespace, seen: _Seen) -> None:
    """Starts the same command again and again, until so many processes were killed."""
    dice, until = random.Random(options.seed), time.monotonic() + 60 * options.minutes
    while seen.killed.total() < options.kills and time.monotonic() < until:
        with Wheel(config, MANY) as wheel:
            seen.starts += 1
            last = time.monotonic()
            while wheel.running and time.monotonic() - last < HUNG_S and seen.killed.total() < options.kills:
                moment = _moment(config, wheel, options, dice)
                if kind := wheel.kill_one(dice, FLOW, "trainer", "rank"):
                    seen.killed[kind] += 1
                    last = time.monotonic()
                    done = len(_finished(config))
                    _say(f"{seen.killed.total():4} {kind} {moment}; {done} iterations are finished")
                    time.sleep(0.2)
            seen.hung += wheel.running and time.monotonic() - last >= HUNG_S
        seen.left += len(wheel.left_after(30.0))


def _moment(config: Path, wheel: Wheel, options: argparse.Namespace, dice: random.Random) -> str:
    """Waits for the moment of a kill, and says which: in one of ten cases while the command starts, in four at any time
    after it began to turn, and else soon after a stage chosen by chance began, so that the short ones are hit, too."""
    lake, kind = _lake(config), dice.random()
    if kind >= 0.1:
        _until(wheel, lambda: _turns(lake, wheel))
    if kind < 0.5:
        seconds = dice.uniform(0.0, options.most_s)
        time.sleep(seconds)
        return f"after {seconds:.1f} s"
    stage, seconds = dice.choice(STAGES), dice.uniform(0.0, SOON_S)
    before = STAGES[STAGES.index(stage) - 1]
    known = lake.count("stages", {"stage": before})
    _until(wheel, lambda: lake.count("stages", {"stage": before}) > known)
    time.sleep(seconds)
    return f"{seconds:.1f} s into {stage}"


def _until(wheel: Wheel, reached: Callable[[], bool]) -> None:
    until = time.monotonic() + HUNG_S
    while wheel.running and time.monotonic() < until and not reached():
        time.sleep(0.2)


def _turns(lake: Lake, wheel: Wheel) -> bool:
    """Whether this very process turns the lake."""
    owner = lease_owner(lake)
    return owner is not None and owner.process == wheel.process.pid


def _compared(disturbed: Path, calm: Path) -> Row:
    ours, theirs = _lake(disturbed), _lake(calm)
    apart = differences(outcome(theirs), outcome(ours))
    for name, what in apart.items():
        _say(f"{name}: {what}")
    mine, others = accepted(ours), accepted(theirs)
    return {
        "tables that differ": len(apart),
        "accepted": mine.total(),
        "accepted lost": (others - mine).total(),
        "accepted doubled": sum(count - 1 for count in mine.values()),
        "half-written versions": half_written(ours),
        "log probabilities apart": most_apart(theirs, ours),
        "differences": apart,
    }


def _browsers(folder: Path, options: argparse.Namespace) -> Row:
    """The second wheel: browsers die while it collects its first iteration, which the explorer alone makes."""
    row: Row = {"scenario": "browser", "asked": options.browsers, "kills": 0}
    try:
        find_browser()
    except FlywheelError as error:
        _say(f"no browser, so none was killed: {error}")
        return row
    disturbed, calm = (_config(folder / name, PAGES) for name in ("browsers", "browsers-calm"))
    began, dice = time.monotonic(), random.Random(options.seed)
    with Wheel(disturbed, 1) as wheel:
        while wheel.running and row["kills"] < options.browsers and time.monotonic() - began < HUNG_S:
            time.sleep(dice.uniform(0.2, 1.5))
            if _collecting(disturbed) and wheel.kill_one(dice, "browser"):
                row["kills"] += 1
        wheel.finish(HUNG_S)
    Wheel(calm, 1).finish(HUNG_S)
    return row | _standing(_lake(disturbed), _lake(calm)) | {"processes left": len(wheel.left_after(30.0))}


def _standing(ours: Lake, theirs: Lake) -> Row:
    """Which planned trajectories are lost, doubled or others than those of the undisturbed lake."""
    columns = ["trajectory_id", "task_id", "seed", "policy", "attempt", "failure_boundary"]
    rows = ours.read("trajectories", columns).to_pylist()
    stand = [row for row in rows if not is_environment_failure(row["failure_boundary"])]
    who = Counter((row["task_id"], row["seed"], row["policy"]) for row in stand)
    planned = theirs.read("trajectories", columns).to_pylist()
    wanted = {(row["task_id"], row["seed"], row["policy"]) for row in planned}
    given_up = {(row["task_id"], row["seed"], row["policy"]) for row in rows if row["attempt"] == 2} - who.keys()
    first = [row["trajectory_id"] for row in stand if row["attempt"] == 0]
    apart = 0
    for table in ("trajectories", "steps"):
        mine, others = (
            Counter(
                json.dumps(row, default=str)
                for row in lake.read(table, compared(table), {"trajectory_id": first}).to_pylist()
            )
            for lake in (ours, theirs)
        )
        apart += mine != others
    return {
        "trajectories": len(stand),
        "failed attempts": len(rows) - len(stand),
        "given up": len(given_up),
        "tables that differ": apart,
        "accepted lost": len(wanted - who.keys() - given_up),
        "accepted doubled": sum(count - 1 for count in who.values()),
        "half-written versions": half_written(ours),
    }


def _config(folder: Path, values: dict[str, str]) -> Path:
    """A config in a folder of its own, with a lake of a given id: ids of trajectories are made from it."""
    lake = folder / "lake"
    lake.mkdir(parents=True)
    mark = {"format": "flywheel-lake", "schema_version": SCHEMA_VERSION, "lake_id": "0123456789ab", "created_at": ""}
    (lake / "flywheel.json").write_text(json.dumps(mark))
    (folder / "chaos.toml").write_text(CONFIG.format(lake=lake, **values))
    return folder / "chaos.toml"


def _lake(config: Path) -> Lake:
    return Lake.open(load_config(config, [], {}).lake)


def _finished(config: Path) -> list[int]:
    return _lake(config).read("stages", ["iteration"], {"stage": STAGES[-1]})["iteration"].to_pylist()


def _collecting(config: Path) -> bool:
    stages = _lake(config).read("stages", ["stage"], {"iteration": 0})["stage"].to_pylist()
    return "curriculum" in stages and "collect" not in stages


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
