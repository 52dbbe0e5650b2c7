"""Hold the objects that every request to the desk and to the dashboard uses."""

from dataclasses import dataclass

from apps.dashboard.gathered import Gathered
from apps.desk.live import LiveSessions
from apps.desk.pictures import DeskPictures
from apps.desk.queue import Queue
from apps.desk.retraining import Retraining
from schemas.config import Config
from storage.lake import Lake


@dataclass(frozen=True, slots=True)
class Desk:
    """Objects for one lake, made once when the site starts."""

    config: Config
    lake: Lake
    queue: Queue
    pictures: DeskPictures
    live: LiveSessions
    gathered: Gathered
    retraining: Retraining
