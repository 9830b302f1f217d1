"""Commands that refuse an option of one value that is given twice, rather than take the last and drop the others."""

import re
from collections import Counter
from typing import Any, ClassVar

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
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            # As pydantic, by which typer converts values, introduces what a converter says.
            error.message = error.message.removeprefix("Value error, ")
            raise


class DashedCommand(StrictCommand):
    """A command with arguments that may begin with a dash, where `DASHED` tells them from options."""

    DASHED: ClassVar[re.Pattern[str]] = re.compile(r"-\d")
    _MARK: ClassVar[str] = "\0"  # No argument of a process can hold it.

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the arguments. Raises: typer.BadParameter."""
        try:
            rest = super().parse_args(ctx, [f"{self._MARK}{arg}" if self.DASHED.match(arg) else arg for arg in args])
        except Exception as error:
            refused: Any = error  # What is common to all errors of usage has no public name.
            if isinstance(getattr(error, "message", None), str):
                for mark in (self._MARK, repr(self._MARK)[1:-1]):
                    refused.message = refused.message.replace(mark, "")
            raise
        ctx.params = {name: self._unmarked(value) for name, value in ctx.params.items()}
        return rest

    def _unmarked(self, value: Any) -> Any:
        match value:
            case str():
                return value.removeprefix(self._MARK)
            case list() | tuple():
                return [self._unmarked(item) for item in value]
            case _:
                return value
