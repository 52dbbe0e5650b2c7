"""Reads a model directory's own processor, which turns chats and screens into a model's input.

With it, the module computes the tokens of prompts, and checks that a server reads a chat as the trainer does. The
server's reported tokens are compared with the tokens of the checkpoint's own processor. A changed chat template, other
limits of pictures, or a default system turn would make the prompts of acting and training differ. No other check would
notice this.
"""

import importlib
import inspect
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image

from models.families.outside import as_text, sent, tokens_of
from models.families.prompt import Message, clips_of, screens_of
from models.families.screen import ImageLimits, Size, limits_of, picture
from models.families.video import Clip, VideoRule, video_rule_of
from models.safe import SAFE
from models.tiny.layout import is_tiny, read_config
from schemas.failure import CheckpointError, FlywheelError

VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "tekken.json", "*.model", "*.tiktoken")
"""Names of vocabulary files; every tokenizer has at least one of these."""


def read_processor(directory: Path) -> Any:
    """Reads the directory's processor with `AutoProcessor`; the tokenizer reads marked text as text.

    Processors of models that also take videos need torchvision for their video part only. Without torchvision, the same
    processor class is built without its video part, which screens do not need.

    Raises:
        CheckpointError: the directory does not exist, or has no processor for images and text.
        FlywheelError: torchvision is installed, but does not fit torch's build.
    """
    _require_fitting_torchvision()
    if not any(next(directory.glob(name), None) for name in VOCABULARIES):  # transformers may make an empty one
        problem = f"{directory} has no tokenizer: none of {', '.join(VOCABULARIES)} is there."
        raise CheckpointError(problem, "Copy the tokenizer's files of the model it was trained from into it.")
    from transformers import AutoProcessor
    from transformers.utils.import_utils import is_torchvision_available

    try:
        kind = _processor_class(directory)
        if _takes_videos(kind) and not (is_torchvision_available() and _names_image_processor(directory)):
            processor = _without_videos(kind, directory)
        else:
            processor = AutoProcessor.from_pretrained(directory, **SAFE)
        as_text(processor.tokenizer.backend_tokenizer)
    except Exception as error:  # the libraries raise many types; the cause is the directory
        raise CheckpointError(f"{directory}: {error}.", "Name an image-text-to-text model directory.") from error
    return processor


def read_limits(directory: Path) -> ImageLimits | None:
    """Reads the limits of the directory's image processor in either spelling of its files; None if it has none.

    Raises:
        CheckpointError: the directory has no image processor.
        FlywheelError: torchvision is installed, but does not fit torch's build.
    """
    _require_fitting_torchvision()
    try:
        return limits_of(_image_processor(directory))
    except Exception as error:  # the libraries raise many types; the cause is the directory
        why = (str(error).splitlines() or [type(error).__name__])[0].partition(". If you were trying")[0][:200]
        raise CheckpointError(
            f"`policy.base`: {directory} has no image processor that can be read ({why}).",
            "Copy preprocessor_config.json of the model it was trained from into it.",
        ) from error


def read_video_rule(directory: Path) -> VideoRule | None:
    """Reads the settings of the directory's video processor; None for a model that takes no video, as the small policy.

    Raises:
        CheckpointError: the directory has no `config.json`.
    """
    config = read_config(directory)
    return None if is_tiny(config) else video_rule_of(str(config.get("model_type")), directory)


def _image_processor(directory: Path) -> Any:
    """Reads the directory's image processor: of the class that the directory names, or else of its architecture's
    class.

    Qwen2.5-VL's first checkpoints name a `Qwen2_5_VLImageProcessor`, which no release of transformers has.
    """
    from transformers import AutoConfig, AutoImageProcessor

    named = _names_image_processor(directory)
    config = {} if named else {"config": AutoConfig.from_pretrained(directory, **SAFE)}
    return AutoImageProcessor.from_pretrained(directory, **config, **SAFE)


def _names_image_processor(directory: Path) -> bool:
    """Checks whether transformers has the image processor that the directory names; true if it names none."""
    found = ""
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = directory / name
        fields = json.loads(path.read_text()) if path.is_file() else {}
        fields = fields.get("image_processor") or fields
        found = found or str(fields.get("image_processor_type") or "")
    kinds: Any = importlib.import_module("transformers.models.auto.image_processing_auto").IMAGE_PROCESSOR_MAPPING_NAMES
    known = {str(one) for names in kinds.values() for one in names.values()}
    return not found or any(found.removesuffix("Fast") + end in known for end in ("", "Fast", "Pil"))


def _require_fitting_torchvision() -> None:
    """Raises FlywheelError if torchvision does not fit torch, since transformers could then import nothing that handles
    pictures."""
    from transformers.utils.import_utils import is_torchvision_available

    if not is_torchvision_available():
        return
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise FlywheelError(
            f"torchvision cannot be imported ({why}): it is of another build than the installed torch.",
            "Take it away (pip uninstall torchvision), or install the one of torch's index and version.",
        ) from error


def _processor_class(directory: Path) -> str:
    """Returns the class that the directory names, or an empty name."""
    for name in ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json"):
        path = directory / name
        if path.is_file():
            named = json.loads(path.read_text()).get("processor_class")
            if named:
                return str(named)
    return ""


def _takes_videos(kind: str) -> bool:
    import transformers

    found = getattr(transformers, kind, None) if kind else None
    return found is not None and "video_processor" in found.get_attributes()


def _without_videos(kind: str, directory: Path) -> Any:
    import transformers
    from transformers import AutoTokenizer

    stock = getattr(transformers, kind)

    def check(self: Any, name: str, part: Any) -> Any:
        return None if part is None else stock.check_argument_for_proper_class(self, name, part)

    bare = type(kind, (stock,), {"check_argument_for_proper_class": check})
    tokenizer = AutoTokenizer.from_pretrained(directory, **SAFE)
    fields: dict[str, Any] = stock.get_processor_dict(directory, local_files_only=True)[0]
    template = fields.pop("chat_template", None) or tokenizer.chat_template
    own = {name: fields[name] for name in inspect.signature(stock.__init__).parameters if name in fields}
    parts = {"image_processor": _image_processor(directory), "video_processor": None}
    return bare(**{**own, **parts, "tokenizer": tokenizer, "chat_template": template})


AROUND = 8
"""Number of tokens that the message shows before and after the first difference."""


class PromptTokens:
    """Makes the tokens of chats from their texts and the sizes of their screens, without pixels.

    Each size of a screen is processed once.

    Args:
        processor: the checkpoint's processor.
        limits: the family's limits for screens.
        video: the checkpoint's rule for videos; needed only for chats that show one.
    """

    def __init__(self, processor: Any, limits: ImageLimits | None, video: VideoRule | None = None) -> None:
        self._video = video
        self._processor, self._tokenizer, self._limits = processor, processor.tokenizer, limits
        self.laid_out = lru_cache(maxsize=256)(self._laid_out)

    def __call__(self, chat: Sequence[Message]) -> list[int]:
        """Computes the tokens of the prompt, including the tokens of its screens."""
        text = self._processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        written = [self.laid_out((screen.width, screen.height))[1] for screen in screens_of(list(chat))]
        clips = [self._clip(clip) for clip in clips_of(list(chat))]
        texts, _ = self._processor.get_text_with_replacements([text], written, clips, [])
        bos = self._tokenizer.bos_token
        special = {"add_special_tokens": False} if bos is not None and text.startswith(bos) else {}
        return self._tokenizer(texts, **special)["input_ids"][0]

    def _clip(self, clip: Clip) -> str:
        """Computes the text of a video in a chat."""
        assert self._video is not None, "a video for a model that takes none"
        begin, end = "<|vision_start|>", "<|vision_end|>"
        return self._video.text(self._video.sampled(clip), self._processor.video_token, begin, end)

    def _laid_out(self, size: Size) -> tuple[Any, str]:
        """Computes a screen's grid of patches (None if the processor makes none) and its text in a chat."""
        blank = Image.new("RGB", self._limits.resized(size) if self._limits else size)
        made = self._processor.image_processor(images=[blank], return_tensors="pt")
        grid = made["image_grid_thw"][0] if "image_grid_thw" in made else None
        return grid, self._processor.replace_image_token(made, 0)


def prompt_tokens(directory: Path, chat: Sequence[Message]) -> list[int]:
    """Computes the tokens of a chat as a server receives it, pictures included, by the directory's own processor.

    Raises:
        CheckpointError: the directory has no processor for images and text.
    """
    processor = read_processor(directory)
    made = processor.apply_chat_template(
        [_decoded(message) for message in sent(chat, tokens_of(directory))],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
    )
    return list(made["input_ids"][0])


def require_same_prompt(directory: Path, chat: Sequence[Message], read: Sequence[int]) -> None:
    """Compares the server's tokens with those of the checkpoint.

    Args:
        directory: the checkpoint that acts and is trained.
        chat: the chat that was sent.
        read: the tokens that the server reports (`prompt_token_ids`).

    Raises:
        FlywheelError: the tokens differ; the message shows the first difference and the tokens around it.
    """
    ours = prompt_tokens(directory, chat)
    if list(read) == ours:
        return
    shared = zip(ours, read, strict=False)
    at = next((place for place, (one, other) in enumerate(shared) if one != other), min(len(ours), len(read)))
    tokenizer = read_processor(directory).tokenizer
    here, there = (tokenizer.decode(list(ids[max(0, at - AROUND) : at + AROUND])) for ids in (ours, read))
    raise FlywheelError(
        f"`policy.server`: the server reads another prompt than the trainer, from token {at} on ({len(read)} tokens, "
        f"not {len(ours)}): {there!r}, not {here!r}.",
        f"Serve {directory} with its own chat template and image processor, without options that change them.",
    )


def _decoded(message: Message) -> Message:
    """Decodes the screens of a turn into pictures, in the family's size."""
    parts = [
        {"type": "image", "image": picture(part["observation"].png, part.get("limits"))}
        if part["type"] == "image"
        else part
        for part in message["content"]
    ]
    return {**message, "content": parts}
