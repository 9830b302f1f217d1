"""Changes of memory files by a person: adding, logging, editing, deleting, and an agent's use of memory."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from memoryd import (
    AddedEntries,
    EtagMismatch,
    InvalidArgument,
    MemoryClient,
    MemorydError,
    MemoryFile,
    MemoryFileNotFound,
    MemoryFiles,
    SecretFound,
)
from memoryd_server import limits
from memoryd_server.cli.connecting import failure
from memoryd_server.cli.json_lines import memory_file_json, print_line
from memoryd_server.cli.memory_errors import SECRET_ADVICE, changed_told, explained, invalid_told, secret_told
from memoryd_server.cli.memory_folder import check_name
from memoryd_server.cli.memory_options import Owner
from memoryd_server.cli.memory_view import minute
from memoryd_server.cli.safe_text import one_line, quoted
from memoryd_server.cli.terminal import INTERRUPTED, Failure, confirm, counted, out, tell

_BOM: Final = "\ufeff"
_LINE_END: Final = re.compile("\r\n|\r|\n")
STDIN: Final = "-"


def add_entries(
    files: MemoryFiles, owner: Owner, words: Sequence[str], *, author: str, allow_secrets: bool, as_json: bool
) -> None:
    """Adds entries to an index: the words of the command line, or the lines of standard input that are not blank."""
    if _is_given(words):
        entries = list(words)
        places = [f"entry {number}" for number, _ in enumerate(entries, 1)]
    else:
        lines = enumerate(_LINE_END.split(_standard_input("entries")), 1)
        numbered = [(number, line) for number, line in lines if line.strip()]
        entries = [line for _, line in numbered]
        places = [f"line {number} of standard input" for number, _ in numbered]
    if not entries:
        raise Failure("there is nothing to add: standard input is empty", status=2)
    added = skipped = 0
    last: AddedEntries | None = None
    for first in range(0, len(entries), limits.MAX_MEMORY_ENTRIES):
        batch = slice(first, first + limits.MAX_MEMORY_ENTRIES)
        last = _add(files, entries[batch], places[batch], author=author, allow_secrets=allow_secrets, before=added)
        added += last.added
        skipped += last.skipped
    assert last is not None
    if as_json:
        print_line({"added": added, "skipped": skipped, "file": memory_file_json(last.file)})
        return
    version = f" (version {last.file.version})" if added else ""
    known = f"; {counted(skipped, 'was', 'were')} there already" if skipped else ""
    tell(out(), f"Added {counted(added, 'entry', 'entries')} to {last.file.name} of {owner}{version}{known}.")


def _add(
    files: MemoryFiles,
    entries: list[str],
    places: Sequence[str],
    *,
    author: str,
    allow_secrets: bool,
    before: int,
) -> AddedEntries:
    written = f"only the first {counted(before, 'entry', 'entries')} were added" if before else "nothing was written"
    try:
        return files.add(entries, author, allow_secrets)
    except SecretFound as error:
        raise Failure(f"{written}: {secret_told(error, places)}; {SECRET_ADVICE}") from error
    except InvalidArgument as error:
        raise Failure(f"{written}: {invalid_told(error, places)}") from error


def append_log(
    files: MemoryFiles,
    owner: Owner,
    words: Sequence[str],
    *,
    date: str | None,
    time_zone: str,
    author: str,
    allow_secrets: bool,
    as_json: bool,
) -> None:
    """Adds text to a daily log: the words of the command line, or standard input. Without a day, that of today here."""
    text = " ".join(words) if _is_given(words) else _standard_input("text")
    if not text.strip():
        raise Failure("there is nothing to log: the text is empty", status=2)
    day = date if date is not None or time_zone else f"{datetime.now().astimezone():%Y-%m-%d}"
    info = files.log(text, day, time_zone, author, allow_secrets)
    if as_json:
        print_line(memory_file_json(info))
    else:
        tell(out(), f"Logged in {one_line(info.name)} of {owner} (version {info.version}).")


def _is_given(words: Sequence[str]) -> bool:
    return bool(words) and list(words) != [STDIN]


def _standard_input(what: str) -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise Failure(f"give the {what} as arguments, or on standard input", status=2)
    try:
        return sys.stdin.buffer.read().decode().removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise Failure(f"standard input is not UTF-8 (byte {error.start + 1})", status=2) from error


def delete_file(files: MemoryFiles, owner: Owner, name: str, *, yes: bool) -> None:
    """Deletes a file with its versions, if it still is the one that the person was asked about."""
    newest, *older = files.versions(name)
    by = f" by {one_line(newest.author)}" if newest.author else ""
    kept = f", and the {counted(len(older), 'version')} before it" if older else ""
    confirm(
        f"This deletes {one_line(name)} of {owner} for good: version {newest.version} of {minute(newest.create_time)}"
        f"{by}, {counted(newest.size, 'byte')}{kept}. Delete it?",
        yes=yes,
    )
    try:
        deleted = files.delete(name, newest.etag)
    except EtagMismatch as error:
        raise Failure(
            f"{one_line(name)} of {owner} {changed_told(error)}. Nothing was deleted; repeat the command to see what "
            f"is there now"
        ) from error
    tell(out(), f"{'Deleted' if deleted else 'Somebody else deleted'} {one_line(name)} of {owner}.")


def edit_file(
    files: MemoryFiles,
    owner: Owner,
    name: str,
    *,
    start: Path | None,
    author: str,
    allow_secrets: bool,
    address: str,
) -> None:
    """Has the person edit a file, or makes it. Whatever fails then, their text is kept."""
    check_name(name)
    editor = _editor(owner)
    current = _current(files, name)
    content = b"" if current is None else current.content
    draft = _draft(name, content if start is None else _read(start))
    began = draft.read_bytes()
    try:
        _run(editor, draft)
        edited = draft.read_bytes()
    except (Failure, OSError) as error:
        reason = str(error) if isinstance(error, Failure) else f"{one_line(str(draft))}: {error.strerror}"
        raise Failure(f"nothing was written: {reason}.{_kept(draft, began, owner, name)}") from error
    if edited == content:
        tell(out(), f"{one_line(name)} of {owner} stays as it is: its text was not changed.")
        shutil.rmtree(draft.parent)
        return
    etag = None if current is None else current.etag
    try:
        with explained(owner):
            info = files.put(
                edited, name, etag=etag, create_only=etag is None, author=author, allow_secrets=allow_secrets
            )
    except EtagMismatch as error:
        what = changed_told(error) if current is not None else "was made by somebody else meanwhile"
        raise Failure(
            f"{one_line(name)} of {owner} {what}, and nothing was written over it. `memoryd memory show {quoted(name)} "
            f"{owner.option}` shows what it says now.{_kept(draft, b'', owner, name)}"
        ) from error
    except MemorydError as error:
        raise Failure(f"{failure(error, address)}.{_kept(draft, b'', owner, name)}") from error
    except Failure as error:
        raise Failure(f"{error}.{_kept(draft, b'', owner, name)}", status=error.status) from error
    except KeyboardInterrupt as interrupt:
        raise Failure(f"interrupted.{_kept(draft, b'', owner, name)}", status=INTERRUPTED) from interrupt
    shutil.rmtree(draft.parent)
    tell(out(), f"{'Made' if current is None else 'Changed'} {one_line(name)} of {owner} (version {info.version}).")


def _editor(owner: Owner) -> list[str]:
    other = (
        f"`memoryd memory add {owner.option}` adds lines, and `memoryd memory pull` and `push` bring the files into a "
        f"folder and back"
    )
    if sys.stdin is None or not sys.stdin.isatty():
        raise Failure(f"there is no terminal to edit on; {other}", status=2)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(editor)
    except ValueError as error:
        raise Failure(f"the environment's VISUAL or EDITOR is no command: {error}", status=2) from error
    if not words:
        raise Failure(f"no editor is named: set EDITOR, for example EDITOR=nano, or else {other}", status=2)
    return words


def _current(files: MemoryFiles, name: str) -> MemoryFile | None:
    try:
        return files.get(name)
    except MemoryFileNotFound:
        return None


def _read(start: Path) -> bytes:
    try:
        return start.read_bytes()
    except OSError as error:
        raise Failure(f"{one_line(str(start))} cannot be read: {error.strerror}", status=2) from error


def _draft(name: str, content: bytes) -> Path:
    """A file of its own name in a new folder, which nobody else can read."""
    draft = Path(tempfile.mkdtemp(prefix="memoryd-")) / name
    draft.write_bytes(content)
    return draft


def _run(editor: Sequence[str], draft: Path) -> None:
    # Ctrl-C is the editor's: it reaches all processes of the terminal.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        status = subprocess.run([*editor, str(draft)], check=False).returncode
    except OSError as error:
        raise Failure(f"the editor {one_line(editor[0])} cannot be started: {error.strerror}; set EDITOR") from error
    finally:
        signal.signal(signal.SIGINT, before)
    if status:
        raise Failure(f"the editor {one_line(editor[0])} ended with status {status}")


def _kept(draft: Path, began: bytes, owner: Owner, name: str) -> str:
    """Says where the person's text is, if they wrote one."""
    if not draft.exists() or draft.read_bytes() == began:
        shutil.rmtree(draft.parent)
        return ""
    return (
        f"\nYour text is in {one_line(str(draft))}. To go on with it: memoryd memory edit {quoted(name)} "
        f"{owner.option} --from {quoted(str(draft))}"
    )


def set_load_memory(client: MemoryClient, agent: str, *, load_memory: bool, as_json: bool) -> None:
    """Says whether memory is rendered for an agent, and shows it."""
    try:
        info = client.agent(agent).update(load_memory=load_memory)
    except ValueError as error:
        raise Failure(str(error), status=2) from error
    if as_json:
        print_line({"agent": info.agent, "load_memory": info.load_memory})
        return
    if info.load_memory:
        tell(
            out(),
            f"Agent {one_line(info.agent)} uses memory: render_context(agent=…) gives it, on every server "
            f"after 5 seconds at most.",
        )
    else:
        tell(out(), f"Agent {one_line(info.agent)} uses no memory: render_context(agent=…) gives it none.")
