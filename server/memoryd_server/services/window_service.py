"""WindowService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from memoryd.v1 import policy_pb2, window_service_pb2_grpc
from memoryd.v1 import window_service_pb2 as pb
from memoryd_server.engine import loading
from memoryd_server.engine.loading import WindowRequest
from memoryd_server.engine.stores import Stores
from memoryd_server.engine.windows import WindowStats
from memoryd_server.interceptors.wrapping import Context
from memoryd_server.services.calls import deadline_of, runtime_of
from memoryd_server.services.encoded_messages import EncodedMessages
from memoryd_server.services.message_codec import encode_messages, is_quickly_encoded
from memoryd_server.services.policy_codec import decode_options
from memoryd_server.services.session_codec import decode_key
from memoryd_server.stores.records import Usability

_REASONS: Final = {
    Usability.ORPHAN: pb.LEFT_OUT_REASON_ORPHAN_RESULT,
    Usability.OPEN: pb.LEFT_OUT_REASON_OPEN_TOOL_CALL,
}


class WindowService(window_service_pb2_grpc.WindowServiceServicer):
    """Cuts windows."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._encoded = EncodedMessages()

    async def LoadWindow(self, request: pb.LoadWindowRequest, context: Context) -> pb.LoadWindowResponse:
        messages, stats = await loading.load(runtime_of(self._stores), _decode(request), deadline=deadline_of(context))
        response = pb.LoadWindowResponse()
        if is_quickly_encoded(messages):
            self._encoded.encode(stats.life, messages, stats.shortened, response.messages)
        else:
            await encode_messages(messages, response.messages)
        _encode_stats(stats, response.stats)
        return response

    async def StreamWindow(
        self, request: pb.StreamWindowRequest, context: Context
    ) -> AsyncIterator[pb.StreamWindowResponse]:
        pieces = loading.stream(runtime_of(self._stores), _decode(request), deadline=deadline_of(context))
        async for messages, stats in pieces:
            response = pb.StreamWindowResponse()
            await encode_messages(messages, response.messages)
            if stats is not None:
                _encode_stats(stats, response.stats)
            yield response


def _decode(request: pb.LoadWindowRequest | pb.StreamWindowRequest) -> WindowRequest:
    return WindowRequest(
        key=decode_key(request.session),
        options=decode_options("options", request.options),
        explain=request.explain,
        summary=request.summary if request.HasField("summary") else None,
        wait=request.wait_for_summary if request.HasField("wait_for_summary") else None,
    )


def _encode_stats(stats: WindowStats, into: pb.WindowStats) -> None:
    into.history_message_count = stats.history_messages
    into.history_token_count = stats.history_tokens
    into.window_message_count = stats.window_messages
    into.window_token_count = stats.window_tokens
    into.mode = policy_pb2.WindowMode.ValueType(stats.settings.mode)
    into.limit = stats.settings.limit
    into.limit_used_percent = stats.used_percent
    left_out = into.left_out
    left_out.limit_count = stats.left_out.limit_count
    left_out.limit_from_seq = stats.left_out.limit_from_seq
    left_out.limit_to_seq = stats.left_out.limit_to_seq
    left_out.orphan_result_count = stats.left_out.orphan_count
    left_out.open_tool_call_count = stats.left_out.open_count
    for entry in stats.explained:
        left_out.messages.add(seq=entry.seq, reason=_REASONS[entry.usability])
    into.uncovered_message_count = stats.uncovered
    into.over_limit = stats.over_limit
    into.shortened_seqs.extend(stats.shortened)
    into.summary_state = pb.SummaryState.ValueType(stats.summary_state)
    into.summary_id = stats.summary_id
    into.summary_failure = stats.summary_failure
    into.prefix_digest = stats.prefix_digest
    into.pinned_message_count = stats.pins
    into.last_seq = stats.last_seq
    into.first_seq = stats.first_seq
