"""Define the table `recordings`: screen recordings, as their frames with times."""

from schemas.table import Float64, FloatList, Int32, Row, Table, Text, TextList, between, not_null, unique


class Recording(Row):
    """One screen recording: of a file that was imported, or of a trajectory.

    A frame is shown from its time until the time of the next frame, and the last frame until the end.
    """

    recording_id: Text
    iteration: Int32
    trajectory_id: Text
    """Trajectory of the recorded actions. The recording's own id, if it was imported without an event log and so has no
    trajectory."""
    source: Text
    """Name of the imported file; empty for a recording of a trajectory."""
    source_sha256: Text | None
    """sha256 of the imported file; null for a recording of a trajectory."""
    license: Text
    """Licence of the recording, such as `cc-by-4.0`; empty if it is not given."""
    width: Int32
    """Width of every frame in pixels."""
    height: Int32
    rate: Float64
    """Frames per second of the file. Models sample a video at times that are multiples of 1 / `rate`."""
    seconds: Float64
    """Duration."""
    frames: TextList
    """sha256 of the kept frames' screenshots, in order of time. Equal neighbours are kept once."""
    times: FloatList
    """Seconds from the start at which each frame appears; the first is 0."""
    step_times: FloatList
    """Seconds from the start at which the actions of each step began, for all steps of the trajectory."""


DAY_S = 86_400.0
TABLE = Table(
    name="recordings",
    row=Recording,
    key=("recording_id",),
    partition_by=("iteration",),
    expectations=(
        unique(("recording_id",)),
        *not_null("trajectory_id", "frames", "times", because="a recording without frames shows nothing"),
        between("width", 1, 16384, because="a frame has at least one pixel"),
        between("height", 1, 16384, because="a frame has at least one pixel"),
        between("rate", 0.0, 1000.0, because="times are multiples of 1 / rate"),
        between("seconds", 0.0, DAY_S, because="a recording takes less than a day"),
    ),
)
