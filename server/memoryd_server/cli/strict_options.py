"""Commands that refuse an option of one value that is given twice, rather than take the last and drop the others."""

from collections import Counter
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption


class StrictCommand(TyperCommand):
    """A command whose options of one value are given once. Flags may be repeated, since that changes nothing."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments. Raises: typer.BadParameter."""
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        options = [option for option in given if isinstance(option, TyperOption)]
        if not any(option.is_eager for option in options):  # Such as --help, whatever else is there.
            for option, count in Counter(options).items():
                if count > 1 and not option.multiple and not option.is_flag:
                    raise typer.BadParameter(
                        "it is given more than once, and takes one value: leave the others out", ctx=ctx, param=option
                    )
        return super().parse_args(ctx, args)
