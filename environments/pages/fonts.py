"""Check that the fonts of generated pages are installed."""

import subprocess

from environments.pages.catalog import FONTS
from environments.programs import asked
from schemas.failure import FlywheelError

TIMEOUT_S = 60.0


def installed() -> str:
    """Checks that fontconfig lists every font.

    Returns:
        The number of fonts.

    Raises:
        FlywheelError: `fc-list` does not run, or a font is missing; the hint has the Debian packages.
    """
    try:
        output = asked(("fc-list", ":", "family"), TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise FlywheelError(
            f"The fonts cannot be listed: {error}.", _install({"fontconfig", *FONTS.values()})
        ) from error
    known = {name.strip() for line in output.splitlines() for name in line.split(",")}
    if missing := [font for font in FONTS if font not in known]:
        problem = (
            f"{len(missing)} of the {len(FONTS)} fonts of generated pages are not installed: {', '.join(missing)}."
        )
        raise FlywheelError(problem, _install({FONTS[font] for font in missing}))
    return f"{len(FONTS)} fonts"


def _install(packages: set[str]) -> str:
    return f"Install them: `apt install {' '.join(sorted(packages))}` (Debian)."
