"""Media in the forms that providers' JSON has for them: base64 text, data URLs, URLs and file ids."""

import base64
import binascii
import re

from memoryd.jsontext import encodable
from memoryd.messages import Media

ANY_IMAGE = "image/*"
"""The type of an image that is given by reference, whose exact type is not said."""

_DATA_URL = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def base64_bytes(text: str) -> bytes | None:
    """The bytes of base64 text; None when encoding them would not give exactly that text."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64_text(data) == text else None


def base64_text(data: bytes) -> str:
    """The base64 text of bytes."""
    return base64.b64encode(data).decode("ascii")


def data_url_media(url: str) -> Media | None:
    """The media in a base64 data URL; None for other URLs, and where `data_url` would not give exactly that one."""
    found = _DATA_URL.fullmatch(url)
    data = base64_bytes(found[2]) if found else None
    return None if found is None or data is None or not encodable(found[1]) else Media(found[1], data=data)


def data_url(type: str, data: bytes) -> str:
    """The data URL of bytes."""
    return f"data:{type};base64,{base64_text(data)}"


def is_url(uri: str) -> bool:
    """Whether a reference is a URL, and not a provider's file id."""
    return ":" in uri


def mention(media: Media) -> str:
    """A text for media that a format has no form for."""
    kind = media.type or "file"
    return f"[{kind}: {media.uri}]" if media.data is None else f"[{kind}, {len(media.data)} bytes]"
