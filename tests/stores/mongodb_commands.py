"""What a store on MongoDB asks of its database, and whether an index answers it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from memoryd_server.stores.mongodb.layout import (
    DEFAULT_PREFIX,
    EVENTS,
    HISTORY,
    INDEXES,
    LEFTOVERS,
    RUNS,
    SESSIONS,
    STEPS,
    SUMMARIES,
)

_OF_THE_DRIVER: Final = frozenset({"hello", "isMaster", "ismaster", "ping", "endSessions", "buildInfo"})
_OF_OPENING: Final = frozenset({"createIndexes", "listIndexes"})

_PASSED_OVER: Final = {
    # Of a group, which is short: the versions that must be older, and a part of it. Of a range of seqs, which the
    # engine bounds: what a page is asked for.
    HISTORY: {"seq", "turned", "role", "run_id", "created"},
    # Of a name's dead lives, which are few.
    LEFTOVERS: {"kind"},
    # Of a user's sessions, which are few.
    SESSIONS: {"agent"},
    # Of a session's runs, which lists of one status may pass over.
    RUNS: {"status"},
    # Of a run's steps: only what came late of a run that had its id before is older.
    STEPS: {"written"},
}
"""Fields that may stand in a filter behind what an index leads to, by collection."""

_SHARDED_BY_HOME: Final = frozenset({HISTORY, EVENTS, SUMMARIES, RUNS, STEPS})


@dataclass
class Command:
    """A command as it was sent."""

    name: str
    collection: str
    body: Mapping[str, Any]
    documents: int = 0
    """How many its answer held."""

    @property
    def filters(self) -> list[Mapping[str, Any]]:
        """What it looks for."""
        match self.name:
            case "find":
                return [self.body["filter"]]
            case "update":
                return [update["q"] for update in self.body["updates"]]
            case "delete":
                return [delete["q"] for delete in self.body["deletes"]]
            case _:
                return []


@dataclass
class Recorder(CommandListener):
    """Hears of a client's commands."""

    commands: list[Command] = field(default_factory=list)
    _under_way: dict[int, Command] = field(default_factory=dict)

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name not in _OF_THE_DRIVER | _OF_OPENING:
            collection = str(event.command[event.command_name]).removeprefix(DEFAULT_PREFIX)
            command = Command(event.command_name, collection, event.command)
            self.commands.append(command)
            self._under_way[event.request_id] = command

    def succeeded(self, event: CommandSucceededEvent) -> None:
        command = self._under_way.pop(event.request_id, None)
        cursor = event.reply.get("cursor")
        if command and isinstance(cursor, dict):
            command.documents = len(cursor.get("firstBatch") or cursor.get("nextBatch") or ())

    def failed(self, event: CommandFailedEvent) -> None:
        self._under_way.pop(event.request_id, None)

    @contextmanager
    def during(self) -> Iterator[list[Command]]:
        """What is sent until the block ends."""
        before, sent = len(self.commands), list[Command]()
        yield sent
        sent += self.commands[before:]


def unindexed(command: Command) -> list[str]:
    """Why no index leads to what a command looks for; nothing when one does."""
    return [
        f"{command.name} {command.collection} {dict(filter_)}: {reason}"
        for filter_ in command.filters
        if (reason := _problem(command, filter_))
    ]


def _problem(command: Command, filter_: Mapping[str, Any]) -> str:
    fields = {name: condition for name, condition in filter_.items() if not name.startswith("$")}
    indexes = [("_id",), *INDEXES[command.collection].values()]
    leading = [index for index in indexes if _leads(command.collection, index, fields)]
    if not leading:
        return "no index begins so"
    order = dict(command.body.get("sort") or {})
    if len(set(order.values())) > 1 or not any(_sorts(index, fields, tuple(order)) for index in leading):
        return f"no index that begins so goes on in the order {order}"
    return ""


def _leads(collection: str, index: tuple[str, ...], fields: Mapping[str, Any]) -> bool:
    """Whether an index leads to the documents, and to few others."""
    prefix = _prefix(index, fields)
    rest = fields.keys() - set(prefix)
    return bool(prefix) and (index == ("_id",) or rest <= _PASSED_OVER.get(collection, set()))


def _prefix(index: tuple[str, ...], fields: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of an index, from its first on, that lead to one range of it, or to a few."""
    prefix: tuple[str, ...] = ()
    for name in index:
        if name not in fields:
            break
        prefix = (*prefix, name)
        if _is_range(fields[name]):
            break
    return prefix


def _is_range(condition: Any) -> bool:
    return isinstance(condition, dict) and not condition.keys() <= {"$in"}


def _sorts(index: tuple[str, ...], fields: Mapping[str, Any], order: tuple[str, ...]) -> bool:
    """Whether what an index leads to comes in an order."""
    equal = [name for name in _prefix(index, fields) if not _is_range(fields[name])]
    return index[len(equal) : len(equal) + len(order)] == order


def unrouted(command: Command) -> list[str]:
    """What a command asks of all shards, where `home` leads to one."""
    if command.collection not in _SHARDED_BY_HOME:
        return []
    return [f"{command.name} {command.collection} {dict(each)}" for each in command.filters if "home" not in each]
