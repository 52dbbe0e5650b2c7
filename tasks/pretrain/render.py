"""Render pages for pretraining through browsers, and write them to the lake in batches.

A page is written as a whole: its pictures first, then its rows. So a killed rendering continues with the pages that
have no row, and repeats at most one batch.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel

from common.text import counted
from curation.pictures import difference_hash
from environments.chromium.browser import browser_version, find_browser
from environments.pages.catalog import VERSION
from environments.pages.environment import PagesConfig, PagesEnvironment
from environments.pages.solution import PageKey, Rendered, key_of, play
from environments.pool import SandboxPool
from environments.registry import require
from schemas.config import Config
from schemas.failure import FlywheelError, LakeError, SandboxFailure, TrajectoryFailure
from schemas.tables.page import PageSplit
from schemas.tables.screenshot import Screenshot
from schemas.tables.stage import PREPARE
from storage.lake import Lake
from tasks.openlineage import emitted
from tasks.preflight.preflight import require_disk
from tasks.pretrain.suites import compared
from tasks.running.boundary import boundary
from tasks.running.console import bar
from tasks.running.run import Run, run_of

PAGES = 3
"""Pages that a browser renders at the same time, since each of them waits for frames."""
ATTEMPTS = 3
"""Attempts to render a page whose browser dies."""
REPORT = "Please report this with the page's layout and seed; `pretrain.pages` below its number leaves it out."


class RenderResult(BaseModel):
    """Result of a rendering."""

    pages: int
    """New pages."""
    screens: int
    """New screens."""
    already: int
    """Pages that the lake had."""
    seconds: float
    phrases: int | None = None
    """Phrases of five words that pages share with a suite; None without a comparison, as the next two."""
    markup: int | None = None
    """Runs of eight elements that pages share with a suite."""
    bits: int | None = None
    """Smallest number of the 512 hash bits in which a page and a screen of a suite differ."""
    suite_screens: int = 0
    """Screens of suites that the pages were compared with."""
    left_out: dict[str, str] = {}
    """Suites that were not compared, with the reason."""

    @property
    def lines(self) -> Iterator[str]:
        """Returns the result as lines of text."""
        yield (
            f"{counted(self.pages, 'page')} with {counted(self.screens, 'screen')} in {self.seconds:.0f} s"
            f"; the lake had {self.already}"
        )
        if self.bits is None:
            yield "The pages were not compared with the suites (`pretrain.suite_seeds`)."
        else:
            yield (
                f"compared with {self.suite_screens} screens of suites: {self.phrases} shared phrases, {self.markup} "
                f"shared parts of documents, nearest screens {self.bits} of 512 bits apart"
            )
        for name, why in self.left_out.items():
            yield f"not compared with {name}: {why}"


@boundary("render")
def render_pages(config: Config) -> RenderResult:
    """Render the pages that the lake lacks, and compare all pages with the suites.

    Args:
        config: the resolved config; its `seed` and `pretrain` decide the pages.

    Raises:
        FlywheelError: the browser or a font is missing; a page does not render or its solution gets no reward; or a
            page shares data with a suite. The message has the page or the data, and the fix.
        LakeError: the disk has less than `lake.min_free_mb` left; the message has the next page.
    """
    run, asked = run_of(config), config.pretrain
    environment = _environment(config)
    require([environment])
    begun = time.perf_counter()
    wanted = list(_wanted(config))
    there = set(run.lake.read("pages", ["page_id"], {"step": 0})["page_id"].to_pylist())
    left = [key for key in wanted if key.page_id not in there]
    with emitted(run, "render", f"seed {config.seed}"):
        screens = asyncio.run(_render(run, environment, left)) if left else 0
        if left:
            for table in ("screenshots", "pages"):
                run.lake.compact(table)
    result = RenderResult(
        pages=len(left), screens=screens, already=len(wanted) - len(left), seconds=time.perf_counter() - begun
    )
    if asked.suite_seeds:
        found, count, left_out = compared(config, run.lake, environment)
        result = result.model_copy(
            update={
                "phrases": len(found.phrases),
                "markup": len(found.markup),
                "bits": found.bits,
                "suite_screens": count,
                "left_out": left_out,
            }
        )
    return result


def _environment(config: Config) -> PagesEnvironment:
    """Return the config's own pages, else others, with screens whose size follows from the seed."""
    sections = {name: section for name, section in config.environments.items() if isinstance(section, PagesConfig)}
    name, section = next(iter(sections.items()), ("pages", PagesConfig(kind="pages")))
    own = {"browsers": config.pretrain.browsers, "pages": PAGES, "sized": False}
    return PagesEnvironment(name, section.model_copy(update=own))


def _wanted(config: Config) -> Iterator[PageKey]:
    """Yields the pages of all splits. The held-back pages come first, so that a killed rendering can be tried out."""
    counts: dict[PageSplit, int] = {"test": config.pretrain.held_back, "validation": config.pretrain.held_back}
    counts["train"] = config.pretrain.pages
    for split, count in counts.items():
        yield from (key_of(split, number, config.seed) for number in range(count))


async def _render(run: Run, environment: PagesEnvironment, left: Sequence[PageKey]) -> int:
    """Render and write the pages in batches, and return the number of screens."""
    path = find_browser(environment.config.browser, f"environments.{environment.name}.browser")
    generator, size, screens = f"{VERSION}, {browser_version(path)}", run.config.pretrain.batch, 0
    with bar() as progress:
        shown = progress.add_task("pages", total=len(left), message="")
        async with SandboxPool([environment]) as pool:
            for begin in range(0, len(left), size):
                batch = left[begin : begin + size]
                waiting = sorted(batch, key=lambda key: key.size, reverse=True)  # a browser keeps a page of one size
                done: list[Rendered] = []

                async def one_by_one(waiting: list[PageKey], done: list[Rendered]) -> None:
                    while waiting:
                        done += await render_page(pool, environment, waiting.pop(), generator)
                        progress.advance(shown)

                _require_space(run, batch[0])
                await asyncio.gather(*(one_by_one(waiting, done) for _ in range(environment.size)))
                _write(run.lake, batch[0], done)
                screens += len(done)
    return screens


async def render_page(pool: SandboxPool, environment: PagesEnvironment, key: PageKey, generator: str) -> list[Rendered]:
    """Render one page, again if its browser dies. Raises FlywheelError with the page if it does not render."""
    for attempt in range(ATTEMPTS):
        try:
            return await play(pool, environment, key, generator)
        except SandboxFailure as failure:
            if attempt + 1 == ATTEMPTS:
                hint = "`flywheel doctor` checks the browser. The same command then continues."
                raise FlywheelError(f"{key.name} did not render: {failure.reason}.", hint) from failure
        except TrajectoryFailure as failure:
            raise FlywheelError(f"{key.name} did not render: {failure.reason}.", REPORT) from failure
    raise AssertionError


def _require_space(run: Run, key: PageKey) -> None:
    if "://" in run.lake.uri:
        return
    try:
        require_disk(run.config, "lake", Path(run.lake.uri))
    except LakeError as error:
        raise _stopped(key, error) from error


def _write(lake: Lake, key: PageKey, done: Sequence[Rendered]) -> None:
    pictures = {one.row.sha256: one for one in done}
    shots = [
        Screenshot(
            sha256=sha256,
            iteration=PREPARE,
            png=one.png,
            width=one.row.width,
            height=one.row.height,
            phash=difference_hash(one.png),
        )
        for sha256, one in sorted(pictures.items())
    ]
    rows = sorted((one.row for one in done), key=lambda row: (row.split, row.page_id, row.step))
    try:
        lake.append("screenshots", shots)
        lake.append("pages", rows)
    except LakeError as error:
        raise _stopped(key, error) from error


def _stopped(key: PageKey, error: LakeError) -> LakeError:
    problem = f"Rendering stopped at the batch that begins with {key.name}. {error.problem}"
    return LakeError(problem, f"{error.hint} The same command then continues.")
