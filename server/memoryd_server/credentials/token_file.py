"""The bearer tokens that a server accepts: a TOML file of their hashes, each with its tenant."""

from __future__ import annotations

import hashlib
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec

from memoryd_server import limits
from memoryd_server.credentials.reloading import Unusable

_CREATE: Final = "`memoryd token create`"

_UNPRINTED: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode's categories of control characters, halves of surrogate pairs, and separators of lines and paragraphs."""

_ID_DIGITS: Final = 12
"""Enough of a hash to name a token to people, and nothing that helps to guess it."""


class TokenEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token as the file has it: everything but the token itself."""

    tenant: str
    """Whose data it opens."""
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """The token's SHA-256 in hexadecimal digits.

    A slow, salted hash protects passwords, which can be guessed. A token is 256 random bits, which cannot: its plain
    hash gives nothing away, costs less than a microsecond a call, and finds the token without trying one after another.
    """
    name: str = ""
    """What people call it, for example the program that has it."""
    created: datetime | None = None
    """When it was made."""

    def __post_init__(self) -> None:
        if not 1 <= _size_of_line(self.tenant) <= limits.MAX_ID_BYTES:
            raise ValueError(
                f"a tenant is 1 to {limits.MAX_ID_BYTES} bytes of UTF-8, on one line and without control characters"
            )
        if self.name and not _size_of_line(self.name):
            raise ValueError("a token's name is UTF-8, on one line and without control characters")

    @property
    def id(self) -> str:
        """The beginning of the hash, which names the token in lists."""
        return self.sha256[:_ID_DIGITS]


def _size_of_line(text: str) -> int:
    """How many bytes of UTF-8 a text is; 0 when it is none, has several lines or holds a control character."""
    if any(unicodedata.category(character) in _UNPRINTED for character in text):
        return 0
    return len(text.encode())


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tokens: list[TokenEntry] = []


TokenTable: TypeAlias = Mapping[bytes, TokenEntry]
"""The tokens by their digests."""


def digest_of(token: str) -> bytes:
    """What a token is found by."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


def parse(path: Path, content: bytes) -> Sequence[TokenEntry]:
    """The tokens of a file, in its order. Raises: Unusable."""
    try:
        entries = msgspec.convert(tomllib.loads(content.decode()), _File).tokens
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unusable(f"{path} is no valid TOML ({error}): mend it, or make a new one with {_CREATE}") from error
    except msgspec.ValidationError as error:
        # Its texts name places and rules, and no values: nobody's token is told who put it where its hash belongs.
        raise Unusable(f"{path} is no file of tokens ({error}): entries are made with {_CREATE}") from error
    known: set[str] = set()
    for entry in entries:
        if entry.sha256 in known:
            raise Unusable(f"{path} has the token {entry.id} twice: leave one of its entries")
        known.add(entry.sha256)
    return entries


def table(paths: Sequence[Path], contents: Sequence[bytes]) -> TokenTable:
    """The tokens of a file, to look them up. Raises: Unusable."""
    return {
        bytes.fromhex(entry.sha256): entry
        for path, content in zip(paths, contents, strict=True)
        for entry in parse(path, content)
    }
