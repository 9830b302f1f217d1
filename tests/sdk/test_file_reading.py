"""Files of this machine: read in one folder of a root, within bounds, whatever stands there (design section 10)."""

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from memoryd.file_reading import MAX_BYTES, FileReading, read_beneath, resolved, walked

NAMES = (".openhands", "memory", "MEMORY.md")
MEMORY = b"- prefers uv over pip\n"
SECRET = b"what is outside"

WALKED = pytest.param(walked, id="walked")
RESOLVED = pytest.param(resolved, id="resolved")
EACH_WAY = pytest.mark.parametrize("opens", [WALKED, RESOLVED])
"""Folder by folder, and as platforms do that cannot."""


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that is none of the workspace's, with an index."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "MEMORY.md").write_bytes(SECRET)
    return folder


@pytest.fixture
def workspace(tmp_path: Path, outside: Path) -> Path:
    """A workspace with the folder for memory, and no index; what is private in it is not the model's to see."""
    workspace = tmp_path / "workspace"
    for private in (".env", ".openhands/config"):
        put(workspace / private, SECRET)
    workspace.joinpath(*NAMES[:-1]).mkdir(parents=True)
    return workspace


def index_of(workspace: Path) -> Path:
    return workspace.joinpath(*NAMES)


def put(path: Path, content: bytes = MEMORY) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def over_another_link(workspace: Path) -> None:
    index_of(workspace).symlink_to("first")
    (index_of(workspace).parent / "first").symlink_to("../../.env")


def over_a_folder_link(workspace: Path) -> None:
    index_of(workspace).symlink_to("all/.env")
    (index_of(workspace).parent / "all").symlink_to(workspace)


Trap = Callable[[Path, Path], object]


def folder_link(workspace: Path, to: str | Path) -> None:
    memory = index_of(workspace).parent
    memory.rmdir()
    memory.symlink_to(to)


def large(workspace: Path, size: int) -> None:
    with index_of(workspace).open("wb") as file:
        file.truncate(size)


def unix_socket(workspace: Path) -> None:
    here = Path.cwd()
    os.chdir(index_of(workspace).parent)  # The path of a socket is short.
    try:
        with closing(socket.socket(socket.AF_UNIX)) as listening:
            listening.bind("MEMORY.md")
    finally:
        os.chdir(here)


def a_file_on_the_way(workspace: Path) -> None:
    index_of(workspace).parent.rmdir()
    put(index_of(workspace).parent)


def linked_twice(workspace: Path, to: str) -> None:
    """A link of the folder to where a private file is, and beside that a link to it."""
    folder_link(workspace, to)
    put(workspace / "private" / ".env", SECRET)
    index_of(workspace).symlink_to(".env")


OUT = "a symbolic link leads out of its folder"
TWICE = "it is a symbolic link in a folder that is reached over one"
TRAPS: dict[str, tuple[Trap, str]] = {
    "link out, absolute": (lambda w, o: index_of(w).symlink_to(o / "MEMORY.md"), OUT),
    "link out, relative": (lambda w, o: index_of(w).symlink_to("../../../outside/MEMORY.md"), OUT),
    "link out and back": (lambda w, o: index_of(w).symlink_to("../../.openhands/memory/notes.md"), OUT),
    "link into the workspace": (lambda w, o: index_of(w).symlink_to("../../.env"), OUT),
    "link into the workspace, absolute": (lambda w, o: index_of(w).symlink_to(w / ".env"), OUT),
    "link to what is above": (lambda w, o: index_of(w).symlink_to("../config"), OUT),
    "link over another link": (lambda w, o: over_another_link(w), OUT),
    "link over a folder's link": (lambda w, o: over_a_folder_link(w), OUT),
    "link in a linked folder": (lambda w, o: linked_twice(w, "../private"), TWICE),
    "link in a folder that is the workspace": (lambda w, o: linked_twice(w, ".."), TWICE),
    "link to nothing outside": (lambda w, o: index_of(w).symlink_to("/nowhere/MEMORY.md"), OUT),
    "link to a name that begins alike": (lambda w, o: index_of(w).symlink_to(f"{w}-2/MEMORY.md"), OUT),
    "link to a pipe of the system": (lambda w, o: index_of(w).symlink_to("/dev/stdin"), OUT),
    "folder's link out": (folder_link, OUT),
    "folder's link to the root": (lambda w, o: folder_link(w, "/"), OUT),
    "links in a circle": (
        lambda w, o: index_of(w).symlink_to("MEMORY.md"),
        "its symbolic links go in a circle, or change",
    ),
    "link to a folder": (lambda w, o: index_of(w).symlink_to("."), "it is a folder, not a file"),
    "folder": (lambda w, o: index_of(w).mkdir(), "it is a folder, not a file"),
    "pipe": (lambda w, o: os.mkfifo(index_of(w)), "it is a pipe, not a file"),
    "socket": (lambda w, o: unix_socket(w), "it is a socket, not a file"),
    "5 GB": (lambda w, o: large(w, 5_000_000_000), "it is larger than 1,048,576 bytes"),
    "one byte too large": (lambda w, o: large(w, MAX_BYTES + 1), "it is larger than 1,048,576 bytes"),
    "file on the way": (lambda w, o: a_file_on_the_way(w), "a part of its path is not a folder"),
}


def circling(trap: str, opens: object) -> bool:
    """Whether a link out and back is no way out: what is resolved as a whole is only looked at where it ends."""
    return trap == "link out and back" and opens is resolved


@EACH_WAY
@pytest.mark.parametrize("trap", TRAPS)
def test_what_is_no_file_of_the_folder_is_unreadable_within_a_second(
    trap: str, opens: Callable[..., int], workspace: Path, outside: Path
) -> None:
    spring, reason = TRAPS[trap]
    spring(workspace, outside)
    begun = time.monotonic()
    reading = read_beneath(workspace, *NAMES, opens=opens)
    assert time.monotonic() - begun < 1
    assert reading == (FileReading() if circling(trap, opens) else FileReading(unreadable=reason))


@EACH_WAY
def test_a_device_is_unreadable(opens: Callable[..., int]) -> None:
    assert read_beneath(Path("/dev"), "zero", opens=opens).unreadable == "it is a device, not a file"


@EACH_WAY
@pytest.mark.parametrize("missing", ["file", "folder", "workspace", "target"])
def test_what_is_not_there_is_no_error(missing: str, opens: Callable[..., int], workspace: Path) -> None:
    if missing == "folder":
        index_of(workspace).parent.rmdir()
    elif missing == "target":
        index_of(workspace).symlink_to("notes.md")
    root = workspace / "elsewhere" if missing == "workspace" else workspace
    assert read_beneath(root, *NAMES, opens=opens) == FileReading()


def within(workspace: Path, to: str | Path) -> None:
    """A link of the index to a file of its folder, there by the name of `notes/all.md`."""
    put(index_of(workspace).parent / "notes" / "all.md")
    index_of(workspace).symlink_to(to)


def over_two_links(workspace: Path) -> None:
    memory = index_of(workspace).parent
    within(workspace, "old/first")
    (memory / "old").symlink_to("notes")
    (memory / "notes" / "first").symlink_to(memory / "notes" / "all.md")


def of_a_folder(workspace: Path, to: str | Path = "../notes") -> None:
    put(workspace / "notes" / "MEMORY.md")
    folder_link(workspace, to)


def of_two_folders(workspace: Path) -> None:
    of_a_folder(workspace, "../first")
    (workspace / "first").symlink_to("./notes/../.openhands/../notes")


LINKS: dict[str, Callable[[Path], object]] = {
    "relative": lambda w: within(w, "notes/all.md"),
    "absolute": lambda w: within(w, index_of(w).parent / "notes" / "all.md"),
    "by a way around": lambda w: within(w, "./notes/..//./notes/./all.md"),
    "over two links": over_two_links,
    "of a folder": of_a_folder,
    "of a folder, absolute": lambda w: of_a_folder(w, w / "notes"),
    "of two folders": of_two_folders,
}


@EACH_WAY
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("root", ["as it is", "a link", "relative"])
def test_a_link_of_the_folder_in_the_workspace_or_of_the_file_in_the_folder_is_followed(
    link: str, root: str, opens: Callable[..., int], workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = workspace
    if root == "a link":
        given = tmp_path / "alias"
        given.symlink_to(workspace)
    elif root == "relative":
        monkeypatch.chdir(workspace)
        given = Path()
    LINKS[link](workspace)
    assert read_beneath(given, *NAMES, opens=opens).content == MEMORY


@EACH_WAY
@pytest.mark.parametrize(
    "content", [b"", b"\xef\xbb\xbf- a\r\n- b\r- c\0\xff\n\xe2\x80\xa8", b"a" * MAX_BYTES], ids=["empty", "odd", "full"]
)
def test_bytes_come_as_they_are_and_stay(content: bytes, opens: Callable[..., int], workspace: Path) -> None:
    index = put(index_of(workspace), content)
    before = index.stat()
    reading = read_beneath(workspace, *NAMES, opens=opens)
    assert reading.content == content
    after = index.stat()
    assert index.read_bytes() == content
    assert (before.st_mtime_ns, before.st_ctime_ns, before.st_ino) == (
        after.st_mtime_ns,
        after.st_ctime_ns,
        after.st_ino,
    )


def flipping(name: Path, *makes: Callable[[Path], object]) -> Callable[[threading.Event], None]:
    """Replaces a name by what each of `makes` makes in turn, until the event. It is there from the beginning."""
    makes[0](name)

    def flip(over: threading.Event) -> None:
        new = name.with_name("new")
        while not over.is_set():
            for make in makes:
                make(new)
                new.replace(name)

    return flip


@pytest.fixture(params=["file", "file in the workspace", "folder"])
def flickering(request: pytest.FixtureRequest, workspace: Path, outside: Path) -> Iterator[Path]:
    """A workspace whose index, or its folder, is all the time replaced by a link out and back again."""
    index = index_of(workspace)
    if request.param != "folder":
        target = outside / "MEMORY.md" if request.param == "file" else workspace / ".env"
        flip = flipping(index, put, lambda new: new.symlink_to(target))
    else:
        put(workspace / "notes" / "MEMORY.md")
        index.parent.rmdir()
        flip = flipping(index.parent, lambda new: new.symlink_to("../notes"), lambda new: new.symlink_to(outside))
    over = threading.Event()
    thread = threading.Thread(target=flip, args=(over,))
    thread.start()
    yield workspace
    over.set()
    thread.join()


def test_what_is_replaced_by_a_link_meanwhile_is_not_followed(flickering: Path) -> None:
    """Between the look and the opening, too, nothing leads out."""
    begun = time.monotonic()
    seen: set[str] = set()
    for _ in itertools.count():
        reading = read_beneath(flickering, *NAMES)
        assert reading.content in (None, MEMORY)
        seen.add("read" if reading.content else reading.unreadable)
        if {"read", OUT} <= seen and time.monotonic() - begun > 1:
            break
        assert time.monotonic() - begun < 60, seen
    assert seen <= {"read", OUT, "its symbolic links go in a circle, or change", "a part of its path is not a folder"}


def test_reading_leaves_nothing_open(workspace: Path, outside: Path) -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for spring in (*LINKS.values(), *(lambda w, trap=trap: trap[0](w, outside) for trap in TRAPS.values())):
        fresh = workspace / str(len(list(workspace.iterdir())))
        index_of(fresh).parent.mkdir(parents=True)
        spring(fresh)
        read_beneath(fresh, *NAMES)
    assert len(list(descriptors.iterdir())) == before
