"""What a machine lacks for desktops is said by `flywheel doctor`, by name and before anything is spent."""

from pathlib import Path

import pytest

from environments.desktop import environment, isolation
from environments.desktop.environment import PACKAGES, DesktopConfig, DesktopEnvironment
from schemas.failure import FlywheelError, UsageError


def desktop(**fields: object) -> DesktopEnvironment:
    return DesktopEnvironment("desk", DesktopConfig.model_validate({"kind": "desktop", **fields}))


def test_a_machine_without_x_is_told_which_packages_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    check = desktop().probes()[0].check()
    assert not check.ok and "xvfb" in check.detail and "apt install" in check.hint
    assert all(package in check.hint for package in PACKAGES.values())
    with pytest.raises(FlywheelError, match="xvfb"):
        desktop().host()


def test_a_machine_that_makes_no_namespaces_is_told_so_and_how_to_do_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    isolation.require_walls.cache_clear()
    try:
        check = next(one for one in desktop().probes() if one.name == "desktop namespaces").check()
    finally:
        isolation.require_walls.cache_clear()
    assert not check.ok and "No permissions" in check.detail and "isolation=none" in check.hint


def test_nobody_is_asked_for_namespaces_who_does_without() -> None:
    assert not [one for one in desktop(isolation="none").probes() if one.name == "desktop namespaces"]


@pytest.mark.parametrize("fields", [{"width": 100}, {"isolation": "half"}, {"desktops": 0}, {"heigth": 768}])
def test_a_wrong_key_of_the_section_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises((ValueError, UsageError)):
        desktop(**fields)


def test_what_is_installed_is_counted() -> None:
    assert environment.EXTRA and desktop().size == 2
