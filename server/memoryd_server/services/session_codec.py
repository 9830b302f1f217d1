"""Sessions between the protocol and the engine."""

from __future__ import annotations

from typing import Final

from memoryd.v1 import history_service_pb2, session_pb2
from memoryd_server.engine import tokens
from memoryd_server.engine.changes import SessionSettings, SessionUpdate, etag_of
from memoryd_server.engine.errors import field_invalid
from memoryd_server.services import calls
from memoryd_server.services.message_codec import decode_duration, encode_duration, encode_time
from memoryd_server.services.policy_codec import (
    POLICY_PATHS,
    decode_policy,
    encode_policy,
    mask_paths,
    policy_update,
)
from memoryd_server.stores.records import Record, SessionKey

_TOKENIZERS: Final = {
    session_pb2.TOKENIZER_O200K_BASE: tokens.O200K_BASE,
    session_pb2.TOKENIZER_CL100K_BASE: tokens.CL100K_BASE,
    session_pb2.TOKENIZER_ESTIMATE: tokens.ESTIMATE,
}
_TOKENIZER_VALUES: Final = {name: value for value, name in _TOKENIZERS.items()}

_UPDATE_PATHS: Final = ("user_id", "labels", "ttl", *POLICY_PATHS)


def decode_key(key: session_pb2.SessionKey) -> SessionKey:
    """The name of a session, in the caller's tenant."""
    return SessionKey(calls.tenant(), key.agent, key.session_id)


def decode_settings(settings: history_service_pb2.SessionSettings) -> SessionSettings:
    """What a session is created with. Raises: RequestError FIELD_INVALID for an unknown value of an enum."""
    tokenizer = _TOKENIZERS.get(settings.tokenizer)
    if settings.tokenizer and tokenizer is None:
        raise field_invalid("create.tokenizer", f"{settings.tokenizer} is none of {', '.join(tokens.TOKENIZERS)}")
    return SessionSettings(
        user_id=settings.user_id,
        labels=dict(settings.labels),
        tokenizer=tokenizer,
        policy=decode_policy("create.policy", settings.policy),
        ttl=_decode_ttl("create.ttl", settings),
    )


def _decode_ttl(field: str, holder: history_service_pb2.SessionSettings | session_pb2.Session) -> int:
    """A time to live; 0 when there is none. Raises: RequestError FIELD_INVALID for one that would read as none."""
    if not holder.HasField("ttl"):
        return 0
    ttl = decode_duration(field, holder.ttl)
    if not ttl:
        raise field_invalid(field, "it is less than a second; leave it out for a session without an end")
    return ttl


def decode_update(request: history_service_pb2.UpdateSessionRequest) -> SessionUpdate:
    """An update of a session. Raises: RequestError FIELD_INVALID."""
    session = request.session
    set_fields = [
        name
        for name, is_set in (
            ("user_id", bool(session.user_id)),
            ("labels", bool(session.labels)),
            ("ttl", session.HasField("ttl")),
            ("policy", session.HasField("policy")),
        )
        if is_set
    ]
    paths = mask_paths(request.update_mask.paths, set_fields, _UPDATE_PATHS)
    return SessionUpdate(
        user_id=session.user_id if "user_id" in paths else None,
        labels=dict(session.labels) if "labels" in paths else None,
        ttl=_decode_ttl("session.ttl", session) if "ttl" in paths else None,
        policy=policy_update(decode_policy("session.policy", session.policy), paths),
        etag=session.etag,
    )


def encode_session(key: SessionKey, record: Record, into: session_pb2.Session) -> None:
    """Writes a session into an empty protocol message."""
    into.key.agent = key.agent
    into.key.session_id = key.session_id
    into.user_id = record.user_id
    into.labels.update(record.labels)
    into.policy.SetInParent()
    encode_policy(record.policy, into.policy)
    into.tokenizer = _TOKENIZER_VALUES[record.tokenizer]
    into.message_count = record.messages
    into.token_count = record.tokens
    into.open_message_count = record.open_messages
    into.orphan_message_count = record.orphan_messages
    into.open_call_count = record.open_call_count
    into.unfinished_run_count = len(record.runs)
    into.last_seq = record.last_seq
    encode_time(record.created, into.create_time)
    encode_time(record.activity, into.activity_time)
    if record.ttl:
        encode_duration(record.ttl, into.ttl)
    if record.expires_at is not None:
        encode_time(record.expires_at, into.expire_time)
    into.etag = etag_of(record)
