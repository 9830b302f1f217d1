"""Memory: rendered for a prompt, and the files that a store keeps."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class MemoryStyle(StrEnum):
    """The form of a rendered block."""

    ENCLOSED = "enclosed"
    """All memory stands inside UNTRUSTED_CONTENT, and a notice counts the lines that were left out."""
    OPENHANDS = "openhands"
    """UNTRUSTED_CONTENT holds the warning alone, and memory follows it, as in OpenHands."""


class TierState(StrEnum):
    """What became of a tier."""

    UNSPECIFIED = "unspecified"
    """One that this SDK does not know."""
    ABSENT = "absent"
    """There is no file, or the tier is not used."""
    EMPTY = "empty"
    """The file holds white space at most."""
    LOADED = "loaded"
    """All of it is in the block."""
    TRUNCATED = "truncated"
    """A part of its lines is in the block."""
    UNREADABLE = "unreadable"
    """It could not be read; a warning tells why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierStatus:
    """A tier in a rendered block."""

    state: TierState
    kept_lines: int = 0
    """How many lines of it are in the block."""
    dropped_lines: int = 0
    """How many lines were left out: the oldest (top) ones, and those that no budget holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFileInfo:
    """A memory file at one of its versions."""

    name: str
    """`MEMORY.md`, or `YYYY-MM-DD.md`."""
    version: int
    """The number of the version, from 1."""
    etag: str
    """The mark of the content, for a conditional put or delete: equal contents have equal marks."""
    size: int
    """Bytes of the content."""
    author: str
    """Who says to have written this version; empty when nobody said."""
    create_time: datetime
    """When this version was written, in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFile(MemoryFileInfo):
    """A memory file with its content."""

    content: bytes = field(repr=False)
    """The bytes, as they were put."""

    @property
    def text(self) -> str:
        """The content as text: U+FFFD stands for bytes that are not UTF-8."""
        return self.content.decode(errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedEntries:
    """What became of entries for an index."""

    file: MemoryFileInfo
    """The index as it is now."""
    added: int
    """How many were added."""
    skipped: int
    """How many were in the index already, or came twice."""
