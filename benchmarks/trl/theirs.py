"""Time TRL's trainer: `python theirs.py CHATS.json defaults|bf16|fp32`, in an environment that has TRL.

It gets text, pictures and a model directory. Of ours it uses only the reader of a processor without torchvision, whose
wheels fit few builds of torch.
"""

import json
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset, Features, List, Value  # pyright: ignore
from datasets import Image as Picture  # pyright: ignore
from transformers import AutoModelForImageTextToText, TrainerCallback
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer  # pyright: ignore

from benchmarks.trl.peak import peak_mib
from models.families.processor import read_processor


class Clock(TrainerCallback):
    """When the first batch is asked for and the last update is done, and the first loss."""

    def __init__(self) -> None:
        self.begun = self.ended = 0.0
        self.losses: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Before the first batch."""
        self.begun = time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """After the last update."""
        self.ended = time.perf_counter()

    def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
        """After every step."""
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))


def main() -> None:
    """Every chat once, in order."""
    path, setting = sys.argv[1:]
    given = json.loads(Path(path).read_text())
    clock = Clock()
    with TemporaryDirectory() as out:
        shared: dict[str, Any] = {
            "output_dir": out, "per_device_train_batch_size": given["batch"], "num_train_epochs": 1,
            "learning_rate": given["rate"], "lr_scheduler_type": "constant", "logging_steps": 1, "report_to": "none",
            "use_cpu": True, "save_strategy": "no", "max_grad_norm": 1.0, "disable_tqdm": True,
            "train_sampling_strategy": "sequential", "dataloader_pin_memory": False,
        }  # fmt: skip
        if setting != "defaults":
            shared |= {"bf16": setting == "bf16", "gradient_checkpointing": False}
        model = AutoModelForImageTextToText.from_pretrained(given["model"], dtype=torch.float32)
        trainer = MAKE[given["method"]](
            given, shared, model=model, processing_class=read_processor(Path(given["model"])), callbacks=[clock]
        )
        trainer.train()
    rate = len(given["rows"]) / (clock.ended - clock.begun)
    print(json.dumps({"samples/s": rate, "first loss": clock.losses[0], "peak MiB": peak_mib()}))


def _sft(given: dict[str, Any], shared: dict[str, Any], **more: Any) -> Any:
    args = SFTConfig(completion_only_loss=True, max_length=None, **shared)
    return SFTTrainer(args=args, train_dataset=_texts(given, "prompt", "completion"), **more)


def _dpo(given: dict[str, Any], shared: dict[str, Any], **more: Any) -> Any:
    args = DPOConfig(beta=given["beta"], max_length=None, **shared)
    return DPOTrainer(args=args, train_dataset=_texts(given, "prompt", "chosen", "rejected"), **more)


MAKE = {"sft": _sft, "dpo": _dpo}


def _texts(given: dict[str, Any], *columns: str) -> Dataset:
    rows = [
        {**dict(zip(columns, (row["prompt"], *row["replies"]), strict=True)), "images": row["images"]}
        for row in given["rows"]
    ]
    features = Features({**dict.fromkeys(columns, Value("string")), "images": List(Picture())})
    return Dataset.from_list(rows, features=features)


if __name__ == "__main__":
    torch.set_num_threads(2)
    main()
