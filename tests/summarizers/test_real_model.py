"""A real, if small, model on a real OpenAI-compatible server (llama.cpp's)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest

from memoryd.v1.summary_service_pb2 import SummarizeRequest
from memoryd_server.engine.tokens import O200K_BASE, counter
from memoryd_server.stores.records import Role
from memoryd_server.summarizers.base import FailureReason, SummarizerError
from memoryd_server.summarizers.folding import fold
from memoryd_server.summarizers.openai import OpenAISummarizer
from tests.conftest import StartServer
from tests.service.summarized import CURRENT, HEADING, TURNS, load, set_policy, texts
from tests.service.wire import Stubs, new_key, text
from tests.summarizers.requests import request, said

ANSWER_TOKENS: Final = 24
"""It makes about 20 tokens a second where it has a processor to itself."""

pytestmark = pytest.mark.xdist_group("model")


@pytest.fixture
async def summarizer(model_url: str) -> AsyncIterator[OpenAISummarizer]:
    made = OpenAISummarizer(
        base_url=model_url, model="smollm2", key_variable=None, input_limit=2_048, answer_limit=ANSWER_TOKENS
    )
    yield made
    await made.close()


async def test_it_summarizes(summarizer: OpenAISummarizer) -> None:
    messages = [
        said(1, "My project is called Atlas."),
        said(2, "Nice! When does it ship?", Role.ASSISTANT),
        said(3, "It ships on Friday. The team is Ada, Grace and Linus."),
    ]
    folded = await fold(summarizer, request(messages, previous="The user is called Katherine.", target=60))
    assert folded.text
    assert folded.model
    assert folded.calls == 1
    assert folded.input_tokens is not None
    assert folded.output_tokens is not None
    assert folded.input_tokens > counter(O200K_BASE)("My project is called Atlas.")
    assert 0 < folded.output_tokens <= ANSWER_TOKENS


def test_a_server_folds_with_it(model_url: str, start_server: StartServer, agent: str) -> None:
    """What falls out of the window is in it as what the model made of it."""
    environment = {
        "MEMORYD_SUMMARIZER": "openai",
        "MEMORYD_OPENAI__BASE_URL": model_url,
        "MEMORYD_OPENAI__MODEL": "smollm2",
        "MEMORYD_OPENAI__KEY_VARIABLE": "",
        "MEMORYD_OPENAI__INPUT_LIMIT": "2048",
        "MEMORYD_OPENAI__ANSWER_LIMIT": f"{ANSWER_TOKENS}",
    }
    server = start_server("--store", "default=memory://", "--tokenizer", "estimate", environment=environment)
    key = new_key(agent)
    with Stubs(server.address) as stubs:
        stubs.append(key, *(text(said) for turn in TURNS for said in turn))
        set_policy(stubs, key)
        answer = stubs.summaries.Summarize(SummarizeRequest(session=key), timeout=120)
        assert answer.folded_message_count == 5
        assert answer.summary.summarizer == "openai"
        assert answer.summary.model
        assert answer.summary.output_token_count > 0
        found = load(stubs, key)
    assert texts(found) == [HEADING + answer.summary.text, TURNS[2][1], *TURNS[3]]
    assert found.stats.summary_state == CURRENT


async def test_what_is_beyond_its_context_is_refused_as_such(model_url: str) -> None:
    """So folding gives it less, whatever the settings say."""
    summarizer = OpenAISummarizer(base_url=model_url, model="smollm2", key_variable=None, input_limit=100_000)
    with pytest.raises(SummarizerError) as raised:
        await summarizer.summarize(request([said(1, "Atlas and more words. " * 1_500)]))
    assert raised.value.reason is FailureReason.INPUT_TOO_LONG
    await summarizer.close()
