"""The store contract (design sections 5 and 8). Its docstrings are binding for every adapter; `tests/stores` holds the
one suite that all of them pass.

The heart is two calls. `load` answers a session's record with the messages that a window may use, in one round trip
where the database can. `commit` takes planned changes and answers each by itself. The engine reads a record, plans a
change as a pure function and commits it; on `Conflict` or `Known` it reads and plans again. Append, clear, rewind,
redaction, summary, lease, expiry, erasure and a fork's last step are that one mechanism.

A session's name has lives. A life begins with a commit (a birth), and ends with one (a death, or a rebirth, which ends
one life and begins the next). What a dead life held is never answered again: from its death on it waits for `sweep` or
`erase` to delete it. Only id look-ups belong to the name rather than to a life.

Rules that hold for every method:

- Keys are exact bytes (invariant 5). Every read and write carries the full key, and rows of messages carry the
  session's incarnation too, so that nothing of an earlier life is ever taken for the new one.
- What a session's record says is removed (`first_seq`, `removed`) is never answered, whether or not it is purged yet.
- Look-ups live as long as the session's name is in use and at least 24 hours beyond its last death (invariant 2), but
  not beyond an erasure: no method drops them one by one.
- `expires_at` of a record is for the engine: until a commit ends the life, a store answers an expired session.
- Errors are those of this module, never a driver's. A failed read raises; it is never an empty answer (invariant 12).
- A method may be cancelled at any time: it then leaks no connection, and a commit under way is made whole or not at
  all.
- Methods may be called from one event loop only, any number at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass, field
from enum import IntEnum
from operator import add
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from memoryd_server.stores.records import (
    AgentRecord,
    Entry,
    Event,
    FileKey,
    FileOwner,
    FileVersion,
    Lookup,
    LookupKind,
    Record,
    Role,
    RunHead,
    RunState,
    RunStatus,
    SessionKey,
    StoredFile,
    StoredMessage,
    StoredRun,
    StoredStep,
    StoredSummary,
    Usability,
)


class StoreError(Exception):
    """The root of the errors that stores raise."""


class StoreUnavailable(StoreError):
    """The database did not answer, or refused for a reason that passes. A commit that raises it may have been made: the
    engine finds out by its ids when the caller repeats it.

    Its text reaches the caller: it says what is wrong and nothing about keys, values or credentials.
    """


class StagingLost(StoreError):
    """A staging is gone: it was abandoned for too long, or its user was erased."""


class StoreMisconfigured(StoreError):
    """The store cannot be opened as it is set up. The text says what to set or to install."""


@dataclass(frozen=True, slots=True)
class StoreCapability:
    """A power that a store may lack, with the reason and the way around where it is missing."""

    name: str
    supported: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store is. Known after `open`."""

    type: str
    """The kind, for example `sqlite`."""
    durable: bool
    """Whether a commit that was answered survives a crash of the process and the loss of power. Where it does not, the
    capability `durable` says why."""
    capabilities: tuple[StoreCapability, ...]
    secret: bytes
    """32 random bytes, made once for the life of the data and shared by all servers on it: keys the digests of content
    and of page tokens, so that tokens of another store are not accepted."""


@dataclass(frozen=True, slots=True)
class Version:
    """The state of a session that a change rests on."""

    incarnation: str
    version: int


class Tail(msgspec.Struct, frozen=True):
    """Which of a session's newest messages to load.

    The walk goes backwards in reading order over messages of the given usabilities and ends with the message that
    brings it to `messages` or to `tokens`, whichever is first, but never inside the newest group: that one always comes
    whole. A message whose head is removed is passed over with it.
    """

    usabilities: Collection[Usability]
    """USABLE, or USABLE and OPEN. An index leads past all others (invariant 17)."""
    messages: int
    """From 1."""
    tokens: int | None = None
    """From 1; None for no bound."""
    opening: bool = False
    """Whether to load the opening too: the messages from first_seq through opening_to, in order, ending with the one
    that brings them to half of `messages` or of `tokens`, or takes them beyond it."""
    summary: bool = False
    """Whether to load the current summary too."""
    body_bytes: int = 0
    """Bodies come along if the sizes of tail and opening together, each message once, do not exceed this. Otherwise
    bare entries come; finding out reads no more of bodies than about that."""


class Loaded(msgspec.Struct, frozen=True):
    """A session as `load` found it, all of one moment."""

    record: Record
    tail: Sequence[Entry] = ()
    """Newest first in reading order. Either all entries of tail and opening are `StoredMessage`s, or none is."""
    opening: Sequence[Entry] = ()
    """In order of seq. The tail may hold the same messages."""
    summary: StoredSummary | None = None
    """The record's current summary, if there is one and it was asked for."""


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Which messages a page holds. All conditions hold together."""

    from_seq: int
    """The lowest seq to examine."""
    to_seq: int
    """The highest seq to examine."""
    descending: bool
    limit: int
    """At most so many messages, from 1."""
    bytes: int
    """At most so many bytes of sizes, but always one message."""
    roles: frozenset[Role] = frozenset()
    """Empty for all."""
    run_id: str = ""
    """Empty for all."""
    from_time: int | None = None
    to_time: int | None = None
    """Excluded itself."""


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A page of messages, of one moment with the record."""

    record: Record
    messages: Sequence[StoredMessage]
    """In the asked order."""
    more: bool
    """Whether `limit` or `bytes` ended the page: the range may hold more beyond its last message."""


@dataclass(frozen=True, slots=True)
class SessionQuery:
    """Which sessions a page holds."""

    tenant: str
    agent: str | None
    user_id: str | None
    limit: int
    after: str = ""
    """The cursor of the page before; empty for the first."""


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of sessions, newest activity first. An index entry whose session is gone is passed over."""

    sessions: Sequence[tuple[SessionKey, Record]]
    after: str
    """The cursor of the next page; empty when this is the last. Meaningful to the store alone."""


class Due(IntEnum):
    """What a session may be due for, by a time that its record holds."""

    PURGE = 0
    """A removed range waits for its purge: its `removed_at`."""
    ABANDONMENT = 2
    """An unfinished run of it was left alone: its `abandon_at`."""
    EXPIRY = 1
    """It expires: `expires_at`, or up to `limits.ACTIVITY_LAG_SECONDS` earlier, so that an index entry need not move
    with every append."""


@dataclass(frozen=True, slots=True)
class DuePage:
    """A page of sessions that are due, of all tenants, by the time at which they became so."""

    keys: Sequence[SessionKey]
    after: str
    """The cursor of the next page; empty when this is the last. Meaningful to the store alone."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """Events of a session, of one moment with the record."""

    record: Record
    events: Sequence[Event]
    """By number."""


class ClaimableRun(NamedTuple):
    """A run that can be claimed, as it was read."""

    key: SessionKey
    record: Record
    """Of its session."""
    run: StoredRun

    @classmethod
    def as_far_as_readable(cls, decoded: Iterable[ClaimableRun]) -> list[ClaimableRun]:
        """Runs up to the first behind them that cannot be decoded. Raises: DecodeError for the very first."""
        runs: list[ClaimableRun] = []
        try:
            for run in decoded:
                # One by one: those in front of a damaged one are kept.
                runs.append(run)  # noqa: PERF402
        except msgspec.DecodeError:
            if not runs:
                raise
        return runs


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs a page holds."""

    tenant: str
    agent: str
    session_id: str | None
    """None for the runs of all of the agent's sessions."""
    statuses: frozenset[RunStatus]
    """Empty for all."""
    limit: int
    after: str = ""
    """The cursor of the page before; empty for the first."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs, the newest first by creation. An index entry whose run is gone is passed over."""

    runs: Sequence[tuple[SessionKey, StoredRun]]
    after: str
    """The cursor of the next page; empty when this is the last. Meaningful to the store alone."""


@dataclass(frozen=True, slots=True)
class RunName:
    """A run of one life of a session."""

    key: SessionKey
    incarnation: str
    run_id: str


@dataclass(frozen=True, slots=True)
class StepPage:
    """A page of a run's steps."""

    steps: Sequence[StoredStep]
    more: bool
    """Whether `limit` or `bytes` ended the page."""


@dataclass(frozen=True, slots=True)
class LookupPage:
    """A page of a session's id look-ups, in an order that stays the same while they do."""

    lookups: Sequence[Lookup]
    after: str
    """The cursor of the next page; empty when this is the last. Meaningful to the store alone."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """How many rows a sweep or an erasure deleted, by kind."""

    messages: int = 0
    events: int = 0
    lookups: int = 0
    summaries: int = 0
    sessions: int = 0
    """Names of sessions of which nothing is left."""
    runs: int = 0
    steps: int = 0
    files: int = 0
    """Memory files, each with its versions."""

    @property
    def total(self) -> int:
        """All of them; 0 when nothing was left to delete."""
        return sum(astuple(self))

    def __add__(self, other: Deleted) -> Deleted:
        return Deleted(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True)
class RunChange:
    """The new state of a run."""

    run_id: str
    state: RunState
    head: RunHead | None
    """None where it stays as it is stored; given for a run that begins."""
    is_first: bool | None = None
    """Whether the run begins; None: at version 1. A copy of another store's run begins at any version."""

    @property
    def begins(self) -> bool:
        """Whether the run begins. A commit is a Conflict where one of its id is stored in the same life, or is deleted
        and has steps left. It may be one where a run that goes on is gone.
        """
        return self.state.version == 1 if self.is_first is None else self.is_first


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one session: the new record and whatever goes with it."""

    key: SessionKey
    previous: Record | None
    """The record that it rests on; None when no session may exist yet. Its incarnation and version are the
    compare-and-set's; what else differs from the new record tells which index entries must move, without a read.
    """
    record: Record | None
    """The new record. With the previous one's incarnation, its version is the previous one plus 1. With a new one, its
    version is 1: a birth, or (where there is a previous record) a rebirth. Either is greater in a copy of another
    store's session (`engine.copied_versions`). None for a death.
    """
    messages: Sequence[StoredMessage] = ()
    """New messages, by seq."""
    replaced: Sequence[StoredMessage] = ()
    """Stored messages that get other bodies: name, content, metadata, extra, redaction, tokens and size are replaced,
    and all else is as stored."""
    completed: Sequence[int] = ()
    """Heads of groups whose last call is answered: their stored messages turn from OPEN to USABLE."""
    reopened: Sequence[int] = ()
    """Heads of groups of which an answer is taken away: their stored messages turn from USABLE to OPEN."""
    events: Sequence[Event] = ()
    """What happened, for watchers. At most one a change; its number is the new record's version."""
    new_summaries: Sequence[StoredSummary] = ()
    """New summaries. Afterwards exactly those of the new record's `summaries` are stored."""
    dropped_summaries: Sequence[int] = ()
    """Numbers of stored summaries that are no longer in the new record: their rows go with the commit."""
    changed_runs: Sequence[RunChange] = ()
    """Runs that begin or change, each once. The new record's `runs` hold the states of the unfinished ones."""
    new_steps: Sequence[StoredStep] = ()
    """New steps, by run and number."""
    staging: str = ""
    """The staging whose messages and look-ups become those of the session that this change gives birth to."""
    lookups: Sequence[Lookup] = ()
    """Ids that must all be new in the session, in this life and in any before."""

    @property
    def expected(self) -> Version | None:
        """The state that the session must be in; None when no session may exist yet."""
        return None if self.previous is None else Version(self.previous.incarnation, self.previous.version)


@dataclass(frozen=True, slots=True)
class Committed:
    """The change is made, and durable as far as the store is."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The session was not in the expected state, or a run of it (`RunChange.begins`). Nothing of the change is made."""

    record: Record | None = field(default=None, compare=False)
    """The session's record as it is, from an adapter that has it at hand: it spares the next attempt a read."""


@dataclass(frozen=True, slots=True)
class Known:
    """Some of the change's look-ups were there already. Nothing of the change is made. Told rather than Conflict."""

    lookups: Sequence[Lookup]
    """All of the change's look-ups that were there, as first stored."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The change's staging is gone. Nothing of the change is made."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The change's staging cannot become a session of this name: there is none, but something of the name is still
    stored. Nothing of the change is made.
    """


Outcome = Committed | Conflict | Known | Lost | Taken


@dataclass(frozen=True, slots=True)
class CommitLimits:
    """How the engine may call `commit`."""

    concurrency: int = 1
    """How many commits may be under way at once, never two that hold the same session."""
    sessions: int | None = None
    """How many sessions one commit may hold; None for any number. 1 where each session has a node of its own, so that
    the failure of one does not leave others in the dark.
    """


class HistoryStore(ABC):
    """Keeps sessions, their messages and their id look-ups."""

    commit_limits: CommitLimits = CommitLimits()

    @abstractmethod
    async def load(self, key: SessionKey, tail: Tail | None = None) -> Loaded | None:
        """Reads a session's record and, with `tail`, its newest usable messages and its opening, all of one moment.

        Usability and order are those of the record's moment: never a group of which one part is completed and another
        not. Costs O(what is answered), whatever the length of the history and the number of its orphans and open
        groups.

        Returns: None when there is no such session.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def read(
        self, key: SessionKey, incarnation: str, seqs: Sequence[int]
    ) -> tuple[Record, Sequence[StoredMessage]] | None:
        """Reads messages by seq, of one moment with the record.

        Returns: the record and those of the messages that are there and not removed, in the order of `seqs`; None when
        there is no such session or it has another incarnation.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_messages(self, key: SessionKey, query: MessageQuery) -> MessagePage | None:
        """Reads a page of messages by seq, ORPHAN and OPEN ones included. Reads no body beyond `query.bytes` plus one
        message.

        Returns: None when there is no such session.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_entries(
        self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        """Reads bare entries with a seq in the range, both ends included, newest first by seq, ORPHAN and OPEN ones
        included, of one moment with the record. Reads no body. These entries tell their `undo`, which is empty in the
        bare ones of other reads.

        Returns: None when there is no such session or it has another incarnation.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_in_reading_order(
        self, key: SessionKey, incarnation: str, from_head: int, to_head: int, limit: int
    ) -> tuple[Record, Sequence[Entry]] | None:
        """Reads bare entries whose head is in the range, both ends included: the first `limit` of them in reading order
        (head, position, seq), ORPHAN and OPEN ones included. Reads no body. Need not be of one moment with the record,
        which is read first. A message whose head is removed is passed over with it.

        Costs O(limit).

        Returns: None when there is no such session or it has another incarnation.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def read_summaries(
        self, key: SessionKey, incarnation: str, numbers: Sequence[int]
    ) -> tuple[Record, Sequence[StoredSummary]] | None:
        """Reads summaries by number, of one moment with the record.

        Returns: the record and those of the summaries that are there, in the order of `numbers`; None when there is no
        such session or it has another incarnation.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_folds(self, tenant: str, agent: str, before: int, limit: int, after: str = "") -> DuePage:
        """Sessions of an agent whose record's `fold_at` is before the given time, the earliest first. Decodes no
        record. Costs O(limit), however many sessions the agent has.

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_unusable(self, key: SessionKey, usabilities: Collection[Usability], limit: int) -> Sequence[Entry]:
        """Reads the newest messages of the given usabilities, newest first by seq of head; empty when there is no such
        session.

        Costs O(limit).

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def find(self, key: SessionKey, kind: LookupKind, ids: Sequence[str]) -> Sequence[Lookup]:
        """Reads id look-ups, of this life of the session and of earlier ones.

        Returns: those that are there, in any order.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_lookups(self, key: SessionKey, limit: int, after: str = "") -> LookupPage:
        """Reads a page of what `find` could find: all look-ups of a session's name, those of earlier lives included.
        Those that are there from the first page to the last are told exactly once. Costs O(limit).

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def commit(self, changes: Sequence[Change]) -> Sequence[Outcome]:
        """Makes changes, each by itself: whole or not at all, and seen by every later read of any server.

        Those of one session are made in their order, and one may rest on the one before it; those of different sessions
        may be made in any order. The refusal of one (Conflict, Known) leaves other sessions' changes as they are, and
        refuses those of its own session that come behind it (Conflict), even where another server has brought the
        session to the very version that they expect: they rest on a record that never was.

        The change's own messages carry their final usability; `completed` is about messages that were stored before. A
        birth also makes the session and its agent appear in lists; index entries are written before or with what they
        point to. A change of `user_id` moves the session between the lists of users. `removed` and `ttl` make the
        session appear in `list_due`, `fold_at` in `list_folds`. A death takes it out of all lists at once.

        A birth from a staging is a Conflict when the session exists, and Taken when it does not, but something of its
        name is still stored; the staging then stays as it is.

        An adapter never sends a commit again unless it recognises its own: automatic retries of drivers are off, since
        a repeated compare-and-set would answer Conflict for a change that was made.

        Returns: an outcome for each change, in their order. When this returns, the changes are durable as far as the
        store is.
        Raises: StoreUnavailable: each change was made whole or not at all, unknown which.
        """

    @abstractmethod
    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """Reads a page of sessions, newest activity first. Records are those of the moment.

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_events(self, key: SessionKey, incarnation: str, after: int, limit: int) -> EventPage | None:
        """Reads the events whose number is greater than `after`, the oldest `limit` of them.

        Returns: None when there is no such session or it has another incarnation.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def begin_staging(self, tenant: str, user_id: str, due: int) -> str:
        """Begins to collect messages and look-ups for a session that is yet to be born: nobody sees them until a commit
        makes them that session's (`Change.staging`).

        `user_id` is whose erasure takes the staging away; empty for nobody. `due`: by the store's clock, when `sweep`
        may take it away.

        Returns: the staging's name, for `stage`, `Change.staging` and `end_staging`.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def stage(self, staging: str, messages: Sequence[StoredMessage], lookups: Sequence[Lookup], due: int) -> None:
        """Adds to a staging, all or nothing, and puts off its `due`. Adding what is there already changes nothing.

        Raises: StagingLost, StoreUnavailable.
        """

    @abstractmethod
    async def end_staging(self, staging: str) -> None:
        """Gives a staging up: `sweep` may take it away at once. Nothing happens when it is gone or is a session's.

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_due(self, due: Due, before: int, limit: int, after: str = "") -> DuePage:
        """Sessions that became due before the given time, the longest due first, of all tenants. Decodes no record, so
        that a damaged one does not stand in the way of the others.

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def sweep(self, now: int, limit: int) -> Deleted:
        """Deletes up to about `limit` rows that nobody can reach any more, without looking into any record: what lives
        held (messages, events, summaries, runs, steps) that ended more than `limits.PURGE_DELAY_SECONDS` before `now`;
        stagings that are due; events older than `limits.EVENT_SECONDS`; what `delete_run` began to delete; look-ups of
        names that have been dead for `limits.LOOKUP_SECONDS`, and these names.

        Idempotent, and safe beside any other call. Costs O(limit).

        Returns: what was deleted; nothing when nothing is due.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def erase(self, tenant: str, user_id: str, limit: int) -> Deleted:
        """Deletes up to about `limit` rows of what is left of a user: messages, events, summaries, runs, steps and
        look-ups of dead lives that were this user's when they ended, also where the name lives on with another user;
        names that are dead; the user's stagings; and the user's memory files (`Tier.USER`) with their versions. Living
        sessions are not touched.

        When this returns nothing, no byte of these is left in the database's tables.

        Returns: what was deleted; nothing when nothing was left.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def purge(self, key: SessionKey, incarnation: str, from_seq: int, to_seq: int, limit: int) -> int:
        """Deletes up to `limit` stored messages of a removed range. Idempotent; the record stays as it is.

        Returns: how many were deleted; 0 means that the range is empty.
        Raises: StoreUnavailable.
        """


class RunStore(ABC):
    """Keeps runs and their steps: rows of a session's life, which end with it. `HistoryStore.commit` changes them."""

    @abstractmethod
    async def load_run(self, key: SessionKey, run_id: str) -> tuple[Record, StoredRun | None] | None:
        """Reads a run, of one moment with the session's record.

        Returns: None when there is no such session.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_runs(self, query: RunQuery) -> RunPage:
        """Reads a page of runs, of living sessions, newest first by `head.created`. Costs O(limit), however many runs
        there are; with several statuses, or with a session and statuses, it may pass over others.

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        """Runs of an agent's living sessions whose `state.claimable_at` is before the given time, the longest waiting
        first. Costs O(limit), however many runs the agent has.

        Raises: StoreUnavailable.
        """

    async def load_claimable(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[ClaimableRun]:
        """Reads the first of the runs that `list_claimable` names, each with its session's record: as `load_run` would,
        of one moment, and in one round trip where the database can. Index entries that tell of no such run are passed
        over, at further cost. Costs the same however many runs there are, and decodes nothing of those behind, so that
        damaged ones do not stand in the way.

        Behind the first come the next ones, in their order and at most `limit` in all, as far as that takes no further
        round trip: those in front of one that is damaged or that an entry told of wrongly; none, where each takes one.

        A store that finds the runs before it reads them may answer some that have been claimed or have ended in
        between.

        Returns: nothing when there is none to claim.
        Raises: StoreUnavailable.
        """
        while names := await self.list_claimable(tenant, agent, before, 1):
            (name,) = names
            loaded = await self.load_run(name.key, name.run_id)
            if loaded is not None and loaded[1] is not None:
                return [ClaimableRun(name.key, loaded[0], loaded[1])]
        return []

    @abstractmethod
    async def list_steps(
        self, key: SessionKey, incarnation: str, run_id: str, after: int, limit: int, bytes: int
    ) -> StepPage | None:
        """Reads the steps of a run whose number is greater than `after`, by number: at most `limit` of them, and of
        their payloads at most so many bytes together, but always one step. Reads no payload beyond that plus one.

        Returns: None when there is no such session, it has another incarnation, or it has no such run.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_ended_runs(self, tenant: str, agent: str, before: int, limit: int) -> Sequence[RunName]:
        """Runs of an agent's living sessions that ended before the given time, the longest ended first. Decodes neither
        records nor runs, so that a damaged one does not stand in the way of the others. Costs O(limit).

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def delete_run(self, name: RunName, limit: int) -> int:
        """Deletes a run that has ended, with its steps: no read answers it from the first call on, and each call
        deletes up to `limit` rows. What a caller leaves behind half way, `sweep` deletes. Idempotent.

        Returns: how many rows were deleted; 0 when nothing of it was left, or it has not ended.
        Raises: StoreUnavailable.
        """


class AgentStore(ABC):
    """Keeps the settings of agents."""

    @abstractmethod
    async def load_agent(self, tenant: str, agent: str) -> AgentRecord | None:
        """Reads an agent's settings. None when it has neither settings nor sessions. Raises: StoreUnavailable."""

    @abstractmethod
    async def save_agent(self, record: AgentRecord) -> bool:
        """Stores an agent's settings if the stored version is `record.version - 1` (0 also when there is nothing
        stored).

        Returns: False, and nothing is changed, when the version is another. Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_agents(self, tenant: str, after: str, limit: int) -> Sequence[AgentRecord]:
        """The agents of a tenant that have settings or had a session, whose name is greater than `after`, by name in
        the order of its UTF-8 bytes. Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_tenants(self, after: str, limit: int) -> Sequence[str]:
        """The tenants that have an agent in `list_agents` and whose name is greater than `after`, in the order of their
        UTF-8 bytes. For upkeep: no call of a tenant asks for it, and it may cost O(agents). Raises: StoreUnavailable.
        """


class FileStore(ABC):
    """Keeps memory files. A change of a file is a compare-and-set on it."""

    @abstractmethod
    async def load_files(self, keys: Sequence[FileKey]) -> Sequence[StoredFile]:
        """Reads memory files, each as it is at a moment of its own, in one round trip where the database can.

        Returns: those that are there, in the order of `keys`; the keys are different ones.
        Raises: StoreUnavailable.
        """

    async def confirm_file(self, key: FileKey) -> None:  # noqa: B027
        """Returns once the file is as durable as an answered change, however it came to be as it was last loaded: what
        rests on a load and changes nothing is answered only then. Does nothing where a load tells durable changes
        alone.

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def save_file(self, file: StoredFile, expected: Version | None) -> bool:
        """Stores a new version of a file, if the file is at the expected incarnation and version; None when there must
        be none. `file` has the expected incarnation and a greater version; or a new incarnation, and any version from
        1, where none is expected.

        The version before stays, but of the file's versions only the newest `limits.MAX_FILE_VERSIONS` do. When it
        returns True, the change is durable as far as the store is, and `list_file_owners` and `list_file_tenants` tell
        the owner.

        Returns: False, and nothing is changed, when the file is another.
        Raises: StoreUnavailable: the change was made whole or not at all, unknown which.
        """

    @abstractmethod
    async def delete_file(self, key: FileKey, expected: Version) -> bool:
        """Deletes a file with all its versions, if it is at the expected incarnation and version: no byte of it is left
        in the database's tables.

        Returns: False, and nothing is changed, when the file is another or there is none.
        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_files(self, owner: FileOwner, before: str, limit: int) -> Sequence[tuple[str, FileVersion]]:
        """The names and newest versions of an owner's files, from the last name to the first in the order of their
        UTF-8 bytes: `MEMORY.md`, then the newest logs. Begins before `before`; at the last when it is empty. Reads no
        content. Costs O(limit). Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_file_versions(self, key: FileKey) -> Sequence[FileVersion]:
        """The versions of a file that are stored, its current one among them, newest first: at most
        `limits.MAX_FILE_VERSIONS`. Empty when there is no such file. Reads no content. Raises: StoreUnavailable.
        """

    @abstractmethod
    async def load_file_version(self, key: FileKey, version: int) -> StoredFile | None:
        """Reads one version of a file, the current one or an earlier one; None when it is not stored.

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_file_owners(self, tenant: str, after: FileOwner | None, limit: int) -> Sequence[FileOwner]:
        """The owners of a tenant that have files, behind `after`, by tier and the UTF-8 bytes of the id. For upkeep: it
        may cost O(files of the tenant). Raises: StoreUnavailable.
        """

    @abstractmethod
    async def list_file_tenants(self, after: str, limit: int) -> Sequence[str]:
        """The tenants that have files and whose name is greater than `after`, in the order of their UTF-8 bytes. For
        upkeep: it may cost O(files). Raises: StoreUnavailable.
        """


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A store's connections to its database, at this moment."""

    size: int
    """The most connections that it may have."""
    in_use: int
    """Connections with which calls are being served."""
    waiting: int
    """Calls that wait for a connection."""


@runtime_checkable
class Pooled(Protocol):
    """A store that shares its connections among calls."""

    def pool_status(self) -> PoolStatus:
        """Reads counters and nothing else. May be called from any thread, after `open`."""


class Store(HistoryStore, RunStore, AgentStore, FileStore):
    """A database that memoryd keeps its data in."""

    @abstractmethod
    async def open(self) -> StoreInfo:
        """Connects, and brings the schema up to date. Raises: StoreMisconfigured, StoreUnavailable."""

    @abstractmethod
    async def close(self) -> None:
        """Ends what is under way and disconnects. The store cannot be used afterwards."""

    @abstractmethod
    async def ping(self) -> None:
        """Answers when the database does. Raises: StoreUnavailable."""

    clock_step: int = 1
    """In microseconds: `now` answers multiples of it."""

    @abstractmethod
    async def now(self) -> int:
        """The store's time in microseconds since the Unix epoch: what leases, removal and expiry are measured by.

        Raises: StoreUnavailable.
        """

    @abstractmethod
    async def adopt_secret(self, secret: bytes) -> None:
        """Remembers the secret of another store from which sessions are copied, for as long as the data lives: the
        digests of their look-ups are keyed with it. Idempotent. Raises: StoreUnavailable.
        """

    @abstractmethod
    async def adopted_secrets(self) -> Sequence[bytes]:
        """The adopted secrets as they are stored now, each once, in any order: another process may just have adopted
        one. Read where a digest does not match, so seldom. Raises: StoreUnavailable.
        """

    @abstractmethod
    async def lease(self, name: str, holder: str, seconds: float) -> bool:
        """Takes a lease for `holder`, or renews it, until `seconds` from now by the store's clock.

        Returns: False while another holder has it. Raises: StoreUnavailable.
        """


__all__ = [
    "AgentRecord",
    "AgentStore",
    "Change",
    "CommitLimits",
    "Committed",
    "Conflict",
    "Deleted",
    "Due",
    "DuePage",
    "Entry",
    "Event",
    "EventPage",
    "FileKey",
    "FileOwner",
    "FileStore",
    "FileVersion",
    "HistoryStore",
    "Known",
    "Loaded",
    "Lookup",
    "LookupKind",
    "LookupPage",
    "Lost",
    "MessagePage",
    "MessageQuery",
    "Outcome",
    "PoolStatus",
    "Pooled",
    "Record",
    "Role",
    "SessionKey",
    "SessionPage",
    "SessionQuery",
    "StagingLost",
    "Store",
    "StoreCapability",
    "StoreError",
    "StoreInfo",
    "StoreMisconfigured",
    "StoreUnavailable",
    "StoredFile",
    "StoredMessage",
    "StoredSummary",
    "Tail",
    "Taken",
    "Usability",
    "Version",
]
