"""An environment that a document writes as an example: its code as a package, its config loaded."""

import re
from pathlib import Path
from typing import Any

import pytest

from environments.catalog import catalog
from environments.environment import Environment
from environments.registry import environments_of
from schemas.config import load_config
from schemas.tables.task import GuiTask

DOCS = Path(__file__).parents[1] / "docs"


def told(page: str, package: str, folder: Path, patch: pytest.MonkeyPatch) -> tuple[Environment[Any], GuiTask]:
    """The environment of `PACKAGE/environment.py` in a document, and the task of the config that follows it."""
    text = (DOCS / page).read_text()
    blocks = rf"`{package}/environment.py`:\n\n```python\n(.*?)^```\n\n```toml\n(.*?)^```"
    found = re.search(blocks, text, re.DOTALL | re.MULTILINE)
    assert found is not None
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    (folder / package / "environment.py").write_text(found[1])
    (folder / "own.toml").write_text(found[2])
    patch.syspath_prepend(str(folder))
    config = load_config(folder / "own.toml", [], {})
    (environment,), (task,) = environments_of(config), catalog(config)
    return environment, task
