"""What the Python SDK answers, as the API's messages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message as ProtoMessage

import memoryd
from memoryd import enums
from memoryd.encoding import message_to_proto, policy_to_proto
from memoryd.v1 import (
    agent_service_pb2,
    error_reason_pb2,
    history_service_pb2,
    memory_context_service_pb2,
    run_service_pb2,
    session_pb2,
    store_service_pb2,
    summary_service_pb2,
    window_service_pb2,
)
from tests.conformance import conformance_pb2 as pb

_ENUMS: dict[str, enums.Numbers[Any]] = {
    "RunStatus": enums.RUN_STATUS,
    "Tokenizer": enums.TOKENIZER,
    "WindowMode": enums.WINDOW_MODE,
    "SummaryState": enums.SUMMARY_STATE,
    "LeftOutReason": enums.LEFT_OUT_REASON,
    "WatchEventKind": enums.WATCH_EVENT_KIND,
    "MemoryTierState": enums.TIER_STATE,
}


def fill(target: Any, value: Any, **names: str) -> Any:
    """Fills a message of the API from what the SDK answered, by the names of the fields. `names` gives the SDK's where
    they differ; an empty one leaves a field out. Returns: the message.
    """
    for field in target.DESCRIPTOR.fields:
        if name := names.get(field.name, field.name):
            _set(target, field, getattr(value, name))
    return target


def _set(target: ProtoMessage, field: FieldDescriptor, value: Any) -> None:
    if value is None:
        return
    if field.is_repeated:
        _set_many(target, field, value)
    elif isinstance(value, datetime):
        getattr(target, field.name).FromDatetime(value)
    elif isinstance(value, timedelta):
        getattr(target, field.name).FromTimedelta(value)
    elif isinstance(value, memoryd.Policy):
        getattr(target, field.name).CopyFrom(policy_to_proto(value))
    elif isinstance(value, memoryd.Message):
        getattr(target, field.name).CopyFrom(message_to_proto(value))
    elif field.enum_type is not None:
        setattr(target, field.name, _ENUMS[field.enum_type.name].number(value))
    elif field.message_type is not None:
        fill(getattr(target, field.name), value)
    else:
        setattr(target, field.name, value)


def _set_many(target: ProtoMessage, field: FieldDescriptor, values: Any) -> None:
    held = getattr(target, field.name)
    if isinstance(values, dict):
        held.update(values)
    elif field.message_type is None:
        held.extend(values)
    else:
        for value in values:
            fill(held.add(), value)


def messages(given: Iterable[memoryd.Message]) -> pb.Messages:
    return pb.Messages(messages=[message_to_proto(message) for message in given])


def appended(given: Iterable[memoryd.AppendedMessage]) -> pb.Appended:
    return pb.Appended(messages=[fill(history_service_pb2.AppendedMessage(), message) for message in given])


def session(info: memoryd.SessionInfo) -> session_pb2.Session:
    result: session_pb2.Session = fill(session_pb2.Session(), info, key="")
    result.key.agent, result.key.session_id = info.agent, info.session_id
    return result


def window(given: memoryd.Window) -> window_service_pb2.LoadWindowResponse:
    return window_service_pb2.LoadWindowResponse(
        messages=map(message_to_proto, given.messages),
        stats=fill(window_service_pb2.WindowStats(), given.stats),
    )


def summary(given: memoryd.Summary) -> summary_service_pb2.Summary:
    result: summary_service_pb2.Summary = fill(summary_service_pb2.Summary(), given)
    return result


def summaries(*given: memoryd.Summary | None) -> pb.Summaries:
    return pb.Summaries(summaries=[summary(one) for one in given if one is not None])


def summary_task(task: Any) -> summary_service_pb2.SummaryTask:
    """Of either client's task."""
    return summary_service_pb2.SummaryTask(
        session=session_pb2.SessionKey(agent=task.agent, session_id=task.session_id),
        previous_summary=task.previous,
        messages=map(message_to_proto, task.messages),
        instructions=task.instructions,
        input=task.input,
        target_tokens=task.target_tokens,
        max_tokens=task.max_tokens,
        attempts=task.attempts,
    )


def event(given: memoryd.WatchEvent) -> history_service_pb2.WatchEvent:
    result: history_service_pb2.WatchEvent = fill(history_service_pb2.WatchEvent(), given)
    return result


def rendered(context: memoryd.AsyncMemoryContext) -> pb.Rendered:
    state = (
        memory_context_service_pb2.MEMORY_CONTEXT_STATE_ENABLED
        if context.enabled
        else memory_context_service_pb2.MEMORY_CONTEXT_STATE_DISABLED
    )
    return pb.Rendered(
        prompt=context.prompt,
        context=memory_context_service_pb2.RenderMemoryContextResponse(
            state=state,
            block=context.block,
            instructions=context.instructions,
            user=_tier(context.user),
            project=_tier(context.project),
            warnings=context.warnings,
            tools=[memory_context_service_pb2.MemoryTool(name=name) for name in context.tools.names],
        ),
    )


def _tier(status: memoryd.TierStatus) -> memory_context_service_pb2.MemoryTierStatus:
    result: memory_context_service_pb2.MemoryTierStatus = fill(
        memory_context_service_pb2.MemoryTierStatus(),
        status,
        kept_line_count="kept_lines",
        dropped_line_count="dropped_lines",
    )
    return result


def memory_file(info: memoryd.MemoryFileInfo) -> memory_context_service_pb2.MemoryFile:
    result: memory_context_service_pb2.MemoryFile = fill(memory_context_service_pb2.MemoryFile(), info)
    return result


def memory_files(*given: memoryd.MemoryFileInfo) -> pb.MemoryFiles:
    return pb.MemoryFiles(files=map(memory_file, given))


def run(info: memoryd.RunInfo) -> run_service_pb2.Run:
    result: run_service_pb2.Run = fill(
        run_service_pb2.Run(),
        info,
        key="",
        status_reason="reason",
        step_count="steps",
        recovery_count="recoveries",
        lease_expire_time="lease_expires",
        create_time="created",
        update_time="updated",
        end_time="ended",
    )
    result.key.run_id = info.id
    result.key.session.agent, result.key.session.session_id = info.agent, info.session_id
    return result


def run_step(step: memoryd.RunStep) -> run_service_pb2.RunStep:
    result: run_service_pb2.RunStep = fill(run_service_pb2.RunStep(), step)
    return result


def held_run(held: memoryd.AsyncRun) -> pb.HeldRun:
    result = pb.HeldRun(
        status=enums.RUN_STATUS.number(held.status),
        step_count=held.steps,
        fence=held.fence,
        holder=held.holder,
        metadata=held.metadata,
        is_held=held.is_held,
    )
    result.key.run_id = held.id
    result.key.session.agent, result.key.session.session_id = held.session.agent, held.session.id
    return result


def agent(info: memoryd.AgentInfo) -> agent_service_pb2.Agent:
    result: agent_service_pb2.Agent = fill(agent_service_pb2.Agent(), info)
    return result


def store(info: memoryd.StoreInfo) -> store_service_pb2.Store:
    result: store_service_pb2.Store = fill(store_service_pb2.Store(), info)
    return result


def failure(error: memoryd.MemorydError) -> pb.Failure:
    """The SDK's error, as it has it."""
    result = pb.Failure(
        code=error.code.name,
        message=error.message,
        field=getattr(error, "field", ""),
        metadata=error.metadata,
        type=type(error).__name__,
    )
    if error.reason:
        result.reason = error_reason_pb2.ErrorReason.Value(f"ERROR_REASON_{error.reason}")
    if error.retry_after is not None:
        result.retry_after.FromTimedelta(timedelta(seconds=error.retry_after))
    return result
