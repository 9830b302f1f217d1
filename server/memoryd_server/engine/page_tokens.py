"""Page and resume tokens: opaque, bound to store, tenant and query, without authority (design section 3, AIP-158)."""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec

from memoryd_server.engine.errors import Reason, RequestError

T = TypeVar("T")

_MAC_BYTES: Final = 16
_MAX_TOKEN_CHARACTERS: Final = 4_096
"""No token of ours is longer: more is refused before it is decoded."""


def _mac(secret: bytes, payload: bytes, query: tuple[Any, ...]) -> bytes:
    return blake2b(payload + msgspec.msgpack.encode(query), key=secret, digest_size=_MAC_BYTES).digest()


def make(secret: bytes, query: tuple[Any, ...], position: Any) -> str:
    """A token for `position` (anything that msgpack holds) of `query` (what must be the same on the next page)."""
    payload = msgspec.msgpack.encode(position)
    return _spell(_mac(secret, payload, query) + payload)


def _spell(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def read(
    secret: bytes,
    query: tuple[Any, ...],
    token: str,
    type_: type[T],
    *,
    field: str = "page_token",
    reason: Reason = Reason.PAGE_TOKEN_INVALID,
    advice: str = "send the next_page_token of an otherwise identical request, or start again without a token",
) -> T:
    """The position that `make` put into the token.

    Raises: RequestError with `reason` when the token is damaged, or is of another store, tenant or query.
    """
    try:
        if len(token) > _MAX_TOKEN_CHARACTERS:
            raise ValueError
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        payload = raw[_MAC_BYTES:]
        # Base64 has several spellings of the same bytes; only the one that we gave is our token.
        if raw[:_MAC_BYTES] != _mac(secret, payload, query) or token != _spell(raw):
            raise ValueError
        return msgspec.msgpack.decode(payload, type=type_)
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise RequestError(
            reason, f"{field} is not one that this store gave for this query: {advice}", field=field
        ) from error
