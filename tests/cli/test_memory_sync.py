"""`memoryd memory push` and `pull`: folders of several machines and one store, against a real server."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from memoryd import MemoryClient, MemoryFiles
from memoryd.v1 import memory_context_service_pb2 as pb
from memoryd.v1.store_service_pb2 import GetStoreResponse, Store
from memoryd_server.cli import memory_folder
from memoryd_server.cli.memory_folder import is_memory_name
from memoryd_server.cli.memory_sync import IN_FLIGHT, Direction, State, Step, Wish, decide
from memoryd_server.cli.temporary_files import ABANDONED_SECONDS
from tests.cli.commands import Here, environment, memoryd, wait_for
from tests.conftest import StartServer
from tests.sdk.scripted_server import ScriptedServer, answers, fails
from tests.servers import MEMORYD, START_SECONDS, ServerProcess

TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
INDEX = "MEMORY.md"
LOG = "2026-07-25.md"


@dataclass(frozen=True)
class Machine:
    """A machine with a folder of memory files, and what it remembers of pushes and pulls."""

    here: Here
    address: str
    owner: str
    folder: Path
    state: Path

    def run(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Runs `memoryd memory push` or `pull` on the folder."""
        return self.here.memoryd(
            "memory",
            command,
            str(self.folder),
            "--project",
            self.owner,
            *options,
            address=self.address,
            XDG_STATE_HOME=str(self.state),
        )

    def ok(self, command: str, *options: str) -> str:
        """Runs a command that must leave no conflict. Returns: its summary line."""
        done = self.run(command, *options)
        assert done.returncode == 0, done.stderr
        (summary,) = done.stdout.splitlines()
        return summary

    def stuck(self, command: str, *options: str) -> str:
        """Runs a command that cannot move everything. Returns: what it tells about that."""
        done = self.run(command, *options)
        assert done.returncode == 1
        return done.stderr

    def results(self, command: str, *options: str) -> dict[str, str]:
        """What becomes of each file."""
        lines = self.run(command, "--json", *options).stdout.splitlines()
        return {one["name"]: one["result"] for one in map(json.loads, lines)}

    def write(self, **contents: str) -> None:
        """Writes `index` or `log`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (self.folder / {"index": INDEX, "log": LOG}[name]).write_text(content)

    @property
    def contents(self) -> dict[str, str]:
        """All that is in the folder."""
        return {path.name: path.read_text() for path in self.folder.iterdir()}


@pytest.fixture
def server(in_memory_server: ServerProcess) -> ServerProcess:
    """The commands are the same on every store."""
    return in_memory_server


@pytest.fixture
def files(client: MemoryClient, agent: str) -> MemoryFiles:
    """The files of the project in the store."""
    return client.files(project=agent)


@pytest.fixture
def machines(here: Here, server: ServerProcess, agent: str, tmp_path: Path) -> tuple[Machine, Machine]:
    """Two machines with a folder each for one project."""
    first, second = (
        Machine(here, server.address, agent, tmp_path / name / "memory", tmp_path / name / "state")
        for name in ("first", "second")
    )
    return first, second


@pytest.fixture
def machine(machines: tuple[Machine, Machine]) -> Machine:
    return machines[0]


@pytest.fixture
def other(machines: tuple[Machine, Machine]) -> Machine:
    return machines[1]


def stored(files: MemoryFiles) -> dict[str, str]:
    """All that the store has."""
    return {info.name: files.get(info.name).text for info in files.list()}


def folded(text: str) -> str:
    return " ".join(text.split())


# What is decided.

STATES = [*State]
WISHES = [
    Wish(direction, delete=delete, force=force)
    for direction, delete, force in itertools.product(Direction, (False, True), (False, True))
]


@pytest.mark.parametrize("wish", WISHES, ids=str)
def test_nothing_unseen_is_lost_whatever_the_sides_are(wish: Wish) -> None:
    """Without --force, what changed at the target is never overwritten nor removed; without --delete, nothing is
    removed; what was never on both sides is never removed."""
    for source, target, known in itertools.product(STATES, STATES, (False, True)):
        if not known and State.AS_IT_WAS in {source, target}:
            continue
        step = decide(source, target, known=known, wish=wish)
        if target is State.CHANGED and not wish.force:
            assert step not in {Step.COPY, Step.REMOVE}
        if step is Step.REMOVE:
            assert wish.delete
            assert known
            assert source is State.ABSENT
        if step is Step.COPY:
            assert source is not State.ABSENT
        if step is Step.COMPARE:
            assert source is target is State.CHANGED


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("MEMORY.md", True),
        ("2026-07-25.md", True),
        ("2024-02-29.md", True),
        ("2026-02-29.md", False),
        ("memory.md", False),
        ("2026-7-25.md", False),
        ("20260725.md", False),
        ("2026-W30-6.md", False),
        ("٢٠٢٦-07-25.md", False),
        ("2026-07-25.md\n", False),
        ("../MEMORY.md", False),
        ("", False),
    ],
)
def test_memory_files_are_told_by_their_names(name: str, is_one: bool) -> None:
    assert is_memory_name(name) is is_one


# There and back.


def test_a_folder_goes_into_the_store_and_back(machine: Machine, other: Machine, files: MemoryFiles) -> None:
    """Byte by byte, and nothing is written that is the same."""
    content = b"\xef\xbb\xbf- a\r\n\xff\x00"
    machine.write(log="found\n")
    (machine.folder / INDEX).write_bytes(content)
    pushed = machine.ok("push", "--author", "ana")
    assert pushed == f"Pushed {machine.folder} to project {machine.owner} in store default: 2 made."
    assert files.get().content == content
    assert files.get().author == "ana"
    pulled = other.ok("pull")
    assert pulled == f"Pulled project {machine.owner} in store default to {other.folder}: 2 made."
    assert (other.folder / INDEX).read_bytes() == content
    for one, command in itertools.product((machine, other), ("push", "pull")):
        assert one.ok(command).endswith(": 2 the same.")
    assert files.get().version == 1


def test_changes_of_one_side_go_to_the_other(machine: Machine, other: Machine, files: MemoryFiles) -> None:
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    other.ok("pull")
    machine.write(index="- a\n- b\n")
    assert machine.ok("push").endswith(": 1 changed, 1 the same.")
    files.log("y", "2026-07-25")
    assert other.ok("pull").endswith(": 2 changed.")
    assert other.contents == stored(files) == {INDEX: "- a\n- b\n", LOG: "x\ny\n"}
    other.write(log="x\ny\nz\n")
    assert other.ok("push").endswith(": 1 changed, 1 the same.")
    assert machine.ok("pull").endswith(": 1 changed, 1 the same.")
    assert machine.contents == stored(files)


def test_what_only_the_other_side_changed_is_left_and_told(machine: Machine, files: MemoryFiles) -> None:
    """A push takes nothing, and a pull gives nothing: neither is a conflict."""
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    files.add("- theirs")
    machine.write(log="x\nmine\n")
    pulled = machine.run("pull", "--dry-run")
    assert f"{LOG}: changed here only, which `memoryd memory push` takes to the store" in folded(pulled.stderr)
    pushed = machine.run("push")
    assert pushed.returncode == 0
    assert f"{INDEX}: changed in the store only, which `memoryd memory pull` takes here" in folded(pushed.stderr)
    assert stored(files) == {INDEX: "- a\n- theirs\n", LOG: "x\nmine\n"}
    assert machine.contents == {INDEX: "- a\n", LOG: "x\nmine\n"}
    assert machine.results("pull") == {INDEX: "changed", LOG: "same"}
    (machine.folder / "2026-07-26.md").write_text("new")
    assert machine.results("pull")["2026-07-26.md"] == "only_in_folder"
    files.put("z", "2026-07-27.md")
    assert machine.results("push") == {
        INDEX: "same",
        LOG: "same",
        "2026-07-26.md": "made",
        "2026-07-27.md": "only_in_store",
    }


# Conflicts.


def test_a_push_refuses_to_overwrite_what_another_machine_pushed(
    machine: Machine, other: Machine, files: MemoryFiles
) -> None:
    """File by file: the rest is pushed."""
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    other.ok("pull")
    other.write(index="- a\n- theirs\n")
    other.ok("push", "--author", "bob")
    machine.write(index="- a\n- mine\n", log="x\ny\n")
    told = machine.stuck("push")
    assert "1 file could not be pushed:\n  MEMORY.md: it was changed here, and in the store (version 2 by bob, " in told
    assert "Nothing was overwritten. `memoryd memory show MEMORY.md --project " in told
    assert f" --project {machine.owner} --file MEMORY.md --force" in told.replace("'", "")
    assert stored(files) == {INDEX: "- a\n- theirs\n", LOG: "x\ny\n"}
    assert machine.stuck("push")
    assert stored(files)[INDEX] == "- a\n- theirs\n"
    machine.write(index="- a\n- theirs\n- mine\n")
    assert machine.ok("push", "--file", INDEX, "--force").endswith(": 1 changed.")
    assert stored(files)[INDEX] == "- a\n- theirs\n- mine\n"
    other.ok("pull")
    assert other.contents == machine.contents == stored(files)


def test_a_pull_refuses_to_overwrite_what_was_written_here(
    machine: Machine, other: Machine, files: MemoryFiles
) -> None:
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    other.ok("pull")
    other.write(index="- a\n- theirs\n", log="x\ny\n")
    other.ok("push")
    machine.write(index="- a\n- mine\n")
    told = machine.stuck("pull")
    assert "1 file could not be pulled:\n  MEMORY.md: it was changed here, and in the store (version 2" in told
    assert machine.contents == {INDEX: "- a\n- mine\n", LOG: "x\ny\n"}
    assert machine.ok("pull", "--file", INDEX, "--force").endswith(": 1 changed.")
    assert machine.contents == stored(files) == other.contents


def test_without_a_memory_of_it_equal_is_fine_and_different_is_a_conflict(
    machine: Machine, other: Machine, files: MemoryFiles
) -> None:
    """A machine that never pushed or pulled the folder, or lost what it remembered."""
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    other.write(index="- a\n", log="other\n")
    for command in ("push", "pull"):
        told = other.stuck(command)
        assert f"  {LOG}: the folder's and the store's differ (version 1" in told
        assert INDEX not in told
    assert other.contents[LOG] == "other\n"
    assert stored(files)[LOG] == "x\n"
    other.write(log="x\n")
    assert other.ok("pull").endswith(": 2 the same.")
    shutil.rmtree(machine.state)
    machine.write(index="- b\n")
    assert f"  {INDEX}: " in machine.stuck("push")
    (record,) = (other.state / "memoryd" / "memory").iterdir()
    record.write_text('{"files": [')
    other.write(index="- c\n")
    assert f"  {INDEX}: " in other.stuck("push")
    assert stored(files)[INDEX] == "- a\n"


def test_a_team_can_commit_the_folder(machine: Machine, other: Machine, files: MemoryFiles) -> None:
    """What a colleague pushed and committed arrives twice, and is no conflict; nothing is written beside the files."""
    machine.write(index="- a\n")
    machine.ok("push")
    shutil.copytree(machine.folder, other.folder)  # A clone.
    other.write(index="- a\n- b\n")
    assert other.stuck("push")  # It does not know yet that the folder was in step.
    other.write(index="- a\n")
    other.ok("push")
    other.write(index="- a\n- b\n")
    other.ok("push")
    shutil.copytree(other.folder, machine.folder, dirs_exist_ok=True)  # Committed and pulled by git.
    assert machine.ok("push").endswith(": 1 the same.")
    machine.write(index="- a\n- b\n- c\n")
    assert machine.ok("push").endswith(": 1 changed.")
    assert stored(files) == machine.contents == {INDEX: "- a\n- b\n- c\n"}
    assert set(other.contents) == {INDEX}


def test_what_changes_in_between_is_not_overwritten_either(
    machine: Machine, files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store compares etags when it writes, and a pull compares contents right before it replaces a file."""
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    read = memory_folder.Folder.read

    def others_write_first(self: memory_folder.Folder, name: str) -> bytes | None:
        content = read(self, name)
        if content == b"- mine\n" and files.get().text == "- a\n":
            files.put("- theirs\n")
        return content

    machine.write(index="- mine\n")
    with monkeypatch.context() as patch:
        patch.setattr(memory_folder.Folder, "read", others_write_first)
        assert f"  {INDEX}: " in machine.stuck("push", "--force", "--file", INDEX)
    assert stored(files)[INDEX] == "- theirs\n"
    files.put("x\ntheirs\n", LOG)
    sync = os.fsync

    def a_person_writes_first(descriptor: int) -> None:
        sync(descriptor)
        machine.write(log="mine\n")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", a_person_writes_first)
        assert f"  {LOG}: it was changed here just now" in machine.stuck("pull", "--file", LOG)
    assert machine.contents == {INDEX: "- mine\n", LOG: "mine\n"}


# Deletions.


def test_what_is_deleted_here_stays_in_the_store_without_delete(machine: Machine, files: MemoryFiles) -> None:
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    files.put("never here", "2026-01-01.md")
    (machine.folder / LOG).unlink()
    left = machine.run("push")
    assert left.returncode == 0
    assert f"{LOG}: deleted here, and kept in the store without --delete" in folded(left.stderr)
    assert set(stored(files)) == {INDEX, LOG, "2026-01-01.md"}
    assert machine.ok("push", "--delete").endswith(": 1 deleted, 1 the same, 1 left alone.")
    assert set(stored(files)) == {INDEX, "2026-01-01.md"}
    assert machine.ok("pull").endswith(": 1 made, 1 the same.")


def test_what_is_deleted_in_the_store_stays_here_without_delete(
    machine: Machine, other: Machine, files: MemoryFiles
) -> None:
    """Nor does a push put it back by itself."""
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    other.ok("pull")
    (machine.folder / LOG).unlink()
    machine.ok("push", "--delete")
    (other.folder / "2026-01-01.md").write_text("never there")
    assert other.results("push", "--file", LOG) == {LOG: "deleted_in_store"}
    assert other.results("pull") == {INDEX: "same", LOG: "deleted_in_store", "2026-01-01.md": "only_in_folder"}
    assert set(other.contents) == {INDEX, LOG, "2026-01-01.md"}
    assert other.ok("pull", "--delete").endswith(": 1 deleted, 1 the same, 1 left alone.")
    assert set(other.contents) == {INDEX, "2026-01-01.md"}


def test_a_deletion_never_takes_what_changed_meanwhile(machine: Machine, other: Machine, files: MemoryFiles) -> None:
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    other.ok("pull")
    (machine.folder / LOG).unlink()
    files.put("x\nmore\n", LOG)
    told = machine.stuck("push", "--delete")
    assert f"  {LOG}: it was deleted here, and changed in the store (version 2" in told
    files.delete(INDEX)
    other.write(index="- a\n- mine\n")
    for command in (["pull", "--delete"], ["push"]):
        assert f"  {INDEX}: it was changed here, and deleted in the store" in other.stuck(*command)
    assert other.contents[INDEX] == "- a\n- mine\n"
    assert stored(files) == {LOG: "x\nmore\n"}
    assert other.results("push", "--force", "--file", INDEX) == {INDEX: "made"}
    assert machine.results("push", "--delete", "--force", "--file", LOG) == {LOG: "deleted"}
    assert stored(files) == {INDEX: "- a\n- mine\n"}


def test_a_folder_that_was_lost_is_filled_again(machine: Machine, files: MemoryFiles) -> None:
    """An agent's disk that does not last: what the machine remembers of it makes no deletions of the losses."""
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    shutil.rmtree(machine.folder)
    lost = machine.stuck("push", "--delete")
    assert f"there is no folder {machine.folder}." in lost
    assert machine.ok("pull", "--delete").endswith(": 2 made.")
    assert machine.contents == stored(files)


# What is asked for.


def test_a_dry_run_changes_nothing(machine: Machine, other: Machine, files: MemoryFiles) -> None:
    machine.write(index="- a\n", log="x\n")
    assert machine.ok("push", "--dry-run") == (
        f"This would push {machine.folder} to project {machine.owner} in store default: 2 made."
    )
    assert stored(files) == {}
    assert not machine.state.exists()
    machine.ok("push")
    assert other.ok("pull", "--dry-run").endswith(": 2 made.")
    assert not other.folder.exists()
    other.write(index="- b\n")
    assert f"  {INDEX}: " in other.stuck("push", "--dry-run")
    assert other.run("push", "--dry-run", "--force").stdout.endswith(": 1 changed, 1 left alone.\n")
    assert stored(files)[INDEX] == "- a\n"


def test_files_can_be_named(machine: Machine, files: MemoryFiles) -> None:
    machine.write(index="- a\n", log="x\n")
    assert machine.ok("push", "--file", LOG).endswith(": 1 made.")
    assert stored(files) == {LOG: "x\n"}
    assert machine.ok("push", "--file", LOG, "--file", INDEX).endswith(": 1 made, 1 the same.")
    assert "2026-01-01.md: neither the folder nor the store has it" in machine.stuck("push", "--file", "2026-01-01.md")
    wrong = machine.run("push", "--file", "../MEMORY.md")
    assert wrong.returncode == 2
    assert "../MEMORY.md is no memory file" in wrong.stderr


def test_what_else_is_in_the_folder_is_left_alone_and_named_once(
    machine: Machine, other: Machine, files: MemoryFiles
) -> None:
    machine.write(index="- a\n")
    (machine.folder / "notes \x1b[2J.md").write_text("x")
    (machine.folder / "archive").mkdir()
    for number in range(8):
        (machine.folder / f"{number}.md").write_text("x")
    before = {path.name for path in machine.folder.iterdir()}
    done = machine.run("push", "--delete")
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["0.md, 1.md, 2.md, 3.md, 4.md, 5.md and 4 more: no memory files, left alone"]
    assert stored(files) == {INDEX: "- a\n"}
    files.put("- b\n")
    assert machine.run("pull", "--delete").returncode == 0
    assert {path.name for path in machine.folder.iterdir()} == before
    shutil.rmtree(machine.folder)
    machine.folder.mkdir()
    (machine.folder / "notes \x1b[2J.md").write_text("x")
    assert machine.run("pull").stderr == "notes ␛[2J.md: no memory files, left alone\n"


def test_a_secret_is_refused_by_file_line_and_kind(machine: Machine, files: MemoryFiles) -> None:
    """The other files are pushed, and the secret is nowhere in what is told."""
    machine.write(index=f"- a\n- b\n- key {TOKEN}\n", log="x\n")
    done = machine.run("push")
    assert done.returncode == 1
    assert f"  {INDEX}: line 3 holds a credential (GitHub token): take it out, or repeat the command" in done.stderr
    assert "Nothing was overwritten" not in done.stderr
    assert TOKEN not in done.stdout + done.stderr
    assert stored(files) == {LOG: "x\n"}
    assert machine.ok("push", "--allow-secrets").endswith(": 1 made, 1 the same.")


def test_a_server_or_a_store_is_remembered_by_itself(
    here: Here, start_server: StartServer, tmp_path: Path, agent: str
) -> None:
    """The same folder may go into several stores: what is known of one says nothing about another."""
    server = start_server("--store", "one=memory://", "--store", "two=memory://", "--default-store", "one")
    machine = Machine(here, server.address, agent, tmp_path / "memory", tmp_path / "state")
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    assert machine.ok("push", "--store", "two").endswith("in store two: 2 made.")
    machine.write(index="- b\n")
    assert machine.ok("push", "--store", "one").endswith("in store one: 1 changed, 1 the same.")
    assert machine.ok("push", "--store", "two").endswith(": 1 changed, 1 the same.")
    assert len(list((tmp_path / "state" / "memoryd" / "memory").iterdir())) == 2


def test_what_cannot_be_remembered_is_told(machine: Machine, files: MemoryFiles) -> None:
    machine.write(index="- a\n")
    machine.state.write_text("no folder")
    done = machine.run("push")
    assert done.returncode == 0
    assert "cannot be remembered in " in folded(done.stderr)
    assert stored(files) == {INDEX: "- a\n"}


# Where the files are.


@pytest.mark.parametrize("tier", ["user", "project"])
def test_each_tier_has_its_usual_folder(
    tier: str,
    here: Here,
    server: ServerProcess,
    client: MemoryClient,
    agent: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same that an agent's files are in (`UserFiles`, `ProjectFiles`)."""
    variables: Mapping[str, str] = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path / "home")}
    places = {"user": tmp_path / "home", "project": tmp_path / "workspace"}
    for place in places.values():
        place.mkdir()
    monkeypatch.delenv("OH_PERSISTENCE_DIR", raising=False)
    monkeypatch.chdir(places["project"])
    files = client.files(user=agent) if tier == "user" else client.files(project=agent)
    files.put("- a\n")
    here.ok("memory", "pull", f"--{tier}", agent, address=server.address, **variables)
    index = places[tier] / ".openhands" / "memory" / INDEX
    assert index.read_text() == "- a\n"
    index.write_text("- b\n")
    here.ok("memory", "push", f"--{tier}", agent, address=server.address, **variables)
    assert files.get().text == "- b\n"
    if tier == "user":
        variables = {**variables, "OH_PERSISTENCE_DIR": str(tmp_path / "kept")}
        here.ok("memory", "pull", "--user", agent, address=server.address, **variables)
        assert (tmp_path / "kept" / "memory" / INDEX).read_text() == "- b\n"


def test_a_pull_keeps_permissions_and_leaves_nothing_behind(
    machine: Machine, files: MemoryFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is replaced as a whole, or stays as it is."""
    machine.write(index="- a\n", log="x\n")
    machine.ok("push")
    (machine.folder / INDEX).chmod(0o640)
    before = (machine.folder / INDEX).stat()
    files.put("- b\n")
    files.put("x\ny\n", LOG)

    def disk_is_full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk_is_full)
        assert f"  {INDEX}: it cannot be written: No space left on device" in machine.stuck("pull", "--file", INDEX)
    assert machine.contents == {INDEX: "- a\n", LOG: "x\n"}
    machine.ok("pull")
    after = (machine.folder / INDEX).stat()
    assert after.st_mode == before.st_mode
    assert after.st_ino != before.st_ino
    assert machine.contents == {INDEX: "- b\n", LOG: "x\ny\n"}


def kill_before_it_replaces(arguments: Sequence[str], address: str, state: Path) -> None:
    """Runs a command that gets a SIGKILL at the moment when a temporary file would take its place."""
    code = (
        "import os, signal\n"
        "from memoryd_server.cli import main\n"
        "os.replace = os.rename = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "main()\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment(address, {"XDG_STATE_HOME": str(state)}),
        capture_output=True,
        timeout=START_SECONDS,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL


def grow_old(path: Path, seconds: float = 2 * ABANDONED_SECONDS) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then), follow_symlinks=False)


def test_what_a_killed_pull_left_goes_with_a_later_one(machine: Machine, files: MemoryFiles) -> None:
    """Nobody else would ever remove it, and a team would commit it."""
    machine.write(index="- a\n")
    machine.ok("push")
    files.put("- b\n")
    pull = ["memory", "pull", str(machine.folder), "--project", machine.owner]
    kill_before_it_replaces(pull, machine.address, machine.state)
    (left,) = (name for name in machine.contents if name != INDEX)
    assert machine.contents == {INDEX: "- a\n", left: "- b\n"}

    # Another pull may be writing it, until it is old.
    for command in ("push", "pull"):
        assert left not in machine.run(command, "--dry-run").stderr
    assert machine.run("pull").stderr == ""
    assert machine.contents == {INDEX: "- b\n", left: "- b\n"}

    grow_old(machine.folder / left)
    for spared in (["push"], ["pull", "--dry-run"]):
        assert machine.run(*spared).stderr == ""
        assert left in machine.contents
    assert machine.run("pull").stderr == ""
    assert machine.contents == {INDEX: "- b\n"}


def test_only_temporary_files_of_a_pull_are_removed(machine: Machine, files: MemoryFiles) -> None:
    """They are known by their form, and are files; everything else in the folder is a person's."""
    files.put("- a\n")
    machine.ok("pull")
    outside = machine.folder.parent / "outside"
    outside.write_text("x")
    form = f".{LOG}.0123456789a"
    kept = [
        ".MEMORY.md.0123456789ab.tmp~",
        "MEMORY.md.0123456789ab.tmp",
        ".MEMORY.md.tmp",
        ".notes.md.0123456789ab.tmp",
    ]
    kept += [f"{form}.tmp", f"{form}B.tmp", ".2026-02-30.md.0123456789ab.tmp", f"{form}b.tmp\n"]
    for name in kept:
        (machine.folder / name).write_text("x")
    (machine.folder / f"{form}0.tmp").mkdir()
    (machine.folder / f"{form}1.tmp").symlink_to(outside)
    os.mkfifo(machine.folder / f"{form}2.tmp")
    kept += [f"{form}{number}.tmp" for number in range(3)]
    gone = [f"{form}b.tmp", f".{INDEX}.0123456789ab.tmp"]
    for name in gone:
        (machine.folder / name).write_text("x")
    for name in kept + gone:
        grow_old(machine.folder / name)
    told = machine.run("pull").stderr
    assert f"and {len(kept) - 6} more: no memory files, left alone" in told
    assert {path.name for path in machine.folder.iterdir()} == {INDEX, *kept}
    assert outside.read_text() == "x"


def test_what_a_killed_pull_left_of_its_memory_goes_too(machine: Machine, files: MemoryFiles) -> None:
    """The records are written in the same way, and nobody looks into their folder."""
    machine.write(index="- a\n")
    push = ["memory", "push", str(machine.folder), "--project", machine.owner]
    kill_before_it_replaces(push, machine.address, machine.state)
    records = machine.state / "memoryd" / "memory"
    (left,) = records.iterdir()
    grow_old(left)
    machine.ok("push")
    (record,) = records.iterdir()
    assert record.suffix == ".json"


def make_link_out(path: Path) -> None:
    (path.parent.parent / "outside.md").write_text("outside")
    path.symlink_to(path.parent.parent / "outside.md")


def make_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(5 << 30)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (make_link_out, "a symbolic link leads out of its folder"),
        (os.mkfifo, "it is a pipe, not a file"),
        (Path.mkdir, "it is a folder, not a file"),
        (make_sparse, "it is larger than 1,048,576 bytes"),
    ],
    ids=["link", "pipe", "folder", "huge"],
)
def test_what_is_no_readable_file_is_told_and_left_alone(
    make: object, told: str, machine: Machine, files: MemoryFiles
) -> None:
    """In both directions, also with --force: nothing is read nor written out of the folder, and nothing waits."""
    assert callable(make)
    machine.write(log="x\n")
    make(machine.folder / INDEX)
    assert f"  {INDEX}: {told}" in machine.stuck("push", "--force", "--delete")
    assert stored(files) == {LOG: "x\n"}
    files.put("- theirs\n")
    for options in ([], ["--force"], ["--delete"]):
        assert f"  {INDEX}: {told}" in machine.stuck("pull", *options)
    outside = machine.folder.parent / "outside.md"
    assert not outside.exists() or outside.read_text() == "outside"


def test_a_link_within_the_folder_is_read_and_never_written(machine: Machine, files: MemoryFiles) -> None:
    machine.write(log="x\n")
    (machine.folder / "index.md").write_text("- a\n")
    (machine.folder / INDEX).symlink_to("index.md")
    machine.ok("push")
    assert stored(files)[INDEX] == "- a\n"
    files.put("- b\n")
    assert f"  {INDEX}: it is a symbolic link, which is neither written through nor replaced" in machine.stuck("pull")
    assert (machine.folder / INDEX).is_symlink()
    assert (machine.folder / "index.md").read_text() == "- a\n"


@pytest.mark.parametrize("link", [".openhands", ".openhands/memory"])
def test_a_workspace_whose_folder_leads_out_is_not_used(
    link: str,
    here: Here,
    server: ServerProcess,
    files: MemoryFiles,
    agent: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A cloned project may hold any link."""
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    (outside / "memory").mkdir(parents=True)
    (outside / "memory" / INDEX).write_text("- private\n")
    (workspace / link).parent.mkdir(parents=True)
    (workspace / link).symlink_to(outside if link == ".openhands" else outside / "memory")
    monkeypatch.chdir(workspace)
    files.put("- theirs\n", LOG)
    for command in (["push"], ["pull", "--force"]):
        done = here.memoryd(
            "memory", *command, "--project", agent, address=server.address, XDG_STATE_HOME=str(tmp_path / "state")
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert "is not used: a symbolic link leads out of the workspace" in folded(done.stderr)
    assert stored(files) == {LOG: "- theirs\n"}
    assert [path.name for path in (outside / "memory").iterdir()] == [INDEX]


def test_a_folder_may_be_reached_over_a_link(machine: Machine, files: MemoryFiles, tmp_path: Path) -> None:
    """The folder itself is the person's choice, and is one folder by whatever way."""
    machine.write(index="- a\n")
    machine.ok("push")
    link = tmp_path / "link"
    link.symlink_to(machine.folder)
    linked = Machine(machine.here, machine.address, machine.owner, link, machine.state)
    machine.write(index="- b\n")
    assert linked.ok("push").endswith(": 1 changed.")
    files.put("- c\n")
    assert linked.ok("pull").endswith(": 1 changed.")
    assert machine.contents == {INDEX: "- c\n"}


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.stop()


def test_names_of_a_server_lead_nowhere(here: Here, scripted: ScriptedServer, tmp_path: Path) -> None:
    """Whatever a server calls its files: nothing is written but memory files, and nothing of it is told raw."""
    names = ["MEMORY.md", "../MEMORY.md", "/tmp/x.md", "notes.md", "2026-02-30.md", "\x1b[2J.md", ""]
    listed = pb.ListMemoryFilesResponse(files=[pb.MemoryFile(name=name, version=1, etag="e") for name in names])
    scripted.script("GetStore", answers(GetStoreResponse(store=Store(name="\x1b[2J", reachable=True))))
    scripted.script("ListMemoryFiles", answers(listed))
    got = pb.GetMemoryFileResponse(file=pb.MemoryFile(name="../../MEMORY.md", version=1, etag="e"), content=b"- a\n")
    scripted.script("GetMemoryFile", answers(got))
    machine = Machine(here, scripted.address, "atlas", tmp_path / "deep" / "memory", tmp_path / "state")
    done = machine.run("pull")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "notes.md" in done.stderr
    assert machine.contents == {INDEX: "- a\n"}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["memory"]


def test_a_push_that_breaks_off_remembers_what_it_did(
    here: Here, scripted: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the next one knows that only the store changed what the first one pushed."""
    monkeypatch.setattr("memoryd_server.cli.memory_sync.IN_FLIGHT", 1)
    scripted.script("GetStore", *[answers(GetStoreResponse(store=Store(name="default", reachable=True)))] * 2)
    changed = pb.ListMemoryFilesResponse(files=[pb.MemoryFile(name=INDEX, version=2, etag="second")])
    scripted.script("ListMemoryFiles", answers(pb.ListMemoryFilesResponse()), answers(changed))
    put = pb.PutMemoryFileResponse(file=pb.MemoryFile(name=INDEX, version=1, etag="first"))
    scripted.script("PutMemoryFile", answers(put), fails(grpc.StatusCode.INTERNAL, "INTERNAL"))
    machine = Machine(here, scripted.address, "atlas", tmp_path / "memory", tmp_path / "state")
    machine.write(index="- a\n", log="x\n")
    told = machine.stuck("push")
    assert told.startswith("memoryd: text of INTERNAL")
    assert told.endswith(".\n1 file moved. Repeat the command, and it goes on where it stopped.\n")
    assert machine.results("push", "--file", INDEX) == {INDEX: "newer_in_store"}


# Many files, and what interrupts.


def logs(folder: Path, count: int) -> dict[str, str]:
    """Daily logs and an index, as an agent has after a while."""
    folder.mkdir(parents=True)
    names = [f"{2024 + number // 336}-{number // 28 % 12 + 1:02}-{number % 28 + 1:02}.md" for number in range(count)]
    contents = {name: f"# {name}\n" + "- found something out, and wrote it down\n" * 50 for name in names}
    contents[INDEX] = "- a\n"
    for name, content in contents.items():
        (folder / name).write_text(content)
    return contents


def test_four_hundred_logs_go_there_and_back(machine: Machine, other: Machine, files: MemoryFiles) -> None:
    contents = logs(machine.folder, 400)
    assert machine.ok("push").endswith(": 401 made.")
    assert other.ok("pull").endswith(": 401 made.")
    assert other.contents == contents
    assert machine.ok("push").endswith(": 401 the same.")
    shutil.rmtree(other.state)
    assert other.ok("push").endswith(": 401 the same.")
    told = machine.run("pull", "--json").stdout.splitlines()
    assert len(told) == 401
    assert [json.loads(line)["name"] for line in told[:2]] == [INDEX, max(set(contents) - {INDEX})]


@pytest.mark.parametrize("command", ["push", "pull"])
def test_ctrl_c_half_way_says_how_to_go_on(
    command: str, server: ServerProcess, files: MemoryFiles, agent: str, tmp_path: Path
) -> None:
    """What is done stays done and is remembered, no file is there in part, and a repetition does the rest."""
    contents = logs(tmp_path / "memory", 600)
    address = server.address
    run = ["memory", command, str(tmp_path / "memory"), "--project", agent]
    if command == "pull":
        memoryd("memory", "push", *run[2:], address=address, XDG_STATE_HOME=str(tmp_path / "other"))
        shutil.rmtree(tmp_path / "memory")
    process = subprocess.Popen(
        [str(MEMORYD), *run],
        env=environment(address, {"XDG_STATE_HOME": str(tmp_path / "state")}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    def moved() -> set[str]:
        if command == "push":
            return {info.name for info in files.list()}
        folder = tmp_path / "memory"
        return {path.name for path in folder.iterdir()} if folder.exists() else set()

    wait_for(lambda: len(moved()) > 2 * IN_FLIGHT)  # So that some are done for certain.
    process.send_signal(signal.SIGINT)
    output, told = process.communicate(timeout=START_SECONDS)
    assert (process.returncode, output) == (130, "")
    assert told.startswith("memoryd: interrupted.\n")
    assert "Repeat the command, and it goes on where it stopped." in told
    done_already = moved()
    assert len(done_already) < len(contents)
    assert done_already <= set(contents)
    (record,) = (tmp_path / "state" / "memoryd" / "memory").iterdir()
    known = set(json.loads(record.read_text())["files"])
    assert known
    assert known <= done_already
    done = memoryd(*run, address=address, XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
    assert stored(files) == contents == {path.name: path.read_text() for path in (tmp_path / "memory").iterdir()}
