"""Runs and their steps, which are rows of a session's life. `lua/runs.lua` tells how they are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from memoryd_server.stores.base import ClaimableRun, RunName, RunPage, RunQuery, StepPage
from memoryd_server.stores.records import Record, SessionKey, StoredRun, decode_record
from memoryd_server.stores.redis.keys import DIGEST_BYTES, Keys, joined, parted
from memoryd_server.stores.redis.members import CLAIMABLE, ENDED, EVERY_RUN, number, run_list
from memoryd_server.stores.redis.merging import first_members
from memoryd_server.stores.redis.nodes import Nodes
from memoryd_server.stores.redis.run_values import ended_then, is_claimable_from, of_run, of_step, status_of
from memoryd_server.stores.redis.scripts import CLAIMABLE_RUNS, DELETE_RUN, RUN, RUN_LIST, STEPS, Call, command

LOOKS_A_SCRIPT: Final = 1_000
"""Runs that one script looks at for those of some statuses: the server does nothing else meanwhile."""

ROWS_A_SCRIPT: Final = 1_000
"""Rows that one script deletes: as above."""

MEMBERS_AT_ONCE: Final = 1_000
"""Members of a list that are read at once, unless more runs are asked for."""

_AT_BYTES: Final = 8
_LIFE_BYTES: Final = 4
_NEWEST: Final = b"\xff"
"""Behind every place in a list."""


class StaleEntry(Exception):
    """The first entry of a list tells of no run that is so."""


class _Row(NamedTuple):
    """What is stored of a run that a list told of."""

    key: SessionKey
    incarnation: str
    run_id: str
    value: bytes
    head: bytes
    """Empty where it was not asked for."""


class Runs:
    """Reads, lists and deletes runs."""

    def __init__(self, keys: Keys, nodes: Nodes) -> None:
        self._keys = keys
        self._nodes = nodes

    async def load(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        name = self._keys.session(key)
        reply = await self._run(RUN(name.hash, values=(name.key, run_id)))
        if reply is None:
            return None
        text, value, head = reply
        return decode_record(text), None if value is None else of_run(run_id, value, head)

    async def list_steps(
        self, key: SessionKey, incarnation: str, run_id: str, after: int, limit: int, bytes: int
    ) -> StepPage | None:
        name = self._keys.session(key)
        values = (name.key, incarnation, run_id, number(max(after, 0) + 1), limit, bytes)
        reply = await self._run(STEPS(name.hash, name.order, values=values))
        if reply is None:
            return None
        numbers, steps, more = reply
        return StepPage([of_step(run_id, *each) for each in zip(numbers, steps, strict=True)], bool(more))

    async def delete(self, run: RunName, limit: int) -> int:
        name = self._keys.session(run.key)
        values = (name.key, run.incarnation, name.digest, run.run_id, min(limit, ROWS_A_SCRIPT))
        [deleted] = await self._nodes.change(DELETE_RUN(name.hash, name.order, name.partition, values=values))
        return int(deleted)

    # Lists

    async def list_runs(self, query: RunQuery) -> RunPage:
        after = bytes.fromhex(query.after)
        if query.session_id is None:
            return await self._of_agent(query, after)
        return await self._of_session(query, SessionKey(query.tenant, query.agent, query.session_id), after)

    async def _of_session(self, query: RunQuery, key: SessionKey, after: bytes) -> RunPage:
        name = self._keys.session(key)
        statuses = bytes(sorted(query.statuses))
        found: list[tuple[bytes, StoredRun]] = []
        # One more tells whether there is another page.
        while (wanted := query.limit + 1 - len(found)) > 0:
            looks = max(wanted, LOOKS_A_SCRIPT) if statuses else wanted
            values = (name.key, after, statuses, wanted, looks)
            reply = await self._run(RUN_LIST(name.hash, name.order, values=values))
            if reply is None:
                break
            *rows, after = reply
            found += [
                (place, of_run(place[_AT_BYTES:].decode(), value, head))
                for place, value, head in zip(*rows, strict=True)
            ]
            if not after:
                break
        page = found[: query.limit]
        return RunPage([(key, run) for _, run in page], page[-1][0].hex() if len(found) > query.limit else "")

    async def _of_agent(self, query: RunQuery, after: bytes) -> RunPage:
        kinds = [bytes([status]) for status in query.statuses] or [EVERY_RUN]
        lists = [run_list(query.tenant, query.agent, kind) for kind in kinds]
        found: list[tuple[SessionKey, StoredRun]] = []
        place = last = after or _NEWEST
        wanted = query.limit + 1
        while True:
            places = await self._newest(lists, place, wanted)
            for place, row in zip(places, await self._rows(query.tenant, query.agent, places, "h"), strict=True):
                if row is None or (query.statuses and status_of(row.value) not in query.statuses):
                    continue
                if len(found) == query.limit:
                    return RunPage(found, last.hex())
                found.append((row.key, of_run(row.run_id, row.value, row.head)))
                last = place
            if len(places) < wanted:
                return RunPage(found, "")
            wanted = _more(wanted)

    async def _newest(self, lists: Sequence[bytes], before: bytes, limit: int) -> list[bytes]:
        """The places in any of some lists, the last one first: at most so many. A run may have moved between lists."""
        places: set[bytes] = set()
        for each in lists:
            low, high = b"[" + each, b"(" + each + before
            members = await first_members(self._nodes, self._keys.partitions, low, high, limit, descending=True)
            places.update(member[len(each) :] for member, _ in members)
        return sorted(places, reverse=True)[:limit]

    async def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        return await self._names(tenant, agent, CLAIMABLE, is_claimable_from, before, limit)

    async def load_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[ClaimableRun]:
        """The first runs that can be claimed, by one script, where there is one partition. Raises: StaleEntry."""
        values = (run_list(tenant, agent, CLAIMABLE), number(before), joined(tenant, agent), limit)
        reply = await self._run(CLAIMABLE_RUNS(*self._keys.partitions, values=values))
        if reply == 0:
            raise StaleEntry
        return ClaimableRun.as_far_as_readable(
            ClaimableRun(SessionKey(*parted(key)), decode_record(text), of_run(run.decode(), value, head))
            for key, text, run, value, head in reply
        )

    async def list_ended(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        return await self._names(tenant, agent, ENDED, ended_then, before, limit)

    async def _names(
        self, tenant: str, agent: str, kind: bytes, is_at: Callable[[bytes, bytes], bool], before: int, limit: int
    ) -> Sequence[RunName]:
        """Runs of a list whose time is before the given one. `is_at`: whether a run is in the list at that time."""
        prefix = run_list(tenant, agent, kind)
        low, high = b"[" + prefix, b"(" + prefix + number(before)
        found: list[RunName] = []
        wanted = limit
        while len(found) < limit:
            members = await first_members(self._nodes, self._keys.partitions, low, high, wanted)
            places = [member[len(prefix) :] for member, _ in members]
            for place, row in zip(places, await self._rows(tenant, agent, places), strict=True):
                if row is not None and is_at(row.value, place[:_AT_BYTES]):
                    found.append(RunName(row.key, row.incarnation, row.run_id))
            if len(members) < wanted:
                break
            low = b"(" + members[-1][0]
            wanted = _more(wanted)
        return found[:limit]

    async def _rows(self, tenant: str, agent: str, places: Sequence[bytes], *more: str) -> list[_Row | None]:
        """What is stored of the runs of these places in lists of an agent; None for one that is gone.

        `more`: letters of further fields.
        """
        calls, runs = [], []
        for place in places:
            digest, rest = place[_AT_BYTES : _AT_BYTES + DIGEST_BYTES], place[_AT_BYTES + DIGEST_BYTES :]
            life, run = rest[:_LIFE_BYTES], rest[_LIFE_BYTES:]
            fields = [life + letter.encode() + run for letter in ("r", *more)]
            calls.append(command("HMGET", self._keys.of_digest(digest).hash, "key", "inc", "life", *fields))
            runs.append((life, run))
        rows: list[_Row | None] = []
        for (life, run), reply in zip(runs, await self._nodes.run(*calls, repeatable=True), strict=True):
            key, incarnation, lives, value, *head = reply
            is_there = incarnation is not None and lives == life and value is not None
            owner = SessionKey(*parted(key)) if is_there else None
            if owner is None or owner[:2] != (tenant, agent):
                rows.append(None)
            else:
                rows.append(_Row(owner, incarnation.decode(), run.decode(), value, *head or (b"",)))
        return rows

    async def _run(self, call: Call) -> Any:
        [reply] = await self._nodes.run(call, repeatable=True)
        return reply


def _more(members: int) -> int:
    """How many members to read next of a list that told of runs that are gone: there may be many more of these."""
    return max(members, min(2 * members, MEMBERS_AT_ONCE))
