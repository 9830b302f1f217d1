"""Making and revoking tokens: careful changes of the token file, which people may edit too."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import tomlkit
from tomlkit.items import AoT

from memoryd_server.credentials.reloading import Unusable
from memoryd_server.credentials.token_file import TokenEntry, digest_of, parse

TOKEN_PREFIX: Final = "memoryd_"
"""Tokens begin with it, so that scanners for leaked secrets can know them."""

_RANDOM_BYTES: Final = 32

_HEADER: Final = (
    "Tokens that memoryd accepts, as their SHA-256, each with its tenant. The tokens themselves are not in here.",
    "`memoryd token create | list | revoke` changes this file; servers read it again by themselves.",
)


def create(path: Path, tenant: str, name: str) -> tuple[str, TokenEntry]:
    """Makes a token and writes its hash into the file, which begins with it if there is none.

    Returns: the token, which stands nowhere else, and its entry.

    Raises: Unusable for a file that cannot be read or written, ValueError for a tenant or a name that is none.
    """
    token = TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    entry = TokenEntry(tenant, digest_of(token).hex(), name, datetime.now(UTC).replace(microsecond=0))
    with _changing(path) as document:
        added = tomlkit.table()
        for key, value in msgspec.structs.asdict(entry).items():
            if value:
                added.add(key, value)
        added.add(tomlkit.nl())
        entries = document.get("tokens") or tomlkit.aot()
        if not isinstance(entries, AoT):
            raise Unusable(f"{path} has its tokens on one line: write each as a table [[tokens]] first")
        if not entries:
            document["tokens"] = entries
        entries.append(added)
    return token, entry


def entries_of(path: Path) -> Sequence[TokenEntry]:
    """The tokens of a file, in its order. Raises: Unusable."""
    return parse(path, _content(path))


def revoke(path: Path, sha256: str) -> None:
    """Takes the token with this hash out of the file. Raises: Unusable, KeyError when it is not in there (any more)."""
    with _changing(path) as document:
        entries = document.get("tokens", [])
        for index, entry in enumerate(entries):
            if entry["sha256"] == sha256:
                del entries[index]
                if not entries:
                    del document["tokens"]  # Its empty list would be written in front of all comments.
                return
        raise KeyError(sha256)


@contextmanager
def _changing(path: Path) -> Iterator[tomlkit.TOMLDocument]:
    """The file's document, written back at the end: by one process at a time, and completely or not at all."""
    path = path.resolve()  # Behind a link, the file is replaced and not the link.
    with _locked(path.parent):
        content = _content(path) if path.exists() else b""
        parse(path, content)
        text = content.decode()
        document = tomlkit.parse(text if not text or text.endswith("\n") else f"{text}\n")
        if not content:
            for line in _HEADER:
                document.add(tomlkit.comment(line))
            document.add(tomlkit.nl())
        yield document
        changed = tomlkit.dumps(document).encode()
        parse(path, changed)
        _replace(path, changed)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError as error:
        raise Unusable(f"the directory {directory} cannot be opened ({error.strerror}): make it first") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unusable(f"{path} cannot be read ({error.strerror})") from error


def _replace(path: Path, content: bytes) -> None:
    """Replaces the file as a whole. A new one is its owner's alone; an old one keeps its owner and its mode."""
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # With mode 0600.
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if path.exists():
                _keep_access(descriptor, path.stat())
            file.flush()
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise Unusable(f"{path} cannot be written ({error.strerror})") from error


def _keep_access(descriptor: int, old: os.stat_result) -> None:
    """So that a server of another user can still read what root has changed."""
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, old.st_mode & 0o777)
