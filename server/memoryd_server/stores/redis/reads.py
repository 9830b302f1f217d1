"""Reads of one session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from memoryd_server.stores.base import EventPage, Loaded, LookupPage, MessagePage, MessageQuery, Tail
from memoryd_server.stores.records import (
    Entry,
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    StoredMessage,
    StoredSummary,
    Usability,
    decode_record,
    decode_summary,
)
from memoryd_server.stores.redis import codec
from memoryd_server.stores.redis.keys import Keys, SessionName
from memoryd_server.stores.redis.members import number
from memoryd_server.stores.redis.nodes import Nodes
from memoryd_server.stores.redis.scripts import (
    BODIES,
    CONTINUE_OPENING,
    CONTINUE_TAIL,
    ENTRIES,
    EVENTS,
    GROUPS,
    LOAD,
    LOOKUPS,
    NEWEST,
    PAGE,
    READ,
    SUMMARIES,
    Call,
    Value,
    command,
)
from memoryd_server.stores.walk import bodies_fit, take_page

ENTRIES_A_SCRIPT: Final = 1_000
"""Entries that one script reads of a window: the server does nothing else meanwhile, for a millisecond or two."""

LOOKS_A_SCRIPT: Final = 2_000
"""Entries that one script looks at for a page: as above."""

BODY_BYTES_A_SCRIPT: Final = 1 << 20
"""Bytes of bodies that are fetched at once, but always one."""

ATTEMPTS: Final = 3
"""How often a read of several scripts begins again since the session was changed in between. Then one script does it
all: it may take long, but it ends."""

EVERYTHING: Final = 1 << 31

Result = TypeVar("Result")


class ChangedMeanwhileError(Exception):
    """The session is not what it was when a read of several scripts began."""


class _Seen(NamedTuple):
    """What a script told of a session, and what must still be true for the next one."""

    name: SessionName
    record: Record
    life: bytes
    shape: bytes


class Reads:
    """The reads of the contract that are about one session."""

    def __init__(self, keys: Keys, nodes: Nodes) -> None:
        self._keys = keys
        self._nodes = nodes

    async def load(self, key: SessionKey, tail: Tail | None) -> Loaded | None:
        name = self._keys.session(key)
        if tail is None:
            stored, text = await self._run(command("HMGET", name.hash, "key", "rec"))
            return Loaded(decode_record(text)) if text is not None and stored == name.key else None
        return await self._steadily(lambda most: self._load(name, tail, most), ENTRIES_A_SCRIPT)

    async def _load(self, name: SessionName, tail: Tail, most: int) -> Loaded | None:
        usabilities = b"".join(map(codec.letter, tail.usabilities))
        bounds: tuple[int, int] = (tail.messages, -1 if tail.tokens is None else tail.tokens)
        values = (name.key, usabilities, *bounds, int(tail.opening), tail.body_bytes, most, int(tail.summary))
        reply = await self._run(LOAD(name.hash, name.order, values=values))
        if reply is None:
            return None
        text, life, shape, tail_ends, tail_members, opening_ends, opening_members, bodies, summed_up = reply
        record = decode_record(text)
        summary = decode_summary(summed_up) if tail.summary and record.summary else None
        if bodies is not None:
            messages = list(map(codec.of_message, tail_members, bodies))
            entries = map(codec.of_entry_by_seq, opening_members)
            return Loaded(record, messages, list(map(codec.with_body, entries, bodies[len(messages) :])), summary)
        seen = _Seen(name, record, life, shape)
        newest = list(map(codec.of_entry, tail_members))
        opening = list(map(codec.of_entry_by_seq, opening_members))
        if not tail_ends:
            newest = await self._rest_of_tail(seen, usabilities, bounds, newest, tail_members, most)
        if not opening_ends:
            opening = await self._rest_of_opening(seen, bounds, opening, most)
        if not bodies_fit(newest, opening, tail.body_bytes):
            return Loaded(record, newest, opening, summary)
        stored = await self._bodies(seen, {entry.seq: entry for entry in (*newest, *opening)})
        messages = [stored[entry.seq] for entry in newest]
        return Loaded(record, messages, [stored[entry.seq] for entry in opening], summary)

    async def _rest_of_tail(
        self,
        seen: _Seen,
        usabilities: bytes,
        bounds: tuple[int, int],
        entries: list[Entry],
        members: Sequence[bytes],
        most: int,
    ) -> list[Entry]:
        tokens, is_end = sum(entry.tokens for entry in entries), 0
        newest = number(entries[0].head)
        while not is_end:
            place = members[-1][codec.PLACE]
            reply = await self._run(
                CONTINUE_TAIL(
                    seen.name.hash,
                    seen.name.order,
                    values=(
                        *(seen.name.key, seen.life, seen.shape, usabilities, *bounds, most),
                        *(place, len(entries), tokens, newest),
                    ),
                )
            )
            if reply is None:
                raise ChangedMeanwhileError
            is_end, members = reply
            more = list(map(codec.of_entry, members))
            entries += more
            tokens += sum(entry.tokens for entry in more)
        return entries

    async def _rest_of_opening(
        self, seen: _Seen, bounds: tuple[int, int], entries: list[Entry], most: int
    ) -> list[Entry]:
        is_end = 0
        while not is_end:
            so_far = (len(entries), sum(entry.tokens for entry in entries))
            values = (seen.name.key, seen.life, seen.shape, *bounds, most, number(entries[-1].seq + 1), *so_far)
            reply = await self._run(CONTINUE_OPENING(seen.name.hash, seen.name.order, values=values))
            if reply is None:
                raise ChangedMeanwhileError
            is_end, members = reply
            entries += map(codec.of_entry_by_seq, members)
        return entries

    async def _bodies(self, seen: _Seen, entries: dict[int, Entry]) -> dict[int, StoredMessage]:
        """The messages of entries, by seq."""
        stored: dict[int, StoredMessage] = {}
        for some in _parts(list(entries.values())):
            values: list[Value] = [seen.name.key, seen.life, seen.shape, *(number(entry.seq) for entry in some)]
            bodies = await self._run(BODIES(seen.name.hash, values=tuple(values)))
            if bodies is None:
                raise ChangedMeanwhileError
            stored.update((entry.seq, codec.with_body(entry, body)) for entry, body in zip(some, bodies, strict=True))
        return stored

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        name = self._keys.session(key)
        possible = [seq for seq in seqs if seq > 0]
        return await self._steadily(lambda most: self._read(name, incarnation, possible, most), ENTRIES_A_SCRIPT)

    async def _read(
        self, name: SessionName, incarnation: str, seqs: Sequence[int], most: int
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        seen: tuple[bytes, bytes] = (b"", b"")
        record: Record | None = None
        messages: list[StoredMessage] = []
        for first in range(0, max(len(seqs), 1), most):
            values: list[Value] = [name.key, incarnation, *seen]
            values += map(number, seqs[first : first + most])
            reply = await self._run(READ(name.hash, name.order, values=tuple(values)))
            if reply is None:
                return None
            if reply == 0:
                raise ChangedMeanwhileError
            text, *shape, members, bodies = reply
            record = record or decode_record(text)
            seen = (shape[0], shape[1])
            messages += map(codec.with_body, map(codec.of_entry_by_seq, members), bodies)
        assert record is not None
        return record, messages

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        name = self._keys.session(key)
        return await self._steadily(lambda most: self._page(name, query, most), LOOKS_A_SCRIPT)

    async def _page(self, name: SessionName, query: MessageQuery, most: int) -> MessagePage | None:
        low, high = max(query.from_seq, 0), max(query.to_seq, 0)
        filters: tuple[bytes | str, ...] = (
            bytes(sorted(query.roles)),
            query.run_id,
            b"" if query.from_time is None else number(query.from_time),
            b"" if query.to_time is None else number(query.to_time),
        )
        seen: tuple[bytes, bytes] = (b"", b"")
        record: Record | None = None
        entries: list[Entry] = []
        bodies: list[bytes] = []
        is_end, size = 0, 0
        while not is_end:
            bounds = (number(low), number(high), int(query.descending))
            left = (query.limit - len(bodies), query.bytes - size, most)
            rest: list[Value] = [*bounds, *left, *filters, int(bool(bodies))]
            values = (name.key, *seen, *rest)
            reply = await self._run(PAGE(name.hash, name.order, values=values))
            if reply is None:
                return None
            if reply == 0:
                raise ChangedMeanwhileError
            text, life, shape, is_end, last, members, more = reply
            record = record or decode_record(text)
            seen = (life, shape)
            entries += map(codec.of_entry_by_seq, members)
            bodies += more
            size = sum(entry.size for entry in entries)
            if last and query.descending:
                high = int.from_bytes(last, "big") - 1
            elif last:
                low = int.from_bytes(last, "big") + 1
        assert record is not None
        taken, has_more = take_page(entries, query)
        return MessagePage(record, list(map(codec.with_body, taken, bodies)), has_more)

    async def list_entries(
        self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        name = self._keys.session(key)
        values = (name.key, incarnation, number(max(from_seq, 0)), number(max(to_seq, 0)), limit)
        reply = await self._run(ENTRIES(name.hash, name.order, values=values))
        if reply is None:
            return None
        text, members, undos = reply
        entries = [
            codec.with_undo(codec.of_entry_by_seq(member), undo) for member, undo in zip(members, undos, strict=True)
        ]
        return decode_record(text), entries

    async def list_in_reading_order(
        self, key: SessionKey, incarnation: str, from_head: int, to_head: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        name = self._keys.session(key)
        low, high = number(max(from_head, 0)), number(max(to_head, 0))
        record: Record | None = None
        entries: list[Entry] = []
        is_end = False
        while not is_end:
            most = min(limit - len(entries), ENTRIES_A_SCRIPT)
            reply = await self._run(GROUPS(name.hash, name.order, values=(name.key, incarnation, low, high, most)))
            if reply is None:
                return None
            text, members = reply
            record = record or decode_record(text)
            entries += map(codec.of_entry, members)
            is_end = len(members) < most or len(entries) == limit
            if members:
                low = members[-1][codec.PLACE] + b"\xff"
        assert record is not None
        return record, entries

    async def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> tuple[Record, Sequence[StoredSummary]] | None:
        name = self._keys.session(key)
        values: list[Value] = [name.key, incarnation, *(number(each) for each in numbers if each > 0)]
        reply = await self._run(SUMMARIES(name.hash, values=tuple(values)))
        if reply is None:
            return None
        text, summaries = reply
        return decode_record(text), [decode_summary(summary) for summary in summaries if summary is not None]

    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        name = self._keys.session(key)
        values = (name.key, b"".join(map(codec.letter, usabilities)), limit)
        return list(map(codec.of_entry, await self._run(NEWEST(name.hash, name.order, values=values))))

    async def list_events(self, key: SessionKey, incarnation: str, after: int, limit: int) -> EventPage | None:
        name = self._keys.session(key)
        values = (name.key, incarnation, number(after + 1), limit)
        reply = await self._run(EVENTS(name.hash, name.order, values=values))
        return None if reply is None else EventPage(decode_record(reply[0]), codec.of_events(reply[1]))

    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        name = self._keys.session(key)
        names = [codec.lookup_name(kind, id_) for id_ in dict.fromkeys(ids)]
        stored, *values = await self._run(command("HMGET", name.hash, "key", *map(codec.lookup_field, names)))
        if stored != name.key:
            return []
        return [codec.of_lookup(*pair) for pair in zip(names, values, strict=True) if pair[1] is not None]

    async def list_lookups(self, key: SessionKey, limit: int, after: str) -> LookupPage:
        name = self._keys.session(key)
        # One more tells whether there is another page.
        reply = await self._run(LOOKUPS(name.hash, name.order, values=(name.key, bytes.fromhex(after), limit + 1)))
        found = list(zip(*reply, strict=True))
        page = found[:limit]
        return LookupPage(
            lookups=[codec.of_lookup(place[4:], value) for place, value in page],
            after=page[-1][0].hex() if len(found) > limit else "",
        )

    async def _run(self, call: Call) -> Any:
        [reply] = await self._nodes.run(call, repeatable=True)
        return reply

    async def _steadily(self, read: Callable[[int], Awaitable[Result]], most: int) -> Result:
        """Reads by scripts of which none looks at more than so much, unless the session never keeps still."""
        for _ in range(ATTEMPTS):
            try:
                return await read(most)
            except ChangedMeanwhileError:
                pass
        return await read(EVERYTHING)


def _parts(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries in parts whose bodies are fetched at once."""
    parts: list[list[Entry]] = []
    size = 0
    for entry in entries:
        if not parts or len(parts[-1]) >= ENTRIES_A_SCRIPT or size + entry.size > BODY_BYTES_A_SCRIPT:
            parts.append([])
            size = 0
        parts[-1].append(entry)
        size += entry.size
    return parts
