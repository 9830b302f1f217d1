"""The store on Redis."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from memoryd_server.stores.base import (
    Change,
    ClaimableRun,
    CommitLimits,
    Deleted,
    Due,
    DuePage,
    EventPage,
    Loaded,
    LookupPage,
    MessagePage,
    MessageQuery,
    Outcome,
    PoolStatus,
    RunName,
    RunPage,
    RunQuery,
    SessionPage,
    SessionQuery,
    StepPage,
    Store,
    StoreCapability,
    StoreInfo,
    StoreMisconfigured,
    StoreUnavailable,
    Tail,
    Version,
)
from memoryd_server.stores.records import (
    AgentRecord,
    Entry,
    FileKey,
    FileOwner,
    FileVersion,
    Lookup,
    LookupKind,
    Record,
    SessionKey,
    StoredFile,
    StoredMessage,
    StoredRun,
    StoredSummary,
    Usability,
    decode_record,
)
from memoryd_server.stores.redis.agents import Agents
from memoryd_server.stores.redis.changes import commit_call, outcomes_of
from memoryd_server.stores.redis.cluster import Cluster
from memoryd_server.stores.redis.deletion import Deletion
from memoryd_server.stores.redis.durability import CLUSTER_RISK, UNREPLICATED_RISK
from memoryd_server.stores.redis.errors import FAILURES, unopenable
from memoryd_server.stores.redis.files import Files
from memoryd_server.stores.redis.keys import DIGEST_BYTES, FORMAT, PARTITIONS, PARTITIONS_OF_A_SERVER, Keys, parted
from memoryd_server.stores.redis.members import DUE, folds, listing, number
from memoryd_server.stores.redis.merging import first_members
from memoryd_server.stores.redis.nodes import Nodes, SingleServer
from memoryd_server.stores.redis.opening import find_nodes, risk_of
from memoryd_server.stores.redis.reads import Reads
from memoryd_server.stores.redis.runs import Runs, StaleEntry
from memoryd_server.stores.redis.scripts import CONFIRM, LEASE, PROBE, PURGE, Call, command
from memoryd_server.stores.redis.stagings import Stagings
from memoryd_server.stores.redis.url import Target

TYPE: Final = "redis"

COMMITS: Final = 4
"""Commits under way at once on one server: what waits meanwhile shares a commit."""

CLUSTER_COMMITS: Final = 32
"""Likewise on a cluster, where each is about one session and waits for a replica."""

SECRET_BYTES: Final = 32

_PLACE_BYTES: Final = 8 + DIGEST_BYTES
"""Of a place in a list of sessions: a time and the session's digest."""

_GONE: Final = (
    "The data of memoryd is gone from Redis: it was flushed, or evicted. Restart memoryd; restore a backup first where "
    "there is one."
)


class RedisStore(Store):
    """Keeps everything in a Redis server or cluster, for any number of servers of memoryd."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._use(SingleServer(target, None), Keys(target.prefix))

    def _use(self, nodes: Nodes, keys: Keys) -> None:
        is_cluster = isinstance(nodes, Cluster)
        nodes.replicas = int(is_cluster) if self._target.replicas is None else self._target.replicas
        self._nodes = nodes
        self._keys = keys
        self._reads = Reads(keys, nodes)
        self._stagings = Stagings(keys, nodes)
        self._agents = Agents(keys, nodes)
        self._files = Files(keys, nodes)
        self._runs = Runs(keys, nodes)
        self._deletion = Deletion(keys, nodes)
        self.commit_limits = (
            CommitLimits(concurrency=CLUSTER_COMMITS, sessions=1) if is_cluster else CommitLimits(concurrency=COMMITS)
        )

    async def open(self) -> StoreInfo:
        seconds = self._target.answer_seconds
        try:
            async with asyncio.timeout(2 * seconds):
                self._use(await find_nodes(self._target), self._keys)
                risk = await risk_of(self._target, self._nodes)
                secret, partitions = await self._begin()
                self._use(self._nodes, Keys(self._target.prefix, partitions))
        except BaseException as error:
            await self.close()
            origin: BaseException = error
            while not isinstance(origin, FAILURES) and origin.__cause__ is not None:
                origin = origin.__cause__
            problem = unopenable(origin, self._target.name, seconds)
            if problem is None or isinstance(error, StoreMisconfigured):
                raise
            raise problem from error
        capabilities = [
            StoreCapability("shared", supported=True),
            StoreCapability("durable", supported=not risk, reason=risk),
        ]
        if isinstance(self._nodes, Cluster):
            reason = CLUSTER_RISK if self._nodes.replicas else UNREPLICATED_RISK
            capabilities.append(StoreCapability("lossless_failover", supported=False, reason=reason))
        return StoreInfo(
            type=TYPE,
            durable=not risk,
            capabilities=tuple(capabilities),
            secret=secret,
        )

    async def _begin(self) -> tuple[bytes, int]:
        """Claims the data for this format. Returns: its secret, and how many partitions it is in."""
        meta, is_alone = self._keys.meta, not isinstance(self._nodes, Cluster)
        await self._nodes.run(PROBE(*self._keys.probes))
        read = command("HMGET", meta, "format", "secret", "partitions")
        format_, secret, partitions = await self._run(read)
        if format_ is None or secret is None:
            # Whoever sees the format must see what it promises.
            await self._nodes.change(
                command("HSETNX", meta, "partitions", PARTITIONS_OF_A_SERVER if is_alone else PARTITIONS),
                command("HSETNX", meta, "format", FORMAT),
                command("HSETNX", meta, "secret", secrets.token_bytes(SECRET_BYTES)),
            )
            format_, secret, partitions = await self._run(read)
        if not format_.isdigit() or int(format_) > FORMAT:
            raise StoreMisconfigured(
                f"{self._target.name}: its data has the format {format_.decode(errors='replace')}, and this version "
                f"knows {FORMAT}. Run the version of memoryd that wrote it, or a newer one."
            )
        return bytes(secret), PARTITIONS if int(format_) == 1 else int(partitions)

    async def close(self) -> None:
        await self._nodes.close()

    def pool_status(self) -> PoolStatus:
        """See `base.Pooled`."""
        return self._nodes.pool_status()

    async def ping(self) -> None:
        if await self._run(command("HGET", self._keys.meta, "format")) is None:
            raise StoreUnavailable(_GONE)

    async def now(self) -> int:
        # Of one node, the same for all servers.
        seconds, microseconds = await self._run(Call(self._keys.meta, ("TIME",)))
        return int(seconds) * 1_000_000 + int(microseconds)

    async def adopt_secret(self, secret: bytes) -> None:
        await self._nodes.change(command("SADD", self._keys.secrets, secret))

    async def adopted_secrets(self) -> Sequence[bytes]:
        return list(await self._run(command("SMEMBERS", self._keys.secrets)))

    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        values = (holder, math.ceil(seconds * 1_000))
        [is_held] = await self._nodes.run(LEASE(self._keys.lease(name), values=values))
        return bool(is_held)

    # Sessions

    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        return await self._reads.load(key, tail)

    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        return await self._reads.read(key, incarnation, seqs)

    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        return await self._reads.list_messages(key, query)

    async def list_entries(
        self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        return await self._reads.list_entries(key, incarnation, from_seq, to_seq, limit)

    async def list_in_reading_order(
        self, key: SessionKey, incarnation: str, from_head: int, to_head: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        return await self._reads.list_in_reading_order(key, incarnation, from_head, to_head, limit)

    async def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> tuple[Record, Sequence[StoredSummary]] | None:
        return await self._reads.read_summaries(key, incarnation, numbers)

    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        return await self._reads.list_unusable(key, usabilities, limit)

    async def list_events(self, key: SessionKey, incarnation: str, after: int, limit: int) -> EventPage | None:
        return await self._reads.list_events(key, incarnation, after, limit)

    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        found = await self._reads.find(key, kind, ids)
        if found and self._nodes.replicas:
            # Whoever hears of a first answer must be able to rely on it, as the one who was to hear it first.
            await self._nodes.change(CONFIRM(self._keys.session(key).hash))
        return found

    async def list_lookups(self, key: SessionKey, limit: int, after: str = "") -> LookupPage:
        return await self._reads.list_lookups(key, limit, after)

    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        chains: dict[SessionKey, list[Change]] = {}
        for change in changes:
            chains.setdefault(change.key, []).append(change)
        confirms = self._nodes.replicas > 0
        plain: dict[SessionKey, Call] = {}
        first: dict[tuple[str, str], None] = {}
        """Agents that must be known before their sessions."""
        for key, chain in chains.items():
            if any(change.previous is None and change.record is not None for change in chain):
                first[key.tenant, key.agent] = None
            if not any(change.staging for change in chain):
                plain[key] = commit_call(self._keys, chain, confirms=confirms)
        before = [call for agent in first for call in self._agents.enlisting(*agent)]
        if before and (isinstance(self._nodes, Cluster) or len(plain) < len(chains)):
            await self._nodes.change(*before)
            before = []
        outcomes: dict[SessionKey, list[Outcome]] = {}
        if plain:
            replies = await self._nodes.change(*before, *plain.values())
            for (key, _), reply in zip(plain.items(), replies[len(before) :], strict=True):
                outcomes[key] = outcomes_of(chains[key], reply)
        for key in chains.keys() - plain.keys():
            outcomes[key] = await self._stagings.adopt(chains[key], confirms=confirms)
        if len(chains) == 1:
            return outcomes[changes[0].key]
        in_order = {key: iter(of_chain) for key, of_chain in outcomes.items()}
        return [next(in_order[change.key]) for change in changes]

    async def purge(self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int) -> int:
        name = self._keys.session(key)
        values = (name.key, incarnation, number(from_seq), number(to_seq), limit)
        [deleted] = await self._nodes.run(PURGE(name.hash, name.order, values=values))
        return int(deleted)

    # Lists

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        prefix = listing(query)
        low, place = b"[" + prefix, bytes.fromhex(query.after) or b"\xff"
        found: list[tuple[SessionKey, Record]] = []
        last = place
        while True:
            wanted = query.limit + 1
            members = await first_members(
                self._nodes, self._keys.partitions, low, b"(" + prefix + place, wanted, descending=True
            )
            for (member, _), (key, text) in zip(members, await self._heads(members, "rec"), strict=True):
                place = member[-_PLACE_BYTES:]
                if text is None:
                    continue
                record = decode_record(text)
                if _is_asked_for(query, key, record):
                    if len(found) == query.limit:
                        return SessionPage(found, last.hex())
                    found.append((key, record))
                    last = place
            if len(members) < wanted:
                return SessionPage(found, "")

    async def list_due(self, due: Due, before: int, limit: int, after: str = "") -> DuePage:
        return await self._due_page(DUE[due], before, limit, after)

    async def list_folds(self, tenant: str, agent: str, before: int, limit: int, after: str = "") -> DuePage:
        return await self._due_page(folds(tenant, agent), before, limit, after, (tenant, agent))

    async def _due_page(
        self, prefix: bytes, before: int, limit: int, after: str, owner: tuple[str, str] | None = None
    ) -> DuePage:
        """A page of the list whose members begin so. `owner`: the tenant and the agent that it is of, if any."""
        low = (b"(" if after else b"[") + prefix + bytes.fromhex(after)
        high = b"(" + prefix + number(before)
        members = await first_members(self._nodes, self._keys.partitions, low, high, limit + 1)
        page = members[:limit]
        heads = await self._heads(page, "inc")
        return DuePage(
            keys=[key for key, incarnation in heads if incarnation is not None and owner in (None, key[:2])],
            after=page[-1][0][-_PLACE_BYTES:].hex() if len(members) > limit else "",
        )

    async def _heads(self, members: Iterable[tuple[bytes, str]], field: str) -> list[tuple[SessionKey, Any]]:
        """The key and a field of the sessions that members of lists end with; None for the field of a dead name."""
        names = [self._keys.of_digest(member[-DIGEST_BYTES:]) for member, _ in members]
        heads = await self._nodes.run(*(command("HMGET", name.hash, "key", field) for name in names), repeatable=True)
        return [(SessionKey(*parted(key)) if key else SessionKey("", "", ""), value) for key, value in heads]

    # Runs

    async def load_run(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        return await self._runs.load(key, run_id)

    async def list_runs(self, query: RunQuery) -> RunPage:
        return await self._runs.list_runs(query)

    async def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        return await self._runs.list_claimable(tenant, agent, before, limit)

    async def load_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[ClaimableRun]:
        if len(self._keys.partitions) == 1:
            # The list goes on to the next entry.
            with suppress(StaleEntry):
                return await self._runs.load_claimable(tenant, agent, before, limit)
        return await super().load_claimable(tenant, agent, before, limit)

    async def list_steps(
        self, key: SessionKey, incarnation: str, run_id: str, after: int, limit: int, bytes: int
    ) -> StepPage | None:
        return await self._runs.list_steps(key, incarnation, run_id, after, limit, bytes)

    async def list_ended_runs(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        return await self._runs.list_ended(tenant, agent, before, limit)

    async def delete_run(self, name: RunName, limit: int) -> int:
        return await self._runs.delete(name, limit)

    # Agents

    async def load_agent(self, tenant: str, agent: str) -> AgentRecord | None:
        return await self._agents.load(tenant, agent)

    async def save_agent(self, record: AgentRecord) -> bool:
        return await self._agents.save(record)

    async def list_agents(self, tenant: str, after: str, limit: int) -> Sequence[AgentRecord]:
        return await self._agents.list_agents(tenant, after, limit)

    async def list_tenants(self, after: str, limit: int) -> Sequence[str]:
        return await self._agents.list_tenants(after, limit)

    # Memory files

    async def load_files(self, keys: Sequence[FileKey]) -> Sequence[StoredFile]:
        return await self._files.load(keys)

    async def confirm_file(self, key: FileKey) -> None:
        if self._nodes.replicas:
            await self._nodes.change(CONFIRM(self._keys.file(self._keys.file_owner(key.owner), key.name)))

    async def save_file(self, file: StoredFile, expected: Version | None) -> bool:
        return await self._files.save(file, expected)

    async def delete_file(self, key: FileKey, expected: Version) -> bool:
        return await self._files.delete(key, expected)

    async def list_files(self, owner: FileOwner, before: str, limit: int) -> Sequence[tuple[str, FileVersion]]:
        return await self._files.list_files(owner, before, limit)

    async def list_file_versions(self, key: FileKey) -> Sequence[FileVersion]:
        return await self._files.list_versions(key)

    async def load_file_version(self, key: FileKey, version: int) -> StoredFile | None:
        return await self._files.load_version(key, version)

    async def list_file_owners(self, tenant: str, after: FileOwner | None, limit: int) -> Sequence[FileOwner]:
        return await self._files.list_owners(tenant, after, limit)

    async def list_file_tenants(self, after: str, limit: int) -> Sequence[str]:
        return await self._files.list_tenants(after, limit)

    # Stagings and what is left

    async def begin_staging(self, tenant: str, user_id: str, due: int) -> str:
        return await self._stagings.begin(tenant, user_id, due)

    async def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        await self._stagings.add(staging, messages, lookups, due)

    async def end_staging(self, staging: str) -> None:
        await self._stagings.end(staging)

    async def sweep(self, now: int, limit: int) -> Deleted:
        return await self._deletion.sweep(now, limit)

    async def erase(self, tenant: str, user_id: str, limit: int) -> Deleted:
        deleted = await self._deletion.erase(tenant, user_id, limit)
        left = limit - deleted.total
        return deleted + Deleted(files=await self._files.erase(tenant, user_id, left)) if left > 0 else deleted

    async def _run(self, call: Call) -> Any:
        [reply] = await self._nodes.run(call, repeatable=True)
        return reply


def _is_asked_for(query: SessionQuery, key: SessionKey, record: Record) -> bool:
    return key.tenant == query.tenant and query.agent in (None, key.agent) and query.user_id in (None, record.user_id)
