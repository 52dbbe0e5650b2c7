"""Train a base policy from the rendered pages of a lake, which reads and points before its first task."""

import itertools
import json
import math
import platform
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common.card import CARD, UNKNOWN_LICENSE, card_of, rows_of, section
from common.text import counted
from curation.perception.caption import captions
from curation.perception.perceive import descriptions, questions
from curation.perception.screen import RecognisedScreen
from learning.algorithms.method import Schedule, method_of
from learning.data.pages import LARGEST, PageSample, write_pages
from learning.job import Job, TrainerReport, sweep
from models.tiny.layout import is_windowed, parts_of, read_config
from schemas.config import Config
from schemas.config.hub import PRETRAINED
from schemas.config.policy import SIZES
from schemas.config.training import PretrainConfig
from schemas.failure import UsageError
from schemas.observation import elements_of
from storage.catalog import stream
from storage.lake import Lake
from tasks.launching.trainer_process import TrainerProcess
from tasks.running.boundary import boundary
from tasks.running.console import bar, print_line
from tasks.running.run import run_of
from tasks.shared.cards import MODEL_FRONT
from tasks.shared.lease import claim
from tasks.shared.material import PolicyRecipe, seed_of, write_pictures
from tasks.shared.paths import work_folder
from tasks.shared.policies import last_iteration, register
from tasks.shared.version import code_version
from tasks.train.recorded import Recorder, keep_profile
from tasks.train.train import digests_of

MAX_PARAMETERS = 8_000_000
FIXED_TOKENS = 1024
"""Upper limit of the tokens other than learned phrases."""
READ = ("pages", "screenshots")
"""Tables that the training reads."""
SPLITS = ("train", "validation")
PERCEIVED = 8
"""Maximum questions about a whole screen that a sample brings along."""
MEASURES = {"letters_right": "letters right", "pointing": "pointing", "character_errors": "character errors"}
"""Measures that the progress shows."""


def check_base(config: Config, lake: Lake) -> None:
    """Refuse a training that cannot succeed, before anything is spent.

    Raises:
        UsageError: the lake has no pages, or none of a split; a screen is too large; the sizes make too large a
            policy; or the vision tower is frozen.
        CheckpointError: `policy.base` is another model, or a tensor is missing.
    """
    settings = config.train.pretrain
    if config.train.memory.freeze_vision:
        raise UsageError(
            "`train.memory.freeze_vision` is true, and a base's vision tower learns letters.", "Set it to false."
        )
    counts = {split: lake.count("pages", {"split": split}) for split in SPLITS}
    for split, count in counts.items():
        if not count:
            what = "has no rendered pages" if not any(counts.values()) else f"has no pages of the split `{split}`"
            raise UsageError(f"The lake {lake.uri} {what}.", "Render some: `flywheel pretrain render`.")
    sizes = lake.read("pages", ["page_id", "width", "height"], {"split": list(SPLITS)})
    wide, high = LARGEST
    for page, width, height in zip(*(sizes[name].to_pylist() for name in sizes.column_names), strict=True):
        if width > wide or height > high:
            raise UsageError(
                f"The page {page} is {width}x{height}, larger than {wide}x{high}, the largest screen of a base.",
                "Render smaller pages.",
            )
    parameters = _parameters(config)
    if parameters > MAX_PARAMETERS:
        raise UsageError(
            f"`train.pretrain`: the sizes make {parameters:,} parameters, and a base has at most {MAX_PARAMETERS:,}.",
            f"Lower train.pretrain.hidden ({settings.hidden}) or train.pretrain.layers ({settings.layers}).",
        )


@boundary("pretrain")
def train_base(config: Config) -> str:
    """Train a base, register it, and return its version. An interrupted training resumes from its last checkpoint.

    Raises:
        UsageError, CheckpointError: as `check_base`.
        FlywheelError: the trainer stopped with an error. Nothing was stored.
    """
    lake = run_of(config, create=False).lake
    check_base(config, lake)
    config = config.model_copy(update={"train": config.train.model_copy(update={"method": "pretrain"})})
    pins = {table: version for table, version in lake.versions().items() if table in READ}
    version = claim(lake, "base", {"versions": pins, "config": config.canonical()})
    if lake.count("policies", {"policy_version": version}):
        return version  # an earlier process trained the base and was killed
    recipe = PolicyRecipe(version, "", last_iteration(lake), pins, "pretrained")
    folder = work_folder(lake, version)
    job, numbers = _job(config, lake, recipe, folder)
    learned = digests_of(job)
    sweep(job)
    with Recorder(config, lake, recipe) as recorder:
        trained = _run(job, folder, recorder)
    metrics = {**trained.metrics, **numbers, "learning_rate": job.learning_rate}
    (job.out / CARD).write_text(base_card(config, recipe, job, metrics))
    checkpoint = lake.blobs.put_directory(job.out, f"checkpoints/{version}")
    metrics |= keep_profile(lake, job, version)
    register(lake, config, recipe, "pretrain", checkpoint, metrics, job.seed, json.dumps(learned, sort_keys=True))
    shutil.rmtree(folder)
    return version


def _job(config: Config, lake: Lake, recipe: PolicyRecipe, folder: Path) -> tuple[Job, dict[str, Any]]:
    """Prepare the training: write the untrained base and the samples to a folder."""
    from models.tiny.network import TinyNet

    settings = config.train.pretrain
    schedule = method_of(config.train).schedule(config.train, 0, "muon")
    memory = schedule.train.memory.model_copy(update={"freeze_vision": False})
    train = schedule.train.model_copy(update={"batch": settings.batch, "memory": memory})
    parent = _start(config, lake, recipe.pins, folder)
    samples, screenshots = folder / "samples.arrow", folder / "screenshots.arrow"
    seed = seed_of(config, recipe)
    digests, counts = _write_samples(samples, lake, recipe.pins, settings, schedule, seed)
    write_pictures(screenshots, lake, digests, recipe.pins["screenshots"])
    job = Job(
        parent=parent,
        out=folder / "checkpoint",
        samples=samples,
        screenshots=screenshots,
        steps=schedule.steps,
        learning_rate=schedule.learning_rate,
        seed=seed,
        policy=config.policy,
        train=train,
    )
    return job, {"parameters": TinyNet.load(parent).flat.numel(), **counts}


def _start(config: Config, lake: Lake, pins: Mapping[str, int], folder: Path) -> Path:
    """Return the folder of the policy to begin from: `policy.base`, or a new one of the configured sizes."""
    if _continues(config):
        return config.policy.folder
    from learning.engines.tiny.pages import PHRASES
    from models.tiny.build import build_tiny
    from models.tiny.tokens import learn_pieces

    settings, untrained = config.train.pretrain, folder / "untrained"
    shutil.rmtree(untrained, ignore_errors=True)
    texts = lake.read("pages", ["page_id", "step", "instruction", "change"], {"split": "train"}, pins["pages"])
    texts = texts.sort_by([("page_id", "ascending"), ("step", "ascending")])
    first = texts.filter([step == 0 for step in texts["step"].to_pylist()])
    written = [*first["instruction"].to_pylist(), *filter(None, texts["change"].to_pylist())]
    phrases = learn_pieces([_without_names(text) for text in written], settings.phrases)[0]
    build_tiny(_shaped(config), (), config.seed, untrained, [*PHRASES, *phrases], words=0)
    return untrained


def _continues(config: Config) -> bool:
    """Check whether the training continues an earlier base; the usual `pretrained` names none."""
    return config.policy.given and config.policy.base != PRETRAINED


def _without_names(text: str) -> str:
    """Empty the quotes of a text, since a base spells names."""
    return '"'.join(part for number, part in enumerate(text.split('"')) if not number % 2)


def _shaped(config: Config) -> Any:
    """Return the policy's config with the sizes of the base."""
    return config.policy.model_copy(update=config.train.pretrain.model_dump(include=set(SIZES)))


def _parameters(config: Config) -> int:
    """Count the weights of the base; of a new one the most, since its tokeniser may learn fewer phrases.

    Raises:
        CheckpointError: `policy.base` is another model, or a tensor is missing.
        UsageError: the tokens of `policy.base` make no grid.
    """
    from models.tiny.build import sizes_of
    from models.tiny.network import TinyNet

    settings = config.train.pretrain
    if not _continues(config):
        sizes = sizes_of(_shaped(config), FIXED_TOKENS + settings.phrases)
        return sum(math.prod(one) for part in parts_of(sizes).values() for one in part.values())
    net = TinyNet.load(config.policy.folder)
    block = net.vision["patch_size"] * net.vision["spatial_merge_size"]
    if block % 8 or settings.crop_width % block or settings.crop_height % block:
        raise UsageError(
            f"`policy.base`: its tokens of {block} pixels make no grid of a crop of "
            f"{settings.crop_width}x{settings.crop_height} (train.pretrain), with cells of 8 pixels.",
            "Take a crop of a multiple of the token, and a token of a multiple of 8.",
        )
    return net.flat.numel()


def _write_samples(
    path: Path, lake: Lake, pins: Mapping[str, int], settings: PretrainConfig, schedule: Schedule, seed: int
) -> tuple[Collection[str], dict[str, int]]:
    """Write the screens that the training draws, and those of its measurements.

    Returns:
        The sha256 of their pictures, and the numbers of screens and pages.
    """
    columns = ["page_id", "step", "split", "width", "height"]
    found = lake.read("pages", columns, {"split": list(SPLITS)}, pins["pages"])
    found = found.sort_by([("page_id", "ascending"), ("step", "ascending")]).to_pylist()
    known = [one for one in found if one["split"] == "train"]
    held_out = [one for one in found if one["split"] == "validation"]
    count = min(settings.validation, len(held_out))
    examined = [held_out[number * len(held_out) // count] for number in range(count)]
    positions: dict[tuple[str, int], list[int]] = {(one["page_id"], one["step"]): [] for one in examined}
    for position, number in enumerate(
        order_of([(one["width"], one["height"]) for one in known], settings, schedule, seed)
    ):
        row = known[number]
        positions.setdefault((row["page_id"], row["step"]), []).append(position)

    def samples() -> Iterator[PageSample]:
        with stream(lake, "page_screens", pins) as batches, bar() as progress:
            shown = progress.add_task("pages", total=len(found), message="")
            for batch in batches:
                for row in batch.to_pylist():
                    progress.advance(shown)
                    if (row["page_id"], row["step"]) in positions:
                        yield _sample(row, tuple(positions[row["page_id"], row["step"]]))

    digests = write_pages(path, samples())
    pages = Counter(split for split, _ in {(one["split"], one["page_id"]) for one in found})
    numbers = {"screens": len(known), "pages": pages["train"], "validation_pages": pages["validation"]}
    return digests, {**numbers, "validation_screens": count}


def order_of(sizes: Sequence[tuple[int, int]], settings: PretrainConfig, schedule: Schedule, seed: int) -> list[int]:
    """Draw the screens of all steps, so that the pictures of a step have one size if crops do not grow.

    Args:
        sizes: width and height of each screen in pixels.
        settings, schedule: settings of crops, and of steps and their screens.
        seed: seed of the order.

    Returns:
        The screen at each position; all screens occur equally often, up to the size of a step.
    """
    rng, steps = np.random.default_rng(seed), schedule.steps
    whole = math.ceil(steps * (1 - settings.whole_share))
    cropped = [(min(wide, settings.crop_width), min(high, settings.crop_height)) for wide, high in sizes]
    order: list[int] = []
    for parts, count in ((cropped, whole), (sizes, steps - whole)):
        alike: dict[tuple[int, int], list[int]] = {}
        for number, size in enumerate(parts):
            alike.setdefault(size, []).append(number)
        waiting: dict[tuple[int, int], list[int]] = {size: [] for size in alike}
        batches: list[list[int]] = []
        while len(batches) < count:
            new: list[list[int]] = []
            for size, numbers in sorted(alike.items()):
                left = waiting[size]
                left += [numbers[place] for place in rng.permutation(len(numbers))]
                full = len(left) // settings.batch * settings.batch
                new += [left[at : at + settings.batch] for at in range(0, full, settings.batch)]
                waiting[size] = left[full:]
            batches += [new[place] for place in rng.permutation(len(new))]
        order += [number for batch in batches[:count] for number in batch]
    return order


def _sample(row: Mapping[str, Any], positions: tuple[int, ...]) -> PageSample:
    elements = tuple(elements_of(row["elements"]))
    screen = RecognisedScreen(row["sha256"], row["width"], row["height"], elements, "page")
    asked = [*questions(screen, PERCEIVED - 3), *descriptions(screen, 2), *captions(screen, 1)]
    perceived = [[one.question, one.answer, *(one.place or (None, None))] for one in asked]
    same = {name: row[name] for name in ("page_id", "step", "split", "width", "height", "elements", "states", "lines")}
    return PageSample(
        **same,
        screenshots=(row["before"], row["sha256"]) if row["before"] else (row["sha256"],),
        instruction=row["instruction"],
        history=tuple(row["history"]),
        action=row["action"],
        change=row["change"],
        perceived=json.dumps(perceived),
        positions=positions,
    )


def _run(job: Job, folder: Path, recorder: Recorder) -> TrainerReport:
    """Run the trainer, and show its last measurement."""
    with bar() as progress, TrainerProcess(job, folder) as trainer:
        shown = progress.add_task("pretrain", total=job.steps, message="")
        measured = ""

        def hear(message: TrainerReport) -> None:
            nonlocal measured
            recorder.hear(message)
            if message.step is None:
                return
            if found := [
                f"{name} {message.measures[key]:.3f}" for key, name in MEASURES.items() if key in message.measures
            ]:
                measured = ", ".join(found)
                print_line(f"Step {message.step} of {job.steps}: {measured}")
            progress.update(
                shown, completed=message.step, message=", ".join(filter(None, [f"loss {message.loss:.3f}", measured]))
            )

        return trainer.listen(hear)


LIMITS = (
    "It has seen generated pages alone, with ASCII letters of 9 to 24 pixels on screens of at most 1280x800.",
    "It points less often on larger screens, and misreads most names.",
    "It solves hardly any task before a training, and knows no language beyond names and short instructions.",
)
"""Limits of every base."""


EARLIER = "Trained before"
"""Section of a base's card with the trainings that it continues."""


def earlier_trainings(folder: Path) -> str:
    """Return the section about the base in a folder and those before it, from its card; empty without a card."""
    try:
        blocks = (folder / CARD).read_text().strip().split("\n\n")
    except (OSError, UnicodeDecodeError):
        return ""
    title = next((block.removeprefix("# ") for block in blocks if block.startswith("# ")), folder.name)
    facts = next((block for block in blocks if block.startswith("| ")), "")
    before = blocks[blocks.index(f"## {EARLIER}") + 1 :] if f"## {EARLIER}" in blocks else []
    before = list(itertools.takewhile(lambda block: not block.startswith("## "), before))
    return section(EARLIER, f"### {title}", facts, *before)


def base_card(config: Config, recipe: PolicyRecipe, job: Job, metrics: Mapping[str, Any]) -> str:
    """Write the model card of a base: its data, training, machine and measures."""
    pins = ", ".join(f"{table} {version}" for table, version in sorted(recipe.pins.items()))
    machine = f"{platform.machine()}, {metrics.get('processes', 1)} processes of {job.train.threads} threads"
    kind = "Qwen2.5-VL" if is_windowed(read_config(job.parent)) else "Qwen3-VL"
    facts = {
        "Architecture": f"{kind} of transformers, {metrics['parameters']:,} parameters",
        "Data": f"{metrics['screens']:,} screens of {metrics['pages']:,} generated pages; tables {pins}",
        "Training": f"{job.steps} steps of {job.train.batch} screens, learning rate {job.learning_rate:g}, "
        f"letters alone for {job.train.pretrain.letters_steps} steps",
        "Seeds": f"weights {config.seed}, order and questions {job.seed}",
        "Time": f"{metrics['seconds']:.0f} s",
        "Machine": machine,
        "Code": code_version(),
    }
    named = [name for name in metrics if name.startswith(tuple(MEASURES))]
    count, pages = metrics["validation_screens"], metrics["validation_pages"]
    measured = f"Measured on {counted(count, 'screen')} of {counted(pages, 'held-out page')} (split `validation`):"
    return card_of(
        {"license": UNKNOWN_LICENSE, **MODEL_FRONT},
        recipe.version,
        "A small policy for screens that reads and points, trained on rendered pages.",
        rows_of(("", ""), [*facts.items()]),
        measured,
        rows_of(("measure", ""), [(name, f"{metrics[name]:.3f}") for name in sorted(named)]),
        earlier_trainings(config.policy.folder) if _continues(config) else "",
        section("Limits", "\n".join(f"- {one}" for one in LIMITS)),
    )
