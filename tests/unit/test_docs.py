"""The documents say what is there: every test that the threat model names, every link, every command and key."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *ROOT.glob("CHANGELOG.md")])


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {slug(found[1]) for found in re.finditer(r"^#+ (.*)$", text, re.MULTILINE)}


def test_every_line_of_the_threat_model_has_a_test_that_is_there() -> None:
    rows = [line for line in (ROOT / "docs/threats.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 20
    for row in rows:
        named = re.findall(r"`(tests/[^`]+\.py)::(test_\w+)`", row)
        assert named, f"no test behind: {row}"
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), f"there is no {file}::{test}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_within_the_documents_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or file.suffix != ".md" or anchor in anchors(file), f"{page.name}: {target}"


def test_every_document_that_the_code_names_is_there() -> None:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
    named = {
        (str(file.relative_to(ROOT)), document)
        for package in (*packages, "benchmarks", "tests", "scripts")
        for file in (ROOT / package).rglob("*.*")
        if file.suffix in (".py", ".js", ".toml", ".html", ".sql")
        for document in re.findall(r"\bdocs/[\w./-]+\.md\b", file.read_text())
    }
    assert len(named) > 20
    assert not [(file, document) for file, document in sorted(named) if not (ROOT / document).is_file()]


def test_every_test_that_a_document_names_is_there() -> None:
    past = ("log.md", "measurements.md", "CHANGELOG.md")
    named = {
        (page.name, file)
        for page in (*PAGES, ROOT / "CONTRIBUTING.md")
        if page.name not in past and page.parent.name != "decisions"
        for file in re.findall(r"\btests/[\w./-]+\.py\b", page.read_text())
    }
    assert len(named) > 20
    assert not [(page, file) for page, file in sorted(named) if not (ROOT / file).is_file()]


def test_every_config_key_that_a_document_names_is_one() -> None:
    keys = set(re.findall(r"^\| `([a-z_.]+)`", (ROOT / "docs/config.md").read_text(), re.MULTILINE))
    sections, files = {key.partition(".")[0] for key in keys} - {"environments"}, ("traces.jsonl", "cluster.toml")
    for page in PAGES:
        for named in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)(?:=[^`]*)?`", page.read_text()):
            known = named in keys or any(key.startswith(f"{named}.") for key in keys)
            asks = named.partition(".")[0] in sections and named not in files
            assert known or not asks, f"{page.name}: there is no key {named}"


def test_every_key_of_the_config_has_its_meaning() -> None:
    rows = re.findall(r"^\| `([a-z_.]+)` \|.*\| ([^|]*) \|$", (ROOT / "docs/config.md").read_text(), re.MULTILINE)
    assert len(rows) > 400 and not [key for key, meaning in rows if not meaning.strip()]


def test_the_changelog_begins_with_the_version_that_the_package_has_and_a_tag_is_that_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    heads = re.findall(r"^## (\d+\.\d+\.\d+)(, not released)?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0][0] == version and all(not unreleased for _, unreleased in heads[1:])
    asked = ["git", "-C", str(ROOT), "tag", "--points-at", "HEAD", "--list", "v*"]
    tags = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    assert all(tag == f"v{version}" for tag in tags)
