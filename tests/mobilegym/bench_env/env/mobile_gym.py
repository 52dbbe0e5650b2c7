"""The names of apps, and the browser's name."""

from typing import ClassVar


class MobileGymEnv:
    """The driver, of which only these names are used."""

    MOBILE_USER_AGENT = "Stand-in phone"
    APP_NAME_MAP: ClassVar[dict[str, str]] = {"Lights": "lights", "Answer Sheet": "answer_sheet"}
