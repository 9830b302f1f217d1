"""Summaries by a model behind any OpenAI-compatible endpoint (design section 6)."""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx2
import msgspec
import tenacity

from memoryd_server.limits import MIB
from memoryd_server.summarizers import prompt
from memoryd_server.summarizers.base import (
    OPENAI,
    FailureReason,
    SummarizerError,
    SummaryAnswer,
    SummaryRequest,
)
from memoryd_server.summarizers.folding import LEAST_INPUT_TOKENS

DEFAULT_KEY_VARIABLE: Final = "OPENAI_API_KEY"
DEFAULT_TIMEOUT_SECONDS: Final = 60.0
"""A summary of 1,000 tokens takes a hosted model 10 to 30 s."""
DEFAULT_ATTEMPTS: Final = 4
DEFAULT_INPUT_LIMIT: Final = 24_000
"""Tokens: fits models with a context of 32,768 beside a long answer, whose vocabulary may count a fifth more."""

MAX_ANSWER_BYTES: Final = 1 * MIB
"""Bytes of an answer that are read: a summary of 8,000 tokens has some 40,000."""

_LEAST_ANSWER_TOKENS: Final = 256
_BACKOFF_SECONDS: Final = 0.5
_LONGEST_BACKOFF_SECONDS: Final = 8.0

LimitParameter = Literal["max_tokens", "max_completion_tokens"]

_TRANSIENT: Final = (FailureReason.UNREACHABLE, FailureReason.OVERLOADED, FailureReason.TIMEOUT)
"""What is tried again within a call; each other answer has cost a whole run of the model."""

_RETRYABLE_STATUSES: Final = (408, 409, 425)
"""Beside 429 and all from 500 on: timeout, a conflict of locks, too early."""

_TOO_LONG_CODES: Final = ("context_length_exceeded", "exceed_context_size_error", "string_above_max_length")
_TOO_LONG_WORDS: Final = re.compile(
    r"context (?:length|size|window)|maximum context|too many (?:input )?tokens|(?:prompt|input) is too long",
    re.IGNORECASE,
)
"""How endpoints without such a code say it."""

_WORD: Final = re.compile(r"[a-z][a-z_.]{1,63}")
"""Codes and names of parameters; anything else in an answer may quote the conversation or the key."""


class _Part(msgspec.Struct):
    type: str = ""
    text: str = ""


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    model: str = ""
    usage: _Usage | None = None


class _ErrorBody(msgspec.Struct):
    message: str = ""
    code: str | int | None = None
    type: str | None = None
    param: str | None = None


class _Error(msgspec.Struct):
    error: _ErrorBody


_COMPLETION: Final = msgspec.json.Decoder(_Completion)
_ERROR: Final = msgspec.json.Decoder(_Error)


class OpenAISummarizer:
    """Asks `POST {base_url}/chat/completions`. Nothing of what it sends or gets is logged, nor told in errors."""

    name = OPENAI

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        key_variable: str | None = DEFAULT_KEY_VARIABLE,
        input_limit: int = DEFAULT_INPUT_LIMIT,
        answer_limit: int | None = None,
        limit_parameter: LimitParameter | None = "max_tokens",
        parameters: Mapping[str, Any] | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        attempts: int = DEFAULT_ATTEMPTS,
        backoff: float = _BACKOFF_SECONDS,
    ) -> None:
        """The arguments are what settings give.

        `base_url`: with the version, such as `https://api.openai.com/v1`. `key_variable`: the environment variable that
        holds the key; None for an endpoint without one. `input_limit`: tokens of conversation in one request, at least
        `LEAST_INPUT_TOKENS`: the model's context less its answer and 500 for the instructions. `answer_limit`: tokens
        that the model may produce; by default twice a summary's limit, so that an answer is cut here, at a sentence,
        and not there; models that think first need thousands. `limit_parameter`: what that is called, as OpenAI's newer
        models ask for `max_completion_tokens`; None sends none. `parameters`: more of the request's body, such as
        `{"temperature": 0}`. `timeout`: seconds of one attempt. `attempts`: of one call, at least 1. `backoff`: seconds
        before the second attempt, on average half of it; it doubles up to 8 s.

        Raises: ValueError that says what to set.
        """
        url = urlsplit(base_url)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
            raise ValueError(
                "the base URL of the summarizer openai is not one: give one such as https://api.openai.com/v1"
            )
        if url.username is not None or url.password is not None:
            raise ValueError(
                "the base URL of the summarizer openai holds a user or a password: put the key into an environment "
                "variable and name that"
            )
        if not model:
            raise ValueError("the summarizer openai has no model: name one that the endpoint serves")
        if input_limit < LEAST_INPUT_TOKENS:
            raise ValueError(
                f"the input limit of the summarizer openai is {input_limit:,} tokens: give at least "
                f"{LEAST_INPUT_TOKENS:,}, since an earlier summary takes up to half of it"
            )
        if attempts < 1 or timeout <= 0 or (answer_limit is not None and answer_limit < 1):
            raise ValueError("attempts, timeout and answer limit of the summarizer openai have to be positive")
        self._model = model
        self._key_variable = key_variable
        self._input_limit = input_limit
        self._answer_limit = answer_limit
        self._limit_parameter = limit_parameter
        self._parameters = dict(parameters or {})
        self._timeout = timeout
        self._attempts = attempts
        self._backoff = tenacity.wait_random_exponential(multiplier=backoff, max=_LONGEST_BACKOFF_SECONDS)
        self._url = base_url.rstrip("/") + "/chat/completions"
        headers = {
            "Accept": "application/json",
            # Else a few bytes could become gigabytes before the limit is seen.
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            "User-Agent": "memoryd",
        }
        if key_variable is not None:
            headers["Authorization"] = f"Bearer {_key(key_variable)}"
        # The timeout of an attempt is ours: that of the library holds for each read by itself.
        self._client = httpx2.AsyncClient(headers=headers, timeout=None)

    @property
    def input_limit(self) -> int:
        return self._input_limit

    async def summarize(self, request: SummaryRequest) -> SummaryAnswer:
        body = await asyncio.to_thread(self._body, request)

        def wait(state: tenacity.RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            backoff = self._backoff(state)
            return max(backoff, getattr(error, "retry_after", None) or 0)

        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_is_transient),
            wait=wait,
            stop=tenacity.stop_after_attempt(self._attempts)
            | tenacity.stop_before_delay(request.deadline - time.monotonic()),
            reraise=True,
        )
        answer: SummaryAnswer = await attempts(self._attempt, body, request.deadline)
        return answer

    async def close(self) -> None:
        await self._client.aclose()

    def _body(self, request: SummaryRequest) -> bytes:
        asked = prompt.build(request.previous, request.messages, request.target_tokens)
        limit = self._answer_limit or max(2 * request.max_tokens, _LEAST_ANSWER_TOKENS)
        return msgspec.json.encode(
            {
                "model": self._model,
                "messages": [
                    {"role": "system", "content": asked.instructions},
                    {"role": "user", "content": asked.data},
                ],
                **({self._limit_parameter: limit} if self._limit_parameter else {}),
                **self._parameters,
            }
        )

    async def _attempt(self, body: bytes, deadline: float) -> SummaryAnswer:
        try:
            async with asyncio.timeout(min(self._timeout, deadline - time.monotonic())):
                status, headers, answer = await self._post(body)
        except TimeoutError as error:
            raise SummarizerError(
                FailureReason.TIMEOUT,
                f"the endpoint of the summarizer openai did not answer within {self._timeout:g} s, or by the deadline: "
                "give it more time, or a faster model",
                is_retryable=True,
            ) from error
        except httpx2.TransportError as error:
            raise SummarizerError(
                FailureReason.UNREACHABLE,
                f"the endpoint of the summarizer openai cannot be reached ({type(error).__name__}): check its base URL "
                "and whether it runs",
                is_retryable=True,
            ) from error
        if status == httpx2.codes.OK:
            return self._read(answer)
        raise self._failure(status, headers, answer)

    async def _post(self, body: bytes) -> tuple[int, httpx2.Headers, bytes]:
        async with self._client.stream("POST", self._url, content=body) as response:
            answer = bytearray()
            async for piece in response.aiter_bytes():
                answer += piece
                if len(answer) > MAX_ANSWER_BYTES:
                    raise _bad_answer(f"it is over {MAX_ANSWER_BYTES:,} bytes")
            return response.status_code, response.headers, bytes(answer)

    def _read(self, answer: bytes) -> SummaryAnswer:
        try:
            completion = _COMPLETION.decode(answer)
        except (msgspec.DecodeError, RecursionError):
            # The error would quote what it stumbled over.
            raise _bad_answer("it is not the JSON of a chat completion") from None
        if not completion.choices:
            raise _bad_answer("it has no choices")
        choice = completion.choices[0]
        content = choice.message.content
        if isinstance(content, list):
            content = "".join(part.text for part in content if part.type == "text")
        if choice.message.refusal or choice.finish_reason == "content_filter":
            raise _no_text("the model or its filter refused to summarize")
        if not content and choice.message.tool_calls:
            raise _no_text("the model answered with tool calls alone")
        is_cut = choice.finish_reason == "length"
        if not (content or "").strip() and is_cut:
            raise SummarizerError(
                FailureReason.EMPTY_ANSWER,
                "the model used up its tokens before it wrote any text, as models do that think first: raise the "
                "answer limit of the summarizer openai",
                is_retryable=True,
            )
        usage = completion.usage or _Usage()
        return SummaryAnswer(
            content or "",
            completion.model or self._model,
            input_tokens=usage.prompt_tokens,
            output_tokens=usage.completion_tokens,
            is_cut=is_cut,
        )

    def _failure(self, status: int, headers: httpx2.Headers, body: bytes) -> SummarizerError:
        told = _ErrorBody()
        with suppress(msgspec.DecodeError, RecursionError):
            told = _ERROR.decode(body).error
        words = [word for word in (told.code, told.type, told.param) if isinstance(word, str) and _WORD.fullmatch(word)]
        about = ", ".join([f"HTTP {status}", *words])
        if "insufficient_quota" in words:
            return _misconfigured(about, "the account has no quota left: raise it, or set another key")
        if status == httpx2.codes.TOO_MANY_REQUESTS:
            return _come_later(FailureReason.OVERLOADED, f"is asked too often: {about}", headers)
        if status >= httpx2.codes.INTERNAL_SERVER_ERROR or status in _RETRYABLE_STATUSES:
            return _come_later(FailureReason.UNREACHABLE, f"has an error of its own: {about}", headers)
        if (
            set(words) & set(_TOO_LONG_CODES)
            or status == httpx2.codes.CONTENT_TOO_LARGE
            or (status == httpx2.codes.BAD_REQUEST and _TOO_LONG_WORDS.search(told.message))
        ):
            return SummarizerError(
                FailureReason.INPUT_TOO_LONG,
                f"the model takes less than the {self._input_limit:,} tokens that the input limit of the summarizer "
                f"openai says: lower it ({about})",
                is_retryable=False,
            )
        return _misconfigured(about, self._advice(status))

    def _advice(self, status: int) -> str:
        match status:
            case httpx2.codes.UNAUTHORIZED if self._key_variable is None:
                return "the endpoint asks for a key: name the environment variable that holds it"
            case httpx2.codes.UNAUTHORIZED:
                return f"the endpoint refuses the key: set a valid one in {self._key_variable}"
            case httpx2.codes.FORBIDDEN:
                return f"the key may not use the model {self._model}: allow it, or set another key or model"
            case httpx2.codes.NOT_FOUND | httpx2.codes.METHOD_NOT_ALLOWED:
                return (
                    f"there is no model {self._model} or no such address: set a model that the endpoint serves, and a "
                    "base URL with its version, such as https://api.openai.com/v1"
                )
            case _ if status < httpx2.codes.BAD_REQUEST:
                return "the endpoint is elsewhere: set the base URL that it points to"
            case _:
                return "the endpoint refuses the request: set model and parameters to what it takes"


def _key(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ValueError(
            f"the summarizer openai has no key: set {variable}, name another variable, or none for an endpoint without "
            "keys"
        )
    if not key.isascii() or not key.isprintable():
        raise ValueError(f"{variable} holds no key: it has characters that no HTTP header can carry")
    return key


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, SummarizerError) and error.reason in _TRANSIENT


def _come_later(reason: FailureReason, what: str, headers: httpx2.Headers) -> SummarizerError:
    wait = retry_after(headers, datetime.now(UTC))
    if wait is not None and reason is FailureReason.UNREACHABLE:
        reason = FailureReason.OVERLOADED
    return SummarizerError(reason, f"the endpoint of the summarizer openai {what}", is_retryable=True, retry_after=wait)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds that a response asks to wait: `Retry-After` in seconds or as a date, by the clock that the response
    shows where it does; None when it does not say.
    """
    value = headers.get("retry-after", "").strip()
    for text, unit in ((headers.get("retry-after-ms", ""), 1_000), (value, 1)):
        with suppress(ValueError):
            if math.isfinite(seconds := float(text) / unit):
                return max(0.0, seconds)
    with suppress(ValueError):
        until = _as_utc(parsedate_to_datetime(value))
        with suppress(ValueError):
            now = _as_utc(parsedate_to_datetime(headers.get("date", "")))
        return max(0.0, (until - now).total_seconds())
    return None


def _as_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _misconfigured(about: str, advice: str) -> SummarizerError:
    return SummarizerError(FailureReason.MISCONFIGURED, f"{advice} ({about})", is_retryable=False)


def _bad_answer(why: str) -> SummarizerError:
    return SummarizerError(
        FailureReason.BAD_ANSWER,
        f"the endpoint of the summarizer openai answers otherwise than it should: {why}",
        is_retryable=True,
    )


def _no_text(why: str) -> SummarizerError:
    return SummarizerError(FailureReason.NO_TEXT, f"no text came from the summarizer openai: {why}", is_retryable=True)
