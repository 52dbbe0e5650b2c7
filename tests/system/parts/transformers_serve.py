"""`transformers serve` with the processors of this project, which need no torchvision: `python -m … serve --port N`."""

import sys
from pathlib import Path
from typing import Any

from transformers import AutoProcessor
from transformers.cli.transformers import main

from models.families.processor import read_processor


def without_videos(name: str, **_: Any) -> Any:
    """The processor of a checkpoint, without its video part."""
    return read_processor(Path(name))


if __name__ == "__main__":
    AutoProcessor.from_pretrained = without_videos  # type: ignore[method-assign]
    sys.exit(main())
