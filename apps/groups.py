"""Define verbs of two words with a default: `flywheel quality` is `flywheel quality show`."""

from typing import Any

from typer.core import TyperGroup
from typing_extensions import override

DEFAULT = "show"


class ShownByDefault(TyperGroup):
    """A group whose verb `show`, if it has one, runs when no verb is named."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Names the verb."""
        if DEFAULT in self.commands and (not args or args[0] not in {*self.commands, *ctx.help_option_names}):
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)
