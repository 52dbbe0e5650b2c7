"""Tracks trainings with TensorBoard: event files in a folder for each training (`tensorboard --logdir FOLDER`)."""

from collections.abc import Sequence
from pathlib import Path

from common.process import home
from learning.tracking.tracker import Point, Tracker
from schemas.config.section import Section


class TensorBoardOptions(Section):
    """`[tracking.options.tensorboard]`."""

    folder: str = ""
    """Folder of event files, LAKE/POLICY below it; `tensorboard` in the work folder if not set."""


class TensorBoard(Tracker[TensorBoardOptions]):
    """Writes event files; a resumed start writes another file, which makes TensorBoard drop the steps made again."""

    section = TensorBoardOptions
    packages = {"tensorboard": "flywheel[tensorboard]"}  # noqa: RUF012

    def start(self, resumed: int) -> None:
        """Opens a file."""
        from torch.utils.tensorboard import SummaryWriter

        top = Path(self.options.folder) if self.options.folder else home() / "tensorboard"
        folder = top / self.training.lake / self.training.policy
        self._writer = SummaryWriter(str(folder), purge_step=resumed + 1)

    def log(self, points: Sequence[Point]) -> None:
        """Writes a scalar for each measure."""
        for point in points:
            for name, value in point.measures.items():
                self._writer.add_scalar(f"train/{name}", value, point.step, point.at)
        self._writer.flush()

    def finish(self, whole: bool) -> None:
        """Closes the file."""
        self._writer.close()
