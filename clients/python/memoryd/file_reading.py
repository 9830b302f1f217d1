"""Reading one file of a folder beneath a root: best effort, bounded, and never out of the folder.

Whoever can write to a root (that of a cloned project, say) must not make the SDK read something else, wait, or run out
of memory. So each part of the path is looked at before it is opened, from the folder that it is in, and no link is
followed but by the SDK itself: that of a folder within the root, and that of the file within its folder, since not all
that is in a project is for the model's eyes. Nor is one that appears in between: the file is unreadable then.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_BYTES: Final = 1_048_576
"""The most bytes of a memory file (a limit of the server)."""
_MOST_LINKS: Final = 40
"""Symbolic links that one path may lead over, as on Linux: more are a circle."""

_OUTSIDE: Final = "a symbolic link leads out of its folder"
_LINKED_TWICE: Final = "it is a symbolic link in a folder that is reached over one"
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _flags(*names: str) -> int:
    """The flags of these names that the platform has."""
    return sum(getattr(os, name, 0) for name in names)


_ROOT: Final = _flags("O_RDONLY", "O_CLOEXEC", "O_DIRECTORY", "O_PATH", "O_NONBLOCK")
_FOLDER: Final = _ROOT | _flags("O_NOFOLLOW")
# O_NONBLOCK: a pipe that stands there all of a sudden has nobody wait for its writer.
_FILE: Final = _flags("O_RDONLY", "O_CLOEXEC", "O_BINARY", "O_NOFOLLOW", "O_NONBLOCK", "O_NOCTTY")


class _Unreadable(Exception):
    """Why a file cannot be read, in a few words."""


@dataclass(frozen=True, slots=True)
class FileReading:
    """What became of a file."""

    content: bytes | None = None
    """Its bytes; None when there is no such file, or `unreadable` says why it could not be read."""
    unreadable: str = ""
    status: os.stat_result | None = None
    """Which file it is, when it was read."""


def walked(root: Path, names: Sequence[str]) -> int:
    """Opens the file, folder by folder."""
    *inner, name = names
    top = os.open(root, _ROOT)
    try:
        folder, is_linked = _walk(top, root, inner, _FOLDER)
    finally:
        os.close(top)
    try:
        # Two links together would lead to any file: that of the folder makes any folder the file's own.
        file, _ = _walk(folder, root.joinpath(*inner), [name], _FILE, follows=not is_linked)
    finally:
        os.close(folder)
    return file


def _walk(top: int, path: Path, names: Sequence[str], flags: int, *, follows: bool = True) -> tuple[int, bool]:
    """Opens, with these flags, what the names lead to from an open folder, and says whether links led there. No link is
    followed out of that folder, whose path is only to know where in it an absolute link leads.
    """
    left = [*reversed(names)]
    links = 0
    opened = [os.dup(top)]
    try:
        while left:
            name = left.pop()
            if name == "..":
                if len(opened) == 1:
                    raise _Unreadable(_OUTSIDE)
                os.close(opened.pop())
                continue
            mode = os.stat(name, dir_fd=opened[-1], follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                links += 1
                if not follows:
                    raise _Unreadable(_LINKED_TWICE)
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                target = os.readlink(name, dir_fd=opened[-1])
                if target.startswith("/"):
                    target = _inside(path, target)
                    while len(opened) > 1:
                        os.close(opened.pop())
                left += [part for part in reversed(target.split("/")) if part not in ("", ".")]
            elif left or flags == _FOLDER:
                opened.append(os.open(name, _FOLDER, dir_fd=opened[-1]))
            else:
                _check_kind(mode)
                opened.append(os.open(name, flags, dir_fd=opened[-1]))
        return opened.pop(), links > 0
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _inside(folder: Path, target: str) -> str:
    """An absolute path, as it is to be walked from the folder."""
    for base in (os.path.normpath(folder.absolute()), os.path.realpath(folder)):
        if f"{target}/".startswith(beginning := f"{base.rstrip('/')}/"):
            return target[len(beginning) :]
    raise _Unreadable(_OUTSIDE)


def resolved(root: Path, names: Sequence[str]) -> int:
    """Opens the file where a platform cannot walk (Windows): what changes between look and opening is not noticed."""
    *inner, name = names
    base = os.path.realpath(root)
    folder = os.path.realpath(Path(base, *inner))
    path = Path(os.path.realpath(Path(folder, name)))
    if not Path(folder).is_relative_to(base):
        raise _Unreadable(_OUTSIDE)
    if Path(folder) != Path(base, *inner) and path != Path(folder, name):
        raise _Unreadable(_LINKED_TWICE)
    if not path.is_relative_to(folder):
        raise _Unreadable(_OUTSIDE)
    _check_kind(path.stat().st_mode)
    return os.open(path, _FILE)


OPENS: Final[Callable[[Path, Sequence[str]], int]] = (
    walked if {os.open, os.stat, os.readlink} <= os.supports_dir_fd else resolved
)


def read_beneath(root: Path, *names: str, opens: Callable[[Path, Sequence[str]], int] = OPENS) -> FileReading:
    """Reads a file of at most 1 MiB. The names lead to it from the root, and all but the last to its folder: over links
    that stay in the root, which may be one itself. The file may be a link that stays in the folder, where no link led
    there.
    """
    try:
        descriptor = opens(root, names)
        try:
            return _read(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return FileReading()
    except _Unreadable as reason:
        return FileReading(unreadable=str(reason))
    except OSError as error:
        return FileReading(unreadable=_reason(error))


def _read(descriptor: int) -> FileReading:
    status = os.fstat(descriptor)
    _check_kind(status.st_mode)
    _check_size(status.st_size)
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        content = file.read(MAX_BYTES + 1)
    _check_size(len(content))
    return FileReading(content, status=status)


def _check_kind(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise _Unreadable(_no_file(mode))


def _no_file(mode: int) -> str:
    return f"it is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file"


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise _Unreadable(f"it is larger than {MAX_BYTES:,} bytes")


def _reason(error: OSError) -> str:
    match error.errno:
        case errno.ELOOP | errno.EINVAL:  # The latter: what was a link when it was looked at is none any more.
            return "its symbolic links go in a circle, or change"
        case errno.ENOTDIR:
            return "a part of its path is not a folder"
        case errno.EACCES | errno.EPERM:
            return "it may not be read by this user"
    return error.strerror or type(error).__name__
