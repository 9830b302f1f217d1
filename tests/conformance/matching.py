"""Whether a reply is what a case expects: a part of its JSON form (conformance.proto, `Step`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

ANY: Final = "${any}"
MATCH: Final = re.compile(r"\$\{match:(.*)\}", re.DOTALL)
JSON: Final = re.compile(r"\$\{json:(.*)\}", re.DOTALL)

_DEFAULTS: Final = (None, "", "0", 0, 0.0, False)


def json_of(message: Message) -> dict[str, Any]:
    """A message's JSON form as expectations see it."""
    found: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return found


def check_expectation(expected: Mapping[str, Any], descriptor: Descriptor, path: str = "") -> None:
    """Raises ValueError for a name that the proto has not: what is mistyped would match nothing, and never say why."""
    for name, value in expected.items():
        field = descriptor.fields_by_name.get(name)
        if field is None:
            raise ValueError(f"{descriptor.name} has no field {path}{name}")
        kind = field.message_type
        if kind is None or kind.GetOptions().map_entry or kind.full_name.startswith("google.protobuf."):
            continue
        for held in value if field.is_repeated else [value]:
            if isinstance(held, Mapping):
                check_expectation(held, kind, f"{path}{name}.")


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[str]:
    """What is not as expected, a sentence each."""
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping):
            yield f"{path or 'the reply'} is {_told(actual)}, not an object"
            return
        for name, value in expected.items():
            place = f"{path}.{name}" if path else name
            if name not in actual:
                yield f"{place} is not set"
            else:
                yield from differences(value, actual[name], place)
    elif isinstance(expected, list):
        if not isinstance(actual, list) or len(actual) != len(expected):
            yield f"{path} is {_told(actual)}, not a list of {len(expected)}"
            return
        for index, (wanted, held) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(wanted, held, f"{path}.{index}")
    elif not _is(expected, actual):
        yield f"{path} is {_told(actual)}, not {_told(expected)}"


def _is(expected: Any, actual: Any) -> bool:
    if expected == ANY:
        return actual not in _DEFAULTS and actual not in ([], {})
    if isinstance(expected, str) and (pattern := MATCH.fullmatch(expected)):
        return isinstance(actual, str) and re.fullmatch(pattern[1], actual, re.DOTALL) is not None
    if isinstance(expected, str) and (text := JSON.fullmatch(expected)):
        return isinstance(actual, str) and _is_same_json(text[1], actual)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    # The JSON form has 64-bit integers as texts, which people write as numbers.
    return bool(expected == actual or (isinstance(actual, str) and str(expected) == actual))


def _is_same_json(expected: str, actual: str) -> bool:
    """Whether two texts say the same in JSON: numbers by their value, however many digits they have."""
    try:
        return bool(json.loads(expected, parse_float=Decimal) == json.loads(actual, parse_float=Decimal))
    except ValueError:
        return False


def _told(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:200]} … {text[-80:]} ({len(text)} characters)"


def unmatched(expected: Sequence[Any], actual: Sequence[Any]) -> list[Any]:
    """The expectations that are left when each takes a value of its own, in any order."""
    left, values = [], list(actual)
    for wanted in expected:
        for value in values:
            if not any(differences(wanted, value)):
                values.remove(value)
                break
        else:
            left.append(wanted)
    return left


def at(value: Any, path: str) -> Any:
    """What stands at a path such as `window.messages.0.id`; None when nothing does."""
    for name in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
