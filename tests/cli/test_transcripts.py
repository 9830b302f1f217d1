"""Lines of transcripts: what they are taken for, what is wrong with them, and the ids of their messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memoryd import Role, to_anthropic, to_openai
from memoryd_server.cli.options import Format
from memoryd_server.cli.transcripts import BadLine, Source, Transcript, base_of
from tests.service import conversations


def read(value: Any, format: Format = Format.OPENAI_CHAT, number: int = 3) -> Transcript:
    line = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
    transcript = Source(Path("logs/talks.jsonl"), format, "support").transcript(number, line)
    assert transcript is not None
    return transcript


HELLO = [{"role": "user", "content": "Hello!"}]


def test_a_line_is_a_session() -> None:
    transcript = read({"session_id": "s 1", "messages": HELLO, "model": "any"})
    assert (transcript.agent, transcript.session_id) == ("support", "s 1")
    assert to_openai(transcript.messages) == HELLO


@pytest.mark.parametrize("value", [HELLO, {"messages": HELLO}])
def test_a_line_without_an_id_is_named_after_file_and_line(value: Any) -> None:
    assert read(value, number=17).session_id == "talks-17"


def test_a_line_without_messages_is_no_session() -> None:
    assert Source(Path("x"), Format.OPENAI_CHAT, "a").transcript(1, b'{"messages": []}') is None


def test_anthropic_lines_may_have_a_system_prompt() -> None:
    transcript = read({"system": "Be brief.", "messages": HELLO}, Format.ANTHROPIC)
    assert [message.role for message in transcript.messages] == [Role.SYSTEM, Role.USER]
    assert to_anthropic(transcript.messages) == {"system": "Be brief.", "messages": HELLO}
    assert transcript.names == ["system", "messages[0]"]
    assert len(transcript.ids(0)) == 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"messages": [}', "logs/talks.jsonl:3:15: is not JSON: Expecting value"),
        (b'{"messages": ["\xff"]}', "logs/talks.jsonl:3:16: is not UTF-8"),
        (b"17", "logs/talks.jsonl:3: is not an object: each line is"),
        (b'{"session_id": "x"}', 'logs/talks.jsonl:3: has no array "messages": each line is'),
        (b'{"session_id": 7, "messages": []}', 'logs/talks.jsonl:3: has a "session_id" that is not text: 7'),
        (b'{"session_id": "", "messages": []}', 'logs/talks.jsonl:3: has a "session_id" that is not text: ""'),
        (
            b'{"messages": [{"role": "user", "content": "x"}, {"role": "robot"}]}',
            "talks.jsonl:3: messages[1] has the role",
        ),
        (b"[" * 100_000, "logs/talks.jsonl:3: is JSON that nests too deep"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(line: bytes, told: str) -> None:
    with pytest.raises(BadLine) as error:
        read(line)
    assert told in str(error.value)


def test_a_json_document_over_several_lines_is_recognized() -> None:
    with pytest.raises(BadLine, match=r"jq -c"):
        read(b"[\n", number=1)


def test_blank_lines_and_a_byte_order_mark_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf[1]\n\n  \r\n[2]")
    assert list(Source(path, Format.OPENAI_CHAT, "a").lines()) == [(1, b"[1]\n"), (4, b"[2]")]


@pytest.mark.parametrize("name", conversations.OPENAI)
def test_the_ids_of_a_transcript_that_grew_begin_with_those_it_had(name: str) -> None:
    messages = conversations.OPENAI[name]
    ids = read({"messages": messages}).ids(0)
    assert len(set(ids)) == len(messages)
    for length in range(1, len(messages)):
        assert read({"messages": messages[:length]}).ids(0) == ids[:length]


def test_ids_do_not_depend_on_how_the_json_was_written() -> None:
    spaced = json.dumps({"messages": [{"content": "日本", "role": "user"}]}, ensure_ascii=True, indent=None).encode()
    assert read({"messages": [{"role": "user", "content": "日本"}]}).ids(0) == read(spaced).ids(0)


def test_ids_differ_from_the_first_difference_on() -> None:
    same, other = [*HELLO, *HELLO, *HELLO], [HELLO[0], {"role": "user", "content": "Bye!"}, HELLO[0]]
    first, second = read(same).ids(0), read(other).ids(0)
    assert [one == another for one, another in zip(first, second, strict=True)] == [True, False, False]
    assert not set(read(same).ids(5)) & set(first)


def test_the_base_of_an_id_is_read_back() -> None:
    assert {base_of(message_id) for message_id in read(HELLO).ids(40)} == {40}
    assert [base_of(other) for other in ("", "import", "import-x-0-ab", "import-1-2", "0192ab")] == [None] * 5
