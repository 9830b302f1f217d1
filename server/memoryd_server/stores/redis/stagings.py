"""Stagings, which begin without a name: in any partition, and not in that of the session that they are for."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import islice
from typing import Final

from memoryd_server.stores.base import Change, Committed, Lost, Outcome, StagingLost
from memoryd_server.stores.records import Lookup, StoredMessage
from memoryd_server.stores.redis.changes import commit_call, lookups_of, messages_of, outcomes_of
from memoryd_server.stores.redis.cluster import Cluster
from memoryd_server.stores.redis.keys import Keys, StagingName
from memoryd_server.stores.redis.members import number, of_user
from memoryd_server.stores.redis.nodes import Nodes
from memoryd_server.stores.redis.scripts import BEGIN_STAGING, CLAIM, STAGE, STAGED, UNSTAGE, Value

NAME_BYTES: Final = 16
PART: Final = 256
"""Messages and look-ups that are brought to another partition at once, as an append may bring."""

PART_BYTES: Final = 1 << 20
"""Bytes of them, after which a part ends."""

_UNBORN: Final = "unborn"
_CLAIMED: Final = "claimed"

ROWS_A_SCRIPT: Final = 1_000
"""Rows that one script deletes."""


class Stagings:
    """Begins, fills, adopts and ends them."""

    def __init__(self, keys: Keys, nodes: Nodes) -> None:
        self._keys = keys
        self._nodes = nodes

    async def begin(self, tenant: str, user_id: str, due: int) -> str:
        name = self._keys.staging(secrets.token_bytes(NAME_BYTES))
        await self._begin(name, of_user(tenant, user_id), number(due), _UNBORN)
        return name.name.hex()

    async def _begin(self, name: StagingName, user: bytes, due: bytes, state: str) -> None:
        await self._nodes.change(BEGIN_STAGING(*name[:3], values=(name.name, user, due, state)))

    async def add(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        name = self._keys.staging(bytes.fromhex(staging))
        await self._add(name, number(due), messages_of(messages), lookups_of(lookups), _UNBORN)

    async def _add(
        self, name: StagingName, due: bytes, messages: Sequence[bytes], lookups: Sequence[bytes], state: str
    ) -> None:
        values: tuple[Value, ...] = (name.name, due, state, len(messages), *messages, *lookups)
        [is_added] = await self._nodes.change(STAGE(*name[:3], values=values))
        if not is_added:
            raise StagingLost("The copy was abandoned for too long, or its user was erased.")

    async def end(self, staging: str) -> None:
        name = self._keys.staging(bytes.fromhex(staging))
        await self._nodes.run(UNSTAGE(*name[:3], values=(name.name, 0, "")))

    async def adopt(self, changes: Sequence[Change], *, confirms: bool) -> list[Outcome]:
        """Makes changes of one session, of which the first with a staging adopts that."""
        partition = self._keys.session(changes[0].key).partition
        name = self._keys.staging(bytes.fromhex(next(change.staging for change in changes if change.staging)))
        if not isinstance(self._nodes, Cluster) or name.partition == partition:
            [reply] = await self._nodes.change(commit_call(self._keys, changes, confirms=confirms))
            return outcomes_of(changes, reply)
        # Where it is not yet, so that this tells what else stands in the way.
        brought = self._keys.staging(name.name, partition)
        call = commit_call(self._keys, changes, confirms=confirms, staging_partition=partition)
        [reply] = await self._nodes.change(call)
        outcomes = outcomes_of(changes, reply)
        if Lost() not in outcomes:
            return outcomes
        # What is made already is not made again.
        made = outcomes.index(Lost())
        rest = changes[made:]
        [claim] = await self._nodes.change(CLAIM(name.hash, values=(0,)))
        if claim is None:
            return outcomes
        # What breaks off from here on leaves both to a sweep.
        try:
            await self._bring(name, brought, *claim)
        except StagingLost:
            return outcomes
        call = commit_call(self._keys, rest, confirms=confirms, staging_partition=partition)
        [reply] = await self._nodes.change(call)
        adopted = outcomes_of(rest, reply)
        if isinstance(adopted[0], (Committed, Lost)):
            await self._delete(name)
        else:
            await self._delete(brought)
            await self._nodes.run(CLAIM(name.hash, values=(1,)))
        return [*islice(outcomes, made), *adopted]

    async def _bring(self, name: StagingName, to: StagingName, due: bytes, user: bytes) -> None:
        """Copies a staging. Nobody can adopt the copy before it is whole."""
        await self._begin(to, user, due, _CLAIMED)
        place = b""
        while True:
            values = (place, PART, PART_BYTES)
            [reply] = await self._nodes.run(STAGED(name.hash, name.order, values=values), repeatable=True)
            if reply is None:
                raise StagingLost
            place, messages, lookups = reply
            await self._add(to, due, messages, lookups, _CLAIMED)
            if not place:
                break
        await self._nodes.change(CLAIM(to.hash, values=(1,)))

    async def _delete(self, name: StagingName) -> None:
        deleted = [1]
        while sum(deleted):
            [deleted] = await self._nodes.run(UNSTAGE(*name[:3], values=(name.name, ROWS_A_SCRIPT, "")))
