"""Windows of a real server become valid input of OpenAI's Responses (invariant 6: windows are whole and valid)."""

from typing import Any

import pytest

from memoryd import AsyncMemoryClient, OpenCalls, from_openai_responses, new_id, to_openai_responses, tool, user
from tests.sdk.test_responses_fixtures import CASES

Item = dict[str, Any]


def _reasoning(id: str) -> Item:
    return {"type": "reasoning", "id": id, "summary": [], "encrypted_content": "x"}


def _answer(text: str) -> Item:
    return {
        "type": "message",
        "id": f"msg_{text}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _function(call_id: str) -> Item:
    return {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": "f", "arguments": "{}"}


SHELL = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "shell", "name": "shell", "input": "ls"}
SCREEN = {"type": "computer_call", "id": "cu_1", "call_id": "screen", "action": {}, "pending_safety_checks": []}
SHOT = {"type": "computer_call_output", "call_id": "screen", "output": {"type": "computer_screenshot"}}
CLICK = {"type": "computer_call", "id": "cu_2", "call_id": "click", "action": {}, "pending_safety_checks": []}
REQUEST = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}", "server_label": "s"}
APPROVAL = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
PROGRAM = {"type": "program", "id": "prog_1", "call_id": "program", "code": "f()", "fingerprint": "x"}
PROGRAMS = {"type": "program_output", "id": "po_1", "call_id": "program", "result": "1", "status": "completed"}
FIND = {"type": "tool_search_call", "call_id": "find", "execution": "client", "arguments": {}}
FOUND = {"type": "tool_search_output", "call_id": "find", "execution": "client", "tools": []}

HISTORY = [
    *from_openai_responses(
        [
            *({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Go."}),
            *(_reasoning("rs_1"), _answer("a"), _function("a"), _function("b")),
            {"type": "function_call_output", "call_id": "b", "output": "2"},
            {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}]},
            *(_reasoning("rs_2"), SHELL),
        ]
    ),
    tool("shell", "a.txt"),
    *from_openai_responses([_reasoning("rs_3"), SCREEN, SHOT, _reasoning("rs_4"), CLICK]),
    user("Stop, what else?"),
    *from_openai_responses([REQUEST, APPROVAL, _answer("c"), _reasoning("rs_5")]),
    user("And?"),
    *from_openai_responses([_reasoning("rs_6"), PROGRAM, _function("p")]),
    tool("p", "1"),
    *from_openai_responses([PROGRAMS, _reasoning("rs_7"), FIND, FOUND, _answer("d"), _function("open")]),
    user("Thanks!"),
]


def _faults(items: list[Item], *, open_calls: OpenCalls) -> list[str]:
    """What the API would complain of."""
    faults = []
    calls: dict[str, str] = {}
    requests = set()
    outputs_of = {"tool_search_call": "tool_search_output"}
    for item, following in zip(items, [*items[1:], {"role": "user"}], strict=True):
        match item:
            case {"type": "reasoning", "id": str(id)}:
                if "output" in following.get("type", "") or following.get("role", "assistant") != "assistant":
                    faults.append(f"item {id} was provided without its required following item")
            case {"type": "mcp_approval_request", "id": str(id)}:
                requests.add(id)
            case {"type": "mcp_approval_response", "approval_request_id": str(id)} if id not in requests:
                faults.append(f"no approval request {id}")
            case {"type": str(kind), "call_id": str(id)} if kind.endswith("_output"):
                if calls.pop(id, None) != kind:
                    faults.append(f"no call found for {kind} {id}")
            case {"type": str(kind), "call_id": str(id)}:
                calls[id] = outputs_of.get(kind, f"{kind}_output")
    if open_calls is not OpenCalls.KEEP:
        faults += [f"no output found for call {call_id}" for call_id in calls]
    return faults


@pytest.mark.parametrize("open_calls", OpenCalls)
async def test_every_window_of_a_history_is_valid_input(memory: AsyncMemoryClient, open_calls: OpenCalls) -> None:
    session = memory.session(agent="responses", id=new_id())
    await session.append_all(HISTORY)
    shown = set()
    for messages in range(1, len(HISTORY) + 1):
        window = await session.window(messages=messages, open_calls=open_calls)
        items = to_openai_responses(window)
        assert _faults(items, open_calls=open_calls) == []
        shown |= {item.get("type", "message") for item in items}
    assert {"reasoning", "function_call_output", "custom_tool_call_output", "computer_call_output"} < shown


async def test_a_window_of_one_token_limit_is_shortened_and_valid(memory: AsyncMemoryClient) -> None:
    """Texts are cut in the middle, items stay items."""
    session = memory.session(agent="responses", id=new_id())
    long = {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "word " * 5_000}]}
    await session.append(*from_openai_responses([_reasoning("rs_1"), _function("a"), long]))
    window = await session.window(tokens=400)
    reasoning, call, output = to_openai_responses(window)
    assert (reasoning, call) == (_reasoning("rs_1"), _function("a"))
    assert 0 < len(output["output"][0]["text"]) < 2_000
    assert "shortened" in output["output"][0]["text"]


async def test_items_of_the_fixtures_come_back_from_a_server(memory: AsyncMemoryClient) -> None:
    items = [item for case in CASES.values() for item in case.get("items", ())]
    session = memory.session(agent="responses", id=new_id())
    await session.append_all(from_openai_responses(items))
    assert to_openai_responses([message async for message in session.messages()]) == items
