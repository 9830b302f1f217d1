"""The tools with which a model keeps the memory that the store holds, free of any way to make calls: their definitions,
and what becomes of a model's call.
"""

import datetime
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memoryd import memory_plans
from memoryd.errors import (
    EtagMismatch,
    FieldInvalid,
    FieldRequired,
    FieldTooLarge,
    MemoryFileFull,
    MemoryFileNotFound,
    SecretFound,
)
from memoryd.jsontext import encodable, json_value
from memoryd.memory_pages import MemoryPage
from memoryd.memory_sources import INDEX
from memoryd.methods import LIST_MEMORY_FILES
from memoryd.plans import Plan, call
from memoryd.v1 import memory_context_service_pb2 as pb

MOST_LOGS: Final = 14
"""How many of the newest logs the answer to a read names."""

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NO_FILE: Final = ""
"""Stands for the etag of an index that is not there."""


class _Refused(Exception):
    """What the model did wrong, in words that it can act on."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """How much of an index the model has read, from its first line on and of one state of it."""

    etag: str
    to_line: int = 0
    lines: int = 0

    @property
    def is_whole(self) -> bool:
        return self.to_line == self.lines

    def after(self, page: MemoryPage) -> "_Seen":
        """With one more page: a gap in front of it stays a gap."""
        to_line = max(self.to_line, page.to_line) if page.from_line <= self.to_line + 1 else self.to_line
        return _Seen(self.etag, to_line, page.lines)


class ToolSet:
    """What both clients' tools hold: the server's definitions, and what of each index the model has read."""

    def __init__(self, tools: Iterable[pb.MemoryTool], owners: Mapping[str, pb.MemoryOwner], author: str) -> None:
        self._tools = [tool for tool in tools if tool.name in _CARRIED_OUT]
        self._owners = owners
        self._author = author
        self._seen: dict[str, _Seen] = {}
        self.names: tuple[str, ...] = tuple(tool.name for tool in self._tools)
        """The names of the tools; none when the store holds no tier."""

    def openai(self) -> list[dict[str, Any]]:
        """The definitions in the form of OpenAI's Chat Completions."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": _schema(tool)},
            }
            for tool in self._tools
        ]

    def anthropic(self) -> list[dict[str, Any]]:
        """The definitions in the form of Anthropic's Messages."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": _schema(tool)} for tool in self._tools
        ]

    def __bool__(self) -> bool:
        return bool(self._tools)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.names)})"

    def _called(self, name: str, arguments: Mapping[str, Any] | str) -> Plan[str]:
        """Carries a model's call out, and gives its answer."""
        try:
            if name not in self.names:
                raise _Refused(f"there is no such tool; those for memory are: {', '.join(self.names) or 'none'}")
            return (yield from _CARRIED_OUT[name](self, _Arguments(arguments)))
        except _Refused as why:
            return f"Error: {why}"
        except SecretFound as error:
            return (
                f"Error: line {error.line} of {error.field} holds a credential ({error.kind}), and memory is no place "
                "for it. Nothing was written: take it out"
            )
        except (FieldRequired, FieldInvalid, FieldTooLarge, MemoryFileFull) as error:
            return f"Error: {error.message}"

    def _read(self, given: "_Arguments") -> Plan[str]:
        tier, day, from_line = self._tier(given), given.day(), given.line()
        given.check_names()
        owner, name = self._owners[tier], f"{day}.md" if day else INDEX
        try:
            file = yield from memory_plans.get(owner, name)
        except MemoryFileNotFound:
            logs = yield from _newest_logs(owner)
            if day:
                return f"Error: there is no {name}\n{logs}"
            self._seen[tier] = _Seen(_NO_FILE)
            return f"{logs}\nThere is no {INDEX} yet: it is made when you add to it."
        page = MemoryPage.of(file.text, from_line)
        if page is None:
            raise _Refused(f"{name} has no line {from_line}: read it from line 1")
        parts = [(yield from _newest_logs(owner)), page.shown(name)]
        if not day:
            seen = self._seen.get(tier, _Seen(file.etag))
            if seen.etag != file.etag:
                seen = _Seen(file.etag)
                if from_line > 1:
                    parts.insert(1, f"{INDEX} was changed since you read its beginning: read it again from line 1.")
            self._seen[tier] = seen.after(page)
        return "\n".join(parts)

    def _add(self, given: "_Arguments") -> Plan[str]:
        tier, entries = self._tier(given), given.texts("entries")
        given.check_names()
        added = yield from memory_plans.add(self._owners[tier], entries, author=self._author)
        known = f" {added.skipped} were there already, or came twice." if added.skipped else ""
        return f"Added to {INDEX}: {added.added} of {len(entries)} entries.{known}"

    def _log(self, given: "_Arguments") -> Plan[str]:
        tier, text, day = self._tier(given), given.text("text"), given.day()
        given.check_names()
        file = yield from memory_plans.log(self._owners[tier], text, date=day, author=self._author)
        return f"Added to {file.name}."

    def _rewrite(self, given: "_Arguments") -> Plan[str]:
        tier, content = self._tier(given), given.text("content")
        given.check_names()
        seen = self._seen.get(tier)
        if seen is None:
            raise _Refused(f"read the {tier} memory's {INDEX} with read_memory first, then rewrite what it says")
        if not seen.is_whole:
            raise _Refused(
                f"you have read {seen.to_line} of the {seen.lines} lines of the {tier} memory's {INDEX}, and a rewrite "
                f"replaces all: read on with from_line={seen.to_line + 1} first, then rewrite what it says"
            )
        del self._seen[tier]
        try:
            file = yield from memory_plans.put(
                self._owners[tier],
                content,
                INDEX,
                etag=seen.etag,
                create_only=seen.etag == _NO_FILE,
                author=self._author,
            )
        except EtagMismatch:
            raise _Refused(
                f"the {tier} memory's {INDEX} was changed since you read it, and nothing was written: read it with "
                "read_memory first, then rewrite what it says now"
            ) from None
        except BaseException:
            self._seen.setdefault(tier, seen)
            raise
        self._seen[tier] = _Seen(file.etag)
        return f"{INDEX} is rewritten: {file.size:,} bytes."

    def _tier(self, given: "_Arguments") -> str:
        tier = given.text("tier")
        if tier not in self._owners:
            raise _Refused(f"`tier` can be {' or '.join(map(repr, self._owners))}")
        return tier


def _newest_logs(owner: pb.MemoryOwner) -> Plan[str]:
    # One more than are named: the index comes first.
    request = pb.ListMemoryFilesRequest(owner=owner, page_size=MOST_LOGS + 1)
    response = yield from call(LIST_MEMORY_FILES, request)
    logs = [file.name for file in response.files if file.name != INDEX][:MOST_LOGS]
    return f"The newest logs: {', '.join(logs)}." if logs else "There are no logs."


_CARRIED_OUT: Final[Mapping[str, Callable[[ToolSet, "_Arguments"], Plan[str]]]] = {
    "read_memory": ToolSet._read,
    "add_memory": ToolSet._add,
    "log_memory": ToolSet._log,
    "rewrite_memory": ToolSet._rewrite,
}


def _schema(tool: pb.MemoryTool) -> Any:
    return json.loads(tool.input_schema)


class _Arguments:
    """The arguments of a model's call. What is wrong with them is Refused, and never told with their values."""

    def __init__(self, given: Mapping[str, Any] | str) -> None:
        # Some models send no text at all where there are no arguments.
        values = json_value(given or "{}") if isinstance(given, str) else given
        if not isinstance(values, Mapping):
            raise _Refused("the arguments are no JSON object")
        self._values = values
        self._names: list[str] = []

    def text(self, name: str) -> str:
        """A text that must be given."""
        return _text(f"`{name}`", self._given(name, "a string"))

    def texts(self, name: str) -> list[str]:
        """A list of texts that must be given."""
        values = self._given(name, "an array of strings")
        if not isinstance(values, list | tuple):
            raise _Refused(f"`{name}` must be an array of strings")
        return [_text(f"`{name}[{index}]`", value) for index, value in enumerate(values)]

    def day(self) -> str | None:
        """The day in `date`; None when it is not given."""
        self._names.append("date")
        if (value := self._values.get("date")) in (None, ""):
            return None
        day = _text("`date`", value).removesuffix(".md")
        try:
            if not _DAY.fullmatch(day):
                raise ValueError
            datetime.date.fromisoformat(day)
        except ValueError:
            raise _Refused("`date` must be a day of the calendar, as YYYY-MM-DD") from None
        return day

    def line(self) -> int:
        """The line in `from_line`, from 1, which it is when it is not given."""
        self._names.append("from_line")
        if (value := self._values.get("from_line")) is None:
            return 1
        # JSON Schema has 3.0 be an integer.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _Refused("`from_line` must be an integer")
        if value < 1:
            raise _Refused("`from_line` must be 1 or more: it is the number of a line")
        return value

    def check_names(self) -> None:
        """Refuses what was given beside what was asked for: a misspelt name would be no argument at all."""
        if set(self._values) - set(self._names):
            raise _Refused(f"there are only the arguments {', '.join(f'`{name}`' for name in self._names)}")

    def _given(self, name: str, kind: str) -> Any:
        self._names.append(name)
        if (value := self._values.get(name)) is None:
            raise _Refused(f"`{name}` is missing: give {kind}")
        return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _Refused(f"{name} must be a string")
    if not encodable(value):
        raise _Refused(f"{name} holds half of a surrogate pair, which is no character")
    return value
