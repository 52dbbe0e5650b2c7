"""Start the command line. From the start, a signal ends the command with its status and one line, not a traceback.

The imports of `apps.cli` take a quarter of a second, so this module imports only built-in modules.
"""

import os
import signal
from types import FrameType
from typing import NoReturn

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main() -> None:
    """Runs `apps.cli.main`, which handles signals itself once it is imported."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    from apps.cli import main as go_on

    go_on()


def _end(number: int, _: FrameType | None) -> NoReturn:
    os.write(2, f"flywheel: ended by {signal.Signals(number).name}; nothing was begun.\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    main()
