"""What a provider's message holds beyond the fields of ours: kept in `Message.extra`, so that the way back loses
nothing.

`extra` is a JSON object with one key a format. Its value, the source form, says only where the provider's message
differs from what the converter would write by itself, so a plain message has none. It never holds a second copy of what
the parts hold: texts that a window shortened stay shortened on the way back.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from memoryd.jsontext import encodable, json_text, json_value
from memoryd.messages import Part, ToolResult

Form = dict[str, Any]

NATIVE = "native"
"""Marks a part that the format says itself, where the converter would otherwise make text of it or leave it out."""


def read_form(extra: str, format: str) -> Form:
    """The source form of a format; empty where there is none."""
    forms = json_value(extra) if extra else None
    form = forms.get(format) if isinstance(forms, dict) else None
    return form if isinstance(form, dict) else {}


def write_form(form: Form, format: str) -> str:
    """The `extra` that holds a source form."""
    return json_text({format: form}) if form else ""


def noted(form: Mapping[str, Any], key: str) -> Form:
    """What a form notes under a key, about parts or calls by their index; empty where it notes nothing."""
    value = form.get(key)
    return value if isinstance(value, dict) else {}


def aligned(form: Form, parts: Sequence[Part]) -> Form:
    """The form for parts of which a window may have left out results: those whose calls are gone (invariant 6).

    What is noted about the other parts moves with them. Which results are left is not known, so what is noted about
    results is passed over.
    """
    places = form.get("results")
    if not isinstance(places, list) or sum(isinstance(part, ToolResult) for part in parts) == len(places):
        return form
    others = [index for index, part in enumerate(parts) if not isinstance(part, ToolResult)]
    before = [index for index in range(len(others) + len(places)) if index not in places]
    moved = {str(old): str(new) for old, new in zip(before, others, strict=False)}
    patch = noted(form, "patch")
    content = noted(noted(patch, "in"), "content")
    inner = {"content": content | {"in": _moved(noted(content, "in"), moved)}} if "in" in content else {}
    return form | {
        "content": "list",
        "parts": _moved(noted(form, "parts"), moved),
        "patch": patch | {"in": noted(patch, "in") | inner},
    }


def _moved(notes: Form, moved: Mapping[str, str]) -> Form:
    return {moved[index]: note for index, note in notes.items() if index in moved}


@runtime_checkable
class Dumpable(Protocol):
    """An object of a provider's Python library, which holds what its API said and gives it as JSON has it."""

    def model_dump(self, *, mode: str, by_alias: bool, exclude_unset: bool, warnings: bool) -> dict[str, Any]:
        """The object as a dict."""


def object_of(value: object) -> Mapping[str, Any] | None:
    """The JSON object that a caller gave, as a mapping or as an object of a provider's library; None for others.

    Of a library's object, only what the API said: neither defaults, nor keys that it lacks. The libraries hold what
    they do not know yet in fields of other types, which pydantic would warn of.
    """
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Dumpable) and not isinstance(value, type):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    return None


def kept(value: object) -> str:
    """What a field of ours keeps of a value: text that UTF-8 can encode. What it does not comes back by the patch."""
    return value if isinstance(value, str) and encodable(value) else ""


def difference(wanted: Any, given: Any) -> Form | None:
    """The patch that makes the wanted JSON value of the given one; None when they are the same, types included.

    A patch is an object: `is` replaces the value; `set` gives an object's keys new values; `del` removes keys; `in`
    holds the patches of an object's values or of an array's items (by index, where both arrays have one length).
    """
    if isinstance(wanted, Mapping) and isinstance(given, Mapping):
        new: Form = {}
        inner: Form = {}
        for key, value in wanted.items():
            patch = difference(value, given[key]) if key in given else {"is": value}
            if patch and "is" in patch:
                new[key] = patch["is"]
            elif patch:
                inner[key] = patch
        whole = {"set": new, "del": [key for key in given if key not in wanted], "in": inner}
        return {name: value for name, value in whole.items() if value} or None
    if isinstance(wanted, list) and isinstance(given, list) and len(wanted) == len(given):
        patches = {str(index): difference(*pair) for index, pair in enumerate(zip(wanted, given, strict=True))}
        inner = {index: patch for index, patch in patches.items() if patch}
        return {"in": inner} if inner else None
    return None if type(wanted) is type(given) and wanted == given else {"is": wanted}


def patched(given: Any, patch: Any) -> Any:
    """The value that a patch makes of the given one. What is no patch, or names what the value lacks, has no effect."""
    if not isinstance(patch, dict):
        return given
    if "is" in patch:
        return patch["is"]
    inner = noted(patch, "in")
    if isinstance(given, list):
        return [patched(item, inner[str(index)]) if str(index) in inner else item for index, item in enumerate(given)]
    if isinstance(given, dict):
        removed = patch.get("del")
        remaining = {key: value for key, value in given.items() if not (isinstance(removed, list) and key in removed)}
        remaining |= {key: patched(remaining[key], item) for key, item in inner.items() if key in remaining}
        return remaining | noted(patch, "set")
    return given
