"""The documents as a site: `make docs` writes site/, which opens from the disk and asks nobody else for anything."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent

project = "flywheel"
version = release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
extensions = ["myst_parser"]
master_doc = "index"
exclude_patterns = ["conf.py"]
myst_heading_anchors = 4
"""Depth to which headings have the anchors that links name."""
html_theme = "alabaster"
html_title = f"flywheel {version}"
html_show_sourcelink = False
html_theme_options = {"description": "A data flywheel for GUI agents", "page_width": "1100px", "sidebar_width": "240px"}
