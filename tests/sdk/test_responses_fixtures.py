"""The items of OpenAI's Responses are stored, and written, as the SDKs of other languages store and write them.

The cases are in a file that all of them read. Each has:

- `items`: items as the API has them, where there are such;
- `messages`: the messages that are made of them, as the JSON of the API's messages, without their ids;
- `gives`: the items that the messages give back, where these are not `items`;
- `window`: the items that a window of the messages gives, where these are others.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from memoryd import Message, from_openai_responses, message_from_proto, message_to_proto, to_openai_responses
from memoryd.v1.message_pb2 import Message as ProtoMessage
from tests.sdk.conversions import exact, window_of

FIXTURES = Path(__file__).parents[1] / "conformance" / "fixtures" / "openai_responses.json"
CASES: dict[str, dict[str, Any]] = {case["name"]: case for case in json.loads(FIXTURES.read_text(encoding="utf-8"))}
READ = {name: case for name, case in CASES.items() if "items" in case}


def _stored_form(message: Message) -> dict[str, Any]:
    form: dict[str, Any] = MessageToDict(message_to_proto(message))
    del form["id"]
    return form


def _messages(case: dict[str, Any]) -> list[Message]:
    forms = [{**form, "id": f"m{index}"} for index, form in enumerate(case["messages"])]
    return [message_from_proto(ParseDict(form, ProtoMessage())) for form in forms]


@pytest.mark.parametrize("case", READ.values(), ids=READ)
def test_items_become_the_messages_that_other_languages_make(case: dict[str, Any]) -> None:
    """Byte for byte, where a message holds text of JSON."""
    assert list(map(_stored_form, from_openai_responses(case["items"]))) == case["messages"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_messages_become_the_items_that_other_languages_make(case: dict[str, Any]) -> None:
    gives = case.get("gives", case.get("items"))
    assert exact(to_openai_responses(_messages(case))) == exact(gives)
    assert exact(to_openai_responses(window_of(_messages(case)))) == exact(case.get("window", gives))
