"""The scripts of `lua`, each of which says what it is given and what it answers."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files
from typing import Final, NamedTuple, TypeAlias

from memoryd_server import limits

Value: TypeAlias = bytes | str | int
"""What a command is given."""

_FOLDER: Final = files(__package__).joinpath("lua")
_TIMES: Final = (
    f"local PURGE_DELAY, LOOKUP_TIME = {limits.PURGE_DELAY_SECONDS * 1_000_000}, {limits.LOOKUP_SECONDS * 1_000_000}\n"
)


class Call(NamedTuple):
    """A command about one key, or several with one hash tag."""

    key: str
    command: tuple[Value, ...]
    script: str = ""
    """The text of the script that the command names by its digest."""

    @property
    def in_full(self) -> tuple[Value, ...]:
        """The command with the text of its script, for a server that does not know it yet."""
        return ("EVAL", self.script, *self.command[2:])


def command(name: str, key: str, *values: Value) -> Call:
    """A command whose first argument is its key."""
    return Call(key, (name, key, *values))


class Script:
    """A script, run on the server by one command."""

    def __init__(self, name: str, *shared: str) -> None:
        """`shared`: what its text begins with, beside the layout."""
        texts = [_FOLDER.joinpath(f"{part}.lua").read_text("utf-8") for part in ("layout", *shared, name)]
        self.text: Final = _TIMES + "\n".join(texts)
        self._sha: Final = sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, *keys: str, values: tuple[Value, ...] = ()) -> Call:
        return Call(keys[0], ("EVALSHA", self._sha, len(keys), *keys, *values), self.text)


BEGIN_STAGING: Final = Script("begin_staging")
BODIES: Final = Script("bodies", "walks")
BURY: Final = Script("bury", "runs", "deletion", "run_deletion")
CLAIM: Final = Script("claim")
CLAIMABLE_RUNS: Final = Script("claimable_runs")
COMMIT: Final = Script("commit", "runs")
CONFIRM: Final = Script("confirm")
CONTINUE_OPENING: Final = Script("continue_opening", "walks", "windows")
CONTINUE_TAIL: Final = Script("continue_tail", "walks", "windows")
DELETE_FILES: Final = Script("delete_files", "files")
DELETE_RUN: Final = Script("delete_run", "runs", "run_deletion")
DROP_EVENT: Final = Script("drop_event")
DROP_RUN: Final = Script("drop_run", "runs", "run_deletion")
ENTRIES: Final = Script("entries", "walks")
EVENTS: Final = Script("events")
FILE: Final = Script("file", "files")
FILE_LIST: Final = Script("file_list", "files")
FILE_VERSIONS: Final = Script("file_versions", "files")
GROUPS: Final = Script("groups", "walks")
LEASE: Final = Script("lease")
LOAD: Final = Script("load", "walks", "windows")
LOOKUPS: Final = Script("lookups")
NEWEST: Final = Script("newest", "walks")
PAGE: Final = Script("page", "walks")
PROBE: Final = Script("probe")
PURGE: Final = Script("purge", "deletion")
READ: Final = Script("read", "walks")
RUN: Final = Script("run")
RUN_LIST: Final = Script("run_list", "runs")
SAVE_AGENT: Final = Script("save_agent")
SAVE_FILE: Final = Script("save_file", "files")
STAGE: Final = Script("stage")
STAGED: Final = Script("staged")
STEPS: Final = Script("steps", "runs")
SUMMARIES: Final = Script("summaries")
UNSTAGE: Final = Script("unstage", "deletion")
