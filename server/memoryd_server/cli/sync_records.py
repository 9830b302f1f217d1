"""What a push or a pull left equal on both sides, remembered on this machine: it tells which side of a difference
changed.

One file for each server, store, owner and folder, in the user's state directory: not in the folder, which a team may
commit. Nothing rests on it but that question. When it is lost, files that differ are conflicts until a person decides.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from memoryd_server.cli.temporary_files import remove_abandoned, temporary_name


@dataclass(frozen=True, slots=True)
class Record:
    """A file that was equal on both sides."""

    etag: str
    """What the store called its content."""
    digest: str
    """The digest of its content on the disk."""


class Records:
    """The files of one owner in one store and one folder that were equal."""

    def __init__(self, *, server: str, store: str, owner: str, folder: str) -> None:
        self._about = {"server": server, "store": store, "owner": owner, "folder": folder}
        key = sha256(json.dumps(self._about, sort_keys=True).encode()).hexdigest()[:32]
        self._path = user_state_path("memoryd") / "memory" / f"{key}.json"
        self._files = _read(self._path, self._about)
        self._saved = dict(self._files)

    @property
    def path(self) -> Path:
        """The file that holds them."""
        return self._path

    @property
    def names(self) -> frozenset[str]:
        """The files that are known."""
        return frozenset(self._files)

    def get(self, name: str) -> Record | None:
        """What is known of a file."""
        return self._files.get(name)

    def note(self, name: str, record: Record | None) -> None:
        """Notes that a file is equal on both sides; with None, that neither has it."""
        if record is not None:
            self._files[name] = record
        else:
            self._files.pop(name, None)

    def save(self) -> None:
        """Writes what was noted. Raises: OSError."""
        if self._files == self._saved:
            return
        text = json.dumps(self._about | {"files": {name: asdict(record) for name, record in self._files.items()}})
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._path.with_name(temporary_name(self._path.name))
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self._saved = dict(self._files)
        with contextlib.suppress(OSError):  # What was noted is written all the same.
            self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_abandoned(folder, self._path.name.__eq__)
        finally:
            os.close(folder)


def _read(path: Path, about: Mapping[str, str]) -> dict[str, Record]:
    """What a file holds; nothing where it is missing or damaged, which is as good as lost."""
    try:
        value: Any = json.loads(path.read_bytes())
        if any(value[key] != text for key, text in about.items()):
            return {}
        return {str(name): Record(str(one["etag"]), str(one["digest"])) for name, one in value["files"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
