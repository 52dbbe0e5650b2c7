"""The `annotate` section of the config: which perception data is made of an iteration's screens, and how much."""

from typing import Literal

from schemas.config.section import Count, Section

PerceptionKind = Literal["description", "caption", "question", "marks", "transition"]


class AnnotateConfig(Section):
    """What the machine tells of screens, whatever was done on them (docs/perception.md)."""

    perception: tuple[PerceptionKind, ...] = ("description", "caption", "question", "marks", "transition")
    """Kinds of perception data that are made; what a training reads of them is `train.perception` and
    `train.ct.perception`."""
    screens: Count = 100
    """Screens of an iteration that it is made of; which ones is drawn by what they show."""
    per_screen: Count = 2
    """Descriptions, questions and questions about marks per screen; there is one caption."""
    reader: str = "page"
    """Where elements of screens come from whose environment lists none: `page`: from nowhere; `rapidocr`: what is
    written there, read off the pixels (the extra `ocr`); or a dotted path to a `models.readers.reader.ScreenReader`."""
