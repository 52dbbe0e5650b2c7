"""Refuse a config with keys that are set but unused, instead of ignoring these keys.

A section declares conditions for its keys (`schemas.config.section.ReadIf`). This module checks these conditions, and
conditions on the tasks, the model or the training method. `learning.engines.choice` refuses keys for the engine of
another model. A key counts as set if its value is not the default.

One config serves several commands, so it may have keys for another method or for a part that is off. Such keys are not
refused, but every run lists them (docs/decisions/0013-other-methods.md).
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

from environments.catalog import catalog
from environments.registry import verifier_of
from learning.algorithms.method import DataSource, Method, method_of
from learning.engines.choice import is_small
from models.families.processor import read_video_rule
from models.thinkers.thinker import THINKERS
from schemas.config import Config
from schemas.config.section import ReadIf, Section, changed_keys
from schemas.config.sections import WEIGHING
from schemas.config.training import EpochSection, GroupConfig, RateSection, TrainConfig
from schemas.failure import UsageError

ALL_READ = "every key that is set has an effect"
METHOD_SECTIONS = [name for name, one in TrainConfig() if isinstance(one, RateSection)]
"""Sections of `train` with the settings of one method, or of methods that roll out groups."""


def refuse_unused_keys(config: Config) -> str:
    """Return the text of `flywheel doctor` about keys that are set.

    Raises:
        UsageError: a key is set and unused. The message has the key, the reason and the fix.
    """
    for key, rule in _idle(config):
        if rule.refused:
            because = f"`{rule.key}` is {_text(_value(config, rule.key))}"
            to = f" to {' or '.join(map(_text, rule.values))}" if rule.values else ""
            raise _refused(config, key, because, f"Set `{rule.key}`{to}, or remove it.")
    for keys, idle, because, hint in RULES:
        if (found := _set_among(config, keys)) and idle(config):
            raise _refused(config, found[0], because, hint)
    return for_others(config) or ALL_READ


def for_later_trainings(config: Config) -> str:
    """Return a sentence with the set keys that the small policy's first training does not read; empty without such
    keys."""
    train = config.train
    if not is_small(str(config.policy.folder)) or method_of(train).settings(train) is not train:
        return ""
    other_rate = bool(train.learning_rate_first) and not config.policy.given
    found = _set_among(config, ["train.steps", *(["train.learning_rate"] * other_rate)])
    instead = " and ".join(f"{key}_first" for key in found)
    return f"not read by the first training, which reads {instead}: {', '.join(found)}" if found else ""


def _text(value: object) -> str:
    return value if value and isinstance(value, str) else json.dumps(value)


def _refused(config: Config, key: str, because: str, hint: str) -> UsageError:
    usual = _value(_defaults(config), key)
    plain = usual is None or isinstance(usual, bool | int | float | str)
    undone = f" On the command line, `{key}={'none' if usual is None else _text(usual)}` undoes it." if plain else ""
    return UsageError(f"`{key}` is set, and nothing reads it: {because}.", hint + undone)


def _idle(config: Config) -> Iterator[tuple[str, ReadIf]]:
    """Yield each set key whose condition does not hold, with the condition."""
    for above, section in _sections("", config):
        for rule in section.read_if:
            if not rule.holds(_value(config, rule.key)):
                keys = [f"{above}{key}" for key in rule.keys or type(section).model_fields]
                yield from ((key, rule) for key in _set_among(config, keys) if key != rule.key)


def _sections(above: str, section: Section) -> Iterator[tuple[str, Section]]:
    """Yield a section and all sections inside it, each with the prefix of its dotted keys."""
    yield above, section
    for name, inner in section:
        if isinstance(inner, Section):
            yield from _sections(f"{above}{name}.", inner)


def _value(config: Config, key: str) -> Any:
    return reduce(getattr, key.split("."), config)


def refuse_unrepeated(overrides: Iterable[str]) -> None:
    """Refuse overrides of keys that a repeated training takes from the config of the original policy.

    Raises:
        UsageError: an override has such a key. The message has the key.
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
    """Return a sentence with the keys that are set for other methods or for parts that are off; empty without such
    keys.

    Args:
        config: config of the run.
        sections: as in `for_other_methods`.
    """
    off = [key for key, rule in _idle(config) if not rule.refused]
    parts = f"set for parts that are off, and not read by this run: {', '.join(off)}" if off else ""
    return "; ".join(filter(None, (for_other_methods(config, sections), parts)))


def for_other_methods(config: Config, sections: bool = True) -> str:
    """Return a sentence with the keys that are set only for other training methods; empty without such keys.

    Args:
        config: config of the run.
        sections: include keys in sections named after other methods.
    """
    train = config.train
    method = method_of(train)
    read = {method.section, *(["group"] * method.in_groups), *(["ct"] * bool(train.ct_every))}
    idle = [f"train.{name}" for name in METHOD_SECTIONS if sections and name not in read]
    idle += [f"train.group.{key}" for key in _unused_of_groups(method, train)]
    if isinstance(method.source, DataSource) and method.source is not DataSource.ACCEPTED:
        idle += [f"train.{key}" for key in IMITATED]
    if method.in_groups:
        idle += [f"curriculum.{key}" for key in ("method", *WEIGHING)]
    if method.source is DataSource.REPLIES:
        idle += [f"collect.{key}" for key in ("policy_share", "relay_share", "practice_trajectories")]
        idle.append("curriculum.hopeless_share")
    own = method.settings(train)
    if own is not train:
        idle += [f"train.{name}" for name in ("learning_rate", "learning_rate_first", "steps", "steps_first")]
    if isinstance(own, EpochSection):
        idle += ["train.batch", "train.warmup", "train.decay", "train.shape", "train.floor"]
    found = _set_among(config, idle)
    return f"set for other methods, and not read by {train.method}: {', '.join(found)}" if found else ""


def _unused_of_groups(method: Method, train: TrainConfig) -> Iterator[str]:
    """Yield the keys of `train.group` that a method ignores although it rolls out groups.

    A method with its own data source may read any of these keys, so nothing is yielded for it.
    """
    if not method.in_groups or method.section == "group" or not isinstance(method.source, DataSource):
        return
    if method.source is DataSource.GROUPS:
        yield from EpochSection.model_fields
        return
    read = {*ROLLED_OUT, *({"advantage"} if method.source is DataSource.TRAJECTORIES else ())}
    if train.group.size < GroupConfig().k:  # `k` must not exceed `size`, even if unused
        read.add("k")
    yield from (key for key in GroupConfig.model_fields if key not in read)


def _set_among(config: Config, keys: Iterable[str]) -> list[str]:
    """Return the dotted keys, at or below the given keys, whose values are not the default."""
    return changed_keys(config, _defaults(config), keys)


def _defaults(config: Config) -> Config:
    """Return the defaults of all keys but those without a default."""
    return Config(suite=config.suite, environments=config.environments)


ROLLED_OUT = ("groups", "size", "temperature", "highest", "rise", "rising")
"""Keys of `train.group` for the rollout of groups, which all methods with groups read. With a critic, `advantage` also
selects scores or successes as rewards."""
IMITATED = ("perception", "video", "general", "practice", "task_balance", "task_floor", "grounding_share")
"""Keys of `train` for the weights of samples from accepted trajectories."""
LAUNCHED = ("launch", "machines", "restarts", "hung_s")
"""Keys of `train` for the machines of a training. A repeated training uses the current values of these keys."""
REPEATED: dict[str, tuple[str, ...]] = {
    "train": ("keep_policies", *LAUNCHED),
    "policy": ("backend", "options", "precision", "device", "batch", "seen_screens_mb", "prefix_mb", "server"),
    "filter": (),
    "think": (),
    "seed": (),
}
"""Sections with settings of a training. Each has the keys that do not affect the training, but storage and acting."""


def _is_fast(config: Config) -> bool:
    return config.policy.backend in ("auto", "tiny") and is_small(str(config.policy.folder))


def _unjudged(config: Config) -> bool:
    asked = any(gate == "judge" or ":" in gate for gate in config.filter.gates)
    return not asked and all(verifier_of(task.verifier) is not None for task in catalog(config))


def _takes_no_video(config: Config) -> bool:
    folder = config.policy.folder
    return config.policy.base == "tiny" or ((folder / "config.json").is_file() and read_video_rule(folder) is None)


RULES: tuple[tuple[tuple[str, ...], Callable[[Config], bool], str, str], ...] = (
    (
        ("lake.endpoint", "lake.region"),
        lambda config: not config.lake.uri.startswith("s3://"),
        "the lake is a folder of this machine",
        "Remove it, or set `lake.uri` to s3://bucket/prefix.",
    ),
    (
        ("policy.device",),
        lambda config: config.policy.device == "cuda" and (_is_fast(config) or config.policy.acts_on_server),
        "the small policy acts on the CPU, and a server where it runs",
        "Remove it; `policy.backend=transformers` takes the small policy to a GPU.",
    ),
    (
        ("policy.batch", "policy.seen_screens_mb", "policy.prefix_mb"),
        lambda config: _is_fast(config) or config.policy.acts_on_server,
        "the small policy takes all that wait at once, and a server as it likes",
        "Remove it.",
    ),
    (
        ("policy.precision",),
        lambda config: config.policy.acts_on_server,
        "a server decides for itself",
        "Remove it, or set no `policy.server`.",
    ),
    (
        ("policy.server",),
        lambda config: not config.policy.server.named and ":" not in config.policy.backend,
        "there is no server",
        "Set `policy.server.url` or `policy.server.command`, or remove it.",
    ),
    (
        ("policy.server.in_flight",),
        lambda config: config.policy.server.update == "path",
        "requests go on under the weights that they name",
        "Set `policy.server.update`, or remove it.",
    ),
    (
        ("think.tries", "think.most"),
        lambda config: not any(THINKERS.class_of(name).asks_model for name in config.think.thinkers),
        "none of `think.thinkers` asks a model",
        "Name one that does, such as policy, or remove it.",
    ),
    (
        ("train.video", "train.ct.video"),
        _takes_no_video,
        "the models of `policy.family` take no video",
        "Set it to 0, or take a Qwen2.5-VL, Qwen3-VL or Qwen3.5 as `policy.base`.",
    ),
    (
        ("judge",),
        _unjudged,
        "every task has a verifier, and `judge` is not among `filter.gates`",
        "Add the gate `judge` or a task without a verifier, or remove it.",
    ),
)
"""Conditions on more than one other key. Each has dotted keys (a section means all keys in it), a function that tests
if the keys are unused, the reason, and the fix."""
