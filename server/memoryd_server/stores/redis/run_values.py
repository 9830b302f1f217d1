"""Runs and their steps as bytes, and back. `lua/runs.lua` reads the same places."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from memoryd_server.stores.base import RunChange
from memoryd_server.stores.records import (
    RunState,
    RunStatus,
    SessionKey,
    StoredRun,
    StoredStep,
    decode_run_head,
    decode_run_state,
    encode_run_head,
    encode_run_state,
)
from memoryd_server.stores.redis.members import number, runs_of

_ENDED: Final = slice(24, 32)
_STATUS: Final = 32
_CLAIMABLE: Final = slice(33, 42)
_STATE: Final = slice(42, None)
"""Where these are in the value of a run."""

_NEVER: Final = b"0" + number(0)
_STEP_BEGIN: Final = struct.Struct(">H")
_SIZE: Final = struct.Struct(">I")


class _Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    payload: bytes
    content_type: str
    created: int
    fence: int
    status: RunStatus
    first_seq: int
    messages: int


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(_Step).decode


def values_of_run(key: SessionKey, change: RunChange) -> tuple[bytes, bytes, bytes, bytes]:
    """The four values of a run, as the script `commit` takes them."""
    head, begin = b"", b""
    if change.head is not None:
        head = encode_run_head(change.head).encode()
        if change.begins:
            begin = runs_of(key.tenant, key.agent) + number(change.head.created)
    return change.run_id.encode(), begin, _state_value(change.state), head


def _state_value(state: RunState) -> bytes:
    at = state.claimable_at
    claimable = _NEVER if at is None else b"1" + number(at)
    return number(state.ended) + bytes([state.status]) + claimable + encode_run_state(state).encode()


def status_of(value: bytes) -> int:
    """The status that the value of a run tells."""
    return value[_STATUS]


def ended_then(value: bytes, at: bytes) -> bool:
    """Whether the value of a run tells that it ended then."""
    return value[_ENDED] == at


def is_claimable_from(value: bytes, at: bytes) -> bool:
    """Whether the value of a run tells that anybody may claim it from then on."""
    return value[_CLAIMABLE] == b"1" + at


def of_run(run_id: str, value: bytes, head: bytes) -> StoredRun:
    """The run of its stored value and head."""
    return StoredRun(run_id, decode_run_head(head), decode_run_state(value[_STATE]))


def values_of_step(step: StoredStep) -> tuple[bytes, bytes, bytes]:
    """The three values of a step, as the script `commit` takes them."""
    run = step.run_id.encode()
    value = _ENCODE(
        _Step(step.payload, step.content_type, step.created, step.fence, step.status, step.first_seq, step.messages)
    )
    return _STEP_BEGIN.pack(len(run)) + run + number(step.number), _SIZE.pack(len(step.payload)), value


def of_step(run_id: str, place: bytes, value: bytes) -> StoredStep:
    """The step of a number and a stored value."""
    step = _DECODE(value)
    return StoredStep(
        run_id,
        int.from_bytes(place, "big"),
        step.payload,
        step.content_type,
        step.created,
        step.fence,
        step.status,
        step.first_seq,
        step.messages,
    )
