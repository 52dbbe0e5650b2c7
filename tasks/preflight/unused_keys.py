"""Refuse keys that were set and that nothing reads under this config, by name, instead of ignoring them.

Keys that only another model's engine reads are refused in `learning.engines.choice`; this module has keys that depend
on another key. A key counts as set where its value is not the default. One config serves several commands in turn, so
it may have keys of another method or of a part that is off: these are not refused, but every run names them
(docs/decisions/0013-other-methods.md).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from environments.catalog import catalog
from environments.registry import verifier_of
from learning.algorithms.method import DataSource, Method, method_of
from learning.engines.choice import is_small
from models.thinkers.thinker import THINKERS
from schemas.config import Config
from schemas.config.curating import JudgeConfig, SynthesisConfig
from schemas.config.sections import CurriculumConfig
from schemas.config.training import EpochSection, GroupConfig, TrainConfig
from schemas.failure import UsageError


@dataclass(frozen=True, slots=True)
class UnusedKeyRule:
    """Keys that only some configs read."""

    keys: tuple[str, ...]
    """Dotted keys; a section stands for every key in it."""
    idle: Callable[[Config], bool]
    """Whether nothing reads them."""
    because: str
    hint: str


def refuse_unused_keys(config: Config) -> str:
    """Return `flywheel doctor`'s text about the keys that were set.

    Raises:
        UsageError: nothing reads one of them; the message has the key, the reason and the fix.
    """
    for rule in RULES:
        found = _set_among(config, rule.keys)
        if found and rule.idle(config):
            raise UsageError(f"`{found[0]}` is set, and nothing reads it: {rule.because}.", rule.hint)
    return for_others(config) or "every key that is set is read"


def refuse_unrepeated(overrides: Iterable[str]) -> None:
    """Refuse overrides of keys that a repeated training takes from the original policy's config.

    Raises:
        UsageError: there is one; the message has its name.
    """
    for override in overrides:
        key = override.partition("=")[0]
        section, _, name = key.partition(".")
        if section in REPEATED and name.partition(".")[0] not in REPEATED[section]:
            raise UsageError(
                f"`{key}`: with `--like` a policy is trained by the config that it was made with.",
                "Leave `--like` away to train today's data with it, or leave the key away.",
            )


def for_others(config: Config, sections: bool = True) -> str:
    """Return the keys that are set for another method or a part that is off, in a sentence; empty where there is none.

    Args:
        config: the run's.
        sections: as in `for_other_methods`.
    """
    idle = [f"{section}.{key}" for section, keys, on in PARTS if not on(config) for key in keys]
    off = _set_among(config, idle)
    parts = f"set for parts that are off, and not read by this run: {', '.join(off)}" if off else ""
    return "; ".join(filter(None, (for_other_methods(config, sections), parts)))


def for_other_methods(config: Config, sections: bool = True) -> str:
    """Return the keys that are set for other training methods only, in a sentence; empty where there is none.

    Args:
        config: the run's.
        sections: include the sections of other methods, whose names show the method.
    """
    train = config.train
    method = method_of(train)
    others = {"ct", "ppo", "preference"} - {method.section} - ({"ct"} if train.ct_every else set[str]())
    idle = [f"train.{name}" for name in sorted(others) if sections]
    if sections and not method.in_groups:
        idle.append("train.group")
    idle += [f"train.group.{key}" for key in _unused_of_groups(method, train)]
    if isinstance(method.source, DataSource) and method.source is not DataSource.ACCEPTED:
        idle += [f"train.{key}" for key in IMITATED]
    if method.in_groups:
        idle += [f"curriculum.{key}" for key in WEIGHING]
    own = method.settings(train)
    if own is not train:
        idle += [f"train.{name}" for name in ("learning_rate", "learning_rate_first", "steps", "steps_first")]
    if isinstance(own, EpochSection):
        idle += ["train.batch", "train.warmup", "train.decay", "train.shape", "train.floor"]
    found = _set_among(config, idle)
    return f"set for other methods, and not read by {train.method}: {', '.join(found)}" if found else ""


def _unused_of_groups(method: Method, train: TrainConfig) -> Iterator[str]:
    """Yield the keys of `train.group` that a method in groups ignores; material of its own may read any of them."""
    if not method.in_groups or method.section == "group" or not isinstance(method.source, DataSource):
        return
    if method.source is DataSource.GROUPS:
        yield from EpochSection.model_fields
        return
    read = {*ROLLED_OUT, *({"advantage"} if method.source is DataSource.TRAJECTORIES else ())}
    default = GroupConfig()
    if train.group.size < default.k:  # `k` may not exceed it, whatever reads it
        read.add("k")
    yield from (key for key in GroupConfig.model_fields if key not in read)


def _set_among(config: Config, keys: Iterable[str]) -> list[str]:
    """Return the dotted keys at or below these whose values are not the default."""
    default = Config(suite=config.suite, environments=config.environments)
    return [one for key in keys for one in _set(config, default, key.split("."))]


def _set(chosen: BaseModel, default: BaseModel, keys: list[str], above: str = "") -> Iterator[str]:
    """Yield the dotted keys at or below `keys` whose values differ."""
    for key in keys[:1] or type(chosen).model_fields:
        mine, usual = getattr(chosen, key), getattr(default, key)
        name = f"{above}{key}"
        if isinstance(mine, BaseModel):
            yield from _set(mine, usual, keys[1:], f"{name}.")
        elif mine != usual:
            yield name


ROLLED_OUT = ("groups", "size", "temperature", "highest", "rise", "rising")
"""Keys of `train.group` for the rollout of groups, with any training method. For a critic, `advantage` also selects
scores or successes as its rewards."""
IMITATED = ("perception", "practice", "task_balance", "task_floor", "grounding_share")
"""Keys of `train` that weigh samples of accepted trajectories."""
WEIGHING = tuple(key for key in CurriculumConfig.model_fields if key != "forgetting")
"""Keys of `curriculum` that divide single trajectories, not groups."""
LAUNCHED = ("launch", "machines", "restarts", "hung_s")
"""Keys of `train` for the place of a training: the current ones count, also for a repeated older training."""
REPEATED: dict[str, tuple[str, ...]] = {
    "train": ("keep_policies", *LAUNCHED),
    "policy": ("backend", "options", "precision", "device", "batch", "seen_screens_mb", "prefix_mb", "server"),
    "filter": (),
    "think": (),
    "seed": (),
}
"""Sections of a training's settings, each with the keys in it that are about storage and acting instead."""
PARTS: tuple[tuple[str, tuple[str, ...], Callable[[Config], bool]], ...] = (
    ("synthesis", tuple(SynthesisConfig.model_fields), lambda config: config.synthesis.on),
    ("reflect", ("trajectories", "steps", "recover", "proposers", "options"), lambda config: config.reflect.on),
)
"""Sections, the keys in them that only the part itself reads, and whether it is on."""


def _is_local(config: Config) -> bool:
    return not config.lake.uri.startswith("s3://")


def _acts_elsewhere(config: Config) -> bool:
    return config.policy.backend == "server" or (config.policy.backend == "auto" and config.policy.server.named)


def _is_fast(config: Config) -> bool:
    return config.policy.backend in ("auto", "tiny") and is_small(config.policy.base)


def _without_device(config: Config) -> bool:
    return config.policy.device == "cuda" and (_is_fast(config) or _acts_elsewhere(config))


def _without_server(config: Config) -> bool:
    return not config.policy.server.named and ":" not in config.policy.backend


def _unjudged(config: Config) -> bool:
    asked = any(gate == "judge" or ":" in gate for gate in config.filter.gates)
    return not asked and all(verifier_of(task.verifier) is not None for task in catalog(config))


def _asks_no_model(config: Config) -> bool:
    return not any(THINKERS.class_of(name).asks_model for name in config.think.thinkers)


RULES = (
    UnusedKeyRule(
        ("annotate.screens", "annotate.per_screen", "train.perception", "train.ct.perception"),
        lambda config: not config.annotate.perception,
        "no perception data is made",
        "Name kinds in `annotate.perception`, or remove it.",
    ),
    UnusedKeyRule(
        ("lake.endpoint", "lake.region"),
        _is_local,
        "the lake is a folder of this machine",
        "Remove it, or set `lake.uri` to s3://bucket/prefix.",
    ),
    UnusedKeyRule(
        tuple(f"policy.{key}" for key in ("hidden", "layers", "vision_hidden", "vision_layers", "patch", "merge")),
        lambda config: config.policy.base != "tiny",
        "the network is that of `policy.base`",
        "Remove it, or set `policy.base` to tiny.",
    ),
    UnusedKeyRule(
        ("policy.device",),
        _without_device,
        "the small policy acts on the CPU, and a server where it runs",
        "Remove it; `policy.backend=transformers` takes the small policy to a GPU.",
    ),
    UnusedKeyRule(
        ("policy.batch", "policy.seen_screens_mb", "policy.prefix_mb"),
        lambda config: _is_fast(config) or _acts_elsewhere(config),
        "the small policy takes all that wait at once, and a server as it likes",
        "Remove it.",
    ),
    UnusedKeyRule(
        ("policy.precision",),
        _acts_elsewhere,
        "a server decides for itself",
        "Remove it, or set no `policy.server`.",
    ),
    UnusedKeyRule(
        ("policy.server",),
        _without_server,
        "there is no server",
        "Set `policy.server.url` or `policy.server.command`, or remove it.",
    ),
    UnusedKeyRule(
        ("policy.server.start_timeout_s",),
        lambda config: not config.policy.server.command,
        "no server is started",
        "Set `policy.server.command`, or remove it.",
    ),
    UnusedKeyRule(
        ("policy.server.in_flight",),
        lambda config: config.policy.server.update == "path",
        "requests go on under the weights that they name",
        "Set `policy.server.update`, or remove it.",
    ),
    UnusedKeyRule(
        ("think.tries", "think.most"),
        _asks_no_model,
        "none of `think.thinkers` asks a model",
        "Name one that does, such as policy, or remove it.",
    ),
    UnusedKeyRule(
        ("think.keep_without",),
        lambda config: not config.policy.thoughts,
        "without `policy.thoughts` no trajectory is read with its thoughts",
        "Remove it, or set `policy.thoughts` to true.",
    ),
    UnusedKeyRule(
        tuple(f"judge.{key}" for key in JudgeConfig.model_fields if key != "kind"),
        lambda config: config.judge.kind == "none",
        "there is no judge",
        "Set `judge.kind`, or remove it.",
    ),
    UnusedKeyRule(
        tuple(f"cluster.{key}" for key in ("address", "parts", "cpus", "retries")),
        lambda config: config.cluster.kind == "local",
        "this machine collects alone",
        "Set `cluster.kind` to ray, or remove it.",
    ),
    UnusedKeyRule(
        tuple(f"openlineage.{key}" for key in ("namespace", "key_variable", "timeout_s")),
        lambda config: not config.openlineage.to,
        "no events are sent",
        "Set `openlineage.to`, or remove it.",
    ),
    UnusedKeyRule(
        ("train.machines.hosts", "train.machines.reach"),
        lambda config: config.train.launch != "torchrun",
        "`train.launch` is not torchrun",
        "Set `train.launch` to torchrun, or remove it.",
    ),
    UnusedKeyRule(
        ("train.machines.command", "train.machines.cancel", "train.machines.nodes"),
        lambda config: config.train.launch != "command",
        "`train.launch` is not command",
        "Set `train.launch` to command, or remove it.",
    ),
    UnusedKeyRule(
        tuple(f"train.machines.{key}" for key in ("python", "least", "join_s", "store")),
        lambda config: config.train.launch == "local",
        "trainings run on this machine alone",
        "Set `train.launch` to torchrun or command, or remove it.",
    ),
    UnusedKeyRule(
        ("train.lora.alpha", "train.lora.targets", "train.lora.vision"),
        lambda config: not config.train.lora.rank,
        "without a rank there is no adapter",
        "Set `train.lora.rank`, or remove it.",
    ),
    UnusedKeyRule(
        ("train.stream.groups", "train.stream.stale"),
        lambda config: not config.train.stream.on,
        "training does not go on while others are rolled out",
        "Set `train.stream.on`, or remove it.",
    ),
    UnusedKeyRule(
        ("train.group.refill",),
        lambda config: config.train.stream.on,
        "with a stream groups fill batches anyway",
        "Remove it, or set `train.stream.on` to false.",
    ),
    UnusedKeyRule(
        tuple(f"curriculum.{key}" for key in WEIGHING if key != "method"),
        lambda config: config.curriculum.method == "uniform",
        "`curriculum.method` gives every task an equal share",
        "Remove it, or set `curriculum.method` to learnable.",
    ),
    UnusedKeyRule(
        ("traces.endpoint",),
        lambda config: config.traces.to != "otlp",
        "no traces are sent to a collector",
        "Set `traces.to` to otlp, or remove it.",
    ),
    UnusedKeyRule(
        ("judge",),
        _unjudged,
        "every task has a verifier, and `judge` is not among `filter.gates`",
        "Add the gate `judge` or a task without a verifier, or remove it.",
    ),
)
