"""Every limit of the service, with its unit and its reason (design section 3). `memoryd config` prints them.

They are the same on every store, so that data moves between stores; none of them is a setting.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

MAX_ID_BYTES: Final = 256
"""UTF-8 bytes of an id (agent, session, user, run, message, request, call): fits the index keys of every store."""

MAX_NAME_BYTES: Final = 256
"""UTF-8 bytes of a speaker's name: as for ids."""

MAX_MESSAGE_BYTES: Final = 2 * MIB
"""Encoded bytes of one message: one fits an answer of the default gRPC client (4 MiB) with room to spare."""

MAX_APPEND_MESSAGES: Final = 256
"""Messages of one append: bounds the work of one commit."""

MAX_APPEND_BYTES: Final = 7 * MIB // 2
"""Encoded bytes of one append's messages (3.5 MiB): what was appended at once can be read at once."""

MAX_PAGE_ITEMS: Final = 1_000
"""Messages, sessions or agents of one page; a larger page_size is coerced to it (AIP-158)."""

DEFAULT_PAGE_ITEMS: Final = 100
"""Items of a page when the request does not say."""

MAX_PAGE_BYTES: Final = 7 * MIB // 2
"""Encoded bytes of the messages of one page, and of a window in one answer (3.5 MiB): under the 4 MiB that a default
gRPC client receives, with room for framing and stats.
"""

MAX_PAGE_SCAN: Final = 10_000
"""Seqs that one page with a filter examines: a rare match must not read the whole history in one call."""

MAX_METADATA_BYTES: Final = 64 * KIB
"""UTF-8 bytes of a message's metadata: it is data about a message, not a second body."""

MAX_LABELS: Final = 64
"""Labels of a session: they live in its record."""

MAX_LABEL_BYTES: Final = 256
"""UTF-8 bytes of a label's key, and of its value."""

MAX_RECORD_BYTES: Final = 96 * KIB
"""Encoded bytes of a session's record: it is read and written with every change. What the limits of all that it holds
come to, settings and a reserve included; a usual record has 1 KiB."""

MAX_SETTINGS_BYTES: Final = 40 * KIB
"""Encoded bytes of a session's labels, user and policy: leaves the record room for its open calls, runs and summaries,
so that settings never stand in the way of an append.
"""

MAX_OPEN_CALLS: Final = 256
"""Calls that wait for results in one session: they live in its record; beyond it the oldest closes as interrupted."""

MAX_UNFINISHED_RUNS: Final = 64
"""Runs of one session that have not ended: their states live in its record."""

MAX_STEP_BYTES: Final = 2 * MIB
"""Bytes of the payload of one step of a run: as for a message."""

MAX_RUN_REASON_BYTES: Final = 4 * KIB
"""UTF-8 bytes of the reason of a run's status: the end of a stack trace fits."""

MAX_CONTENT_TYPE_BYTES: Final = 256
"""UTF-8 bytes of the content type of a step: RFC 6838 asks for names far shorter."""

DEFAULT_RUN_LEASE_SECONDS: Final = 30
"""How long a worker holds a run that does not renew its lease: a killed worker's run is taken up by then."""

MIN_RUN_LEASE_SECONDS: Final = 1
"""The shortest lease of a run, in seconds: it is renewed every third of it."""

MAX_RUN_LEASE_SECONDS: Final = 3_600
"""The longest lease of a run, in seconds: for longer, it is renewed."""

RUN_ABANDON_SECONDS: Final = 30 * 24 * 60 * 60
"""How long an unfinished run may be left alone before it is ABANDONED: until then, its session does not expire."""

MAX_RUN_RETENTION_SECONDS: Final = 100 * 366 * 24 * 60 * 60
"""The longest that runs are kept after their end, in seconds (a hundred years): beyond it, keep all."""

MAX_WINDOW_MESSAGES: Final = 100_000
"""Messages of a window, whatever its limit: its plan is held in memory."""

MAX_WINDOW_TOKENS: Final = 100_000_000
"""The largest token limit of a window: far beyond any model, and safe in every client's integers."""

DEFAULT_WINDOW_MESSAGES: Final = 10_000
"""A window's limit where neither the request nor a stored policy gives one."""

MAX_EXPLAINED_MESSAGES: Final = 100
"""Left-out messages that `explain` lists, newest first."""

MAX_REQUEST_BYTES: Final = 16 * MIB
"""Bytes that the server receives in one request: larger than any valid one, so that what is over a limit gets an answer
that names it."""

MAX_GROUP_COMMIT_BYTES: Final = 4 * MIB
"""Message bytes of one group commit: bounds how long a small append waits for its neighbours."""

MAX_GROUP_COMMIT_CHANGES: Final = 256
"""Changes of one group commit: as above."""

AGENT_CACHE_SECONDS: Final = 5
"""How long a server may use an agent's settings without reading them again."""

ACTIVITY_LAG_SECONDS: Final = 1
"""How far a session's place in lists may lag behind its activity: it spares most appends the writes to the indexes."""

PURGE_DELAY_SECONDS: Final = 60
"""How long removed messages stay in the database: calls that began before the removal end first."""

MAX_REMOVED_RANGES: Final = 64
"""Removed ranges that a session's record holds until their purge: clears beyond it share one, and a rewind that cannot
is refused."""

MIN_SUMMARY_TOKENS: Final = 64
"""The shortest that summaries may be bounded to, in tokens: some sentences beside the heading."""

MAX_SUMMARY_TOKENS: Final = 8_000
"""The longest that a summary may be, in tokens: what is longer should stay raw."""

DEFAULT_SUMMARY_TOKENS: Final = 1_000
"""Tokens of a summary where a window's limit counts messages."""

SUMMARY_PERCENT: Final = 20
"""Percent of a limit in tokens that a summary may take by default."""

MIN_SUMMARY_WINDOW_MESSAGES: Final = 2
"""The smallest window with a summary: it, and one message."""

MIN_SUMMARY_WINDOW_TOKENS: Final = 256
"""The smallest window with a summary, in tokens: a few sentences and a short message."""

SUMMARY_WAIT_SECONDS: Final = 10
"""How long a load waits for a summary at most."""

MAX_SUMMARY_BYTES: Final = MIB
"""UTF-8 bytes of a text that a client commits as a summary: what is over the limit in tokens is cut, but not without
bounds."""

SUMMARY_TASK_BYTES: Final = 3 * MIB
"""Encoded bytes of the messages that one summary takes in: those of a task fit one answer with its prompt."""

SUMMARY_TASK_MESSAGES: Final = 1_000
"""Messages that one summary takes in: bounds the work of a fold."""

FOLD_LEASE_SECONDS: Final = 30
"""How long a server leases a fold; renewed while it works: what a killed server had begun is free again by then."""

FOLD_SECONDS: Final = 180
"""How long a summarizer of the server may take for one summary."""

DEFAULT_TASK_LEASE_SECONDS: Final = 60
"""How long a client may take for a summary when it does not say."""

MAX_TASK_LEASE_SECONDS: Final = 600
"""The longest lease of a summary task, in seconds."""

FOLD_BACKOFF_SECONDS: Final = 5
"""The pause after a fold's first failure; doubled by each further one."""

MAX_FOLD_BACKOFF_SECONDS: Final = 3_600
"""The longest pause between two attempts at a fold."""

MAX_SUMMARIES: Final = 16
"""Summaries of a session that can be listed and taken back: their bounds live in its record; older ones are deleted."""

PURGE_BATCH: Final = 1_000
"""Messages that one purge transaction deletes: appends wait for no longer than that takes."""

EVENT_SECONDS: Final = 24 * 60 * 60
"""How long the events of a session are kept: a watcher that resumes later is told to read anew."""

LOOKUP_SECONDS: Final = 24 * 60 * 60
"""How long ids are remembered after their session expired (invariant 2): longer than any caller repeats a call."""

MIN_TTL_SECONDS: Final = 1
"""The shortest time to live of a session: an index of expiries follows appends by a second."""

MAX_TTL_SECONDS: Final = 100 * 366 * 24 * 60 * 60
"""The longest time to live of a session, in seconds (a hundred years): beyond it, give none."""

MAX_REASON_BYTES: Final = 256
"""UTF-8 bytes of the reason of a redaction: it is a note, and it stays when the content is gone."""

MAX_FILE_BYTES: Final = MIB
"""Bytes of a memory file, stored or inline: an index is some thousand characters, a day's log seldom more."""

MAX_FILE_VERSIONS: Final = 50
"""Versions of a memory file that are kept, its current one among them."""

MAX_FILE_REQUESTS: Final = 256
"""Writes of a memory file whose request ids are remembered, for LOOKUP_SECONDS: they live beside the file."""

MAX_MEMORY_ENTRIES: Final = 256
"""Entries that one call adds to an index."""

MAX_MEMORY_ENTRY_BYTES: Final = 4 * KIB
"""UTF-8 bytes of one entry of an index: one line; what is longer belongs into a daily log."""

DEFAULT_MEMORY_BUDGET: Final = 6_000
"""Code points of rendered memory when the request does not say."""

MIN_MEMORY_BUDGET: Final = 256
"""The smallest budget of rendered memory, in code points: two headers with the longest labels, and two notices."""

MAX_MEMORY_BUDGET: Final = 100_000
"""The largest budget of rendered memory, in code points: no prompt should hold more, and it is rendered in time."""

MAX_MEMORY_LABEL: Final = 64
"""Code points of a source's label in a header."""

MAX_MEMORY_LABEL_BYTES: Final = 4 * KIB
"""UTF-8 bytes of a source's label as sent: a path of any system; its header shows the first MAX_MEMORY_LABEL."""

STAGING_SECONDS: Final = 10 * 60
"""How long a fork may stand still before its copy is swept away: far longer than one batch takes."""

STAGING_BATCH: Final = 256
"""Messages that a fork copies at once: as many as an append may bring."""

MAX_WATCHERS: Final = 10_000
"""Calls of WatchMessages that one server serves at once: each holds a stream and at most one page of events."""

WATCH_PAGE_BYTES: Final = 256 * KIB
"""Message bytes of one answer of a watch, but always one message: bounds what a slow watcher holds in the server."""

WATCH_STALL_SECONDS: Final = 30
"""How long a watcher may leave an answer unread before its stream ends and it is told to resume."""

STORE_PROBE_SECONDS: Final = 2
"""How long a readiness check waits for a store."""


def describe() -> dict[str, int]:
    """The limits by name, in the order of this page."""
    return {name: value for name, value in globals().items() if name.isupper() and name not in ("KIB", "MIB")}
