"""A folder of memory files on this disk: what is in it, read and written without ever leaving it.

It may be part of a cloned project, so that nothing in it is trusted: neither its links nor what it holds under the name
of a memory file.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Final

from memoryd import UserFiles
from memoryd.file_reading import read_beneath
from memoryd.memory_sources import PROJECT_FOLDER
from memoryd_server.cli.memory_options import INDEX
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.temporary_files import is_temporary, remove_abandoned, temporary_name
from memoryd_server.cli.terminal import Failure

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def is_memory_name(name: str) -> bool:
    """Whether a file of this name is a memory file: the index, or the log of a day."""
    if name == INDEX:
        return True
    day, dot, ending = name.partition(".")
    if (dot, ending) != (".", "md") or len(day) != len("YYYY-MM-DD") or not day.isascii():
        return False
    try:
        return date.fromisoformat(day).isoformat() == day
    except ValueError:
        return False


def check_name(name: str) -> None:
    """Raises: Failure, where a name is not that of a memory file."""
    if not is_memory_name(name):
        raise Failure(f"{one_line(name)} is no memory file: one is {INDEX}, or YYYY-MM-DD.md with a date", status=2)


def digest_of(content: bytes) -> str:
    """Tells contents of this disk apart."""
    return sha256(content).hexdigest()


class Untouched(Exception):
    """A file of the folder was left as it is. Its text says why, in a few words."""


class ChangedHere(Untouched):
    """The file is not any more what it was when it was looked at."""


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A memory file as it was looked at."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in the folder."""

    names: frozenset[str]
    """Memory files, or what stands in their place."""
    others: tuple[str, ...]
    """Everything else, but for the temporary files of a pull."""


class Folder:
    """The folder that names lead to from a root. The root may be a link; no link is followed out of it."""

    def __init__(self, root: Path, *inner: str) -> None:
        self._root = root
        self._inner = inner

    def __str__(self) -> str:
        return one_line(str(self._root.joinpath(*self._inner)))

    @classmethod
    def chosen(cls, path: Path | None, tier: str) -> "Folder":
        """The folder that a command line names, else the usual one of a tier. Raises: Failure."""
        if path is None and tier == "project":
            return cls(Path(), *PROJECT_FOLDER)
        try:
            return cls((UserFiles().folder() if path is None else path).expanduser())
        except RuntimeError as error:
            raise Failure("the home folder is not known: name the folder", status=2) from error

    def identity(self) -> str:
        """The same text for the same folder, by whatever way it is named. Raises: OSError."""
        return os.path.realpath(self._root.joinpath(*self._inner))

    def listing(self) -> Listing | None:
        """What is in the folder; None where there is none. Raises: OSError, Untouched."""
        try:
            with self._opened() as folder, os.scandir(folder) as entries:
                found = [entry.name for entry in entries if not is_temporary(entry, is_memory_name)]
        except FileNotFoundError:
            return None
        names = frozenset(filter(is_memory_name, found))
        return Listing(names, tuple(sorted(name for name in found if name not in names)))

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is none. Raises: Untouched."""
        reading = read_beneath(self._root, *self._inner, name)
        if reading.unreadable:
            raise Untouched(reading.unreadable)
        return reading.content

    def look_at(self, name: str) -> LocalFile | None:
        """A file as it is now; None where there is none. Raises: Untouched."""
        content = self.read(name)
        return None if content is None else LocalFile(digest_of(content), len(content))

    def make(self) -> None:
        """Makes the folder where there is none. Raises: OSError, Untouched."""
        self._inside().mkdir(parents=True, exist_ok=True)

    def write(self, name: str, content: bytes, expected: LocalFile | None) -> None:
        """Replaces a file as a whole, or makes it, if it still is as it was looked at. Raises: OSError, Untouched."""
        with self._opened() as folder:
            status = self._replaceable(folder, name)
            temporary = temporary_name(name)
            descriptor = os.open(temporary, _NEW_FILE, 0o666, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    if status is not None:
                        with contextlib.suppress(PermissionError):
                            os.fchown(file.fileno(), status.st_uid, status.st_gid)
                        os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                self._check_same(name, expected)
                os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    def remove(self, name: str, expected: LocalFile) -> None:
        """Removes a file, if it still is as it was looked at. Raises: OSError, Untouched."""
        with self._opened() as folder:
            self._replaceable(folder, name)
            self._check_same(name, expected)
            os.unlink(name, dir_fd=folder)

    def remove_abandoned(self) -> None:
        """Removes the temporary files of writes that were killed. Raises: OSError, Untouched."""
        with self._opened() as folder:
            remove_abandoned(folder, is_memory_name)

    def sync(self) -> None:
        """Waits until the names of the files are on the disk. Raises: OSError, Untouched."""
        with self._opened() as folder:
            os.fsync(folder)

    def _check_same(self, name: str, expected: LocalFile | None) -> None:
        if self.look_at(name) != expected:
            raise ChangedHere("it was changed here just now")

    @staticmethod
    def _replaceable(folder: int, name: str) -> os.stat_result | None:
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(status.st_mode):
            raise Untouched("it is a symbolic link, which is neither written through nor replaced")
        if not stat.S_ISREG(status.st_mode):
            raise Untouched("it is no file")
        return status

    def _inside(self) -> Path:
        """Where the folder is, links resolved."""
        root = os.path.realpath(self._root)
        path = Path(os.path.realpath(Path(root, *self._inner)))
        if not path.is_relative_to(root):
            raise Untouched("a symbolic link leads out of the workspace")
        return path

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The folder's descriptor: everything is done from there, whatever becomes of the path meanwhile."""
        path = self._inside()
        root = Path(os.path.realpath(self._root))
        folder = os.open(root, _FOLDER)
        try:
            for name in path.relative_to(root).parts:
                inner = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)
