"""Train on machines that share no folder: inputs and results go through an S3 prefix, the prefix of the job.

The prefix has `parent/` and `inputs/`, which every machine fetches once into a folder of its own. It also has the
status folders of all starts, the checkpoints of the ranks in `steps/`, and `result/`. The prefix is emptied after the
result is fetched. Each machine has its own S3 settings in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
AWS_ENDPOINT_URL.
"""

import os
import shutil
import tempfile
from pathlib import Path

from learning.job import RESULT, Job, identity, read_job
from schemas.failure import CheckpointError, LakeError, UsageError
from storage.blobs import MANIFEST, Blobs
from storage.objects import open_store

SCRATCH = "FLYWHEEL_SCRATCH"
"""Environment variable with the folder for fetched files; the system's temporary folder if not set."""
JOB, PARENT, INPUTS, STARTS = "job.json", "parent", "inputs", "starts"


class Stored:
    """Uploads a job to its prefix, and fetches its result. An interrupted upload continues.

    Args:
        job: the job on this machine, with `train.machines.store` set.

    Raises:
        LakeError: the store is unreachable.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self.place = f"{job.train.machines.store.rstrip('/')}/{identity(job)}"
        self._store = open_store(self.place)
        blobs = Blobs(self._store)
        if not self._store.exists(f"{PARENT}/{MANIFEST}"):
            blobs.put_directory(job.parent, PARENT)
        inputs = {job.samples.name, job.screenshots.name}
        if job.samples.parent != job.screenshots.parent:
            raise CheckpointError(f"{job.samples} and {job.screenshots} are not in one folder.", "Put them into one.")
        blobs.put_directory(job.samples.parent, INPUTS, inputs)
        self._store.put(JOB, job.model_copy(update={"store": self.place}).model_dump_json().encode())

    def board(self, name: str) -> str:
        """Return the address of the status folder of a start."""
        return f"{self.place}/{STARTS}/{name}"

    def fetch(self) -> None:
        """Fetch the result into the job's folder in one step, and empty the prefix."""
        sizes = self._store.sizes(RESULT)
        making = self._job.out.with_name(f"{self._job.out.name}.making-fetched")
        shutil.rmtree(making, ignore_errors=True)
        target = open_store(making)
        for name, size in sizes.items():
            with target.create(name.removeprefix(f"{RESULT}/"), size) as sink:
                for part in self._store.chunks(name, size):
                    sink.write(part)
        (making / JOB).write_text(self._job.model_dump_json(indent=1))
        making.rename(self._job.out)
        for name in self._store.sizes():
            self._store.delete(name)


def fetch_job(place: str) -> tuple[Job, Path]:
    """Fetch a job and its inputs, and return the job on this machine and its file.

    Raises:
        UsageError: the job does not exist, or this machine cannot reach S3.
        CheckpointError: a file is damaged.
    """
    scratch = Path(os.environ.get(SCRATCH, tempfile.gettempdir())) / f"flywheel-{os.getuid()}" / Path(place).name
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = open_store(place)
    try:
        given = Job.model_validate_json(store.get(JOB))
    except (FileNotFoundError, LakeError) as error:
        hint = "Set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL on every machine."
        raise UsageError(f"{place}/{JOB}: {error}.", hint) from error
    blobs = Blobs(store)
    inputs = blobs.get_directory(INPUTS, scratch / INPUTS)
    job = given.model_copy(
        update={
            "parent": blobs.get_directory(PARENT, scratch / PARENT),
            "samples": inputs / given.samples.name,
            "screenshots": inputs / given.screenshots.name,
            "out": scratch / "checkpoint",
        }
    )
    path = scratch / f"job-{os.getpid()}.json"
    path.write_text(job.model_dump_json())
    return read_job(path), path
