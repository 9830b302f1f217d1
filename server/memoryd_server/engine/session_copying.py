"""Copies one session from a store into another, where it has the same life: seqs, ids, times, epoch and look-ups.

A session that fits is born with all its messages in one commit; a longer one is staged first. A copy of an earlier
state of the source's life is brought up to date by ordinary changes, as long as nobody else changed the copy: so a copy
can be repeated, and goes on where it was interrupted. Runs follow (`run_copying`), and whoever holds one in the source
does not hold it in the copy (`copied_versions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from enum import Enum
from typing import Final

import msgspec

from memoryd_server import limits
from memoryd_server.engine import pairing, replay
from memoryd_server.engine.changes import StaleRead
from memoryd_server.engine.committer import Answer, NotAdopted, Plan
from memoryd_server.engine.content import Part, decode_parts
from memoryd_server.engine.copied_versions import next_version
from memoryd_server.engine.copy_differences import Differs, changed_there, way_around
from memoryd_server.engine.fingerprints import Fingerprint, differing_fields, settled, take_fingerprint
from memoryd_server.engine.history_changes import NotALaterState, changes_between
from memoryd_server.engine.pacing import patiently
from memoryd_server.engine.run_copying import AgentsWithRuns, RunCopier, Survey
from memoryd_server.engine.runtime import Runtime
from memoryd_server.engine.staging import (
    SourceChanged,
    history,
    is_same_history,
    message_lookups,
    read_summaries,
    staging,
)
from memoryd_server.engine.summary_links import hold_of
from memoryd_server.stores.base import Change, MessageQuery, RunQuery, StagingLost
from memoryd_server.stores.records import (
    Lookup,
    LookupKind,
    OpenState,
    Record,
    SessionKey,
    StoredMessage,
    StoredSummary,
    encode_open,
    replace,
)

BIRTH_MESSAGES: Final = 256
"""Messages with which a copy is born in one commit: as many as an append may bring."""

BIRTH_BYTES: Final = 1 << 20
"""Bytes of them, so that many sessions can be copied at once in bounded memory."""

BIRTH_LOOKUPS: Final = 2 * BIRTH_MESSAGES
"""Look-ups of them: of each message, and of each append."""

PAGE: Final = 1_000
"""Messages or look-ups that are staged at once."""

STAGINGS: Final = 8
"""Sessions that are staged at once: each holds two pages of messages."""

ATTEMPTS: Final = 5
"""How often a session is looked at again because it changed while it was copied or compared."""


class Copied(Enum):
    """What became of a session."""

    BORN = "born"
    """The target had none."""
    UPDATED = "updated"
    """The target had an earlier state."""
    KNOWN = "known"
    """The target had it already."""
    GONE = "gone"
    """The source has none any more."""


class SessionCopier:
    """Copies sessions between two stores."""

    def __init__(
        self,
        source: Runtime,
        target: Runtime,
        *,
        written: Callable[[SessionKey, int], None],
        compared: Callable[[SessionKey, int], None],
        written_steps: Callable[[SessionKey, int], None],
        compared_runs: Callable[[SessionKey, int, int], None],
    ) -> None:
        """`written` is told of messages of a session that were stored in the target, `compared` of those read from the
        source to compare them; less than none of those that will be stored or read again. `written_steps` is told of
        steps that were stored, `compared_runs` of runs and steps that are the same in both stores.
        """
        self._source = source
        self._target = target
        self._written = written
        self._compared = compared
        self._compared_runs = compared_runs
        self._runs = RunCopier(source, target, written=written_steps)
        self._agents = AgentsWithRuns(source.store, target.store)
        self._stagings = asyncio.Semaphore(STAGINGS)

    def look_anew(self) -> None:
        """All is looked at once more, and agents may have runs by now."""
        self._agents.forget()

    async def copy(self, key: SessionKey, record: Record, *, thoroughly: bool = False, unborn: bool = False) -> Copied:
        """Has the target hold a session as the source does. What is there already is passed over, by its record alone
        unless `thoroughly`.

        `record`: the source's, as it was just read. `unborn`: whether the target probably has none of this name, which
        spares a read.

        Raises: Differs, StoreUnavailable.
        """
        was_born = False
        for attempt in range(ATTEMPTS):
            loaded = None if unborn and not attempt else await self._target.store.load(key)
            copy = None if loaded is None else loaded.record
            try:
                if copy is None or (copy.incarnation != record.incarnation and not self._target.sessions.sees(copy)):
                    copied = await self._give_birth(key, record)
                    if copied is Copied.BORN:
                        was_born = True
                        await self._bring_runs_of_born(key, record)
                elif not thoroughly and settled(copy) == settled(record):
                    copied = Copied.KNOWN
                else:
                    copied = await self._bring_up_to_date(key, copy)
            except (SourceChanged, StaleRead, StagingLost):
                copied = None
            if copied is not None:
                return Copied.BORN if was_born and copied is not Copied.GONE else copied
            loaded = await self._source.sessions.load(key)
            if loaded is None:
                return Copied.GONE
            record = loaded.record
        raise Differs("it changed all the time while it was copied", "stop its writers, then copy again")

    async def compare(self, key: SessionKey) -> Copied:
        """Has the target hold a session as the source does, by the digests of all that both hold of it.

        Raises: Differs, StoreUnavailable.
        """
        copied, mended = Copied.KNOWN, 0
        for _ in range(ATTEMPTS):
            try:
                here, there = await self._fingerprints(key)
            except SourceChanged:
                continue
            if here is None:
                return Copied.GONE
            if there is not None and here.digest == there.digest:
                self._compared_runs(key, here.run_count, here.step_count)
                return copied
            if there is not None and here.record.version == mended:
                raise Differs(_what_differs(here, there), way_around(there.record))
            # By its record the copy may be complete, and yet lack ids.
            mended = here.record.version
            again = await self.copy(key, here.record, thoroughly=True)
            copied = copied if again is Copied.KNOWN else again
        raise Differs("it changed all the time while it was compared", "stop its writers, then copy again")

    async def _fingerprints(self, key: SessionKey) -> tuple[Fingerprint | None, Fingerprint | None]:
        """Of the source and of the target. Raises: SourceChanged, StoreUnavailable."""
        source, target = self._source, self._target
        read = 0

        def count(messages: int) -> None:
            nonlocal read
            read += messages
            self._compared(key, messages)

        has_runs = await self._agents.has(key)
        here, there = await asyncio.gather(
            take_fingerprint(source.store, source.sessions, key, count, has_runs=has_runs),
            take_fingerprint(target.store, target.store, key, has_runs=has_runs),
            return_exceptions=True,
        )
        for failed in (here, there):
            if isinstance(failed, BaseException):
                self._compared(key, -read)
                raise failed
        return here, there  # type: ignore[return-value]

    # Births

    async def _give_birth(self, key: SessionKey, record: Record) -> Copied | None:
        """Copies a session of which the target has nothing. None: others came before. Raises: as `copy`, and
        SourceChanged, StagingLost.
        """
        if record.messages <= BIRTH_MESSAGES and record.bytes <= BIRTH_BYTES:
            copied = await self._give_birth_at_once(key, record)
            if copied is not None:
                return copied
        async with self._stagings:
            return await self._give_birth_staged(key, record)

    async def _give_birth_at_once(self, key: SessionKey, record: Record) -> Copied | None:
        """As `_give_birth`. None: it does not fit, or it changed meanwhile."""
        lookups = await self._source.store.list_lookups(key, BIRTH_LOOKUPS)
        query = MessageQuery(1, max(1, record.last_seq), descending=False, limit=BIRTH_MESSAGES, bytes=BIRTH_BYTES)
        page = await self._source.sessions.list_messages(key, query)
        if page is None:
            return Copied.GONE
        same = (page.record.incarnation, page.record.version) == (record.incarnation, record.version)
        if lookups.after or page.more or not same:
            return None
        summaries = await read_summaries(self._source.sessions, key, record, record.summaries)
        return await self._commit_birth(
            key, record, messages=page.messages, lookups=lookups.lookups, summaries=summaries
        )

    async def _give_birth_staged(self, key: SessionKey, record: Record) -> Copied | None:
        """As `_give_birth`."""
        async with staging(self._target, key.tenant, record.user_id) as staged:
            loaded = await self._source.sessions.load(key)
            if loaded is None:
                return Copied.GONE
            if loaded.record.user_id != record.user_id:
                raise SourceChanged
            record = loaded.record
            stored = 0
            try:
                pages = history(self._source.sessions, key, record, record.first_seq, record.last_seq, PAGE)
                async with aclosing(_reading_ahead(pages)) as ahead:
                    async for messages in ahead:
                        await staged.add(messages)
                        stored += len(messages)
                        self._written(key, len(messages))
                async for lookups in self._lookups(key, record):
                    await staged.add((), lookups)
                summaries = await read_summaries(self._source.sessions, key, record, record.summaries)
                await self._check_source(key, record)
                copied = await self._commit_birth(key, record, staging=staged.name, summaries=summaries)
                staged.adopted = copied is Copied.BORN
                return copied
            finally:
                if not staged.adopted:
                    self._written(key, -stored)

    async def _check_source(self, key: SessionKey, record: Record) -> None:
        """Raises: SourceChanged."""
        now = await self._source.sessions.load(key)
        if now is None or not is_same_history(now.record, record) or now.record.user_id != record.user_id:
            raise SourceChanged

    async def _commit_birth(
        self,
        key: SessionKey,
        record: Record,
        *,
        messages: Sequence[StoredMessage] = (),
        lookups: Sequence[Lookup] = (),
        summaries: Sequence[StoredSummary] = (),
        staging: str = "",
    ) -> Copied | None:
        arriving = await self._runs.arriving(key, record)
        # What goes on about the next summary is the source's own affair.
        copy = replace(
            record,
            version=next_version(record, None),
            folding=hold_of(record.folding),
            runs=tuple(link for link, _ in arriving),
        )

        def plan(current: Record | None, known: Sequence[Lookup]) -> tuple[Change | None, Copied | None]:
            if current is not None:
                return None, None
            if known:
                # Perhaps of an earlier copy, which had the very incarnation: what is left of it must be gone.
                raise _ended()
            change = Change(
                key,
                None,
                copy,
                messages=messages,
                lookups=lookups,
                new_summaries=summaries,
                changed_runs=[run for _, run in arriving],
                staging=staging,
            )
            return change, Copied.BORN

        try:
            copied = await self._commit(
                key, plan, weight=sum(message.size for message in messages), ids=_ids(lookups), unborn=True
            )
        except NotAdopted as error:
            if not error.taken:
                return None
            raise _ended() from error
        if copied is not None:
            self._written(key, len(messages))
        return copied

    async def _bring_runs_of_born(self, key: SessionKey, record: Record) -> None:
        """Raises: as `copy`, and SourceChanged, StaleRead."""
        if not record.runs and not await self._has_runs(key):
            return
        loaded = await self._target.store.load(key)
        if loaded is None or loaded.record.incarnation != record.incarnation:
            raise StaleRead
        await self._bring_up_to_date(key, loaded.record, is_new=True)

    async def _has_runs(self, key: SessionKey) -> bool:
        if not await self._agents.has(key):
            return False
        return bool((await self._source.store.list_runs(RunQuery(*key, frozenset(), 1))).runs)

    # Growth

    async def _bring_up_to_date(self, key: SessionKey, copy: Record, *, is_new: bool = False) -> Copied | None:
        """Adds to a copy what the source's session got since. `is_new`: whether it was just born, with all look-ups.

        Raises: as `copy`, and SourceChanged, StaleRead.
        """
        loaded = await self._source.sessions.load(key)
        if loaded is None:
            return Copied.GONE
        source = loaded.record
        await self._check_copy(key, source, copy)
        runs = Survey()
        if source.runs or copy.runs or await self._agents.has(key):
            runs = await self._runs.survey(key, source, copy, is_new=is_new)
        grown = copy
        if copy.epoch < source.epoch:
            grown = await self._commit_losses(key, copy, source)
        pages = history(self._source.sessions, key, source, grown.last_seq + 1, source.last_seq)
        async for messages in pages:
            lookups = await message_lookups(self._source.store, key, messages)
            grown = await self._commit_growth(key, grown, source, messages, lookups)
            self._written(key, len(messages))
        grown = await self._runs.bring(key, source, grown, runs)
        if settled(grown) != settled(source):
            grown = await self._commit_growth(key, grown, source, (), ())
        if is_new:
            return Copied.UPDATED
        async for page in self._lookups(key, source):
            missing = await self._missing(key, grown, page)
            for start in range(0, len(missing), BIRTH_LOOKUPS):
                some = missing[start : start + BIRTH_LOOKUPS]
                grown = await self._commit_growth(key, grown, source, (), some)
        return Copied.KNOWN if grown is copy and runs.finds_nothing else Copied.UPDATED

    async def _check_copy(self, key: SessionKey, source: Record, copy: Record) -> None:
        """Raises: Differs unless the copy is an earlier state of the source's session."""
        if copy.incarnation != source.incarnation:
            raise Differs("the target has another session of this name", way_around(copy))
        if copy.epoch > source.epoch or copy.last_seq > source.last_seq:
            raise changed_there(copy)
        if copy.settings_version >= source.settings_version and _settings(copy) != _settings(source):
            raise changed_there(copy)
        if copy.messages and copy.epoch == source.epoch:
            seqs = [copy.newest_seq]
            here, there = await asyncio.gather(
                self._source.sessions.read(key, source.incarnation, seqs),
                self._target.store.read(key, copy.incarnation, seqs),
            )
            if here is None or there is None:
                raise SourceChanged
            if [(message.id, message.created) for message in here[1]] != [
                (message.id, message.created) for message in there[1]
            ]:
                raise changed_there(copy)

    async def _commit_losses(self, key: SessionKey, copy: Record, source: Record) -> Record:
        """Commits what happened to a session of which messages were taken away since it was copied. Returns: the copy's
        new record. Raises: StaleRead, SourceChanged, Differs.
        """
        try:
            changes = await changes_between(
                history(self._target.store, key, copy, copy.first_seq, copy.last_seq, PAGE, open_heads=frozenset()),
                history(self._source.sessions, key, source, source.first_seq, source.last_seq, PAGE),
                copy.last_seq,
                BIRTH_MESSAGES,
            )
        except NotALaterState as error:
            raise _lost(copy) from error
        removed = (*copy.removed, *changes.removed(self._target.clock.now()))
        if changes.bytes > BIRTH_BYTES or len(removed) > limits.MAX_REMOVED_RANGES:
            raise _lost(copy)
        new = replace(
            source,
            version=next_version(source, copy),
            removed=removed,
            folding=hold_of(source.folding),
            runs=copy.runs,
        )
        stored = {link.number for link in copy.summaries}
        added = [link for link in source.summaries if link.number not in stored]
        summaries = await read_summaries(self._source.sessions, key, source, added)
        dropped = sorted(stored - {link.number for link in source.summaries})

        def plan(current: Record | None, _: Sequence[Lookup]) -> tuple[Change | None, Record]:
            if current is None or (current.incarnation, current.version) != (copy.incarnation, copy.version):
                raise StaleRead
            return (
                Change(
                    key,
                    current,
                    new,
                    messages=changes.new,
                    replaced=changes.replaced,
                    completed=sorted(changes.completed),
                    reopened=sorted(changes.reopened),
                    new_summaries=summaries,
                    dropped_summaries=dropped,
                ),
                new,
            )

        self._target.committer.records.put(key, copy)
        grown = await self._commit(key, plan, weight=changes.bytes, expired_too=True)
        self._written(key, len(changes.new))
        return grown

    async def _commit_growth(
        self,
        key: SessionKey,
        copy: Record,
        source: Record,
        messages: Sequence[StoredMessage],
        lookups: Sequence[Lookup],
    ) -> Record:
        """Commits an ordinary change of the copy: messages that follow its last one, and look-ups. Returns: its new
        record. Raises: StaleRead when others changed the copy; Differs.
        """

        def plan(current: Record | None, known: Sequence[Lookup]) -> tuple[Change | None, Record]:
            if current is None or (current.incarnation, current.version) != (copy.incarnation, copy.version):
                raise StaleRead
            new, placed, completed = _grow(current, source, messages)
            change = Change(
                key, current, new, messages=placed, completed=completed, lookups=_unknown(current, lookups, known)
            )
            return change, new

        # So that the commit does not begin with an older one.
        self._target.committer.records.put(key, copy)
        return await self._commit(
            key, plan, weight=sum(message.size for message in messages), ids=_ids(lookups), expired_too=True
        )

    async def _commit(
        self,
        key: SessionKey,
        plan: Plan[Answer],
        *,
        weight: int,
        ids: Sequence[tuple[LookupKind, str]] = (),
        expired_too: bool = False,
        unborn: bool = False,
    ) -> Answer:
        """See `Committer.run`. Where the target does not answer, the plan is asked again, and sees whether the change
        was made.
        """
        return await patiently(
            lambda: self._target.committer.run(
                key, plan, weight=weight, ids=ids, expired_too=expired_too, unborn=unborn
            )
        )

    async def _missing(self, key: SessionKey, copy: Record, lookups: Sequence[Lookup]) -> Sequence[Lookup]:
        """Those look-ups that the target lacks. Raises: Differs when it has another in the place of one."""
        known: list[Lookup] = []
        for kind in LookupKind:
            ids = [lookup.id for lookup in lookups if lookup.kind is kind]
            if ids:
                known += await self._target.store.find(key, kind, ids)
        return _unknown(copy, lookups, known)

    async def _lookups(self, key: SessionKey, source: Record) -> AsyncIterator[Sequence[Lookup]]:
        """Pages of the look-ups of the source's session as they were when its record was `source`.

        Raises: SourceChanged, StoreUnavailable.
        """
        newer: set[str] = set()
        seen, after = source, ""
        while True:
            page = await self._source.store.list_lookups(key, PAGE, after)
            loaded = await self._source.sessions.load(key)
            if loaded is None or not is_same_history(loaded.record, source):
                raise SourceChanged
            # The page may tell of messages that came later than the record.
            if loaded.record.last_seq > seen.last_seq:
                pages = history(
                    self._source.sessions, key, loaded.record, seen.last_seq + 1, loaded.record.last_seq, PAGE
                )
                async for messages in pages:
                    newer.update(message.id for message in messages)
                seen = loaded.record
            yield [lookup for lookup in page.lookups if not newer or newer.isdisjoint(replay.message_ids(lookup))]
            after = page.after
            if not after:
                return


def _lost(copy: Record) -> Differs:
    return Differs("much of it was cleared, rewound or redacted in the source since it was copied", way_around(copy))


def _ended() -> Differs:
    return Differs(
        "the target had a session of this name that ended, and keeps its ids for a day",
        "copy again a day after it ended, or into another store",
    )


def _grow(
    copy: Record, source: Record, messages: Sequence[StoredMessage]
) -> tuple[Record, Sequence[StoredMessage], Sequence[int]]:
    """Plans that a copy gets the messages behind its last one, as it got them in the source.

    Returns: the copy's new record; the messages with the usability that they had when they were appended; the heads of
    groups that they complete. Raises: Differs.
    """
    batch = [pairing.Candidate(message.role, _parts(message), message.tokens, message.size) for message in messages]
    placed, placements, completed = pairing.place(copy, batch)
    stored: list[StoredMessage] = []
    for message, place in zip(messages, placements, strict=True):
        there = (message.seq, message.head, message.position, message.answers)
        if there != (place.seq, place.head, place.position, place.answers):
            raise Differs("its tool calls were paired otherwise in the source", way_around(copy))
        usability = place.usability
        stored.append(
            message if message.usability is usability else msgspec.structs.replace(message, usability=usability)
        )
    is_last = placed.last_seq == source.last_seq
    new = replace(
        placed,
        version=next_version(source, copy),
        open=_owned(placed, source),
        appended=source.appended if is_last else messages[-1].created,
        activity=source.activity,
        **({**_settings(source), "folding": hold_of(source.folding)} if is_last else {}),
    )
    return new, stored, completed


def _owned(placed: Record, source: Record) -> msgspec.Raw:
    """What waits in a copy, with the runs that own it in the source: they may have begun and ended since."""
    if placed.open == source.open:
        return placed.open
    owners = {group.head: group.run for group in source.open_state.groups}
    state = placed.open_state
    groups = (msgspec.structs.replace(group, run=owners.get(group.head, "")) for group in state.groups)
    return encode_open(OpenState(state.calls, tuple(groups)))


def _parts(message: StoredMessage) -> Sequence[Part]:
    return () if message.content is None else decode_parts(message.content)


def _settings(record: Record) -> dict[str, object]:
    """What a session's callers have set."""
    names = ("settings_version", "user_id", "labels", "policy", "ttl")
    return {name: getattr(record, name) for name in names}


def _ids(lookups: Sequence[Lookup]) -> list[tuple[LookupKind, str]]:
    return [(lookup.kind, lookup.id) for lookup in lookups]


def _unknown(copy: Record, lookups: Sequence[Lookup], known: Sequence[Lookup]) -> Sequence[Lookup]:
    """The look-ups that are not known yet. Raises: Differs when one is known otherwise."""
    if not known:
        return lookups
    there: Mapping[tuple[LookupKind, str], Lookup] = {(lookup.kind, lookup.id): lookup for lookup in known}
    for lookup in lookups:
        if there.get((lookup.kind, lookup.id), lookup) != lookup:
            raise Differs("an id of it is known for something else in the target", way_around(copy))
    return [lookup for lookup in lookups if (lookup.kind, lookup.id) not in there]


def _what_differs(here: Fingerprint, there: Fingerprint) -> str:
    clauses = []
    if here.settled != there.settled:
        clauses.append(f"its record differs in {', '.join(differing_fields(here.record, there.record))}")
    parts = [
        *(["its messages"] if here.messages != there.messages else []),
        *(["its ids"] if here.lookups != there.lookups else []),
        *(["its summaries"] if here.summaries != there.summaries else []),
        *(["its runs"] if here.runs != there.runs else []),
    ]
    if parts:
        clauses.append(f"{' and '.join(parts)} differ")
    return ", and ".join(clauses)


async def _reading_ahead(
    pages: AsyncIterator[Sequence[StoredMessage]],
) -> AsyncGenerator[Sequence[StoredMessage], None]:
    """The same pages, the next of which is read while one is worked at."""
    reading = asyncio.ensure_future(anext(pages, None))
    try:
        while (page := await reading) is not None:
            reading = asyncio.ensure_future(anext(pages, None))
            yield page
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
