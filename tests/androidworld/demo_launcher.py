"""Replace `env_launcher.py` of a real checkout: connect AndroidWorld's own classes to a phone without an emulator.

android_env's `AdbController` and AndroidWorld's environment, controller and adb functions are the real ones. Only the
emulator's gRPC screenshots are replaced, by `screencap`.
"""

import subprocess
from typing import Any

import cv2
import dm_env
import numpy as np
from android_env import env_interface
from android_env.components import adb_call_parser, adb_controller, config_classes
from android_env.proto import adb_pb2
from android_world.env import android_world_controller, interface
from android_world.utils import datetime_utils


class AdbEnv(env_interface.AndroidEnvInterface):
    """A phone that is reached by adb alone."""

    def __init__(self, adb: str, serial: str) -> None:
        self._screencap = [adb, "-s", serial, "exec-out", "screencap -p"]
        config = config_classes.AdbControllerConfig(adb_path=adb, device_name=serial)
        self._parser = adb_call_parser.AdbCallParser(adb_controller.AdbController(config))

    def execute_adb_call(self, call: adb_pb2.AdbRequest) -> adb_pb2.AdbResponse:
        return self._parser.parse(call)

    def step(self, action: dict[str, np.ndarray]) -> dm_env.TimeStep:
        png = subprocess.run(self._screencap, capture_output=True, check=True).stdout
        picture = cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR)
        return dm_env.restart({"pixels": cv2.cvtColor(picture, cv2.COLOR_BGR2RGB)})

    def reset(self) -> dm_env.TimeStep:
        return self.step({})

    def close(self) -> None:
        return

    def action_spec(self) -> Any:
        raise NotImplementedError

    def observation_spec(self) -> Any:
        raise NotImplementedError

    def task_extras(self, latest_only: bool = True) -> Any:
        raise NotImplementedError

    def load_state(self, request: Any) -> Any:
        raise NotImplementedError

    def save_state(self, request: Any) -> Any:
        raise NotImplementedError

    def stats(self) -> dict[str, Any]:
        return {}

    @property
    def raw_action(self) -> Any:
        raise NotImplementedError

    @property
    def raw_observation(self) -> Any:
        raise NotImplementedError


def load_and_setup_env(console_port: int, adb_path: str, grpc_port: int) -> interface.AsyncEnv:
    controller = android_world_controller.AndroidWorldController(
        AdbEnv(adb_path, f"emulator-{console_port}"), android_world_controller.A11yMethod.NONE
    )
    datetime_utils.setup_datetime(controller)
    return interface.AsyncAndroidEnv(controller)
