"""What stores keep: the documents and rows of the contract in `base.py`, free of any database and of any logic.

Times are microseconds since the Unix epoch, sizes are bytes of the encoded protocol message.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec


class SessionKey(NamedTuple):
    """The name of a session. Keys are exact: no two that differ in a byte share storage (invariant 5)."""

    tenant: str
    agent: str
    session_id: str


class Role(IntEnum):
    """Who speaks; the values are those of the protocol's enum `Role`."""

    SYSTEM = 1
    DEVELOPER = 2
    USER = 3
    ASSISTANT = 4
    TOOL = 5


class Usability(IntEnum):
    """Whether windows may use a message (invariant 17): settled at append, and stored beside the message."""

    USABLE = 0
    """A plain message, or one of a tool group whose calls are all answered."""
    OPEN = 1
    """One of a tool group with an unanswered call."""
    ORPHAN = 2
    """Results without their calls: no window shows it."""


class WindowMode(IntEnum):
    """The unit of a window's limit; the values are those of the protocol's enum."""

    MESSAGES = 1
    TOKENS = 2


class EventKind(IntEnum):
    """What happened to a history, apart from appends, which its messages tell themselves; the values are those of the
    protocol's enum `WatchEventKind`.
    """

    SUMMARIZED = 2
    """Another summary stands for the oldest messages, or none any more."""
    REDACTED = 3
    CLEARED = 4
    REWOUND = 5


class OpenCalls(IntEnum):
    """What a window does with open groups; the values are those of the protocol's enum."""

    OMIT = 1
    SYNTHESIZE = 2
    KEEP = 3


class Oversize(IntEnum):
    """What a window does when its newest group exceeds the limit; the values are those of the protocol's enum."""

    SHORTEN = 1
    RETURN = 2
    FAIL = 3


class Retention(IntEnum):
    """What becomes of the messages that a summary covers; the values are those of the protocol's enum."""

    KEEP = 1
    DELETE = 2


class WindowOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=False):
    """How a window is cut; None where it is left to the next more general policy."""

    mode: WindowMode | None = None
    limit: int | None = None
    pin_system: bool | None = None
    start_with_user: bool | None = None
    open_calls: OpenCalls | None = None
    oversize: Oversize | None = None


class SummaryPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether and how a history is folded into summaries. Replaces a more general one as a whole (design section 3)."""

    enabled: bool = True
    """Whether there are summaries: a session may do without although its agent has them."""
    summarizer: str = ""
    """The name of the server's summarizer; empty for its default."""
    max_tokens: int | None = None
    """The most tokens of a summary; None for the default of the mode."""
    keep: int | None = None
    """How many of the newest messages or tokens stay raw; None for all that the limit leaves beside summary and pins.
    """
    retention: Retention = Retention.KEEP
    wait: bool = True
    """Whether a load that finds that it must fold waits for the summary."""


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The stored policy of a session or an agent."""

    window: WindowOptions = WindowOptions()
    summary: SummaryPolicy | None = None
    """None where it is left to the next more general policy."""


class OpenCall(msgspec.Struct, frozen=True, array_like=True):
    """Calls of one message that share an id and wait for results; mostly one. No two messages wait with one id."""

    token: str
    """The id, or a digest of it where that is shorter (`engine.pairing`)."""
    head: int
    """The seq of the assistant message that made the calls."""
    indexes: tuple[int, ...]
    """The places of the calls among those of their message, from 0, in the order in which they are answered."""


class OpenGroup(msgspec.Struct, frozen=True, array_like=True):
    """A tool group with an unanswered call, as far as later appends must know it."""

    head: int
    """The seq of the assistant message."""
    messages: int
    """How many of its messages are stored."""
    tokens: int
    """Their tokens."""
    waiting: int
    """How many of its calls can still be answered."""
    lost: bool
    """Whether one of its calls never can be (re-armed, or beyond the limit): the group then stays open for ever."""
    run: str = ""
    """The token of the unfinished run that made the calls; empty for none."""


class OpenState(msgspec.Struct, frozen=True, array_like=True):
    """What pairing must know of the history (invariant 17)."""

    calls: tuple[OpenCall, ...] = ()
    """The calls that wait for results, those of the oldest message first; at most `limits.MAX_OPEN_CALLS`."""
    groups: tuple[OpenGroup, ...] = ()
    """Their groups, oldest first."""


class RemovedRange(msgspec.Struct, frozen=True, array_like=True):
    """Messages that were taken away and wait for their purge. Both ends are included."""

    from_seq: int
    to_seq: int
    removed_at: int
    """When, by the store's clock."""


class Covered(msgspec.Struct, frozen=True, array_like=True):
    """How much of what is stored lies behind summaries."""

    messages: int = 0
    tokens: int = 0
    bytes: int = 0
    open_messages: int = 0
    orphan_messages: int = 0


class SummaryLink(msgspec.Struct, frozen=True, array_like=True):
    """What a session's record knows of one of its summaries.

    A summary and those before it stand together for all messages whose head is at most `to_head`, but for the pinned
    ones. A boundary by heads is an edge of groups, whatever was stored between a call and its result (invariant 10).
    """

    number: int
    """Counts a life's summaries, from 1. Never used twice in a life."""
    from_seq: int
    """The first message that it stands for, those of earlier summaries included."""
    to_head: int
    to_seq: int
    """The newest message that it stands for; beyond `to_head` where a call of an older group was answered late."""
    pinned_to: int
    """Opening messages up to this seq are pinned: no summary stands for them. Below first_seq when none are."""
    tokens: int
    """The price of the message that shows it, in the session's vocabulary."""
    size: int
    """The encoded bytes of that message."""
    messages: int
    """How many messages it stands for, those of earlier summaries and removed ones included."""
    stored: Covered
    """What of these is still counted in the record."""
    is_final: bool = False
    """Whether originals are removed (retention DELETE): then it cannot be taken back."""


class Folding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What goes on about the next summary of a session: the lease on it and its failures (invariant 10)."""

    lease: str = ""
    """Under which it is made: a random id that only the holder knows; empty when nobody makes it."""
    until: int = 0
    """When the lease ends, by the store's clock."""
    begun: int = 0
    """When it was taken."""
    summarizer: str = ""
    """The summarizer that the lease is for."""
    base: int = 0
    """The number of the summary that it continues; 0 for none."""
    from_seq: int = 0
    to_head: int = 0
    to_seq: int = 0
    pinned_to: int = 0
    """What the next summary will take in beside its base, and the bounds of what it will stand for."""
    covers: Covered = Covered()
    """The messages that it adds to those of its base."""
    wanted: int = 0
    """Since when a client is to make the next summary; 0 when none is."""
    attempts: int = 0
    """How many leases ended in a failure since the last success."""
    retry_at: int = 0
    """Not before this time is it tried again; 0 for at once."""
    failure: str = ""
    """Why the last attempt failed: a reason of `summarizers.FailureReason`; empty when it did not."""
    held_at: int = 0
    """The session's last seq when a summary was taken back: nothing is folded before the next append; 0 for none."""


NO_FOLDING: Final = Folding()
"""Nothing goes on. Always this object: a record that holds it is encoded without it."""


class RunStatus(IntEnum):
    """How a run stands; the values are those of the protocol's enum `RunStatus`."""

    RUNNING = 1
    """Somebody works on it, or did until its lease ended."""
    INTERRUPTED = 2
    """Anybody may take it up."""
    AWAITING_APPROVAL = 3
    AWAITING_BUDGET = 4
    COMPLETED = 5
    BLOCKED = 6
    FAILED = 7
    CANCELLED = 8
    TIMEOUT = 9
    ABANDONED = 10

    @property
    def is_final(self) -> bool:
        """Whether a run of this status has ended."""
        return self >= RunStatus.COMPLETED


class RunState(msgspec.Struct, frozen=True, array_like=True):
    """What every step of a run may change. Of an unfinished run it is part of the session's record, so that a change of
    the run is a compare-and-set like any other.
    """

    status: RunStatus
    version: int
    """Counts the changes of the run, from 1."""
    fence: int
    """Of its last claim; each claim's is greater than any that there was before in the session's life, so that what
    carries an earlier one is refused, of a deleted run of the same id too (invariant 15)."""
    steps: int
    """How many steps it has; they are numbered from 1."""
    updated: int
    """When it was last changed, but for renewals of its lease."""
    until: int = 0
    """When its lease ends, by the store's clock; 0 where there is none."""
    recoveries: int = 0
    """How often it was taken up after its lease had ended."""
    ended: int = 0
    """When it ended; 0 for one that has not."""

    @property
    def claimable_at(self) -> int | None:
        """From when on anybody may claim it, by the store's clock; None for one that waits for something or ended."""
        if self.status is RunStatus.RUNNING:
            return self.until
        return self.updated if self.status is RunStatus.INTERRUPTED else None


class RunLink(msgspec.Struct, frozen=True, array_like=True):
    """What a session's record knows of one of its unfinished runs."""

    token: str
    """The run's id, or a digest of it where that is shorter."""
    state: RunState


class RunHead(msgspec.Struct, frozen=True, omit_defaults=True):
    """What seldom changes of a run."""

    created: int
    holder: str = ""
    """Who says to have claimed it last."""
    reason: str = ""
    """Why it has its status, as whoever set it said."""
    metadata: str = ""
    """The caller's text. May hold any character."""
    claim: str = ""
    """The request id of its last claim; empty for none."""


class StoredRun(msgspec.Struct, frozen=True):
    """A run (design section 1)."""

    id: str
    head: RunHead
    state: RunState


class StoredStep(msgspec.Struct, frozen=True):
    """A step of a run: what its worker needs to go on behind it."""

    run_id: str
    number: int
    """From 1, without gaps."""
    payload: bytes
    content_type: str
    created: int
    fence: int = 0
    """Of the claim under which it was committed: with it, a repeated commit is told from another worker's."""
    status: RunStatus = RunStatus.RUNNING
    """What its run became with it."""
    first_seq: int = 0
    """The first of the messages that it produced; 0 when it produced none."""
    messages: int = 0
    """How many messages it produced."""


class Redaction(msgspec.Struct, frozen=True, array_like=True):
    """The trace of a message whose content was taken away on request."""

    at: int
    """When, by the store's clock."""
    reason: str
    """As the caller gave it; may be empty."""


_NOTHING_OPEN: Final = msgspec.Raw(msgspec.json.encode(OpenState()))


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A session's one small document (design section 1). Every change of a session is a compare-and-set on its
    (incarnation, version). At most `limits.MAX_RECORD_BYTES` encoded.
    """

    incarnation: str
    """32 hexadecimal digits, random, new whenever the session is born."""
    version: int
    """Grows by one with every change."""
    tokenizer: str
    """The vocabulary of the session's token counts: a name of `engine.tokens`."""
    created: int
    """When the session was born."""
    activity: int
    """When it last took an append; lags by up to `limits.ACTIVITY_LAG_SECONDS`."""
    appended: int = 0
    """When it last took an append or a step, or a run of it ended, exactly; 0 where a server that did not keep it made
    the last one."""
    ttl: int = 0
    """Microseconds after the last append when the session expires (invariant 18); 0 for never."""
    epoch: int = 1
    """Grows when history is taken away, or when another summary stands for a part of it."""
    settings_version: int = 1
    """Grows when user_id, labels, ttl or policy change: the session's etag."""
    user_id: str = ""
    labels: dict[str, str] = {}
    policy: Policy = Policy()
    first_seq: int = 1
    """Messages below this seq are taken away: readers begin here."""
    last_seq: int = 0
    """The seq of the newest message that was ever stored."""
    rewound_to: int = 0
    """The seq of the newest message that the history holds, when that is not `last_seq` since a rewind took the newest
    ones away and no append has come since; else 0."""
    opening_to: int = 0
    """The seq of the last SYSTEM or DEVELOPER message of the unbroken run of them that opens the history; below
    first_seq when the history does not open with one."""
    last_user: int = 0
    """The seq of the newest usable USER message outside of tool groups; 0 when there is none."""
    messages: int = 0
    """How many messages the history holds."""
    tokens: int = 0
    """How many tokens they have."""
    bytes: int = 0
    """The sizes of these messages together: where that is little, a load need not look at sizes before it reads
    bodies.
    """
    open_messages: int = 0
    """How many of them are OPEN."""
    orphan_messages: int = 0
    """How many of them are ORPHAN."""
    largest: int = 0
    """The size of the largest message that was ever stored."""
    open_call_count: int = 0
    """How many calls wait for results."""
    open: msgspec.Raw = _NOTHING_OPEN
    """An `OpenState`, still encoded: few of those who read a record look into it, and it may be most of the record."""
    removed: tuple[RemovedRange, ...] = ()
    """What readers must not see although it may still be stored."""
    summaries: tuple[SummaryLink, ...] = ()
    """The newest summaries, oldest first; at most `limits.MAX_SUMMARIES`. Exactly these are stored."""
    last_summary: int = 0
    """The number of the newest summary that there ever was in this life."""
    folding: Folding = NO_FOLDING
    runs: tuple[RunLink, ...] = ()
    """The unfinished runs, in the order of their creation; at most `limits.MAX_UNFINISHED_RUNS`."""

    @property
    def newest_seq(self) -> int:
        """The seq of the newest message that the history holds; below first_seq when it holds none."""
        return self.rewound_to or self.last_seq

    @property
    def expires_at(self) -> int | None:
        """When the session expires, by the store's clock (invariant 18); None for never, and while a run goes on."""
        return (self.appended or self.activity) + self.ttl if self.ttl and not self.runs else None

    @property
    def expiry_listed_at(self) -> int | None:
        """The time under which an index of expiries holds the session: it moves with `activity`, and may be earlier."""
        return self.activity + self.ttl if self.ttl and not self.runs else None

    @property
    def abandon_at(self) -> int | None:
        """The time under which an index holds a session for its unfinished run that was left alone for longest: when
        that was last changed; None without unfinished runs.
        """
        return min(link.state.updated for link in self.runs) if self.runs else None

    @property
    def purge_at(self) -> int | None:
        """The time under which an index of purges holds the session: its earliest removal; None for none."""
        return min(removed.removed_at for removed in self.removed) if self.removed else None

    @property
    def summary(self) -> SummaryLink | None:
        """The current summary."""
        return self.summaries[-1] if self.summaries else None

    @property
    def fold_at(self) -> int | None:
        """The time under which an index holds a session whose next summary is left to a client: when that may be
        leased; None when none is.
        """
        folding = self.folding
        return max(folding.until, folding.retry_at, folding.wanted) if folding.wanted else None

    @property
    def open_state(self) -> OpenState:
        """The calls and groups that wait for results, decoded."""
        return _OPEN_DECODER.decode(self.open)


_OPEN_DECODER: Final = msgspec.json.Decoder(OpenState)


class Entry(msgspec.Struct, frozen=True, gc=False):
    """What is known about a stored message without its body: enough to plan a window.

    Not for the garbage collector: it can be in no cycle, and millions of them would make collections long.
    """

    seq: int
    """Its place in the session, from 1."""
    head: int
    """The seq of its tool group's head; its own seq outside of groups. Reading order is (head, position, seq)."""
    position: int
    """0 for a head or a message outside of groups, else 1 + the index of the first call that it answers."""
    usability: Usability
    role: Role
    tokens: int
    size: int
    calls: int
    """How many calls it makes."""
    answers: tuple[int, ...]
    """For each tool result in it, in order: the index of the call of its group that it answers, or -1 for a result
    without a call, which windows leave out of the message."""
    prior_user: int
    """The seq of the newest usable USER message outside of groups before it; 0 when there was none."""
    undo: str = ""
    """What a rewind that takes the message away must restore of the open calls, as JSON text (`engine.pairing`); empty
    when there is nothing, or when a server that did not keep it stored the message."""


class StoredMessage(Entry, frozen=True, kw_only=True):
    """A message with its body. Everything comes back byte for byte (invariant 4)."""

    id: str
    name: str | None
    content: str | None
    """The parts as JSON text (`engine.content`); None when the message has no content. Holds no raw U+0000, since JSON
    escapes it."""
    run_id: str
    metadata: str
    """The caller's text. May hold any character, U+0000 included: an adapter whose database cannot must encode it."""
    extra: str
    """The converter's text. As above."""
    created: int
    redaction: Redaction | None = None


class StoredSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A summary with its text and where it comes from. Stored as one JSON text (`encode_summary`)."""

    number: int
    """As in its `SummaryLink`."""
    previous: int
    """The number of the summary that was part of its input; 0 for none."""
    text: str
    """Without the line that marks it in windows. May hold any character."""
    from_seq: int
    to_seq: int
    """The first and the last message that it took in beside the previous summary."""
    messages: int
    """How many these are."""
    summarizer: str
    model: str
    created: int
    duration: int
    """Microseconds from the lease to the commit."""
    input_tokens: int
    """The tokens of what it took in, the previous summary included, in the session's vocabulary."""
    output_tokens: int
    """The tokens of its text."""
    lease: str = ""
    """The lease under which it was made: tells a repeated commit from a late one."""
    closed: msgspec.Raw = _NOTHING_OPEN
    """The `OpenState` of the groups that it took in as interrupted: what comes back when it is taken back."""

    @property
    def closed_state(self) -> OpenState:
        """The calls and groups that it closed, decoded."""
        return _OPEN_DECODER.decode(self.closed)


class LookupKind(IntEnum):
    """What an id look-up is about."""

    MESSAGE = 0
    REQUEST = 1


class Lookup(msgspec.Struct, frozen=True):
    """Remembers the first answer to an id (invariant 2). Outlives the message and the session's life."""

    kind: LookupKind
    id: str
    digest: bytes
    """The keyed digest of what was received under the id."""
    answer: str
    """The first answer as JSON text (`engine.replay`)."""
    created: int


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a history and that its messages do not tell. Kept `limits.EVENT_SECONDS`."""

    number: int
    """The version of the record that the event's commit made: grows from event to event, with gaps."""
    kind: EventKind
    after_seq: int
    """The session's last_seq at that moment: where the event stands among the appends."""
    from_seq: int
    to_seq: int
    """The messages that were taken away or redacted; both ends are included. None when to_seq is below from_seq."""
    messages: int
    """How many messages there were in it."""
    epoch: int
    """The history's epoch from then on."""
    created: int


class AgentSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent's settings say beside its policy. Fields of a newer version are passed over."""

    load_memory: bool = False
    """Whether memory is rendered for the agent: it must opt in (design section 7)."""
    run_retention: int | None = None
    """Microseconds for which runs are kept after they ended; 0 for ever, None for as long as the server's settings
    say."""


class AgentRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of an agent."""

    tenant: str
    agent: str
    version: int = 0
    """0 for an agent that has sessions but was never updated; grows by one with every change."""
    updated: int = 0
    policy: Policy = Policy()
    settings: AgentSettings = AgentSettings()


class Tier(IntEnum):
    """Whose memory a file holds; the values are those of the protocol's enum `MemoryTier`."""

    USER = 1
    """A user's, for all projects."""
    PROJECT = 2


class FileOwner(NamedTuple):
    """Who owns memory files. The same id in two tiers is two owners."""

    tenant: str
    tier: Tier
    id: str


class FileKey(NamedTuple):
    """The name of a memory file. Keys are exact (invariant 5)."""

    owner: FileOwner
    name: str
    """ASCII: `MEMORY.md` or `YYYY-MM-DD.md`; stores take any."""


class FileVersion(msgspec.Struct, frozen=True, array_like=True):
    """What is told of one version of a memory file."""

    version: int
    """From 1; grows with every change of the file."""
    digest: str
    """SHA-256 of the content as 64 hexadecimal digits."""
    size: int
    """Bytes of the content."""
    author: str
    """Who says to have written it; empty when nobody said."""
    created: int


class FileRequest(msgspec.Struct, frozen=True, array_like=True):
    """Remembers the first answer to a write of a memory file (AIP-155)."""

    id: str
    """A digest of the request id."""
    digest: str
    """A digest of what was asked for."""
    answer: FileVersion
    added: int
    """Entries that the write added."""
    created: int


class StoredFile(msgspec.Struct, frozen=True):
    """A memory file at one of its versions."""

    key: FileKey
    incarnation: str
    """32 hexadecimal digits, new whenever a file begins: a change that was planned on an earlier file of the name does
    not meet this one. What they are made of is for the engine (`engine.memory_writes`)."""
    version: FileVersion
    content: bytes
    requests: str = ""
    """The newest writes that brought a request id, as `encode_requests` gives them: those who read memory, most of all,
    do not look into them. Empty where there are none, and in an earlier version."""


_RECORD_ENCODER: Final = msgspec.json.Encoder()
_RECORD_DECODER: Final = msgspec.json.Decoder(Record)
_SUMMARY_DECODER: Final = msgspec.json.Decoder(StoredSummary)
_POLICY_DECODER: Final = msgspec.json.Decoder(Policy)
_RUN_HEAD_DECODER: Final = msgspec.json.Decoder(RunHead)
_RUN_STATE_DECODER: Final = msgspec.json.Decoder(RunState)
_SETTINGS_DECODER: Final = msgspec.json.Decoder(AgentSettings)
_REQUESTS_DECODER: Final = msgspec.json.Decoder(tuple[FileRequest, ...])


def encode_record(record: Record) -> bytes:
    """The record as JSON, the form in which adapters store it and in which its limit is measured."""
    return _RECORD_ENCODER.encode(record)


def encode_open(state: OpenState) -> msgspec.Raw:
    """The form of `Record.open`."""
    return msgspec.Raw(_RECORD_ENCODER.encode(state))


def decode_record(text: bytes | str) -> Record:
    """The inverse of `encode_record`; fields of a newer version are passed over."""
    return _RECORD_DECODER.decode(text)


def encode_summary(summary: StoredSummary) -> bytes:
    """The summary as JSON: pure text without a raw U+0000, whatever it holds."""
    return _RECORD_ENCODER.encode(summary)


def decode_summary(text: bytes | str) -> StoredSummary:
    """The inverse of `encode_summary`; fields of a newer version are passed over."""
    return _SUMMARY_DECODER.decode(text)


def encode_settings(settings: AgentSettings) -> str:
    """An agent's settings beside its policy, as JSON text."""
    return _RECORD_ENCODER.encode(settings).decode()


def decode_settings(text: bytes | str) -> AgentSettings:
    """The inverse of `encode_settings`."""
    return _SETTINGS_DECODER.decode(text)


def encode_requests(requests: Sequence[FileRequest]) -> str:
    """The form of `StoredFile.requests`, the oldest first: JSON text without a raw U+0000."""
    return _RECORD_ENCODER.encode(requests).decode() if requests else ""


def decode_requests(text: str) -> Sequence[FileRequest]:
    """The inverse of `encode_requests`."""
    return _REQUESTS_DECODER.decode(text) if text else ()


def encode_run_head(head: RunHead) -> str:
    """A run's head as JSON text without a raw U+0000."""
    return _RECORD_ENCODER.encode(head).decode()


def decode_run_head(text: bytes | str) -> RunHead:
    """The inverse of `encode_run_head`; fields of a newer version are passed over."""
    return _RUN_HEAD_DECODER.decode(text)


def encode_run_state(state: RunState) -> str:
    """A run's state as JSON text."""
    return _RECORD_ENCODER.encode(state).decode()


def decode_run_state(text: bytes | str) -> RunState:
    """The inverse of `encode_run_state`; fields of a newer version are passed over."""
    return _RUN_STATE_DECODER.decode(text)


def encode_policy(policy: Policy) -> str:
    """A policy as JSON text."""
    return _RECORD_ENCODER.encode(policy).decode()


def decode_policy(text: bytes | str) -> Policy:
    """The inverse of `encode_policy`."""
    return _POLICY_DECODER.decode(text)


def replace(record: Record, **changes: Any) -> Record:
    """A copy of the record with some fields changed."""
    return msgspec.structs.replace(record, **changes)
