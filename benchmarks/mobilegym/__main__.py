"""Measure our phones against MobileGym's own runner, in one run: scores, trajectories per second and screens.

`FLYWHEEL_MOBILEGYM_CHECKOUT=DIR python -m benchmarks.mobilegym [--short] [--json PATH]`, after `flywheel environments
add mobilegym --from DIR`; DIR has `node_modules` and `dist`, since its own server is used. A scout first plays the
plans of `plans.json` on a phone and notes the actions (`scout.py`). Plans act on the screen as a user would. The plan
`sheet` writes the answer that the task's own judge expects on the answer sheet, so it does not look the answer up.

Then all actions are played through our pool and by MobileGym's `ParallelRunner` with its defaults (3 pixels for a CSS
pixel, JPEG, delays of 0.5 to 1.1 s), each with several settings, and best is compared with best. In passes of their
own, screens are compared, pixel by pixel, with those of its driver at one pixel for a CSS pixel, as PNG. Its screens
depend on the load of the machine, so it plays once for each of `DELAYS_S`, and only those of its screens count that are
the same each time.
"""

import asyncio
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from PIL import Image

from benchmarks.harness import Bar, finish, options
from environments.mobilegym.environment import MobileGymConfig, MobileGymEnvironment
from environments.pool import SandboxPool
from environments.registry import verifier_of
from schemas.action import Finished, action_of
from schemas.failure import FlywheelError
from tasks.launching.node import free_port

HERE = Path(__file__).parent
SEED, PROCESSES, PAGES = 0, (1, 2, 3), (2, 4, 8)
"""Seed of all tasks; our processes, and their pages of one browser (8 is their maximum)."""
SHORT = 12
DELAYS_S = (1.0, 2.0, 3.0)
"""Seconds that its driver waits after an action, in the passes that compare screens."""
Found = dict[str, dict[str, Any]]
Screens = Mapping[str, Sequence[bytes]]
"""PNGs by task, the first before any action."""


def phones(processes: int) -> MobileGymEnvironment:
    """The environment with this number of phones."""
    return MobileGymEnvironment("phones", MobileGymConfig(kind="mobilegym", processes=processes))


def run_in_its_python(script: str, *arguments: str) -> None:
    """Runs a script in MobileGym's Python; raises FlywheelError if it fails."""
    host = phones(1)
    variables = dict(host._variables)
    variables["PYTHONPATH"] += os.pathsep + str(HERE)
    log = Path(arguments[1]).with_suffix(".log")
    with log.open("w") as output, tempfile.TemporaryDirectory() as folder:
        command = [str(host.python), "-B", str(HERE / script), *arguments]
        done = subprocess.run(command, stdout=output, stderr=output, env=variables, cwd=folder)
    if done.returncode:
        raise FlywheelError(f"{script} failed: {log.read_text()[-600:]}")


def scouted(folder: Path, short: bool) -> Found:
    """The actions and scores of all plans, by task."""
    plans = json.loads((HERE / "plans.json").read_text("utf-8"))
    names = list(plans)[:: max(1, len(plans) // SHORT)] if short else list(plans)
    (folder / "plans.json").write_text(json.dumps({name: plans[name] for name in names}))
    run_in_its_python(
        "scout.py", str(folder / "plans.json"), str(folder / "found.json"), str(SEED), phones(1).config.time
    )
    return json.loads((folder / "found.json").read_text())


async def play_ours(found: Found, end: str, processes: int, screens: bool = False) -> dict[str, Any]:
    """Plays all tasks to an end (`solved`, `wrong`, `untouched`)."""
    theirs, verifier = phones(processes), verifier_of("openenv")
    assert verifier is not None
    scores, seen, waiting = dict[str, float](), dict[str, list[bytes]](), list(found)

    async def work(pool: SandboxPool) -> None:
        while waiting:
            name = waiting.pop(0)
            async with pool.lease(theirs.task(name), SEED) as sandbox:
                shown = [(await sandbox.observe()).png]
                for fields in found[name][end]:
                    await sandbox.perform(action_of(fields))
                    shown.append((await sandbox.observe()).png)
                await sandbox.conclude(Finished())
                scores[name] = (await sandbox.verify(verifier)).reward
            if screens:
                seen[name] = shown

    async with SandboxPool([theirs]) as pool:
        await pool.start()
        started = time.monotonic()
        await asyncio.gather(*(work(pool) for _ in range(processes)))
        return {"seconds": time.monotonic() - started, "scores": scores, "screens": seen}


@contextmanager
def its_server(checkout: Path) -> Iterator[str]:
    """Runs `vite preview`, the checkout's own server."""
    port = free_port()
    command = ["node", "node_modules/vite/bin/vite.js", "preview", "--port", str(port), "--strictPort"]
    with subprocess.Popen(command, cwd=checkout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(100):
                try:
                    httpx.get(f"http://localhost:{port}/", trust_env=False)
                    break
                except httpx.HTTPError:
                    time.sleep(0.2)
            yield f"http://localhost:{port}"
        finally:
            server.terminate()


def play_theirs(found: Found, pages: int, delay_s: float | None, url: str, folder: Path) -> dict[str, Any]:
    """Plays all solutions with MobileGym's runner; with a delay, keeps the screens."""
    order, result = folder / "order.json", folder / f"theirs-{pages}-{delay_s}.json"
    given = {
        "url": url,
        "tasks": found,
        "pages": pages,
        "delay_s": delay_s,
        "seed": SEED,
        "time": phones(1).config.time,
    }
    order.write_text(json.dumps(given))
    run_in_its_python("peer.py", str(order), str(result))
    return json.loads(result.read_text())


def compared(found: Found, ours: Screens, again: Screens, theirs: Sequence[Screens]) -> list[dict[str, Any]]:
    """Compares screens of two plays of ours and several of theirs; those right after `ctrl a`, which the peer lacks,
    and after the end are left out."""
    rows = list[dict[str, Any]]()
    for name, one in found.items():
        for step in range(len(one["solved"]) + 1):
            if step and one["solved"][step - 1]["type"] == "hotkey":
                continue
            shown = [pixels(one) for run in theirs for one in run.get(name, ())[step : step + 1]]
            off = differences(pixels(ours[name][step]), shown[0]) if shown else np.array([[255]])
            steady = len(shown) == len(theirs) and not any(differences(shown[0], one).any() for one in shown[1:])
            repeated = ours[name][step] == again[name][step]
            differing, largest = float((off > 0).mean()), int(off.max())
            rows.append({"task": name, "step": step, "steady": steady, "repeated": repeated,
                         "differing": differing, "largest": largest})  # fmt: skip
    return rows


def pixels(png: bytes) -> np.ndarray:
    """The colours of a picture: height x width x 3, from 0 to 255."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), int)


def differences(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """The largest difference of the colours of each pixel; 255 if the sizes differ."""
    return np.abs(one - other).max(axis=2) if one.shape == other.shape else np.array([[255]])


def main() -> int:
    """Exit status 0 if the bars are reached, 1 if not or if a part is missing."""
    arguments = options(__doc__ or "")
    checkout = Path(os.environ.get("FLYWHEEL_MOBILEGYM_CHECKOUT", ""))
    try:
        if not (checkout / "dist" / "index.html").is_file() or not (checkout / "node_modules" / "vite").is_dir():
            raise FlywheelError(
                "FLYWHEEL_MOBILEGYM_CHECKOUT is no built checkout.", "Run `npm ci && npm run build` in it."
            )
        with tempfile.TemporaryDirectory(prefix="flywheel-") as temporary, its_server(checkout) as url:
            return measured(arguments, Path(temporary), url)
    except FlywheelError as error:
        print(error, file=sys.stderr)
        return 1


def measured(arguments: Any, folder: Path, url: str) -> int:
    """Measures all sides, prints the rows and bars, and returns the exit status."""
    whole = scouted(folder, arguments.short)
    found = {name: one for name, one in whole.items() if "error" not in one}
    for name in whole.keys() - found.keys():
        print(f"{name}: {whole[name]['error']}", file=sys.stderr)
    ends = {end: asyncio.run(play_ours(found, end, 2, end == "solved")) for end in ("solved", "wrong", "untouched")}
    rows = list[dict[str, Any]]()
    for processes in PROCESSES[1:2] if arguments.short else PROCESSES:
        one = asyncio.run(play_ours(found, "solved", processes))
        rows.append(_row("flywheel", f"{processes} processes", one, found))
    for pages in PAGES[1:2] if arguments.short else PAGES:
        rows.append(_row("mobilegym", f"{pages} pages", play_theirs(found, pages, None, url, folder), found))
    again = asyncio.run(play_ours(found, "solved", 2, True))["screens"]
    passes = [play_theirs(found, 2, delay, url, folder)["screens"] for delay in DELAYS_S]
    theirs = [{name: [b64decode(one) for one in shown] for name, shown in screens.items()} for screens in passes]
    screens = compared(found, ends["solved"]["screens"], again, theirs)
    steady = [row for row in screens if row["steady"]]
    best = {
        side: max(row["trajectories_s"] for row in rows if row["side"] == side) for side in ("flywheel", "mobilegym")
    }
    whole_scores = {end: sum(one["scores"].values()) / len(whole) for end, one in ends.items()}
    identical = sum(row["largest"] == 0 for row in steady) / max(1, len(steady))
    repeated = sum(row["repeated"] for row in screens) / max(1, len(screens))
    bars = [
        Bar("tasks", len(whole), SHORT if arguments.short else 64, "higher"),
        Bar("score of the solutions", whole_scores["solved"], 1.0, "higher"),
        Bar("score of wrong ends", whole_scores["wrong"], 0.0, "lower"),
        Bar("score of the untouched phone", whole_scores["untouched"], 0.0, "lower"),
        Bar("trajectories/s, best against its best", best["flywheel"] / best["mobilegym"], 2.0, "higher"),
        Bar(f"of {len(screens)} screens, ours the same in each play", repeated, 1.0, "higher"),
        Bar(f"of {len(steady)} that are the same in each of its plays, ours the same", identical, 1.0, "higher"),
    ]
    different = sorted(
        (row for row in screens if row["largest"] or not row["steady"]), key=lambda row: -row["differing"]
    )
    return finish("mobilegym", [*rows, *different], bars, arguments, tables=[rows, different[:40]])


def _row(side: str, setting: str, one: Mapping[str, Any], found: Found) -> dict[str, Any]:
    rate = len(found) / one["seconds"]
    return {
        "side": side, "setting": setting, "trajectories": len(found), "solved": sum(one["scores"].values()),
        "seconds": round(one["seconds"], 1), "trajectories_s": rate,
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
