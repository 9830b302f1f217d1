"""What was stored comes back byte for byte (invariant 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from memoryd.v1 import history_service_pb2 as history
from memoryd.v1 import message_pb2 as pb
from memoryd.v1 import session_pb2 as session
from tests.conftest import StartServer
from tests.service.wire import Stubs, as_sent, calls, new_key, text

MIB: Final = 1024 * 1024

TEXTS: Final = {
    "NUL": "a\x00b\x00\x00",
    "only NUL": "\x00",
    "control characters": "".join(map(chr, range(32))) + "\x7f\x80\x9f",
    "emoji": "🙂 👩‍👩‍👧‍👦 🏴󠁧󠁢󠁳󠁣󠁴󠁿 ✈️",
    "CRLF and other line ends": "a\r\nb\rc\nd\u2028e\u2029f\x0bg\x85h\r\n",
    "white space around": " \t leading and trailing \u00a0\u3000 ",
    "Unicode forms": "é e\u0301 ﬁ Å \u212b \ufeff",
    "right-to-left": "\u202eשלום\u202c עולם",
    "non-characters and private ones": "\ufffe \uffff \U0010ffff \ue000",
    "JSON that looks like ours": '[{"type":"text","text":"\\u0000"}]',
    "SQL": "'; DROP TABLE messages; -- \" ` % _ \\",
    "special markers": "<|endoftext|><|im_start|>system<|im_end|>",
    "1 MiB": "0123456789abcdeﬀ" * (MIB // 18),
    "1 MiB of one letter": "x" * MIB,
    "empty": "",
}

JSON_TEXTS: Final = {
    "a lone surrogate, escaped": '{"a": "\\ud83d", "b": "\\uDC00"}',
    "invalid": '{"a": tru',
    "not even nearly": "\x00}{][",
    "integers beyond 2^53": '{"id": 9007199254740993, "big": 123456789012345678901234567890}',
    "numbers in odd forms": '{"a": 1.0, "b": 1e2, "c": -0, "d": 0.10, "e": 1E400}',
    "duplicate keys": '{"a": 1, "a": 2, "a": {"a": 1, "a": 2}}',
    "order and white space": '{ "b" :1,\r\n\t"a": 2 }\n',
    "escapes in other forms": '{"\\u0061": "\\/ \\u00e9 é \\n"}',
    "empty": "",
    "no object": "null",
}


def parts(*parts: pb.Part, role: pb.Role.ValueType = pb.ROLE_USER, **fields: str) -> pb.Message:
    return pb.Message(role=role, content=pb.Content(parts=parts), **fields)  # type: ignore[arg-type]


def call(arguments: str, id_: str = "c") -> pb.Message:
    return parts(pb.Part(tool_call=pb.ToolCall(id=id_, name="f", arguments=arguments)), role=pb.ROLE_ASSISTANT)


def result(*inner: pb.Part, **fields: str | bool) -> pb.Part:
    return pb.Part(tool_result=pb.ToolResult(parts=inner, **fields))  # type: ignore[arg-type]


def media(**fields: object) -> pb.Part:
    return pb.Part(media=pb.Media(**fields))  # type: ignore[arg-type]


EVERY_BYTE: Final = bytes(range(256))

MESSAGES: Final[dict[str, pb.Message]] = {
    **{f"text: {name}": text(said) for name, said in TEXTS.items()},
    **{f"arguments: {name}": call(arguments) for name, arguments in JSON_TEXTS.items()},
    **{f"metadata: {name}": text("m", metadata=metadata) for name, metadata in JSON_TEXTS.items()},
    **{f"extra: {name}": text("m", extra=extra) for name, extra in JSON_TEXTS.items()},
    **{f"data: {name}": parts(pb.Part(data=data)) for name, data in JSON_TEXTS.items()},
    "absent content": pb.Message(role=pb.ROLE_ASSISTANT),
    "empty content": pb.Message(role=pb.ROLE_ASSISTANT, content=pb.Content()),
    "an absent name": text("m"),
    "an empty name": text("m", name=""),
    "a name": text("m", name="Zoë 🙂"),
    "metadata of 64 KiB": text("m", metadata='"' + "x" * 65_534 + '"'),
    "every byte": parts(media(type="image/png", data=EVERY_BYTE * 64, size=7)),
    "no bytes": parts(media(data=b"")),
    "an empty URI": parts(media(uri="")),
    "a URI": parts(media(type="image/*", uri="https://example.com/ü?q=%00#\x00")),
    "reasoning": parts(
        pb.Part(reasoning=pb.Reasoning(text="thinking", signature="c2lnbmF0dXJl+/=")),
        pb.Part(reasoning=pb.Reasoning(signature="encrypted\x00")),
        pb.Part(reasoning=pb.Reasoning()),
        pb.Part(text="said"),
        pb.Part(tool_call=pb.ToolCall(id="c", name="f", arguments="{}")),
        pb.Part(text="said behind the call"),
        pb.Part(tool_call=pb.ToolCall()),
        pb.Part(refusal="no"),
        role=pb.ROLE_ASSISTANT,
    ),
    "empty parts": parts(pb.Part(text=""), pb.Part(refusal=""), pb.Part(data=""), pb.Part(text="")),
    "several results, of every form": parts(
        result(call_id="a", name="f", is_error=True),
        result(pb.Part(text="a\x00"), pb.Part(text=""), pb.Part(refusal="r"), pb.Part(data="{"), call_id="b"),
        result(media(data=EVERY_BYTE), media(uri="u", size=2**62), call_id=""),
        role=pb.ROLE_TOOL,
    ),
    "results beside text": parts(pb.Part(text="before"), result(call_id="a"), pb.Part(text="after")),
    "a run": text("m", run_id="run/1"),
    **{f"role {role}": text("m", role) for role in (pb.ROLE_SYSTEM, pb.ROLE_DEVELOPER, pb.ROLE_ASSISTANT)},
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_comes_back_as_it_was_sent(stubs: Stubs, agent: str, name: str) -> None:
    key = new_key(agent)
    sent = pb.Message()
    sent.CopyFrom(MESSAGES[name])
    sent.id = "id ☃"
    (appended,) = stubs.append(key, sent)
    by_seq = stubs.histories.GetMessage(history.GetMessageRequest(session=key, seq=1)).message
    by_id = stubs.histories.GetMessage(history.GetMessageRequest(session=key, id=sent.id)).message

    assert as_sent(by_seq).SerializeToString(deterministic=True) == sent.SerializeToString(deterministic=True)
    assert by_id == by_seq
    assert stubs.messages(key) == [by_seq]
    # The same content again is the same append.
    assert stubs.append(key, sent) == [appended]


def test_windows_show_messages_as_they_were_sent(stubs: Stubs, agent: str) -> None:
    key = new_key(agent)
    shown = [message for message in MESSAGES.values() if message.ByteSize() < 100_000 and not _is_of_tools(message)]
    for message in shown:
        stubs.append(key, message)
    (piece, stats) = stubs.stream(key)
    loaded = stubs.load(key)

    assert [_without_id(message) for message in loaded.messages] == shown
    assert list(piece.messages) == list(loaded.messages) == stubs.messages(key)
    assert stats.stats == loaded.stats


def _is_of_tools(message: pb.Message) -> bool:
    kinds = {part.WhichOneof("kind") for part in message.content.parts}
    return bool(kinds & {"tool_call", "tool_result"})


def _without_id(message: pb.Message) -> pb.Message:
    sent = as_sent(message)
    sent.ClearField("id")
    return sent


def test_all_of_it_survives_a_restart(start_server: StartServer, tmp_path: Path, agent: str) -> None:
    """Order, times and settings, too (invariants 1 and 4)."""
    server = start_server("--data-dir", str(tmp_path))
    key = session.SessionKey(agent=agent, session_id="ß\u0301 / % _ : * {}")
    settings = history.SessionSettings(
        user_id="Zoë", labels={"clé ☃": "\x1b[31m"}, tokenizer=session.TOKENIZER_CL100K_BASE
    )
    with Stubs(server.address) as stubs:
        for message in MESSAGES.values():
            stubs.append(key, message, create=settings)
        stubs.append(key, *(text(f"of one moment {number}") for number in range(50)))
        before = (stubs.messages(key), stubs.session(key), stubs.stream(key))
    assert server.stop() == 0
    server.restart()
    with Stubs(server.address) as stubs:
        assert (stubs.messages(key), stubs.session(key), stubs.stream(key)) == before
        assert [_without_id(message) for message in before[0][: len(MESSAGES)]] == list(MESSAGES.values())
        # The next append goes on where the history ended, with calls still armed.
        (appended,) = stubs.append(key, calls("later"))
        assert appended.seq == len(MESSAGES) + 51
