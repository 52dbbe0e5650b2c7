"""What balancing, packing and sequence plans gain in the trainer's own step: a small random Qwen3-VL on 4 gloo ranks.

Every arm computes the same batches with the same weights, alternately in one run. Ranks share this machine's cores, so
the wall hides who waits for whom; what is measured is each rank's processor time, by phase, and what is **emulated** is
the step: per micro-batch the slowest rank of the vision phase plus the slowest of the language phase, as if every rank
had a core of its own and exchange were free. Rows say so. Run as it is, by the wall: the trainer's own step (`step`),
and packing against padding (one process, its processor time; the padded peer is the library's own forward pass).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.shared.mixed_samples import NAMES, mixed_job, mixed_samples
from benchmarks.shared.report import Bar, finish, options
from learning.data.sample import Screenshots, TrainSample
from learning.engines.fsdp.chats import Chats
from learning.engines.fsdp.engine import FsdpEngine
from learning.job import Job
from learning.learner import Learner
from models.random_vlm import build_random
from schemas.config.training import TrainConfig

RANKS = 4
BATCH = 16


def make_job(folder: Path, batches: int) -> Job:
    """A random model, samples, and the job that trains it on them; its ranks hold half the longest sample each."""
    texts = [f'Click on the "{name}" button.' for name in NAMES] * 8
    shape = {"hidden": 128, "layers": 3, "heads": 8, "kv_heads": 4, "vision_hidden": 96, "vision_layers": 3}
    build_random("qwen3_vl", texts, 0, folder / "model", **shape)
    samples, pngs = mixed_samples(batches * BATCH, 0)
    job = mixed_job(folder, (samples, pngs), batches, 1e-4, TrainConfig(batch=BATCH, processes=RANKS))
    chats = Chats(job.parent, job.policy, Screenshots(job.screenshots), 0)
    longest = max(chats.measure(sample).item.tokens for sample in samples)
    capped = job.train.model_copy(update={"token_cap": longest // 2})
    (folder / "job.json").write_text(job.model_copy(update={"train": capped}).model_dump_json())
    return job


def on_ranks(folder: Path, batches: int, repeats: int) -> dict[str, Any]:
    """What the ranks measured."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    command += ["-m", "benchmarks.shared.step_ranks", str(folder), str(batches), str(repeats)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads((folder / "measured.json").read_text())


def emulated(entry: dict[str, Any]) -> tuple[float, float, float]:
    """Seconds of all batches as if every rank had its own core; slowest over mean rank; predicted operations."""
    total, slow, even = 0.0, 0.0, 0.0
    for rounds in entry["seconds"].values():
        steps = []
        for everyone in rounds:
            phases = [[[micro[phase] for micro in rank] for rank in everyone] for phase in (0, 1)]
            steps.append(sum(sum(map(max, zip(*phase, strict=True))) for phase in phases))
            slow += steps[-1]
            even += sum(sum(map(sum, phase)) for phase in phases) / len(everyone)
        total += median(steps)
    return total, slow / even, sum(entry["predicted"].values())


def packing(job: Job, samples: list[TrainSample], repeats: int) -> list[dict[str, Any]]:
    """Tokens per second of one process: packed documents, and a padded batch through the library's own forward."""
    from transformers import AutoModelForImageTextToText

    engine = FsdpEngine(job, 0, 1)
    learner = Learner(job, samples, 0, 1, engine)
    ready = engine.prepared(range(BATCH))
    peer: Any = AutoModelForImageTextToText.from_pretrained(job.parent, dtype=torch.float32, attn_implementation="sdpa")
    inputs, labels = padded_batch(job, samples[:BATCH])
    tokens = sum(item.tokens for item in engine.items[:BATCH])
    seconds: dict[str, list[float]] = {"packed": [], "padded": []}
    for repeat in range(repeats + 1):
        started = time.process_time()
        ours = float(learner.gradient(ready))
        middle = time.process_time()
        peer.zero_grad()
        theirs = peer(**inputs, labels=labels).loss
        theirs.backward()
        ended = time.process_time()
        if repeat:
            seconds["packed"].append(middle - started)
            seconds["padded"].append(ended - middle)
        assert abs(ours - float(theirs.detach())) < 1e-3, (ours, float(theirs))
    learner.close()
    torch.distributed.destroy_process_group()
    by = {"compared": "packing", "measured": "processor, one process"}
    return [{**by, "arm": arm, "tokens_per_s": tokens / median(taken)} for arm, taken in seconds.items()]


def padded_batch(job: Job, samples: list[TrainSample]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The same samples as one padded batch, and its labels."""
    chats = Chats(job.parent, job.policy, Screenshots(job.screenshots), job.seed)
    made = [chats.encode(sample) for sample in samples]
    longest = max(len(chat.ids) for chat in made) + 1
    ids, labels = torch.zeros(len(made), longest, dtype=torch.long), torch.full((len(made), longest), -100)
    mask, kinds = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, chat in enumerate(made):
        length = len(chat.ids)
        ids[row, :length], kinds[row, :length] = chat.ids, chat.kinds
        ids[row, length] = chat.targets[-1]
        mask[row, : length + 1] = 1
        labels[row, 1 : length + 1] = torch.where(chat.targets >= 0, chat.targets, -100)
    screens = [chats.pixels(digest) for sample in samples for digest in chats.measure(sample).digests]
    inputs = {
        "input_ids": ids,
        "attention_mask": mask,
        "mm_token_type_ids": kinds,
        "pixel_values": torch.cat([pixels for pixels, _ in screens]),
        "image_grid_thw": torch.stack([grid for _, grid in screens]),
    }
    return inputs, labels


def main() -> int:
    """Prints the table; exit code 1 if a bar is missed."""
    chosen = options(__doc__ or "")
    batches, repeats = (2, 2) if chosen.short else (6, 6)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = make_job(folder, batches)
        samples = mixed_samples(batches * BATCH, 0)[0]
        rows = packing(job, samples, repeats)
        measured = on_ranks(folder, batches, repeats)
    step = measured.pop("step")
    found = {arm: emulated(entry) for arm, entry in measured.items()}
    for arm, (seconds, uneven, operations) in found.items():
        compared, name = arm.split("/", 1)
        entry = measured[arm]
        rows.append(
            {
                "compared": compared,
                "arm": name,
                "measured": "emulated: slowest rank's processor by phase",
                "tokens_per_s": entry["tokens"] / seconds,
                "slowest_over_mean": uneven,
                "micro_batches": entry["micro_batches"],
                "predicted_operations": operations,
            }
        )
    rows.append(
        {
            "compared": "step",
            "arm": "as the trainer runs it",
            "measured": f"wall, {RANKS} ranks on {len(os.sched_getaffinity(0))} cores",
            "tokens_per_s": step["tokens"] / step["seconds"],
        }
    )
    return finish("train_step", rows, bars_of(rows, found), chosen.json)


def bars_of(rows: list[dict[str, Any]], found: dict[str, tuple[float, float, float]]) -> list[Bar]:
    """What must hold."""
    packed, padded = (row["tokens_per_s"] for row in rows if row["compared"] == "packing")
    none, one, ours = (found[f"balance/{arm}"] for arm in ("in turn", "language only", "both phases"))
    single, mixed = (found[f"sequence plans/{arm}"] for arm in ("best single degree", "mixed degrees"))
    gain = none[0] / ours[0]
    return [
        Bar("balance: in turn / both phases, emulated step", gain, 1.15, "higher"),
        Bar("balance: language only / both phases, emulated step", one[0] / ours[0], 1.0, "higher"),
        Bar("balance: measured gain / gain by operations", gain / (none[2] / ours[2]), 0.85, "higher"),
        Bar("packing: packed / padded, tokens per second", packed / padded, 1.2, "higher"),
        Bar("sequence plans: best single degree / mixed, emulated step", single[0] / mixed[0], 1.0, "higher"),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
