"""What is stored comes back byte for byte (invariant 4), and no two keys share storage (invariant 5)."""

from __future__ import annotations

import itertools
import json

import pytest

from memoryd_server.stores.base import Change, Committed, Loaded, SessionQuery, Store
from memoryd_server.stores.records import (
    AgentRecord,
    Covered,
    Folding,
    Lookup,
    LookupKind,
    OpenCall,
    OpenCalls,
    OpenGroup,
    OpenState,
    Oversize,
    Policy,
    Record,
    Redaction,
    RemovedRange,
    Retention,
    Role,
    RunLink,
    RunState,
    RunStatus,
    SessionKey,
    StoredMessage,
    StoredSummary,
    SummaryLink,
    SummaryPolicy,
    Usability,
    WindowMode,
    WindowOptions,
    encode_open,
)
from memoryd_server.stores.walk import bare
from tests.adapters import EACH_SHARED_ADAPTER
from tests.stores.builders import (
    TIME,
    Session,
    grown,
    link,
    lookup,
    message,
    new_incarnation,
    new_record,
    summary,
    undoable,
)
from tests.stores.conftest import NewSession, OpenStore

TEXTS = {
    "empty": "",
    "NUL": "a\x00b\x00",
    "NUL alone": "\x00",
    "CRLF": "one\r\ntwo\rthree\n",
    "emoji": "👩‍👩‍👧‍👦 🇪🇺 \U0010ffff",
    "NFC and NFD": "é é",
    "CJK": "記憶のあるエージェント",
    "right to left": "\u202eذاكرة\u202c",
    "white space": " \t\v\f\u00a0\u2028\ufeff ",
    "an escaped lone surrogate": r'{"a":"\ud800"}',
    "invalid JSON": '{"a": [1, 2',
    "a large integer": '{"a":9007199254740993123456789}',
    "duplicate keys": '{"a":1,"a":2}',
    "a number that floats change": '{"a":1.10, "b":1e400}',
    "NULL": "NULL",
    "quotes": """it's "quoted" `here` \\ ; -- /* */ %s ? :name $1""",
    "1 MiB": "0123456789abcdé" * (1 << 16),
}


async def assert_everywhere(session: Session, record: Record, sent: StoredMessage) -> None:
    """The message comes back from every read that shows messages or entries."""
    store = session.store
    assert await session.stored() == [sent]
    assert (await session.load(body_bytes=1 << 30)).tail == [sent]
    assert (await session.load()).tail == [bare(sent)]
    assert await store.read(session.key, record.incarnation, [1]) == (record, [sent])
    assert await store.list_entries(session.key, record.incarnation, 1, 1, 1) == (record, [undoable(sent)])
    assert await store.list_unusable(session.key, [sent.usability], 1) == [bare(sent)]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
class TestTexts:
    async def test_of_messages(self, session: Session, store: Store, text: str) -> None:
        sent = message(
            1,
            name=text,
            content=text,
            metadata=text,
            extra=text,
            undo=json.dumps(text, ensure_ascii=False),
            redaction=Redaction(TIME, text),
            size=1 + len(text.encode()),
        )
        record = await session.commit(sent)
        await assert_everywhere(session, record, sent)

    async def test_of_messages_that_get_another_body(self, session: Session, store: Store, text: str) -> None:
        await session.commit(message(1, undo=json.dumps(text, ensure_ascii=False)))
        body = message(
            1,
            name=text,
            content=text,
            metadata=text,
            extra=text,
            undo=json.dumps(text, ensure_ascii=False),
            redaction=Redaction(TIME, text),
            size=1 + len(text.encode()),
        )
        record = await session.commit(replaced=[body])
        await assert_everywhere(session, record, body)

    async def test_of_staged_messages(self, session: Session, store: Store, text: str) -> None:
        sent = message(1, content=text, metadata=text, extra=text, redaction=Redaction(TIME, text))
        sent_lookup = Lookup(LookupKind.MESSAGE, "m", b"\x00\xff" * 16, text, 5)
        due = await store.now() + 3_600_000_000
        staging = await store.begin_staging("tenant", "user", due)
        await store.stage(staging, [sent], [sent_lookup], due)
        record = await session.commit(staging=staging, **grown(new_record(), [sent]))
        await assert_everywhere(session, record, sent)
        assert await store.find(session.key, LookupKind.MESSAGE, ["m"]) == [sent_lookup]

    async def test_of_look_ups(self, session: Session, store: Store, text: str) -> None:
        sent = Lookup(LookupKind.MESSAGE, "m", b"\x00\xff" * 16, text, 5)
        await session.commit(lookups=[sent])
        assert await store.find(session.key, LookupKind.MESSAGE, ["m"]) == [sent]

    async def test_of_records(self, session: Session, store: Store, text: str) -> None:
        labels = {text[:200]: text[:200]}
        record = await session.commit(labels=labels, user_id="user")
        assert await store.load(session.key) == Loaded(record)
        assert (await store.list_sessions(SessionQuery("tenant", None, None, 1))).sessions == [(session.key, record)]


async def test_absent_and_empty_differ(session: Session) -> None:
    sent = [
        message(1, content=None, name=None),
        message(2, content="", name=""),
        message(3, content="[]", name="null"),
    ]
    await session.commit(*sent)
    assert await session.stored() == sent


async def test_every_field_of_a_message_comes_back(session: Session) -> None:
    sent = message(
        (1 << 53) + 1,
        head=1 << 40,
        position=257,
        usability=Usability.OPEN,
        role=Role.DEVELOPER,
        tokens=(1 << 53) + 1,
        size=(1 << 31) - 1,
        calls=256,
        answers=(0, -1, 255, 3),
        prior_user=(1 << 53) - 1,
        id="id",
        name="name",
        content="content",
        run_id="run",
        metadata="metadata",
        extra="extra",
        created=(1 << 62) + 1,
        undo='{"calls":[]}',
        redaction=Redaction((1 << 62) + 2, "reason"),
    )
    defaults = {field for field in sent.__struct_fields__ if getattr(sent, field) == getattr(_PLAIN_MESSAGE, field)}
    assert defaults == set(), "the test gives every field a value of its own"
    await session.commit(sent)
    assert await session.stored() == []  # No page of the test reaches so far.
    page = await session.page(to_seq=1 << 60)
    assert page.messages == [sent]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("usability", Usability)
async def test_every_role_and_usability_comes_back(session: Session, role: Role, usability: Usability) -> None:
    await session.commit(message(1, role=role, usability=usability))
    [stored] = await session.stored()
    assert (stored.role, stored.usability) == (role, usability)
    assert (type(stored.role), type(stored.usability)) == (Role, Usability)


async def test_every_field_of_a_record_comes_back(session: Session, store: Store) -> None:
    options = WindowOptions(WindowMode.TOKENS, 100, False, True, OpenCalls.KEEP, Oversize.RETURN)
    record = Record(
        incarnation=new_incarnation(),
        version=1,
        tokenizer="cl100k_base",
        created=1,
        activity=2,
        appended=28,
        ttl=29,
        rewound_to=30,
        epoch=3,
        settings_version=4,
        user_id="user",
        labels={"b": "1", "a": "2"},
        policy=Policy(options, SummaryPolicy(False, "client", 31, 32, Retention.DELETE, False)),
        first_seq=5,
        last_seq=(1 << 53) + 1,
        opening_to=6,
        last_user=7,
        messages=8,
        tokens=9,
        bytes=10,
        open_messages=11,
        orphan_messages=12,
        largest=13,
        open_call_count=14,
        open=encode_open(OpenState((OpenCall("", 15, (16, 17)),), (OpenGroup(18, 19, 20, 21, lost=True),))),
        removed=(RemovedRange(22, 23, 24), RemovedRange(25, 26, 27)),
        summaries=(SummaryLink(33, 34, 35, 36, 37, 38, 39, 40, Covered(41, 42, 43, 44, 45), True),),
        last_summary=46,
        folding=Folding(
            "lease", 47, 48, "openai", 49, 50, 51, 52, 53, Covered(55, 56, 57, 58, 59), 60, 61, 62, "timeout", 63
        ),
        runs=(RunLink("run", RunState(RunStatus.AWAITING_BUDGET, 64, 65, 66, 67, 68, 69, 70)),),
    )
    defaults = {field for field in Record.__struct_fields__ if getattr(record, field) == getattr(_PLAIN, field)}
    assert defaults == {"version"}, "the test gives every field a value of its own"
    change = Change(session.key, None, record, new_summaries=(summary(33),))
    assert await store.commit([change]) == [Committed()]
    assert await store.load(session.key) == Loaded(record)


async def test_every_field_of_a_summary_comes_back(session: Session, store: Store) -> None:
    """(invariant 4)"""
    closed = encode_open(OpenState((OpenCall("=a", 1, (0,)),), (OpenGroup(1, 2, 3, 4, lost=True),)))
    text = "NUL \0 \r\n 😀 \u2028 'x' \\ {}"
    sent = StoredSummary(2, 1, text, 3, (1 << 53) + 1, 4, "s", "m", 5, 6, 7, 8, "l", closed)
    defaults = {field for field in sent.__struct_fields__ if getattr(sent, field) == getattr(summary(9), field)}
    assert defaults == set(), "the test gives every field a value of its own"
    record = await session.commit(new_summaries=(sent,), summaries=(link(2),))
    assert await store.read_summaries(session.key, record.incarnation, [2]) == (record, [sent])


_PLAIN = Record(incarnation="", version=1, tokenizer="", created=0, activity=0)
_PLAIN_MESSAGE = message(0, name=None)

NAMES = (
    "a",
    "A",
    "ａ",
    "a ",
    " a",
    "a\t",
    "a\u200b",
    "é",
    "e\u0301",
    "e",
    "ß",
    "ss",
    "i",
    "ı",
    "İ",
    "1",
    "01",
    "1.0",
    "a:b",
    "a/b",
    "a|b",
    "*",
    "%",
    "_",
    "?",
    "{a}",
    "{",
    "}",
    "[a]",
    "\\",
    "'",
    '"',
    "`",
    ";",
    "--",
    "\n",
    "\x7f",
    "null",
    "None",
    "😀",
    "😃",
    "x" * 255,
    "x" * 256,
    "x" * 255 + "y",
    "é" * 128,
)


class TestKeys:
    @pytest.mark.parametrize("place", ["tenant", "agent", "session_id"])
    async def test_differ_in_every_byte(self, store: Store, place: str) -> None:
        key = SessionKey("tenant", "agent", "session")
        sessions = [Session(store, key._replace(**{place: name})) for name in NAMES]
        for number, session in enumerate(sessions):
            assert await store.load(session.key) is None
            await session.commit(message(1, id=f"of-{number}"), lookups=[lookup("m", digest=b"%d" % number)])
        for number, session in enumerate(sessions):
            loaded = await store.load(session.key)
            assert loaded == Loaded(session.record)  # type: ignore[arg-type]
            assert [stored.id for stored in await session.stored()] == [f"of-{number}"]
            found = await store.find(session.key, LookupKind.MESSAGE, ["m"])
            assert [each.digest for each in found] == [b"%d" % number]

    @pytest.mark.parametrize("separator", [":", "/", "|", ",", "\x1f", "\x01", " ", "}{"])
    async def test_do_not_run_into_one_another(self, store: Store, separator: str) -> None:
        pieces = ("a", "b", "c", "d")
        parts = [separator.join(pieces[start:end]) for start, end in itertools.combinations(range(5), 2)]
        keys = [
            SessionKey(*key)
            for key in itertools.product(parts, repeat=3)
            if separator.join(key) == separator.join(pieces)
        ]
        assert len(keys) == 3
        for key in keys:
            await Session(store, key).commit(message(1, id=str(key)))
        for key in keys:
            assert [stored.id for stored in await Session(store, key).stored()] == [str(key)]

    async def test_changes_touch_no_other_session(self, new_session: NewSession, store: Store) -> None:
        sessions = [new_session(name) for name in NAMES]
        for session in sessions:
            await session.commit(message(1), message(2))
        changed = sessions[0]
        record = await changed.remove(1, 2)
        await store.purge(changed.key, record.incarnation, 1, 2, 10)
        for session in sessions[1:]:
            assert await session.tail() == [2, 1]

    async def test_lists_hold_exactly_what_is_named(self, new_session: NewSession, store: Store) -> None:
        for number, name in enumerate(NAMES):
            await new_session("of agent", agent=name).commit()
            await new_session("of tenant", tenant=name).commit()
            await new_session(f"of user {number}", agent="users").commit(user_id=name)
        for number, name in enumerate(NAMES):
            of_agent = await store.list_sessions(SessionQuery("tenant", name, None, 10))
            assert [key for key, _ in of_agent.sessions] == [SessionKey("tenant", name, "of agent")]
            of_tenant = await store.list_sessions(SessionQuery(name, None, None, 10))
            assert [key for key, _ in of_tenant.sessions] == [SessionKey(name, "agent", "of tenant")]
            of_user = await store.list_sessions(SessionQuery("tenant", None, name, 10))
            assert [key for key, _ in of_user.sessions] == [SessionKey("tenant", "users", f"of user {number}")]

    async def test_agents_are_told_apart(self, store: Store) -> None:
        for number, name in enumerate(NAMES):
            assert await store.save_agent(AgentRecord("tenant", name, 1, number))
            assert await store.save_agent(AgentRecord(name, "agent", 1, number))
        for number, name in enumerate(NAMES):
            assert await store.load_agent("tenant", name) == AgentRecord("tenant", name, 1, number)
            assert await store.load_agent(name, "agent") == AgentRecord(name, "agent", 1, number)
            assert list(await store.list_agents(name, "", 10)) == [AgentRecord(name, "agent", 1, number)]

    async def test_message_and_request_ids_are_told_apart(self, session: Session, store: Store) -> None:
        sent = [lookup(name, digest=name.encode()) for name in NAMES]
        for each in sent:
            await session.commit(lookups=[each])
        for each in sent:
            assert await store.find(session.key, LookupKind.MESSAGE, [each.id]) == [each]

    async def test_runs_are_told_apart(self, session: Session) -> None:
        await session.commit(*(message(seq, run_id=name) for seq, name in enumerate(NAMES, 1)))
        for seq, name in enumerate(NAMES, 1):
            assert [stored.seq for stored in (await session.page(run_id=name)).messages] == [seq]


@pytest.mark.parametrize("adapter", EACH_SHARED_ADAPTER, indirect=True)
async def test_texts_and_keys_are_exact_after_a_restart(open_store: OpenStore) -> None:
    store = await open_store()
    sent = [message(seq, content=text, metadata=text, extra=text) for seq, text in enumerate(TEXTS.values(), 1)]
    for name in NAMES:
        await Session(store, SessionKey(name, name, name)).commit(*sent if name == "a" else [message(1, id=name)])
    await store.close()
    store = await open_store()
    for name in NAMES:
        stored = await Session(store, SessionKey(name, name, name)).stored()
        assert stored == (sent if name == "a" else [message(1, id=name)])
