"""Collect evidence of the suites and of pages, and refuse pages that share data with a suite (`curation.overlap`)."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from curation.overlap import MIN_BITS, PHRASE, Evidence, Overlap, overlap, phrases_of
from curation.pictures import bits_of, difference_hash
from environments.chromium.sandbox import BrowserSandbox
from environments.environment import Environment
from environments.pages.environment import PagesEnvironment
from environments.pages.solution import SPLITS
from environments.pool import SandboxPool
from environments.registry import ENVIRONMENTS, lack_of
from schemas.config import Config
from schemas.failure import FlywheelError, TrajectoryFailure
from storage.lake import Lake
from tasks.running.console import bar

KINDS = ("miniwob", "games", "hybrid")
"""Kinds of environments with suites of this project, which pages are always compared with."""
FIRST_SEED = 3_000_000
"""First seed of the compared tasks of suites."""


def suites_of(config: Config) -> tuple[list[Environment[Any]], dict[str, str]]:
    """Returns the environments of the suites, and the missing requirement of each that this machine cannot run.

    The environments are the config's own, except pages, and those of `KINDS`.
    """
    sections = {name: section for name, section in config.environments.items() if section.kind != "pages"}
    kinds = {section.kind for section in sections.values()}
    for kind in KINDS:
        if kind not in kinds:
            sections[kind] = ENVIRONMENTS.class_of(kind).section(kind=kind)
    lacks = {name: lack_of(name, section.kind, section.model_dump_json()) for name, section in sections.items()}
    found = [
        ENVIRONMENTS.class_of(sections[name].kind)(name, sections[name]) for name, lack in lacks.items() if not lack
    ]
    return found, {name: lack for name, lack in lacks.items() if lack}


def compared(config: Config, lake: Lake, pages: PagesEnvironment) -> tuple[Overlap, int, dict[str, str]]:
    """Compares the lake's pages with the suites.

    Returns:
        The overlap, the number of compared screens of suites, and the suites and tasks that were left out, with the
        reason.

    Raises:
        FlywheelError: a page shares a phrase or markup with a suite, or its screen is too similar.
    """
    suites, left_out = suites_of(config)
    theirs, own = Evidence(), Evidence()
    seeds = config.pretrain.suite_seeds
    left_out |= asyncio.run(_collect(suites, [FIRST_SEED + at for at in range(seeds)], theirs, "suites"))
    left_out |= asyncio.run(_collect([pages], [SPLITS["train"] + at for at in range(seeds)], own, "pages"))
    for page_id, instruction, look in _stored(lake):
        own.phrases.update(phrases_of(instruction))
        own.looks.setdefault(look, f"page {page_id}")
    found = overlap(own, theirs)
    require_apart(found)
    return found, theirs.screens, left_out


def require_apart(found: Overlap) -> None:
    """Raises FlywheelError if pages share data with a suite."""
    if not found.apart:
        raise FlywheelError(
            f"The pages are not apart from the suites: {'; '.join(_faults(found))}.",
            "Change the wordings, classes or layouts in environments/pages/parts, raise VERSION in catalog.py, and "
            "render again. Do not train on the pages of this version.",
        )


def _faults(found: Overlap) -> Iterator[str]:
    if found.phrases:
        yield f"{len(found.phrases)} phrases of {PHRASE} words, such as “{found.phrases[0]}”"
    if found.markup:
        yield f"{len(found.markup)} parts of documents, such as {found.markup[0]}"
    if found.bits is not None and found.bits < MIN_BITS and found.nearest:
        yield f"{found.nearest[0]} differs from {found.nearest[1]} in {found.bits} of 512 bits (at least {MIN_BITS})"


def _stored(lake: Lake) -> Iterator[tuple[str, str, int]]:
    """Yields the id, instruction and hash of every stored screen."""
    with lake.connect(["pages", "screenshots"]) as connection:
        rows = connection.sql(
            "SELECT page_id, instruction, phash FROM pages JOIN screenshots USING (sha256)"
        ).fetchall()
    for page_id, instruction, phash in rows:
        look = bits_of(phash)
        assert look is not None
        yield page_id, instruction, look


async def _collect(
    suites: Sequence[Environment[Any]], seeds: Iterable[int], found: Evidence, label: str
) -> dict[str, str]:
    """Adds the first screens of all tasks, and returns the reason of each task that does not start."""
    lost: dict[str, str] = {}
    work = [
        (environment, template, seed) for environment in suites for template in environment.entries for seed in seeds
    ]
    waiting = list(reversed(work))
    with bar() as progress:
        shown = progress.add_task(label, total=len(work), message="")
        async with SandboxPool(suites) as pool:

            async def one_by_one() -> None:
                while waiting:
                    environment, template, seed = waiting.pop()
                    try:
                        async with pool.lease(environment.task(template), seed) as sandbox:
                            seen = await sandbox.observe()
                            markup = await sandbox.markup() if isinstance(sandbox, BrowserSandbox) else []
                    except TrajectoryFailure as failure:
                        lost[f"{environment.name}/{template}"] = failure.reason
                        continue
                    finally:
                        progress.advance(shown)
                    look = bits_of(difference_hash(seen.png))
                    assert look is not None
                    found.add(f"{environment.name}/{template} with seed {seed}", seen.instruction, markup, look)

            await asyncio.gather(*(one_by_one() for _ in range(2)))
    return lost
