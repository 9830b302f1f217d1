"""From a task to a summary that can be committed."""

from __future__ import annotations

import asyncio
import time

from memoryd_server import limits
from memoryd_server.engine import tokens
from memoryd_server.engine.folding import Task
from memoryd_server.engine.policies import FoldSettings
from memoryd_server.engine.sources import source_messages
from memoryd_server.engine.summary_changes import Made
from memoryd_server.engine.summary_messages import heading_tokens, price
from memoryd_server.engine.tokens import Count
from memoryd_server.summarizers import answers
from memoryd_server.summarizers.base import Summarizer, SummaryRequest
from memoryd_server.summarizers.folding import fold


async def request_for(task: Task, settings: FoldSettings) -> SummaryRequest:
    """What a summarizer is asked for a task."""
    count = await tokens.ready_counter(task.fold.read_in.tokenizer)
    sources = await asyncio.to_thread(source_messages, task.messages)
    most = text_limit(settings, count)
    return SummaryRequest(
        messages=sources,
        target_tokens=most,
        max_tokens=most,
        count=count,
        deadline=time.monotonic() + limits.FOLD_SECONDS,
        previous=task.previous.text if task.previous else None,
    )


def text_limit(settings: FoldSettings, count: Count) -> int:
    """The most tokens of a summary's text: with its heading, it is as long as the policy allows."""
    return max(1, settings.max_tokens - heading_tokens(count))


async def summarize(summarizer: Summarizer, task: Task, settings: FoldSettings) -> Made:
    """Makes the summary of a task with a summarizer of the server. Raises: SummarizerError."""
    request = await request_for(task, settings)
    folded = await fold(summarizer, request)
    return await asyncio.to_thread(made, folded.text, summarizer.name, folded.model, settings, request.count)


async def accepted(text: str, name: str, model: str, settings: FoldSettings, tokenizer: str) -> Made:
    """The summary that a client's own model made. Raises: SummarizerError for an empty one."""
    count = await tokens.ready_counter(tokenizer)

    def accept() -> Made:
        kept = answers.accept(text, text_limit(settings, count), count)
        return made(kept, name, model, settings, count)

    return await asyncio.to_thread(accept)


def made(text: str, summarizer: str, model: str, settings: FoldSettings, count: Count) -> Made:
    """A text with its prices. Long texts are not for the event loop."""
    message_tokens, message_size = price(text, count)
    return Made(
        text=text,
        summarizer=summarizer,
        model=model,
        output_tokens=count(text),
        message_tokens=message_tokens,
        message_size=message_size,
        retention=settings.retention,
    )
