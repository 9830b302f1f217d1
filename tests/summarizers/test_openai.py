from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from memoryd_server.summarizers.base import FailureReason, SummarizerError, SummaryAnswer
from memoryd_server.summarizers.folding import fold
from memoryd_server.summarizers.openai import OpenAISummarizer, retry_after
from tests.summarizers import faulty_endpoint as faulty
from tests.summarizers.faulty_endpoint import GOOD, FaultyEndpoint, Reply, completion, error, status
from tests.summarizers.requests import request, said

KEY: Final = "sk-very-secret-7f3a"
SECRET: Final = "my secret project Atlas"

NO_PATIENCE: Final = {"backoff": 0.001}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for proxy in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(proxy, raising=False)


@pytest.fixture(autouse=True)
def nothing_is_told(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No log line, at any level, holds the key or what was said."""
    caplog.set_level(logging.INFO)
    yield
    for told in (KEY, SECRET):
        assert told not in caplog.text


@asynccontextmanager
async def serving(*replies: Reply, **arguments: Any) -> AsyncIterator[tuple[OpenAISummarizer, FaultyEndpoint]]:
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(FaultyEndpoint(*replies))
        summarizer = OpenAISummarizer(base_url=endpoint.url, model="model", **(NO_PATIENCE | arguments))
        stack.push_async_callback(summarizer.close)
        yield summarizer, endpoint


async def ask(*replies: Reply, patience: float = 60, **arguments: Any) -> tuple[SummaryAnswer, FaultyEndpoint]:
    async with serving(*replies, **arguments) as (summarizer, endpoint):
        return await summarizer.summarize(request([said(1, SECRET)], patience=patience)), endpoint


async def fails(*replies: Reply, patience: float = 60, **arguments: Any) -> tuple[SummarizerError, FaultyEndpoint]:
    """How a call fails; what it tells holds neither the key nor anything that was said."""
    async with serving(*replies, **arguments) as (summarizer, endpoint):
        with pytest.raises(SummarizerError) as raised:
            await summarizer.summarize(request([said(1, SECRET)], patience=patience))
    failure = raised.value
    assert KEY not in failure.text
    assert SECRET not in failure.text
    return failure, endpoint


async def test_a_summary_is_asked_for_and_read() -> None:
    answer, endpoint = await ask(GOOD, parameters={"temperature": 0})
    assert answer == SummaryAnswer("The project is called Atlas.", "model-2026-11", 120, 7)
    (received,) = endpoint.received
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.body["model"] == "model"
    assert received.body["max_tokens"] == 2_000, "twice the limit: our vocabulary counts otherwise, and we cut better"
    assert received.body["temperature"] == 0
    assert [message["role"] for message in received.body["messages"]] == ["system", "user"]
    assert SECRET in received.body["messages"][1]["content"]


async def test_an_endpoint_without_keys_gets_none() -> None:
    _, endpoint = await ask(GOOD, key_variable=None, limit_parameter="max_completion_tokens", answer_limit=9_000)
    (received,) = endpoint.received
    assert "authorization" not in received.headers
    assert received.body["max_completion_tokens"] == 9_000
    assert "max_tokens" not in received.body


@pytest.mark.parametrize(
    "fault",
    [
        status(429, error("slow down"), Retry_After="0"),
        status(429),
        status(500, b"<html>oops"),
        status(502),
        status(503, Retry_After="0"),
        status(529),
        status(408),
        faulty.cut_before,
        faulty.cut_within,
    ],
)
async def test_what_passes_by_itself_is_tried_again(fault: Reply) -> None:
    answer, endpoint = await ask(fault, fault, GOOD)
    assert answer.text == "The project is called Atlas."
    assert len(endpoint.received) == 3
    assert endpoint.received[0].body == endpoint.received[2].body


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (status(429), FailureReason.OVERLOADED),
        (status(500), FailureReason.UNREACHABLE),
        (faulty.cut_within, FailureReason.UNREACHABLE),
    ],
)
async def test_attempts_are_bounded(fault: Reply, reason: FailureReason) -> None:
    failure, endpoint = await fails(fault, attempts=3)
    assert failure.reason is reason
    assert failure.is_retryable
    assert len(endpoint.received) == 3


async def test_nobody_listens() -> None:
    async with FaultyEndpoint(GOOD) as endpoint:
        url = endpoint.url
    summarizer = OpenAISummarizer(base_url=url, model="model", attempts=2, backoff=0.001)
    with pytest.raises(SummarizerError, match="ConnectError") as raised:
        await summarizer.summarize(request([said(1, SECRET)]))
    assert raised.value.reason is FailureReason.UNREACHABLE
    await summarizer.close()


async def test_the_wait_that_an_endpoint_asks_for_is_kept() -> None:
    _, endpoint = await ask(status(429, **{"Retry-After-Ms": "150"}), GOOD)
    first, second = endpoint.received
    assert second.at - first.at >= 0.15


@pytest.mark.parametrize("header", [{"Retry_After": "3600"}, {"Retry_After": "Wed, 21 Oct 2099 07:28:00 GMT"}])
async def test_a_wait_beyond_the_deadline_is_left_to_the_caller_at_once(header: dict[str, str]) -> None:
    failure, endpoint = await fails(status(503, **header))
    assert failure.reason is FailureReason.OVERLOADED
    assert failure.retry_after is not None
    assert failure.retry_after >= 3_600
    assert len(endpoint.received) == 1


NOW: Final = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "7", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "7", "retry-after-ms": "x"}, 7),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 GMT"}, 30),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "Mon, 30 Nov 2026 14:00:30 +0200"}, 30),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:30 -0000"}, 30),
        # The endpoint's clock is an hour ahead, and says so.
        ({"retry-after": "Mon, 30 Nov 2026 13:00:30 GMT", "date": "Mon, 30 Nov 2026 13:00:00 GMT"}, 30),
    ],
)
def test_retry_after_is_read_in_seconds_and_as_a_date(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize("fault", [faulty.silent, faulty.slow])
async def test_an_attempt_that_takes_too_long_is_given_up_and_tried_again(fault: Reply) -> None:
    """Though every read of it may be quick."""
    answer, endpoint = await ask(fault, GOOD, timeout=0.2)
    assert answer.text == "The project is called Atlas."
    assert len(endpoint.received) == 2


@pytest.mark.parametrize("fault", [faulty.silent, faulty.slow, status(500)])
async def test_the_deadline_ends_all_attempts(fault: Reply) -> None:
    started = asyncio.get_running_loop().time()
    failure, _ = await fails(fault, patience=0.2, attempts=1_000)
    assert failure.is_retryable
    assert asyncio.get_running_loop().time() - started < 10, "0.2 s, but the machine may be busy"


async def test_a_cancelled_call_leaves_no_connection() -> None:
    async with serving(faulty.silent) as (summarizer, endpoint):
        task = asyncio.create_task(summarizer.summarize(request([said(1, SECRET)])))
        await endpoint.asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(endpoint.closed_early.wait(), 10)
        await asyncio.gather(*endpoint.connections)
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (401, "OPENAI_API_KEY"),
        (403, "may not use the model model"),
        (404, "base URL with its version"),
        (405, "base URL with its version"),
        (307, "base URL that it points to"),
        (400, "parameters"),
        (422, "parameters"),
    ],
)
async def test_what_somebody_has_to_set_is_said_and_not_tried_again(code: int, advice: str) -> None:
    failure, endpoint = await fails(status(code, error(f"key {KEY} of {SECRET}", code=KEY, type=SECRET)))
    assert failure.reason is FailureReason.MISCONFIGURED
    assert not failure.is_retryable
    assert advice in failure.text
    assert f"HTTP {code}" in failure.text
    assert len(endpoint.received) == 1


async def test_codes_of_the_endpoint_are_told() -> None:
    failure, _ = await fails(status(400, error("…", code="unsupported_parameter", param="max_tokens")))
    assert "unsupported_parameter, max_tokens" in failure.text


async def test_an_account_without_quota_is_not_asked_again() -> None:
    failure, endpoint = await fails(status(429, error("…", code="insufficient_quota")))
    assert failure.reason is FailureReason.MISCONFIGURED
    assert len(endpoint.received) == 1


@pytest.mark.parametrize(
    "refusal",
    [
        status(400, error("…", code="context_length_exceeded")),
        status(
            400, error("the request exceeds the available context size", code=400, type="exceed_context_size_error")
        ),
        status(400, error("This model's maximum context length is 4096 tokens.", code=400)),
        status(413),
    ],
)
async def test_a_model_that_takes_less_than_it_should_gets_less(refusal: Reply) -> None:
    failure, _ = await fails(refusal)
    assert failure.reason is FailureReason.INPUT_TOO_LONG
    async with serving(refusal, GOOD) as (summarizer, endpoint):
        folded = await fold(summarizer, request([said(seq, "word " * 3_000) for seq in range(1, 10)]))
        assert folded.calls > 1
        assert len(endpoint.received) == folded.calls + 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", FailureReason.BAD_ANSWER),
        (b"<html>welcome", FailureReason.BAD_ANSWER),
        (b'{"choices": [{"message": {"content": "It is ', FailureReason.BAD_ANSWER),
        (b"[" * 100_000, FailureReason.BAD_ANSWER),
        (b'{"choices": [{"message": {"content": "\xff"}}]}', FailureReason.BAD_ANSWER),
        ({"choices": []}, FailureReason.BAD_ANSWER),
        ({"choices": None}, FailureReason.BAD_ANSWER),
        (error("overloaded"), FailureReason.BAD_ANSWER),
        (completion({"text": "no string"}), FailureReason.BAD_ANSWER),
        (completion(None, "tool_calls", tool_calls=[{"id": "1", "type": "function"}]), FailureReason.NO_TEXT),
        (completion("", "tool_calls", tool_calls=[{"id": "1", "type": "function"}]), FailureReason.NO_TEXT),
        (completion(None, refusal="I can't help with that."), FailureReason.NO_TEXT),
        (completion("Partly", "content_filter"), FailureReason.NO_TEXT),
        (completion("", "length"), FailureReason.EMPTY_ANSWER),
        (completion(""), FailureReason.EMPTY_ANSWER),
        (completion(None), FailureReason.EMPTY_ANSWER),
        (completion(" \n"), FailureReason.EMPTY_ANSWER),
    ],
)
async def test_an_answer_without_a_text_is_an_error_and_costs_one_run_of_the_model(
    body: object, reason: FailureReason
) -> None:
    """(invariant 10)"""
    async with serving(status(200, body)) as (summarizer, endpoint):
        with pytest.raises(SummarizerError) as raised:
            await fold(summarizer, request([said(1, SECRET)]))
        assert raised.value.reason is reason
        assert raised.value.is_retryable
        assert len(endpoint.received) == 1


async def test_a_huge_answer_is_not_read_to_its_end() -> None:
    failure, _ = await fails(faulty.endless)
    assert failure.reason is FailureReason.BAD_ANSWER


@pytest.mark.parametrize(
    "body",
    [
        completion("Error: HTTP 500, rate limit exceeded, said the tool."),
        completion("Text beside a call.", "tool_calls", tool_calls=[{"id": "1"}]),
        completion(
            [{"type": "thinking", "thinking": []}, {"type": "text", "text": "In "}, {"type": "text", "text": "parts."}]
        ),
    ],
)
async def test_a_text_is_an_answer_whatever_it_says(body: dict[str, Any]) -> None:
    answer, _ = await ask(status(200, body))
    assert answer.text


async def test_an_answer_that_was_cut_ends_with_its_last_sentence() -> None:
    async with serving(status(200, completion("It is Atlas. It ships on Fri", "length"))) as (summarizer, _):
        folded = await fold(summarizer, request([said(1, SECRET)]))
    assert folded.text == "It is Atlas."


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"base_url": "api.openai.com/v1"}, "https://"),
        ({"base_url": "ftp://api.openai.com"}, "https://"),
        ({"base_url": "http://me:secret@localhost/v1"}, "environment"),
        ({"model": ""}, "model"),
        ({"key_variable": "MY_KEY"}, "MY_KEY"),
        ({"key_variable": "BAD_KEY"}, "BAD_KEY"),
        ({"input_limit": 1_000}, "1,024"),
        ({"attempts": 0}, "positive"),
        ({"timeout": 0}, "positive"),
    ],
)
def test_settings_that_cannot_work_say_what_to_set(
    arguments: dict[str, Any], advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAD_KEY", "sk-\n1")
    with pytest.raises(ValueError, match=advice) as raised:
        OpenAISummarizer(**({"base_url": "http://localhost/v1", "model": "model"} | arguments))
    assert "secret" not in str(raised.value)
    assert "sk-" not in str(raised.value)


async def test_the_key_does_not_show() -> None:
    async with serving(GOOD) as (summarizer, _):
        assert KEY not in repr(summarizer)
        assert KEY not in repr(vars(summarizer))
