"""Messages that are remembered encoded are those that would be encoded anew (invariant 4)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from memoryd.v1 import window_service_pb2
from memoryd_server.engine.content import Text, encode_parts
from memoryd_server.services import encoded_messages
from memoryd_server.services.encoded_messages import EncodedMessages
from memoryd_server.services.message_codec import encode_message
from memoryd_server.stores.records import Role, StoredMessage, Usability

LIFE = ("incarnation", 1)


def stored(seq: int, text: str = "hello", *, size: int = 100) -> StoredMessage:
    return StoredMessage(
        seq=seq,
        head=seq,
        position=0,
        usability=Usability.USABLE,
        role=Role.USER,
        tokens=5,
        size=size,
        calls=0,
        answers=(),
        prior_user=0,
        id=f"message-{seq}",
        name=None,
        content=encode_parts([Text(text)]),
        run_id="",
        metadata="",
        extra="",
        created=1_700_000_000_000_000,
    )


def fresh(messages: Sequence[StoredMessage]) -> window_service_pb2.LoadWindowResponse:
    response = window_service_pb2.LoadWindowResponse()
    for message in messages:
        encode_message(message, response.messages.add())
    return response


def remembered(
    encoded: EncodedMessages,
    messages: Sequence[StoredMessage],
    life: tuple[str, int] = LIFE,
    changed: Sequence[int] = (),
) -> window_service_pb2.LoadWindowResponse:
    response = window_service_pb2.LoadWindowResponse()
    encoded.encode(life, messages, changed, response.messages)
    return response


def test_what_is_remembered_is_what_would_be_encoded() -> None:
    encoded = EncodedMessages()
    messages = [stored(1), stored(2, "漢字 👋"), stored(3, "")]
    assert remembered(encoded, messages) == fresh(messages)
    assert remembered(encoded, messages) == fresh(messages)


def test_a_shortened_message_is_shown_as_it_is_now_and_not_remembered() -> None:
    encoded = EncodedMessages()
    whole, cut = stored(1, "a long text"), stored(1, "a … text")
    assert remembered(encoded, [cut], changed=[1]) == fresh([cut])
    assert remembered(encoded, [whole]) == fresh([whole])
    assert remembered(encoded, [cut], changed=[1]) == fresh([cut])


def test_synthesized_results_share_no_memory() -> None:
    """They have no seq."""
    encoded = EncodedMessages()
    one, other = (msgspec.structs.replace(stored(1, text), seq=0) for text in ("one", "other"))
    assert remembered(encoded, [one, other]) == fresh([one, other])


@pytest.mark.parametrize("other_life", [("incarnation", 2), ("another incarnation", 1)])
def test_nothing_of_another_life_or_epoch_is_shown(other_life: tuple[str, int]) -> None:
    encoded = EncodedMessages()
    before, after = stored(1, "before"), stored(1, "after")
    assert remembered(encoded, [before]) == fresh([before])
    assert remembered(encoded, [after], other_life) == fresh([after])
    assert remembered(encoded, [before]) == fresh([before])


def test_what_is_held_is_bounded_and_what_is_used_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_messages, "GENERATION_BYTES", 3_000)
    encoded = EncodedMessages()
    used = stored(1, "used")
    for seq in range(2, 200):
        remembered(encoded, [used, stored(seq)])
        held = [*encoded._younger.values(), *encoded._older.values()]
        assert sum(map(len, held)) < 2 * 3_000
        assert (LIFE, 1) in {**encoded._younger, **encoded._older}


def test_a_large_message_is_not_held() -> None:
    encoded = EncodedMessages()
    large = stored(1, "x" * 20_000, size=20_000)
    assert remembered(encoded, [large]) == fresh([large])
    assert not encoded._younger
