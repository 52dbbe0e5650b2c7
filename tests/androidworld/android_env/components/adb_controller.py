"""The class whose restart of the adb server the worker turns off."""

from typing import Any


class AdbController:
    def _restart_server(self, timeout: Any = None) -> None:
        raise RuntimeError("the adb server was restarted under the other emulators")

    def failed(self) -> None:
        """What android_env does after a failed command."""
        self._restart_server()
