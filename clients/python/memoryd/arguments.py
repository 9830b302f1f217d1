"""Checks of what callers give, so that a mistake is named by its argument, before any call.

Only what no request could carry is refused here; which values make sense is the server's to say.
"""

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from memoryd.jsontext import encodable, json_text

Item = TypeVar("Item")

PAGE_SIZES = "1 to 1,000, or 0 for the server's default"
SEQS = "0 to 9,223,372,036,854,775,807"
TIMEOUT = "the seconds that a call may take, for example 30"
RETRY_FOR = "the seconds for which an outage is waited for, for example 60"


def integer(value: int, argument: str, allowed: str, *, bits: int = 64) -> int:
    """An integer that a request can carry. TypeError for what is none, ValueError beyond `bits`; both say `allowed`.
    True and False are no numbers here.
    """
    try:
        number = operator.index(_number(value))
    except TypeError:
        raise TypeError(f"{argument} is {kind_of(value)}; give an integer: {allowed}") from None
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{argument} is beyond {bits} bits; it can be {allowed}")
    return number


def string(value: str, argument: str, example: str) -> str:
    """Text that a request can carry. TypeError for what is none, ValueError for what UTF-8 cannot encode."""
    if not isinstance(value, str):
        raise TypeError(f"{argument} is {kind_of(value)}; give text, for example {example!r}")
    if not encodable(value):
        raise ValueError(f"{argument} holds half of a surrogate pair, which UTF-8 cannot encode; replace it")
    return value


def seconds(value: float, argument: str, wanted: str = TIMEOUT) -> float:
    """A number of seconds. TypeError for what is no number, ValueError for one without end; both say what is wanted.
    True and False are no numbers here.
    """
    try:
        finite = math.isfinite(_number(value))
    except TypeError:
        raise TypeError(f"{argument} is {kind_of(value)}; give {wanted}") from None
    except OverflowError:
        finite = False
    if not finite:
        raise ValueError(f"{argument} is not finite; give {wanted}")
    return float(value)


def several(value: Iterable[Item], argument: str, wanted: str) -> Iterable[Item]:
    """What a list is made of. TypeError, which says what is wanted, for what cannot be iterated over, and for one text
    or one mapping, whose letters and keys are none of it.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"{argument} is {kind_of(value)}; give {wanted}")
    return value


def as_json(value: object, argument: str, wanted: str) -> str:
    """JSON of a value. TypeError for what JSON cannot hold, ValueError for a number that it does not have (NaN) and for
    what holds itself or nests without end.
    """
    try:
        return json_text(value, allow_nan=False)
    except TypeError as error:
        raise TypeError(f"{argument} is no JSON ({error}); give {wanted}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{argument} is no JSON ({error}); give {wanted}") from None


def _number(value: object) -> Any:
    """The value, if it is not True or False, which Python takes for 1 and 0."""
    if isinstance(value, bool):
        raise TypeError
    return value


def kind_of(value: object) -> str:
    """What a value is, for a complaint about it."""
    return "None" if value is None else f"of type {type(value).__name__}"
