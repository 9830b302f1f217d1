"""What makes a window's items valid input of OpenAI's Responses, which refuses what lacks its counterpart."""

from collections.abc import Sequence
from typing import Any

from memoryd.jsontext import json_text

Source = dict[str, Any]

_OUTPUTS = {"tool_search_call": "tool_search_output", "program": "program_output"}
"""The types of outputs that are not the type of their call with `_output`."""
_TEXT_CALLS = ("function_call", "custom_tool_call")
"""The calls whose outputs have one form, but for the type."""
_TEXT_OUTPUTS = ("function_call_output", "custom_tool_call_output")
"""The outputs of these."""


def paired(items: Sequence[Source]) -> list[Source]:
    """The items, each with what the API wants it to stand with.

    An output is of the type that its call asks for: what was answered by hand, or for want of an answer, does not know
    it. A call that such an answer cannot be given to (a computer's, which wants a screenshot) becomes a function's.
    What has no counterpart is left out: outputs and approvals of what is not here, and reasoning that nothing follows.
    """
    shown: list[Source | None] = []
    calls: dict[str, int] = {}
    approvals: set[Any] = set()
    for item in items:
        kind, call_id = _kind(item), call_id_of(item)
        place = len(shown)
        shown.append(item)
        if kind == "mcp_approval_request":
            approvals.add(item.get("id"))
        elif kind == "mcp_approval_response":
            if item.get("approval_request_id") not in approvals:
                shown[place] = None
        elif not isinstance(call_id, str):
            continue
        elif not kind.endswith("_output"):
            calls[call_id] = place
        elif (at := calls.pop(call_id, None)) is None or (call := shown[at]) is None:
            shown[place] = None
        else:
            shown[at], shown[place] = _answered(call, item)
    return _without_loose_reasoning([item for item in shown if item is not None])


def call_id_of(item: Source) -> Any:
    """The id that an item shares with its call. The API has another key for that of a local shell's output."""
    return item.get("id" if item.get("type") == "local_shell_call_output" and "call_id" not in item else "call_id")


def _kind(item: Source) -> str:
    kind = item.get("type", "message")
    return kind if isinstance(kind, str) else ""


def _answered(call: Source, output: Source) -> tuple[Source, Source]:
    """A call and its output, in types that go together."""
    kind, given = _kind(call), _kind(output)
    wanted = _OUTPUTS.get(kind, f"{kind}_output")
    if given == wanted:
        return call, output
    call_id = call_id_of(output)
    if kind not in _TEXT_CALLS:
        call = {"type": "function_call", "call_id": call_id, "name": kind, "arguments": json_text(call)}
        wanted = "function_call_output"
    if given not in _TEXT_OUTPUTS:
        output = {"type": wanted, "call_id": call_id, "output": json_text(output)}
    return call, output | {"type": wanted}


def _without_loose_reasoning(items: Sequence[Source]) -> list[Source]:
    """The items without reasoning that no item of the model follows."""
    left: list[Source] = []
    follows = False
    for item in reversed(items):
        kind = _kind(item)
        if kind == "reasoning":
            if follows:
                left.append(item)
            continue
        by_other = kind == "mcp_approval_response" or kind.endswith("_output")
        follows = item.get("role") == "assistant" if kind == "message" else not by_other
        left.append(item)
    return left[::-1]
