"""Check the requirements of a run. `flywheel doctor` shows all checks; a run is refused at the first failed check.

Slow modules are imported only if the config needs them.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from common.process import home
from common.text import counted
from curation.gates.registry import gates_of
from environments.catalog import catalog
from environments.registry import environments_of, left_out, usable, verifier_of
from learning.algorithms.method import DataSource, method_of
from learning.tracking import TRACKERS
from models.hub import fetched_base
from models.judges.registry import judge_of, required_judge, version_of
from models.policy import EXPLORERS
from models.proposers import PROPOSERS
from models.readers import reader_class
from models.safe import require_servable, weights_of
from models.thinkers.thinker import THINKERS
from models.tiny.layout import read_config
from schemas.config import Config
from schemas.config.policy import PolicyConfig
from schemas.failure import CheckpointError, CheckReport, LakeError, Probe, UsageError
from schemas.registry import options_of
from schemas.tables.task import GuiTask
from storage.address import require_bucket
from storage.address import resolve as resolve_address
from storage.explained import explained
from storage.forgetting import unreadable
from storage.lake import Lake
from tasks.preflight.checks import machine_probes, require_descent, require_held_out, require_trusted
from tasks.preflight.unused_keys import ALL_READ, for_later_trainings, refuse_unused_keys
from tasks.running.cluster import require_cluster
from tasks.running.traces import require_traces
from tasks.shared.general import check_general
from tasks.shared.paths import lake_if_any
from tasks.shared.policies import champion_if_any
from tasks.shared.suite import require_makers

TRAINS = {
    "policy", "policies", "options", "training", "general", "processor", "device", "teacher", "trackers", "traces",
    "storage",
}  # fmt: skip
"""Checks of a training without an environment, besides those of the lake and the disks."""
PER_PROCESSOR = 4
"""Maximum number of training processes per processor of this machine. More processes would only wait for each other."""


def examine(config: Config) -> list[CheckReport]:
    """Run all checks, in the order in which a run needs them. A problem that several checks find is reported once."""
    found: list[CheckReport] = []
    for probe in [*probes(config), *machine_probes()]:
        check = probe.check()
        same = next((one.name for one in found if not one.ok and one.detail == check.detail), None)
        if not check.ok and same is not None:
            check = CheckReport(check.name, False, f"not examined, because of {same}")
        found.append(check)
    return found


def require(config: Config, trains_only: bool = False) -> None:
    """Refuse a run that would fail. The checks leave no files and use no budget.

    Args:
        config: the resolved config.
        trains_only: check only what a training needs, and no environment.

    Raises:
        UsageError: a part cannot be found; a task has neither a verifier nor a judge; the method or the model lacks a
            training option; a key is set and unused; or training would use groups that a judge on probation scores.
        FlywheelError: the browser, the checkpoint folder, or a package for adapters or the screen reader is missing; or
            the policy's server does not answer.
        LakeError: the lake's address is not writable or has other data, or the disk is nearly full.
    """
    for probe in _required(probes(config), trains_only):
        probe.examine()


def _required(found: Sequence[Probe], trains_only: bool) -> list[Probe]:
    named = [one for one in found if not trains_only or one.name in TRAINS or one.name.startswith(("lake", "disk "))]
    return [one for one in named if one.required]


def probes(config: Config, asks: bool = True) -> list[Probe]:
    """Return the checks of a config, for `flywheel run`, `flywheel plan` and `flywheel doctor`.

    Args:
        config: the resolved config.
        asks: include checks that contact models, servers and GPUs, and that write to the storage.
    """
    places = {"work folder": home()}
    if "://" not in config.lake.uri:
        places["lake"] = Path(config.lake.uri).expanduser().absolute()
    return [
        Probe("tasks", lambda: _tasks(config)),
        Probe("gates", lambda: ", ".join(f"{gate.name}@{gate.version}" for gate in gates_of(config.filter))),
        Probe("explorer", lambda: _explorer(config)),
        Probe("policy", lambda: _policy(config)),
        Probe("policies", lambda: _descent(config)),
        Probe("options", lambda: options_read(config, config.iterations)),
        Probe("training", lambda: _training(config)),
        Probe("general", lambda: check_general(config)),
        *(Probe(name, lambda why=why: f"left out with its tasks: {why}") for name, why in left_out(config).items()),
        *(
            replace(probe, name=f"{environment.name}: {probe.name}")
            for environment in usable(config)
            for probe in environment.probes()
        ),
        Probe("processor", lambda: _processor(config)),
        Probe("judge", lambda: _judge(config, asks)),
        Probe("device", lambda: _device(config, asks)),
        Probe("server", lambda: _server(config, asks)),
        Probe("teacher", lambda: _teacher(config, asks)),
        Probe("proposers", lambda: _proposers(config, asks)),
        Probe("makers", lambda: _makers(config, asks)),
        Probe("thinkers", lambda: _thinkers(config, asks)),
        Probe("reader", lambda: _reader(config)),
        Probe("trackers", lambda: _trackers(config)),
        Probe("traces", lambda: require_traces(config)),
        Probe("cluster", lambda: require_cluster(config)),
        Probe("storage", lambda: _storage(config, asks)),
        Probe("lake", lambda: _of_lake(config, _whole)),
        Probe("Delta log", lambda: _of_lake(config, _log), required=False),
        *(Probe(f"disk of the {name}", partial(require_disk, config, name, place)) for name, place in places.items()),
    ]


VALUES = ("tasks", "gates", "explorer", "policy", "options", "training")
"""Checks that depend on the config's values and not on this machine."""


def require_values(config: Config) -> None:
    """Refuse a config whose values every run refuses; raises the errors of `require`."""
    for probe in planned(config):
        if probe.name in VALUES:
            probe.examine()


def planned(config: Config, trains_only: bool = False) -> list[Probe]:
    """Return the checks that contact no model, server or GPU and write nothing; `trains_only` is as in `require`."""
    return _required(probes(config, asks=False), trains_only)


def _tasks(config: Config) -> str:
    tasks = catalog(config)
    if _unverified(tasks):
        required_judge(config.judge)
    return f"{counted(len(tasks), 'task')}, scored by {', '.join(sorted({task.verifier for task in tasks}))}"


def _judge(config: Config, asks: bool) -> str:
    """Check that the judge exists, if a judge is configured or a task needs one."""
    if not _unverified(catalog(config)):
        judge, audited = judge_of(config.judge), any(gate.given for gate in gates_of(config.filter))
        if judge is None or not audited or not config.judge.audit:
            return "none is needed: every task has a verifier"
        if asks:
            judge.require()
        return (
            f"{judge.name} is there; it is asked about {config.judge.audit} trajectories of each iteration, as evidence"
        )
    judge = required_judge(config.judge)
    if asks:
        judge.require()
    require_trusted(config, version_of(judge, config.judge))
    return f"{judge.name} is there"


def _unverified(tasks: Sequence[GuiTask]) -> bool:
    return not all([verifier_of(name) for name in sorted({task.verifier for task in tasks})])


def _explorer(config: Config) -> str:
    explorer = EXPLORERS.class_of(config.collect.explorer)
    if explorer.needs_hints:
        return f"{explorer.version}; it acts at random in tasks without a script"
    blind = [one.name for one in environments_of(config, catalog(config)) if not one.lists_elements]
    note = f"; {', '.join(blind)} lists no elements: it acts at random points there" if blind else ""
    return explorer.version + (note if explorer.needs_elements else "")


def require_base(config: Config) -> None:
    """Raise UsageError if `policy.base` is no model folder, and no model that can be fetched from the Hub."""
    base = config.policy.base
    folder = fetched_base(config.policy)
    if base != "tiny" and not folder.is_dir():
        hint = "Name a Hugging Face model folder, `pretrained` or `tiny`."
        raise UsageError(f"`policy.base`: there is no folder {base}.", hint)
    if base != "tiny" and not (folder / "config.json").is_file():
        hint = "Name a Hugging Face model folder (config.json, weights, tokenizer), `pretrained` or `tiny`."
        raise UsageError(f"`policy.base`: {base} is not a model folder: it has no config.json.", hint)


def options_read(config: Config, iterations: int) -> str:
    """Return the text of `flywheel doctor` about keys that are set.

    Args:
        config: the resolved config.
        iterations: number of planned iterations.

    Raises:
        UsageError: `policy.base` is no model folder, or a key is set and no run reads it.
    """
    require_base(config)
    found = refuse_unused_keys(config)
    unread = for_later_trainings(config) if iterations <= 1 and not _is_trained(config) else ""
    return found if not unread else unread if found == ALL_READ else f"{found}; {unread}"


def _is_trained(config: Config) -> bool:
    """Check whether the lake has a policy that a training made."""
    lake = lake_if_any(config)
    return lake is not None and lake.count("policies") > lake.count("policies", {"kind": "initial"})


def _require_room(policy: PolicyConfig) -> None:
    """Refuse a maximum reply that fills the model's context, if the checkpoint names its context."""
    if policy.max_new_tokens is None or policy.base == "tiny":
        return
    known = read_config(policy.folder)
    text = known.get("text_config")
    context = known.get("max_position_embeddings") or (text if isinstance(text, dict) else {}).get(
        "max_position_embeddings"
    )
    if isinstance(context, int) and policy.max_new_tokens >= context:
        raise UsageError(
            f"`policy.max_new_tokens` is {policy.max_new_tokens}, and {policy.base} has a context of {context} tokens "
            "for prompt and reply.",
            "Lower it, or leave it out for the family's own.",
        )


def _policy(config: Config) -> str:
    require_base(config)
    base = config.policy.base
    if base != "tiny":
        weights_of(config.policy.folder)
        _require_room(config.policy)
        if config.policy.acts_on_server:
            require_servable(config.policy.folder)
    if config.policy.backend != "auto":
        from models.language_model import BACKENDS

        options_of(BACKENDS.class_of(config.policy.backend).options, config.policy.options, "policy.options")
    from models.families.registry import FAMILIES, doubt, name_of

    name = name_of(config.policy)
    family = FAMILIES.class_of(name)(config.policy)
    if config.think.keep_without and not family.asks_without:
        raise UsageError(
            f"`think.keep_without` is set, and the family {name} always thinks.",
            "Remove it, or name another `policy.family`.",
        )
    if base == "tiny":
        return "the small policy, made new"
    how = "by its architecture" if config.policy.family == "auto" else "by `policy.family`"
    why = doubt(config.policy.family, config.policy.folder)
    return f"{base}, asked as {name}, {how}{f', although {why}' if why else ''}"


def _processor(config: Config) -> str:
    """Check that the checkpoint has a tokenizer, and an image processor whose image tokens the family can count."""
    from learning.engines.choice import is_small
    from models.families.processor import read_processor
    from models.families.registry import family_of

    require_base(config)
    if is_small(str(config.policy.folder)):
        return "the small policy's own"
    limits = family_of(config.policy).limits
    read_processor(config.policy.folder)
    if limits is None:
        return "it has no limits: screens go to the model unchanged"
    return f"screens are shown in multiples of {limits.factor}, of {limits.least:,} to {limits.most:,} pixels"


def _training(config: Config) -> str:
    from learning.engines.choice import check_training

    require_base(config)
    train = config.train
    if train.lora.rank:
        from learning.engines.fsdp.adapters import require_peft

        require_peft(train.lora)
    most = PER_PROCESSOR * (os.cpu_count() or 1)
    if train.launch == "local" and train.processes != "auto" and train.processes > most:
        problem = f"`train.processes={train.processes}`: this machine has {counted(os.cpu_count() or 1, 'processor')}"
        raise UsageError(f"{problem}.", f"At most {most}; `auto` takes one for each GPU, or two without.")
    rate = check_training(train, str(config.policy.folder))
    if train.lora.rank:
        from learning.engines.fsdp.census import sizes_at

        sizes_at(config.policy.folder, train.lora)
    if train.launch == "local" and train.processes != "auto" and train.processes % train.replicas:
        problem = f"`train.replicas` is {train.replicas}, and {counted(train.processes, 'process', 'processes')} train"
        raise UsageError(f"{problem}.", "Take a divisor of them.")
    return f"{train.method} at learning rate {rate:g}{' with adapters' if train.lora.rank else ''}"


def _trackers(config: Config) -> str:
    """Check that the requirements of all trackers are installed. No server is contacted."""
    TRACKERS.require(config.tracking.trackers, config.tracking.options)
    return ", ".join(config.tracking.trackers) or "none: the lake has every training's steps"


def _descent(config: Config) -> str:
    """Check that the lake's policies, if any, descend from a policy that this config would make."""
    require_base(config)

    def fits(lake: Lake) -> str:
        require_descent(config, lake)
        require_held_out(config, lake)
        return "those of the lake fit this config's `[policy]`"

    return _of_lake(config, fits)


def _of_lake(config: Config, examine: Callable[[Lake], str]) -> str:
    """Run a check of the lake, if there is a lake."""
    lake = lake_if_any(config)
    return "none yet" if lake is None else examine(lake)


def _whole(lake: Lake) -> str:
    """Check that the files of every table and of the champion exist."""
    if gone := lake.missing(lake.versions()):
        problem = f"Files of table{'s' if len(gone) > 1 else ''} {', '.join(sorted(gone))} of {lake.uri} are missing."
        raise LakeError(problem, "Restore them from a copy of the lake.")
    if champion := champion_if_any(lake):
        try:
            lake.blobs.require(champion.checkpoint)
        except CheckpointError as error:
            raise CheckpointError(
                f"The champion {champion.policy_version}: {error.problem}",
                "Restore it from a copy of the lake, or `flywheel rollback` to a policy that is there.",
            ) from error
    return "the files of its tables and of its champion are there"


def _log(lake: Lake) -> str:
    """Check that every Delta reader can read the lake."""
    if found := unreadable(lake):
        raise LakeError(
            f"{sum(found.values())} files of {', '.join(found)} differ from the Delta log, since a `forget` of an "
            "earlier release: flywheel reads them, other readers of Delta do not.",
            "`flywheel upgrade` fixes that.",
        )
    return "the existing files match it"


def _device(config: Config, asks: bool) -> str:
    """Check that this machine has the GPUs that the config requires, if it acts or trains on this machine."""
    from learning.engines.choice import is_small

    require_base(config)
    if is_small(str(config.policy.folder)):
        return "CPU; the small policy needs no GPU"
    if not asks:
        return "not asked"
    from models.serving.local import device_of

    acts = "a server" if config.policy.server.named else device_of(config.policy)
    if config.train.launch != "local":
        return f"{acts} for acting, that of `train.launch` for training"
    from learning.engines.fsdp.model import device_of as training_device

    return f"{acts} for acting, {training_device(config.train).type} for training"


def _server(config: Config, asks: bool) -> str:
    described = _named_server(config)
    if not config.policy.server.named:
        return described
    if asks:
        from models.serving.server import require_server

        described = require_server(config.policy.server)
    return f"{described}; {_actor(config)}"


def _actor(config: Config) -> str:
    """Describe whether the server or this process runs the policy's network."""
    if not config.policy.acts_on_server:
        return f"it does not act: `policy.backend` is {config.policy.backend}"
    if config.policy.given:
        return "it acts, not this process"
    return "it acts, not this process: it must load the checkpoints of the small policy (`policy.base` is tiny)"


def _named_server(config: Config) -> str:
    """Check the config's server settings, without contacting the server."""
    server, recomputes = config.policy.server, config.train.group.recompute
    if recomputes and (server.logprobs or not config.policy.acts_on_server):
        raise UsageError(
            "`train.group.recompute` is set, but each reply comes with its log probabilities.",
            "Remove it. It is for a server without them (`policy.server.logprobs` is false).",
        )
    if not server.named:
        return "none: the policy acts in this process"
    if method_of(config.train).reads_logprobs and not (server.logprobs or _recomputes(config)):
        raise UsageError(
            f"`policy.server.logprobs` is not set, but {config.train.method} trains on the tokens' log probabilities.",
            "Set it to true, with a server that gives log probabilities: vLLM or SGLang. With any other server, set "
            "train.group.recompute to true, and train.method to grpo.",
        )
    from models.serving.server import require_described

    require_described(server)
    return "not asked"


def _recomputes(config: Config) -> bool:
    """Check whether the trainer computes the log probabilities that the server does not return."""
    return config.train.group.recompute and method_of(config.train).section == "group"


def _teacher(config: Config, asks: bool) -> str:
    """Check that the teacher of `train.opd` reads texts and pictures as the policy does, if the method needs one."""
    if method_of(config.train).source is not DataSource.REPLIES:
        return "none: `train.method` needs none"
    from models.serving.teacher import Teacher, require_named

    settings = config.train.opd
    require_named(settings)
    if config.temperature != 1.0:
        raise UsageError(
            f"`collect.temperature` is {config.temperature:g}, and a teacher's log probabilities are those at 1.",
            "Set it to 1.",
        )
    if not asks:
        return "not asked"
    require_base(config)
    Teacher(settings).require(config.policy.folder, config.policy)
    return f"{settings.model} has the policy's tokenizer"


def _proposers(config: Config, asks: bool) -> str:
    if not config.reflect.on:
        return "none: `reflect.on` is not set"
    (PROPOSERS.require if asks else PROPOSERS.options)(config.reflect.proposers, config.reflect.options)
    return ", ".join(config.reflect.proposers)


def _makers(config: Config, asks: bool) -> str:
    if not config.synthesis.on:
        return "none: `synthesis.on` is not set"
    require_makers(config, asks)
    return ", ".join(config.synthesis.makers)


def _thinkers(config: Config, asks: bool) -> str:
    (THINKERS.require if asks else THINKERS.options)(config.think.thinkers, config.think.options)
    return ", ".join(config.think.thinkers) or "none: steps keep the thoughts that they have"


def _reader(config: Config) -> str:
    """Check that the configured screen reader can be made."""
    found = reader_class(config.annotate.reader)
    return f"{found.name} is there" if found else "none: only pages list elements"


def _storage(config: Config, write: bool) -> str:
    """Check the storage: open the lake if there is one, and write and remove a test file. Make no lake."""
    place = resolve_address(config.lake)
    with explained(place.uri):
        require_bucket(place)
        lake = lake_if_any(config)
        if lake is None and place.local:
            above = _existing(Path(place.uri))
            if not above.is_dir():
                raise LakeError(f"`lake.uri` is {place.uri}, and {above} is a file.", "Set it to a folder.")
            if not os.access(above, os.W_OK | os.X_OK):
                raise LakeError(
                    f"{place.uri} cannot be made: {above} is not writable.", "Set `lake.uri` to another folder."
                )
        elif write:
            store = place.store(*(("blobs",) if lake else ()))
            store.put("probe", b"")
            store.delete("probe")
    return f"lake {lake.lake_id} at {lake.uri}{', writable' * write}" if lake else f"{place.uri} is free for a new lake"


def require_disk(config: Config, name: str, place: Path) -> str:
    """Check that a disk has `lake.min_free_mb` of free space, and return a text with the free space.

    Args:
        config: the resolved config.
        name: name of the place, for messages.
        place: a folder on the disk, which need not exist.

    Raises:
        LakeError: there is less space, or the place is on no disk.
    """
    disk, least_mb = shutil.disk_usage(_existing(place)), config.lake.min_free_mb
    if not disk.total:
        raise LakeError(f"The {name}, {place}, is not on a disk that can be written to.", "Name another place.")
    free_mb = disk.free / 1e6
    if free_mb < least_mb:
        raise LakeError(
            f"The disk of the {name}, {place}, has {free_mb:,.0f} MB left; `lake.min_free_mb` is {least_mb}.",
            "Free some space, or lower it.",
        )
    return f"{free_mb / 1000:.1f} GB free at {place}"


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.parents) if place.exists())
