"""Check the machine, the environments, the judge and the policies before a run.

The checks of packages, memory and cores refuse no run. Environments are listed with the parts that this machine lacks.
Streamed training with a judge on probation is refused: all trajectories that such a judge accepts are held back, so its
groups would be useless. The lake's policies must descend from the config's policy, and must not be trained on held-out
tasks.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from curation.agreement import probation
from curation.synthesis.leaks import ancestors
from environments.catalog import catalog, whole_catalog
from environments.registry import ENVIRONMENTS, environments_of, verifier_of
from environments.workers.build import MODULES
from models.judges.registry import GATE
from models.tiny.layout import read_config
from schemas.config import Config
from schemas.config.policy import SIZES, PolicyConfig
from schemas.failure import FlywheelError, Probe, UsageError
from schemas.registry import options_of
from schemas.tables.policy import PolicyVersion
from storage.lake import Lake
from tasks.preflight.names import shadowing
from tasks.shared.paths import lake_if_any
from tasks.shared.policies import origin_of
from tasks.shared.reviews import Standing
from tasks.shared.suite import parents_of

LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"
MEMORY_GIB = 3.0
"""Free memory in GiB below which a laptop run is likely to be killed."""


def machine_probes() -> list[Probe]:
    """Return the probes of packages, names of modules, memory and cores."""
    examined = {"packages": compare_packages, "names": shadowing, "memory": _memory, "cores": _cores}
    return [Probe(name, examine, required=False) for name, examine in examined.items()]


def compare_packages(lock: Path = LOCK) -> str:
    """Check that the installed packages have the pinned versions. Local builds such as `+cpu` count as equal.

    Raises:
        FlywheelError: some packages have other versions. The message has their names.
    """
    if not lock.is_file():
        return "no requirements.lock next to the code: not compared"
    pins = dict(re.findall(r"^([^\s=#]+)==(\S+)", lock.read_text(), re.MULTILINE))
    wrong = [
        f"{name} {found or 'missing'} (pinned {pin})"
        for name, pin in pins.items()
        if (found := _installed(name)) != pin
    ]
    if wrong:
        hint = "Run `make setup` again, or `pip install -r requirements.lock`."
        raise FlywheelError(", ".join(wrong[:6]), hint)
    return f"{len(pins)} packages as pinned"


def _memory() -> str:
    free, whole = (getattr(psutil.virtual_memory(), key) / 2**30 for key in ("available", "total"))
    found = f"{free:.1f} of {whole:.1f} GiB free"
    if free < MEMORY_GIB:
        hint = "Close something, or lower train.batch and how many sandboxes the environments have (`environments`)."
        raise FlywheelError(found, hint)
    return found


def _cores() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{cores}" if cores >= 2 else "1: it works, slowly; set train.processes=1 and fewer sandboxes"


def _installed(name: str) -> str | None:
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return None


def require_trusted(config: Config, version: str) -> None:
    """Raise UsageError if a run would train on trajectories while a judge on probation scores them.

    Args:
        config: config of the run.
        version: version of the judge's verdicts with this config.
    """
    if not config.train.stream.on or GATE not in config.filter.gates:
        return
    trained_on = [task for task in catalog(config) if task.split != "held_out"]
    judged = sorted(task.template for task in trained_on if verifier_of(task.verifier) is None)
    if not judged:
        return
    lake = lake_if_any(config)
    because = Standing(lake, config.judge).probation(version) if lake else probation([], config.judge)
    if because:
        raise UsageError(
            f"`train.stream.on`: the judge of {', '.join(judged)} is on probation ({because}), and trajectories that "
            "it accepts would be in no batch.",
            "Let it earn trust first: `flywheel judge` on trajectories with a verifier, or iterations without "
            "`train.stream.on`. Or leave these tasks out, or trust it unseen with judge.evidence_min=0.",
        )


WORKER = "worker"
"""Kind of environment whose modules are listed separately."""


@dataclass(frozen=True, slots=True)
class Available:
    """An environment of the config, or a built-in kind that the config does not use."""

    name: str
    """Name of its section, or of its kind if the config has no section."""
    kind: str
    configured: bool
    ready: bool
    """Whether its required probes pass. A kind that needs keys of its own is not ready."""
    lacks: str
    """Reason why the environment is not ready."""
    tasks: int | None
    sandboxes: int | None
    """Maximum number of concurrent trajectories."""


def available(config: Config) -> list[Available]:
    """Return the environments of the config in order, then the built-in kinds that the config does not use."""
    found = [_available(config, name, configured=True) for name in config.environments]
    used = {one.kind for one in found} | {getattr(section, "module", "") for section in config.environments.values()}
    kinds = [kind for kind in ENVIRONMENTS.names if kind not in used and kind != WORKER]
    return [
        *found,
        *(_kind(config, kind) for kind in kinds),
        *(_worker(config, one) for one in MODULES if one not in used),
    ]


def _worker(config: Config, module: str) -> Available:
    """Check a module of the kind `worker`, with the Python that was built for it."""
    section = options_of(ENVIRONMENTS.class_of(WORKER).section, {"kind": WORKER, "module": module}, WORKER)
    one = _available(config.model_copy(update={"environments": {module: section}}), module, configured=False)
    return replace(one, kind=f"{WORKER} {module}")


def _kind(config: Config, kind: str) -> Available:
    try:
        section = options_of(ENVIRONMENTS.class_of(kind).section, {"kind": kind}, f"environments.{kind}")
    except UsageError as error:
        return Available(kind, kind, False, False, str(error), None, None)
    alone = config.model_copy(update={"environments": {kind: section}})
    return _available(alone, kind, configured=False)


def _available(config: Config, name: str, configured: bool) -> Available:
    kind = config.environments[name].kind
    one = config.model_copy(update={"environments": {name: config.environments[name]}})
    try:
        (environment,) = environments_of(one)
        for probe in environment.probes():
            if probe.required:
                probe.examine()
        return Available(name, kind, configured, True, "", len(environment.entries), environment.size)
    except FlywheelError as error:
        return Available(name, kind, configured, False, str(error), None, None)


LEARNT = ("base", "dialect")
"""Keys of `policy` for the origin of the weights and the trained output format."""
UNNAMED = {"qwen2_5_vl": "pixels"}
"""Unit of coordinates by `model_type`, for `policy.family=auto` in lakes that are older than named families. All other
models used thousandths."""


def require_descent(config: Config, lake: Lake) -> None:
    """Refuse a config whose policy differs from the origin of the champion.

    A run acts with the champion and trains from it, so the config's policy would be ignored.

    Raises:
        UsageError: the policies differ. The message has both policies and the possible fixes.
    """
    origin = origin_of(lake)
    if origin is None:
        return
    made = json.loads(origin.config)["policy"]
    asked = config.policy.model_dump(mode="json")
    built = origin.kind == "initial" and origin.method != "adopted" and made["base"] == "tiny"
    keys = LEARNT + (SIZES if built else ())  # an adopted policy has sizes of its own
    for key in keys:
        before = made.get(key, PolicyConfig.model_fields[key].default)  # an older release did not have the key
        if before != asked[key]:
            name = origin.policy_version
            raise UsageError(
                f"`policy.{key}={asked[key]}`: the champion of {lake.uri} descends from {name}, made with "
                f"policy.{key}={before}.",
                f"{_own_config(origin, config)}Set policy.{key}={before} to continue with it, set a new `lake.uri`, or "
                "bring the other checkpoint in as a challenger: `flywheel adopt DIR`.",
            )
    if origin.kind == "initial" and config.policy.given:
        _require_family(config, made, lake.uri)


def _own_config(origin: PolicyVersion, config: Config) -> str:
    """Return the beginning of a hint, which names the config that made a policy; empty if it is the current config."""
    name = json.loads(origin.config).get("name", config.name)
    return "" if name == config.name else f"Take the config named {name} with --config. "


def _require_family(config: Config, made: Mapping[str, object], uri: str) -> None:
    """Refuse a family whose format differs from the format that the lake's policies were trained with."""
    from models.families.registry import name_of

    asked, was = name_of(config.policy), str(made.get("family", "auto"))
    if was == "auto" and "template" not in made:
        was = UNNAMED.get(str(read_config(config.policy.folder).get("model_type")), "thousandths")
    elif was == "auto":
        try:
            was = name_of(config.policy.model_copy(update={"family": "auto"}))
        except UsageError:  # an older release used thousandths for unknown models; a name is required now
            was = asked
    templates = (made.get("template", "computer"), config.policy.template)
    for key, before, now in (("family", was, asked), ("template", *templates)):
        if before != now:
            raise UsageError(
                f"`policy.{key}` is {now}, but the policies of {uri} were trained with {before}.",
                f"Set policy.{key}={before}, or a new `lake.uri`.",
            )


def require_held_out(config: Config, lake: Lake) -> None:
    """Refuse to hold out tasks with data in the lake, because policies have learned or will learn from this data.

    Raises:
        UsageError: there is such a task; the message names it, or the task that was made from it.
    """
    held = {task.task_id for task in whole_catalog(config) if task.split == "held_out"}
    rolled_out = set(lake.read("trajectories", ["task_id"], {"split": "train"})["task_id"].unique().to_pylist())
    parents = parents_of(lake)
    for task in sorted(rolled_out):
        if leaking := ({task} | set(ancestors([task], parents))) & held:
            of = "" if task in leaking else ", which was made of it"
            raise UsageError(
                f"`suite.held_out`: {min(leaking)} is held out, but {lake.uri} has trajectories of {task}{of}, and its "
                "policies learn from them.",
                "Set a new `lake.uri`, or do not hold the task out.",
            )
