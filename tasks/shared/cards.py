"""Facts that cards of models share, and the licence that a user gives for a card."""

from typing import Any

from common.card import is_license
from schemas.failure import UsageError

MODEL_FRONT: dict[str, Any] = {
    "library_name": "transformers",
    "pipeline_tag": "image-text-to-text",
    "tags": ["gui-agent", "computer-use", "flywheel"],
}
"""Front matter of a policy's card: the library that loads it, its task on the Hub, and its first tags."""


def check_license(name: str) -> str:
    """Return a licence's identifier; raise UsageError if it has not the Hub's form."""
    if name and not is_license(name):
        raise UsageError(
            f"`--license {name[:80]}`: this is no identifier of a licence.",
            "Write it as the Hub does, such as mit, apache-2.0, cc-by-4.0 or other.",
        )
    return name
