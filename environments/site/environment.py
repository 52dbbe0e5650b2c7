"""Run the site as an environment: linked pages in which tasks are made, verified by their final state."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from environments.chromium.browser import Browser
from environments.chromium.environment import ChromiumConfig, ChromiumEnvironment
from environments.host import Host, NoHost
from environments.sandbox import Sandbox
from environments.site.sandbox import ChromiumSiteSandbox, DrawnSiteSandbox, SiteSandbox
from environments.site.tasks import ENTRIES
from environments.site.walk import SiteLayout
from environments.site.world import site_of, world_of
from schemas.check import Probe
from schemas.config.section import Whole
from schemas.tables.task import TaskEntry
from schemas.walk import Layout
from schemas.world import Site, World


class SiteConfig(ChromiumConfig):
    """A shop's encyclopedia of linked pages, for made tasks (docs/synthesis.md)."""

    skin: Literal["chromium", "drawn"] = "chromium"
    """`drawn`: in this process, without a browser, for tests."""
    site_seed: Whole = 0
    """Seed of the site; tasks that were made from one site do not fit another."""
    entities: Annotated[int, Field(ge=60, le=200)] = 96
    """Pages of products, makers, designers and cities."""


class SiteEnvironment(ChromiumEnvironment[SiteConfig]):
    """Four tasks of its own, and those that are made from it."""

    section = SiteConfig
    verifier = "state"
    sandbox_class = SiteSandbox

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """See `environments.site.tasks`."""
        return ENTRIES

    @property
    def lineage(self) -> str:
        """Our own lineage, with a part that identifies the site."""
        return f"flywheel site {self.config.site_seed}/{self.config.entities}"

    @property
    def world(self) -> World:
        """The site and its state."""
        return world_of(self._site)

    @property
    def layout(self) -> Layout:
        """The list of each page."""
        return SiteLayout(self._site)

    @property
    def _site(self) -> Site:
        return site_of(self.config.site_seed, self.config.entities)

    def sandbox(self, browser: Browser) -> Sandbox:
        """The site in a page."""
        return ChromiumSiteSandbox(browser, self.config, self._site)

    def host(self) -> Host:
        """A browser, or none for drawn pages."""
        if self.config.skin == "drawn":
            return NoHost(lambda: DrawnSiteSandbox(self.config, self._site))
        return super().host()

    def probes(self) -> Sequence[Probe]:
        """A browser, unless pages are drawn."""
        return () if self.config.skin == "drawn" else super().probes()
