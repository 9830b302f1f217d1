"""What a watch tells, for the protocol."""

from __future__ import annotations

from memoryd.v1 import history_service_pb2 as pb
from memoryd_server.engine.watching import Happening
from memoryd_server.services.message_codec import encode_message, encode_time


def encode_happening(happening: Happening, into: pb.WatchEvent) -> None:
    """Writes what happened into an empty protocol message."""
    into.kind = happening.kind  # type: ignore[assignment]  # The values are the same.
    into.from_seq = happening.from_seq
    into.to_seq = happening.to_seq
    if happening.message is not None:
        encode_message(happening.message, into.message)
    if happening.at is not None:
        encode_time(happening.at, into.event_time)
    into.resume_token = happening.resume_token
