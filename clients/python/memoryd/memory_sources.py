"""Where memory is: in files of this machine, which the SDK reads itself, or in the store."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memoryd.arguments import string
from memoryd.file_reading import read_beneath

INDEX: Final = "MEMORY.md"
"""The file of a tier that is rendered."""
_HOME: Final = ".openhands"
_MEMORY: Final = "memory"
PROJECT_FOLDER: Final = (_HOME, _MEMORY)
"""The folder of project memory, by the names that lead to it from the workspace."""
_MOST_LABEL_BYTES: Final = 4_096
"""The longest path that a request carries (a limit of the server)."""
_MOST_REASON_BYTES: Final = 256
"""The longest reason that a request carries for what is unreadable (a limit of the server)."""

USER: Final = "user"
PROJECT: Final = "project"


@dataclass(frozen=True, slots=True)
class UserFiles:
    """The user tier in a folder of this machine, which holds MEMORY.md and daily logs.

    >>> UserFiles()  # $OH_PERSISTENCE_DIR/memory where that is set, else ~/.openhands/memory
    UserFiles(path=None)
    >>> UserFiles("~/notes/memory")
    UserFiles(path='~/notes/memory')

    MEMORY.md is read each time that memory is rendered, and never written. The folder may be a symbolic link; one in
    it is followed as long as it stays in it.
    """

    path: str | os.PathLike[str] | None = None
    """The folder; `~` stands for the home folder. None for the usual one."""

    def __post_init__(self) -> None:
        if self.path is not None:
            _check_path(self.path, "path", "~/.openhands/memory")

    def read(self) -> "SourceReading":
        """Reads the index as it is now."""
        try:
            folder = self.folder().expanduser()
        except RuntimeError:
            return SourceReading(str(self.folder() / INDEX), unreadable="the home folder is not known")
        return SourceReading.read(folder, INDEX, label=_with_tilde(folder / INDEX))

    def folder(self) -> Path:
        """The folder; `~` in it stands for the home folder."""
        if self.path is not None:
            return Path(self.path)
        # Empty is as good as not set.
        return Path(os.environ.get("OH_PERSISTENCE_DIR") or Path("~", _HOME)) / _MEMORY


@dataclass(frozen=True, slots=True)
class ProjectFiles:
    """The project tier in a workspace of this machine: the folder `.openhands/memory` in it, which a team can commit.

    >>> ProjectFiles(".")
    ProjectFiles(workspace='.')

    MEMORY.md is read each time that memory is rendered, and never written. The folder may be reached over symbolic
    links that stay in the workspace, which may be one itself. MEMORY.md may be one that stays in the folder, where the
    folder is none: whoever writes the repository must not choose which other file of the workspace the model is shown.
    A workspace that does not exist is unreadable, and one without the folder has no memory yet.
    """

    workspace: str | os.PathLike[str]
    """The workspace's folder; `~` stands for the home folder."""

    def __post_init__(self) -> None:
        _check_path(self.workspace, "workspace", ".")

    def read(self) -> "SourceReading":
        """Reads the index as it is now."""
        names = (*PROJECT_FOLDER, INDEX)
        label = "/".join(names)
        try:
            workspace = Path(self.workspace).expanduser()
        except RuntimeError:
            return SourceReading(label, unreadable="the home folder is not known")
        reading = SourceReading.read(workspace, *names, label=label)
        if reading.content is None and not reading.unreadable and not workspace.is_dir():
            return SourceReading(
                label, unreadable=_cut(f"there is no folder {_with_tilde(workspace)}", _MOST_REASON_BYTES)
            )
        return reading


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """Memory that the client's store keeps: a user's, a project's, or both.

    >>> StoredMemory(user="ana", project="atlas")
    StoredMemory(user='ana', project='atlas')
    """

    user: str | None = None
    """The user who owns the user tier."""
    project: str | None = None
    """The project that owns the project tier."""

    def __post_init__(self) -> None:
        if self.user is None and self.project is None:
            raise ValueError("whose memory? Give user or project, or both")
        for argument, owner, example in (("user", self.user, "ana"), ("project", self.project, "atlas")):
            if owner is not None and not string(owner, argument, example):
                raise ValueError(f"{argument} is empty; give the id of a {argument}, for example {example!r}")


@dataclass(frozen=True, slots=True)
class SourceReading:
    """An index as it was read from the disk."""

    label: str
    """Its path, as the model is to see it."""
    content: bytes | None = None
    """None when there is no such file, or `unreadable` says why it could not be read."""
    unreadable: str = ""
    status: os.stat_result | None = None
    """Which file it is, when it was read."""
    place: str = ""
    """Where it is, or would be, links resolved; empty when that is not known."""

    @classmethod
    def read(cls, root: Path, *names: str, label: str) -> "SourceReading":
        """Reads the file that the names lead to from a folder."""
        reading = read_beneath(root, *names)
        try:
            place = os.path.realpath(root.joinpath(*names))
        except (OSError, RecursionError):  # The working folder is gone; there are too many links, which nobody follows.
            place = ""
        return cls(label, reading.content, reading.unreadable, reading.status, place)

    def is_same_file(self, other: "SourceReading") -> bool:
        """Whether both are one file, by whatever way, or would be once it is made."""
        if self.status is not None and other.status is not None:
            return os.path.samestat(self.status, other.status)
        return self.place != "" and self.place == other.place


Tier = UserFiles | ProjectFiles | str
"""Where a tier is: in files, or in the store, by its owner's id."""


def chosen(
    stored: StoredMemory | None, user: UserFiles | StoredMemory | None, project: ProjectFiles | StoredMemory | None
) -> dict[str, Tier]:
    """Where the tiers of a rendering are, as its arguments say; user first."""
    if not isinstance(stored, StoredMemory | None):
        raise TypeError(f"stored is of type {type(stored).__name__}; give StoredMemory(…), or user=… and project=…")
    tiers: dict[str, Tier] = {}
    for name, given, files in ((USER, user, UserFiles), (PROJECT, project, ProjectFiles)):
        if not isinstance(given, files | StoredMemory | None):
            raise TypeError(
                f"{name} is of type {type(given).__name__}; give {files.__name__}(…), StoredMemory({name}=…) or None"
            )
        of_both = None if stored is None else getattr(stored, name)
        if of_both is not None and given is not None:
            raise ValueError(f"{name} memory has one place: give either stored with a {name}, or {name}")
        if isinstance(given, StoredMemory):
            if (owner := getattr(given, name)) is None:
                raise ValueError(f"{name} is a StoredMemory without a {name}; give StoredMemory({name}=…)")
            tiers[name] = owner
        elif given is not None:
            tiers[name] = given
        elif of_both is not None:
            tiers[name] = of_both
    return tiers


def read_files(tiers: Mapping[str, Tier]) -> tuple[dict[str, SourceReading], list[str]]:
    """Reads the tiers that are files, and gives warnings. A file that is both tiers is the user tier alone: there is no
    reading of the project tier then, for the agent is not to keep two memories in it.
    """
    readings = {name: tier.read() for name, tier in tiers.items() if not isinstance(tier, str)}
    if (
        (user := readings.get(USER)) is not None
        and (project := readings.get(PROJECT)) is not None
        and project.is_same_file(user)
    ):
        del readings[PROJECT]
        return readings, ["Project memory and user memory are one file: it is shown once, as user memory"]
    return readings, []


def _with_tilde(path: Path) -> str:
    """A path from the root on, or from the home folder where it is in there, as text that a request can carry."""
    try:
        label = os.path.normpath(path.absolute())
        home = f"{os.path.normpath(Path.home()).rstrip(os.sep)}{os.sep}"
    except (OSError, RuntimeError):  # The working folder is gone; there is no home.
        label, home = str(path), ""
    if home and label.startswith(home):
        label = f"~{os.sep}{label[len(home) :]}"
    text = os.fsencode(label.replace(os.sep, "/")).decode(errors="replace")
    return _cut(text, _MOST_LABEL_BYTES)


def _cut(text: str, most_bytes: int) -> str:
    return text.encode()[:most_bytes].decode(errors="ignore")


def _check_path(path: str | os.PathLike[str], argument: str, example: str) -> None:
    given: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(given, str):
        raise TypeError(f"{argument} is of type {type(path).__name__}; give the path of a folder, such as {example!r}")
    try:
        unusable = not given or b"\0" in os.fsencode(given)
    except UnicodeEncodeError:
        unusable = True
    if unusable:
        raise ValueError(f"{argument} is no path; give that of a folder, for example {example!r}")
