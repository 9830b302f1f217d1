"""Cuts messages, and an earlier extractive summary, into the units that compete for a place in the next one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from memoryd_server.stores.records import Role
from memoryd_server.summarizers import sentences
from memoryd_server.summarizers.base import PartKind, SourceMessage, SourcePart

LONGEST_UNIT: Final = 240
"""Characters of a unit: one sentence, or a few fields of structured data. What is longer is cut, so that a fact never
has to buy a page."""

_PACKED: Final = 100
"""Characters of fields that share a unit: a few of them are wanted, seldom all."""

_LEAST_UNIT: Final = 12
"""Characters under which a sentence joins the one before: `Yes.` says nothing alone."""

_SPEAKERS: Final = {role: role.name.lower() for role in Role}
_PARTS: Final = {PartKind.CALL: "call", PartKind.RESULT: "result", PartKind.ERROR: "error"}
_LABELS: Final = (*_SPEAKERS.values(), *_PARTS.values())

_LINE: Final = re.compile(rf"({'|'.join(_LABELS)})((?: [^\s:]{{1,80}})?): (.*)", re.DOTALL)
_SPACES: Final = re.compile(r"\s+")
_CLAUSE_ENDS: Final = "、，,；;"


class Unit(NamedTuple):
    """A sentence, or some fields of structured data, on one line."""

    speaker: str
    """Who or what says it: one of the labels; "" in a summary that another summarizer wrote."""
    label: str
    """What stands before it: the speaker, with a name if there is one."""
    text: str
    source: int
    """Which message it is of, counted from 0; which line of the earlier summary, counted down from -1."""


def of_summary(text: str) -> Iterator[Unit]:
    """The units of an earlier summary, whoever wrote it."""
    for index, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line.strip())
        speaker, name, said = match.groups() if match else ("", "", line)
        yield from (Unit(speaker, speaker + name, unit, -index) for unit in _sentences(said))


def of_messages(messages: Sequence[SourceMessage]) -> Iterator[Unit]:
    """The units of messages, in order."""
    for index, message in enumerate(messages):
        for part in message.parts:
            speaker, label = _label(message, part)
            yield from (Unit(speaker, label, unit, index) for unit in _texts(part))


def _label(message: SourceMessage, part: SourcePart) -> tuple[str, str]:
    if part.kind in _PARTS:
        speaker, name = _PARTS[part.kind], part.name or message.name
    else:
        speaker, name = _SPEAKERS[message.role], message.name
    name = "_".join(name.replace(":", " ").split())[:80]
    return speaker, f"{speaker} {name}" if name else speaker


def _texts(part: SourcePart) -> Iterable[str]:
    if part.kind is PartKind.MEDIA:
        return (f"[{_SPACES.sub(' ', part.text).strip()}]",)
    if part.text.lstrip()[:1] in ("{", "["):
        try:
            # Numbers stay as they are written: large ones would lose digits.
            value = json.loads(part.text, parse_int=str, parse_float=str)
            return list(_packed(_fields(value, "")))
        except (ValueError, RecursionError):
            pass
    return _sentences(part.text)


def _sentences(text: str) -> Iterator[str]:
    waiting = ""
    for sentence in sentences.split(text):
        said = _SPACES.sub(" ", sentence).strip()
        if not said:
            continue
        if waiting and (len(waiting) >= _LEAST_UNIT or len(waiting) + len(said) > LONGEST_UNIT):
            yield waiting
            waiting = ""
        *full, rest = _clauses(said)
        if full:
            yield (waiting + " " + full[0]).strip()
            yield from full[1:]
            waiting = rest
        else:
            waiting = (waiting + " " + rest).strip()
    if waiting:
        yield waiting


def _clauses(sentence: str) -> Iterator[str]:
    """A sentence that is too long, in pieces: at a comma, else at a space, else anywhere."""
    start = 0
    while len(sentence) - start > LONGEST_UNIT:
        half, full = start + LONGEST_UNIT // 2, start + LONGEST_UNIT
        comma = max(sentence.rfind(mark, half, full) for mark in _CLAUSE_ENDS)
        end = (comma + 1) or (sentence.rfind(" ", half, full) + 1) or full
        yield sentence[start:end].strip()
        start = end
    yield sentence[start:].strip()


def _fields(value: Any, path: str) -> Iterator[str]:
    """The leaves of structured data as `name: value`, each list of plain values as one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _fields(inner, key)
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value):
        for inner in value:
            yield from _fields(inner, path)
            yield ""
    else:
        plain = [_plain(inner) for inner in value] if isinstance(value, list) else [_plain(value)]
        said = _SPACES.sub(" ", ", ".join(plain)).strip()
        yield f"{path}: {said}" if path else said


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return {None: "null", True: "true", False: "false"}.get(value, str(value))


def _packed(fields: Iterator[str]) -> Iterator[str]:
    """Fields that stand together in units as long as a sentence; an empty one ends a unit."""
    unit = ""
    for field in fields:
        if unit and (not field or len(unit) + len(field) > _PACKED):
            yield from _clauses(unit)
            unit = ""
        unit = f"{unit}, {field}" if unit and field else unit or field
    if unit:
        yield from _clauses(unit)
