"""Checks JSON Schemas (draft 2020-12) and values against them, as far as the tools for memory use the draft."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def _is_list_of_different_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value) and len(set(value)) == len(value)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
}
_KEYWORDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "object": {
        "properties": lambda value: (
            isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values())
        ),
        "required": _is_list_of_different_strings,
        "additionalProperties": lambda value: isinstance(value, bool | dict),
    },
    "array": {
        "items": lambda value: isinstance(value, dict),
        "minItems": lambda value: type(value) is int and value >= 0,
        "maxItems": lambda value: type(value) is int and value >= 0,
    },
    "string": {"enum": lambda value: _is_list_of_different_strings(value) and len(value) > 0},
    "integer": {"minimum": lambda value: type(value) is int},
}


def check_schema(schema: Mapping[str, Any], place: str = "") -> None:
    """Every keyword is one of the draft, has a value that it may have, and means something for the type."""
    type_ = schema["type"]
    assert type_ in _TYPES, f"{place}: {type_}"
    for keyword, value in schema.items():
        if keyword == "type":
            continue
        if keyword == "description":
            assert isinstance(value, str)
            assert value, place
            continue
        assert keyword in _KEYWORDS[type_], f"{place}: {keyword} says nothing of {type_}"
        assert _KEYWORDS[type_][keyword](value), f"{place}: {keyword} cannot be {value!r}"
    for name, inner in schema.get("properties", {}).items():
        check_schema(inner, f"{place}.{name}")
    if "items" in schema:
        check_schema(schema["items"], f"{place}[]")
    assert set(schema.get("required", ())) <= set(schema.get("properties", {}))


def accepts(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether the value is one of the schema's."""
    if not _TYPES[schema["type"]](value):
        return False
    if schema["type"] == "integer":
        return bool(value >= schema.get("minimum", value))
    if schema["type"] == "string":
        return value in schema.get("enum", [value])
    if schema["type"] == "array":
        fits = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return fits and all(accepts(schema.get("items", {}), item) for item in value)
    properties = schema.get("properties", {})
    if not set(schema.get("required", ())) <= set(value):
        return False
    if schema.get("additionalProperties") is False and not set(value) <= set(properties):
        return False
    return all(accepts(properties[name], item) for name, item in value.items() if name in properties)
