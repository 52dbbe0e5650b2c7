"""The names of apps, and the browser's name."""


class MobileGymEnv:
    """The driver, of which only these names are used."""

    MOBILE_USER_AGENT = "Stand-in phone"
    APP_NAME_MAP = {"Lights": "lights", "Answer Sheet": "answer_sheet"}
