"""URLs of stores as messages and logs may show them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

MASK: Final = "***"
"""What stands for a secret."""

ENCODING: Final = "Percent-encode what else than letters and digits its user and password hold: @ as %40, / as %2F."
"""What to do about a URL whose credentials end elsewhere than they should."""

_SECRET_KEYS: Final = re.compile(r"pass|pw|secret|token|key|credential|mechanismproperties", re.IGNORECASE)
"""In the names of options whose values may be secrets, or lead to them."""

_PORT: Final = re.compile(r"\d*(,[a-z0-9.-]+:\d+)*(?![^/?])", re.IGNORECASE)
"""A port, behind which a cluster's other hosts may follow, each with its own."""
_SCHEME: Final = re.compile(r"[a-z0-9+.-]+://", re.IGNORECASE)


def masked(url: str) -> str:
    """A store's URL without what may be a secret: its password, and the values of options such as `sslpassword`.

    Takes any text: what cannot be read as a URL, such as one with a password that is not percent-encoded, is masked
    rather too far than not far enough.
    """
    scheme = _SCHEME.match(url)
    start = scheme.end() if scheme else 0
    whole = url[start:]
    rest = _with_masked_options(whole)
    user, _, behind = whole.partition(":")
    if rest.startswith("/"):  # It goes on with a path, or with the name of a database.
        return url[:start] + rest
    if "@" in behind:
        # A password may hold others that are not encoded. None is left when they are in a masked option.
        _, at, place = rest[len(user) :].rpartition("@")
        rest = f"{user}:{MASK}{at}{place if at else ''}"
    elif scheme and not set("/?[") & set(user) and not _PORT.match(behind):
        rest = f"{user}:{MASK}"  # What looks like a port and is none.
    return url[:start] + rest


def _with_masked_options(text: str) -> str:
    before, mark, options = text.partition("?")
    return before + mark + "&".join(map(_with_masked_value, options.split("&"))) if mark else text


def _with_masked_value(option: str) -> str:
    key, equals, _ = option.partition("=")
    return f"{key}{equals}{MASK}" if equals and _SECRET_KEYS.search(unquote(key)) else option
