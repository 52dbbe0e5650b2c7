"""Time TRL's trainer: `python theirs.py CHATS.json defaults|bf16|fp32`, in an environment that has TRL.

It gets text, pictures and a model directory. Of ours it uses only the reader of a processor without torchvision, whose
wheels fit few builds of torch. If the data name several numbers of samples for a pass, the first one that fits a GPU is
taken.
"""

import gc
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset, Features, List, Value  # pyright: ignore
from datasets import Image as Picture  # pyright: ignore
from PIL import Image
from transformers import AutoModelForImageTextToText, TrainerCallback
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer  # pyright: ignore

from benchmarks.trl.clock import Clock
from benchmarks.trl.reward import worth
from models.families.processor import read_processor


class Steps(TrainerCallback):
    """Passes the steps of a training to a clock, from the first read of the data to the last update."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Before the first batch."""
        self._clock.begin()

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """After a batch is read."""
        self._clock.ready()

    def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
        """After every step."""
        if logs and "loss" in logs:
            self._clock.end(float(logs["loss"]))


def main() -> None:
    """Every chat once, in order."""
    path, setting = sys.argv[1:]
    given = json.loads(Path(path).read_text())
    for size in given["at_once"]:
        if _fits(given, setting, size):
            return
        print("{}", flush=True)  # the numbers of steps before the memory was full do not count
    raise SystemExit(f"OutOfMemoryError: not even {given['at_once'][-1]} at a time.")


def _fits(given: dict[str, Any], setting: str, size: int) -> bool:
    """Train with so many samples a pass; False if the memory of a GPU is too small."""
    try:
        _train(given, setting, size)
    except torch.OutOfMemoryError:
        fits = False
    else:
        fits = True
    gc.collect()  # the error held the trainer
    if not fits:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return fits


def _train(given: dict[str, Any], setting: str, size: int) -> None:
    clock = Clock(given["batch"])
    clock.facts["pieces"] = given["batch"] // size
    cpu = given["device"] == "cpu"
    with TemporaryDirectory() as out:
        shared: dict[str, Any] = {
            "output_dir": out, "per_device_train_batch_size": size, "num_train_epochs": 1,
            "gradient_accumulation_steps": given["batch"] // size,
            "learning_rate": given["rate"], "lr_scheduler_type": "constant", "logging_steps": 1, "report_to": "none",
            "use_cpu": cpu, "save_strategy": "no", "max_grad_norm": 1.0, "disable_tqdm": True,
            "train_sampling_strategy": "sequential", "dataloader_pin_memory": not cpu,
        }  # fmt: skip
        if setting != "defaults":
            shared |= {"bf16": setting == "bf16", "gradient_checkpointing": False}
        model = AutoModelForImageTextToText.from_pretrained(given["model"], dtype=torch.float32)
        trainer = MAKE[given["method"]](
            given, shared, model=model, processing_class=read_processor(Path(given["model"])), callbacks=[Steps(clock)]
        )
        trainer.train()
    clock.print()


def _sft(given: dict[str, Any], shared: dict[str, Any], **more: Any) -> Any:
    args = SFTConfig(completion_only_loss=True, max_length=None, **shared)
    return SFTTrainer(args=args, train_dataset=_texts(given, "prompt", "completion"), **more)


def _dpo(given: dict[str, Any], shared: dict[str, Any], **more: Any) -> Any:
    args = DPOConfig(beta=given["beta"], max_length=None, **shared)
    return DPOTrainer(args=args, train_dataset=_texts(given, "prompt", "chosen", "rejected"), **more)


def _grpo(given: dict[str, Any], shared: dict[str, Any], **more: Any) -> Any:
    own = {name: value for name, value in shared.items() if name != "train_sampling_strategy"}  # its sampler repeats
    args = GRPOConfig(
        num_generations=given["group"], max_completion_length=given["tokens"], shuffle_dataset=False, **own
    )
    rows = [{"prompt": row["prompt"], "images": [Image.open(one) for one in row["images"]]} for row in given["rows"]]
    return GRPOTrainer(args=args, reward_funcs=_reward, train_dataset=Dataset.from_list(rows), **more)


MAKE = {"sft": _sft, "dpo": _dpo, "grpo": _grpo}


def _reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [worth(ids) for ids in completion_ids]


def _texts(given: dict[str, Any], *columns: str) -> Dataset:
    rows = [
        {**dict(zip(columns, (row["prompt"], *row["replies"]), strict=True)), "images": row["images"]}
        for row in given["rows"]
    ]
    features = Features({**dict.fromkeys(columns, Value("string")), "images": List(Picture())})
    return Dataset.from_list(rows, features=features)


if __name__ == "__main__":
    main()
