"""The `annotate` section of the config: kinds and amount of perception data from an iteration's screens."""

from typing import Literal

from schemas.config.section import Count, Section

PerceptionKind = Literal["description", "caption", "question", "marks", "transition"]


class AnnotateConfig(Section):
    """Perception data that is made of screens, whatever the actions on them (docs/perception.md)."""

    perception: tuple[PerceptionKind, ...] = ("description", "caption", "question", "marks", "transition")
    """Kinds of perception data that are made; `train.perception` and `train.ct.perception` set how much a training
    reads."""
    screens: Count = 100
    """Screens of an iteration that it is made of; they are drawn by their content."""
    per_screen: Count = 2
    """Descriptions, questions and questions about marks per screen; there is one caption."""
    reader: str = "page"
    """Source of elements for screens whose environment lists none: `page`: no source; `rapidocr`: text read off the
    pixels (the extra `ocr`); or a dotted path to a `models.readers.reader.ScreenReader`."""
