"""Checks of what callers give, so that a mistake is named by its argument, before any call.

Only what no request could carry is refused here; which values make sense is the server's to say.
"""

import math
import operator

from memoryd.jsontext import encodable

PAGE_SIZES = "1 to 1,000, or 0 for the server's default"
SEQS = "0 to 9,223,372,036,854,775,807"


def integer(value: int, argument: str, allowed: str, *, bits: int = 64) -> int:
    """An integer that a request can carry. TypeError for what is none, ValueError beyond `bits`; both say `allowed`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{argument} is {_kind(value)}; give an integer: {allowed}") from None
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{argument} is beyond {bits} bits; it can be {allowed}")
    return number


def string(value: str, argument: str, example: str) -> str:
    """Text that a request can carry. TypeError for what is none, ValueError for what UTF-8 cannot encode."""
    if not isinstance(value, str):
        raise TypeError(f"{argument} is {_kind(value)}; give text, for example {example!r}")
    if not encodable(value):
        raise ValueError(f"{argument} holds half of a surrogate pair, which UTF-8 cannot encode; replace it")
    return value


def seconds(value: float, argument: str) -> float:
    """A number of seconds. TypeError for what is no number, ValueError for one without end."""
    try:
        finite = math.isfinite(value)
    except TypeError:
        raise TypeError(
            f"{argument} is {_kind(value)}; give the seconds that a call may take, for example 30"
        ) from None
    except OverflowError:
        finite = False
    if not finite:
        raise ValueError(f"{argument} is not finite; give the seconds that a call may take, for example 30")
    return float(value)


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
