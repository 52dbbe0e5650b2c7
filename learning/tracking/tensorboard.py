"""TensorBoard: event files in a folder for each training (`tensorboard --logdir FOLDER`)."""

from collections.abc import Sequence
from pathlib import Path

from learning.tracking.tracker import Point, Tracker
from schemas.config.section import Section
from schemas.project_dir import home


class TensorBoardOptions(Section):
    """`[tracking.options.tensorboard]`."""

    folder: str = ""
    """Where event files go, LAKE/POLICY below it; `tensorboard` in the work folder if not set."""


class TensorBoard(Tracker[TensorBoardOptions]):
    """A start that goes on writes a further file, which tells TensorBoard to forget the steps that are made again."""

    section = TensorBoardOptions
    packages = {"tensorboard": "flywheel[tensorboard]"}  # noqa: RUF012

    def start(self, resumed: int) -> None:
        """Opens a file."""
        from torch.utils.tensorboard import SummaryWriter

        top = Path(self.options.folder) if self.options.folder else home() / "tensorboard"
        folder = top / self.training.lake / self.training.policy
        self._writer = SummaryWriter(str(folder), purge_step=resumed + 1)

    def log(self, points: Sequence[Point]) -> None:
        """A scalar for each measure."""
        for point in points:
            for name, value in point.measures.items():
                self._writer.add_scalar(f"train/{name}", value, point.step, point.at)
        self._writer.flush()

    def finish(self, whole: bool) -> None:
        """Closes the file."""
        self._writer.close()
