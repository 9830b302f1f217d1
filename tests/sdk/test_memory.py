"""Memory through the clients, on a real server; each test holds for the sync and for the async client.

What reading a file may meet is in test_file_reading.py, and what the server makes of memory in the tests of the engine.
"""

import asyncio
import datetime
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from memoryd import (
    AddedEntries,
    AsyncMemoryClient,
    EtagMismatch,
    FieldInvalid,
    FieldRequired,
    MemoryFileFull,
    MemoryFileNotFound,
    MemoryStyle,
    ProjectFiles,
    RequestIdConflict,
    SecretFound,
    StoredMemory,
    TierState,
    TierStatus,
    UserFiles,
    assistant,
    developer,
    system,
    user,
)
from memoryd.v1.memory_context_service_pb2 import (
    MEMORY_CONTEXT_STATE_ENABLED,
    MEMORY_STYLE_OPENHANDS,
    RenderMemoryContextRequest,
    RenderMemoryContextResponse,
)
from tests.adapters import ADAPTERS
from tests.sdk.conftest import Connect
from tests.sdk.scripted_server import ScriptedServer, answers, fails
from tests.servers import ServerProcess

ABSENT = TierStatus(state=TierState.ABSENT)
UNREADABLE = TierStatus(state=TierState.UNREADABLE)
TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
DAY = datetime.date(2026, 7, 25)


def loaded(lines: int) -> TierStatus:
    return TierStatus(state=TierState.LOADED, kept_lines=lines)


async def listed(items: Any) -> list[Any]:
    return [item async for item in items]


@pytest.fixture
def server(in_memory_server: ServerProcess) -> ServerProcess:
    """The engine is the same on every store; what each store keeps of files, the tests of stores say."""
    return in_memory_server


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own, where no variable leads elsewhere."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("OH_PERSISTENCE_DIR", raising=False)
    return home


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return workspace


def kept(folder: Path, content: str | bytes) -> Path:
    """The index in `.openhands/memory` of a home or workspace, with this content."""
    index = folder / ".openhands" / "memory" / "MEMORY.md"
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_bytes(content.encode() if isinstance(content, str) else content)
    return index


async def test_files_of_both_tiers_are_rendered(memory: AsyncMemoryClient, home: Path, workspace: Path) -> None:
    kept(home, "- prefers uv over pip\n")
    kept(workspace, "- the API uses cursors\n- tests run on PostgreSQL\n")
    context = await memory.render_context(user=UserFiles(), project=ProjectFiles(workspace))
    assert context.enabled
    assert context.block.startswith("<MEMORY_CONTEXT>\n<UNTRUSTED_CONTENT>\n")
    assert context.block.endswith(
        "\n\n# User memory (~/.openhands/memory/MEMORY.md)\n- prefers uv over pip\n\n"
        "# Project memory (.openhands/memory/MEMORY.md)\n- the API uses cursors\n- tests run on PostgreSQL\n"
        "</UNTRUSTED_CONTENT>\n</MEMORY_CONTEXT>"
    )
    assert "~/.openhands/memory/MEMORY.md" in context.instructions
    assert context.prompt == f"{context.block}\n\n{context.instructions}"
    assert (context.user, context.project, context.warnings) == (loaded(1), loaded(2), ())
    assert not context.tools
    assert (context.tools.names, context.tools.openai(), context.tools.anthropic()) == ((), [], [])


async def test_instructions_come_before_there_is_memory(memory: AsyncMemoryClient, workspace: Path) -> None:
    """The agent makes what is missing (design section 7)."""
    context = await memory.render_context(user=UserFiles(), project=ProjectFiles(workspace))
    assert (context.enabled, context.block, context.user, context.project) == (True, "", ABSENT, ABSENT)
    assert context.prompt == context.instructions != ""
    assert (await memory.render_context()).instructions == context.instructions


async def test_a_context_shows_no_memory_where_it_is_logged(memory: AsyncMemoryClient, home: Path) -> None:
    kept(home, "- a certain preference\n")
    context = await memory.render_context(user=UserFiles())
    assert "a certain preference" in context.block
    for shown in (repr(context), str(context), f"{context.tools!r}"):
        assert "preference" not in shown
        assert "MEMORY" not in shown


async def test_style_and_budget_are_those_of_the_server(memory: AsyncMemoryClient, home: Path) -> None:
    kept(home, "".join(f"- line {number:04} of memory\n" for number in range(1_000)))
    context = await memory.render_context(user=UserFiles(), budget=500, style="openhands")
    assert "</UNTRUSTED_CONTENT>\n\n# User memory" in context.block
    assert "\n[earlier memory truncated]\n" in context.block
    assert context.user.state is TierState.TRUNCATED
    assert context.user.kept_lines + context.user.dropped_lines == 1_000
    assert (
        context.block == (await memory.render_context(user=UserFiles(), budget=500, style=MemoryStyle.OPENHANDS)).block
    )
    with pytest.raises(FieldInvalid):
        await memory.render_context(user=UserFiles(), budget=10)


async def test_a_tier_is_in_files_and_the_other_in_the_store(
    memory: AsyncMemoryClient, agent: str, workspace: Path
) -> None:
    await memory.files(user=agent).add("- prefers uv over pip")
    kept(workspace, "- the API uses cursors\n")
    mixed = await memory.render_context(user=StoredMemory(user=agent), project=ProjectFiles(workspace))
    assert (mixed.user, mixed.project) == (loaded(1), loaded(1))
    schema = mixed.tools.anthropic()[0]["input_schema"]
    assert schema["properties"]["tier"]["enum"] == ["user"]
    with_both = await memory.render_context(StoredMemory(user=agent, project=agent))
    assert (with_both.user, with_both.project) == (loaded(1), ABSENT)
    one_by_one = await memory.render_context(StoredMemory(user=agent), project=StoredMemory(project=agent))
    assert one_by_one.prompt == with_both.prompt


async def test_an_agent_opts_in(memory: AsyncMemoryClient, agent: str, home: Path) -> None:
    """Without `load_memory`, nothing is rendered (design section 7)."""
    kept(home, "- prefers uv over pip\n")
    handle = memory.agent(agent)
    before = await memory.render_context(user=UserFiles(), agent=agent)
    assert (before.enabled, before.prompt, before.user, before.warnings) == (False, "", ABSENT, ())
    assert not (await handle.info()).load_memory
    info = await handle.update(load_memory=True)
    assert info.load_memory
    context = await memory.render_context(user=UserFiles(), agent=agent)
    assert (context.enabled, context.user) == (True, loaded(1))
    with pytest.raises(EtagMismatch):
        await handle.update(load_memory=False, etag="other")
    assert [each.load_memory async for each in memory.agents() if each.agent == agent] == [True]
    assert not (await handle.update(load_memory=False, etag=info.etag)).load_memory


Trap = Callable[[Path, Path], object]


def folder_out(root: Path, outside: Path) -> None:
    (root / ".openhands").mkdir()
    (root / ".openhands" / "memory").symlink_to(outside)


def index_at(root: Path) -> Path:
    index = root / ".openhands" / "memory" / "MEMORY.md"
    index.parent.mkdir(parents=True)
    return index


def private_file(root: Path) -> None:
    """As a repository can hold it: what is private in the workspace of whoever cloned it is not for the prompt."""
    (root / ".env").write_text("what is outside")
    index_at(root).symlink_to("../../.env")


def sparse(root: Path, outside: Path) -> None:
    with index_at(root).open("wb") as file:
        file.truncate(5_000_000_000)


TRAPS: dict[str, tuple[Trap, str]] = {
    "link": (lambda r, o: index_at(r).symlink_to(o / "MEMORY.md"), "a symbolic link leads out of its folder"),
    "link into the workspace": (lambda r, o: private_file(r), "a symbolic link leads out of its folder"),
    "folder's link": (folder_out, "a symbolic link leads out of its folder"),
    "folder": (lambda r, o: index_at(r).mkdir(), "it is a folder, not a file"),
    "pipe": (lambda r, o: os.mkfifo(index_at(r)), "it is a pipe, not a file"),
    "device": (lambda r, o: index_at(r).symlink_to("/dev/zero"), "a symbolic link leads out of its folder"),
    "5 GB": (sparse, "it is larger than 1,048,576 bytes"),
    "file on the way": (lambda r, o: (r / ".openhands").touch(), "a part of its path is not a folder"),
    "circle": (lambda r, o: index_at(r).symlink_to("MEMORY.md"), "its symbolic links go in a circle, or change"),
}


@pytest.mark.parametrize("trap", TRAPS)
async def test_what_cannot_be_read_costs_only_its_own_tier(
    trap: str,
    memory: AsyncMemoryClient,
    home: Path,
    workspace: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Best effort (design section 7): the other tier is rendered, and a warning tells."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "MEMORY.md").write_text("what is outside")
    kept(home, "- prefers uv over pip\n")
    spring, reason = TRAPS[trap]
    spring(workspace, outside)
    with caplog.at_level(logging.WARNING, "memoryd"):
        context = await memory.render_context(user=UserFiles(), project=ProjectFiles(workspace))
    assert (context.user, context.project) == (loaded(1), UNREADABLE)
    assert "- prefers uv over pip" in context.block
    assert "what is outside" not in context.block
    assert context.warnings == (f"Project memory could not be read: {reason}",)
    assert [(record.name, record.getMessage()) for record in caplog.records] == [("memoryd", context.warnings[0])]


async def test_user_memory_that_cannot_be_read_leaves_the_projects(
    memory: AsyncMemoryClient, home: Path, workspace: Path
) -> None:
    index_at(home).mkdir()
    kept(workspace, "- the API uses cursors\n")
    context = await memory.render_context(user=UserFiles(), project=ProjectFiles(workspace))
    assert (context.user, context.project) == (UNREADABLE, loaded(1))
    assert context.warnings == ("User memory could not be read: it is a folder, not a file",)


@pytest.mark.parametrize(
    ("way", "is_there"),
    [
        ("one folder", True),
        ("link of the workspace", True),
        ("folder of the user tier", True),
        ("hard link", True),
        ("one folder", False),
        ("link of the workspace", False),
        ("folder of the user tier", False),
    ],
)
async def test_one_file_is_not_two_tiers(
    way: str, is_there: bool, memory: AsyncMemoryClient, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is shown once, and the agent is not told to keep two memories in it: also before it is made."""
    index = kept(home, "- prefers uv over pip\n")
    given, workspace = UserFiles(), home
    if way == "link of the workspace":
        workspace = tmp_path / "alias"
        workspace.symlink_to(home)
    elif way == "hard link":
        workspace = tmp_path / "workspace"
        index_at(workspace).hardlink_to(index)
    elif way == "folder of the user tier":
        given = UserFiles(index.parent)
    if not is_there:
        index.unlink()
    with caplog.at_level(logging.WARNING, "memoryd"):
        context = await memory.render_context(user=given, project=ProjectFiles(workspace))
    assert (context.user, context.project) == (loaded(1) if is_there else ABSENT, ABSENT)
    assert context.block.count("- prefers uv over pip") == is_there
    assert "- User memory" in context.instructions
    assert "Project memory" not in context.instructions
    assert context.warnings == ("Project memory and user memory are one file: it is shown once, as user memory",)
    assert caplog.messages == list(context.warnings)


@pytest.mark.parametrize("name", ["wrkspace", "a" * 200, "dangling"], ids=["a name", "a long name", "a link"])
async def test_a_workspace_that_is_not_there_is_told(
    name: str, memory: AsyncMemoryClient, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a typing error rather than a workspace without memory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dangling").symlink_to("nowhere")
    kept(home, "- prefers uv over pip\n")
    context = await memory.render_context(user=UserFiles(), project=ProjectFiles(name))
    assert (context.user, context.project) == (loaded(1), UNREADABLE)
    (warning,) = context.warnings
    told = f"Project memory could not be read: there is no folder {tmp_path / name}"
    assert warning == told[: len(warning)]
    assert len(warning) in (len(told), 256 + len("Project memory could not be read: "))


async def test_what_may_still_be_made_is_absent(memory: AsyncMemoryClient, workspace: Path, tmp_path: Path) -> None:
    context = await memory.render_context(user=UserFiles(tmp_path / "later"), project=ProjectFiles(workspace))
    assert (context.user, context.project, context.warnings) == (ABSENT, ABSENT, ())
    (workspace / ".openhands").mkdir()
    context = await memory.render_context(project=ProjectFiles(workspace))
    assert (context.project, context.warnings) == (ABSENT, ())


async def test_equal_files_are_two(memory: AsyncMemoryClient, home: Path, workspace: Path) -> None:
    for folder in (home, workspace):
        kept(folder, "- prefers uv over pip\n")
    context = await memory.render_context(user=UserFiles(), project=ProjectFiles(workspace))
    assert (context.user, context.project, context.warnings) == (loaded(1), loaded(1), ())


async def test_bytes_that_are_no_text_are_told(memory: AsyncMemoryClient, home: Path) -> None:
    index = kept(home, b"\xef\xbb\xbf- a\r\n- b \xff\r\n")
    context = await memory.render_context(user=UserFiles())
    assert "\n- a\n- b �\n" in context.block
    assert len(context.warnings) == 1
    assert index.read_bytes() == b"\xef\xbb\xbf- a\r\n- b \xff\r\n"


FOLDERS: dict[str, tuple[dict[str, str], str | None, str, str]] = {
    # The environment, the path that is given, where the file is then (from the test's folder), its label.
    "usual": ({}, None, "home/.openhands/memory", "~/.openhands/memory/MEMORY.md"),
    "variable": ({"OH_PERSISTENCE_DIR": "{here}/kept"}, None, "kept/memory", "{here}/kept/memory/MEMORY.md"),
    "variable at home": (
        {"OH_PERSISTENCE_DIR": "{here}/home/kept"},
        None,
        "home/kept/memory",
        "~/kept/memory/MEMORY.md",
    ),
    "variable with ~": ({"OH_PERSISTENCE_DIR": "~/kept"}, None, "home/kept/memory", "~/kept/memory/MEMORY.md"),
    "relative variable": ({"OH_PERSISTENCE_DIR": "kept"}, None, "kept/memory", "{here}/kept/memory/MEMORY.md"),
    "empty variable": ({"OH_PERSISTENCE_DIR": ""}, None, "home/.openhands/memory", "~/.openhands/memory/MEMORY.md"),
    "given": ({"OH_PERSISTENCE_DIR": "elsewhere"}, "{here}/notes", "notes", "{here}/notes/MEMORY.md"),
    "given with ~": ({}, "~/notes", "home/notes", "~/notes/MEMORY.md"),
    "given, relative": ({}, "./home/../notes", "notes", "{here}/notes/MEMORY.md"),
    "home that ends in a slash": (
        {"HOME": "{here}/home/"},
        None,
        "home/.openhands/memory",
        "~/.openhands/memory/MEMORY.md",
    ),
    "no home": ({"HOME": "/"}, "{here}/notes", "notes", "~{here}/notes/MEMORY.md"),
}


@pytest.mark.parametrize("case", FOLDERS)
async def test_the_user_tier_is_where_the_environment_or_the_caller_says(
    case: str, connect: Connect, scripted: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's bytes go to the server as they are, under a path that tells no name of a home folder."""
    environment, given, folder, label = FOLDERS[case]
    monkeypatch.chdir(tmp_path)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value.format(here=tmp_path))
    index = tmp_path / folder / "MEMORY.md"
    index.parent.mkdir(parents=True)
    index.write_bytes(b"- a\r\n\xff\0")
    scripted.script("RenderMemoryContext", answers(RenderMemoryContextResponse()))
    files = UserFiles() if given is None else UserFiles(given.format(here=tmp_path))
    await connect(scripted.address).render_context(user=files, style="openhands", budget=300, agent="a")
    (request,) = map(RenderMemoryContextRequest.FromString, scripted.asked("RenderMemoryContext"))
    assert (request.user.data, request.user.label) == (b"- a\r\n\xff\0", label.format(here=tmp_path))
    assert (request.agent, request.budget, request.style) == ("a", 300, MEMORY_STYLE_OPENHANDS)
    assert not request.HasField("project")


async def test_a_path_that_no_request_can_carry_is_shortened_and_replaced(
    connect: Connect, scripted: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    odd = tmp_path / os.fsdecode(b"\xff")
    odd.mkdir()
    (odd / "MEMORY.md").write_bytes(b"- a\n")
    scripted.script("RenderMemoryContext", *[answers(RenderMemoryContextResponse())] * 2)
    memory = connect(scripted.address)
    await memory.render_context(user=UserFiles(odd))
    await memory.render_context(user=UserFiles("é/" * 2_000))
    first, second = map(RenderMemoryContextRequest.FromString, scripted.asked("RenderMemoryContext"))
    assert (first.user.data, first.user.label) == (b"- a\n", f"{tmp_path}/\N{REPLACEMENT CHARACTER}/MEMORY.md")
    assert 4_090 < len(second.user.label.encode()) <= 4_096
    assert second.user.unreadable == "File name too long"


async def test_a_home_that_nobody_has_is_told(memory: AsyncMemoryClient) -> None:
    files = UserFiles("~nobody-of-this-name/memory")
    context = await memory.render_context(user=files, project=ProjectFiles("~nobody-of-this-name"))
    assert (context.user, context.project) == (UNREADABLE, UNREADABLE)
    assert context.warnings[0] == "User memory could not be read: the home folder is not known"


@pytest.mark.parametrize("given", [".", "", "~/project", "alias"])
async def test_a_workspace_is_given_by_any_path(
    given: str, memory: AsyncMemoryClient, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = home / "project"
    kept(workspace, "- the API uses cursors\n")
    (tmp_path / "alias").symlink_to(workspace)
    monkeypatch.chdir(tmp_path if given == "alias" else workspace)
    context = await memory.render_context(project=ProjectFiles(given or workspace))
    assert context.project == loaded(1)
    assert "# Project memory (.openhands/memory/MEMORY.md)" in context.block


async def test_a_folder_of_dotfiles_may_be_a_link(memory: AsyncMemoryClient, home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / "dotfiles" / "MEMORY.md").write_text("- prefers uv over pip\n")
    (home / ".openhands").mkdir()
    (home / ".openhands" / "memory").symlink_to("../dotfiles")
    context = await memory.render_context(user=UserFiles())
    assert (context.user, context.warnings) == (loaded(1), ())


async def test_without_a_server_the_agent_starts_all_the_same(
    connect: Connect, home: Path, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory is only a help (design section 10)."""
    kept(home, "- a certain preference\n")
    with caplog.at_level(logging.DEBUG, "memoryd"):
        context = await connect("127.0.0.1:9").render_context(user=UserFiles(), project=ProjectFiles(workspace))
    assert (context.enabled, context.block, context.instructions, context.prompt) == (False, "", "", "")
    assert (context.user, context.project) == (UNREADABLE, UNREADABLE)
    assert not context.tools
    (warning,) = context.warnings
    assert warning.startswith("Memory could not be rendered, and the agent does without: no memoryd server answers at")
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.WARNING, warning)]


@pytest.mark.parametrize("reason", ["STORE_UNAVAILABLE", "SERVER_DRAINING"])
async def test_without_its_store_the_agent_starts_all_the_same(
    reason: str, connect: Connect, scripted: ScriptedServer
) -> None:
    scripted.script("RenderMemoryContext", fails(grpc.StatusCode.UNAVAILABLE, reason, retry_after=60))
    context = await connect(scripted.address).render_context(StoredMemory(user="mia"))
    assert (context.enabled, context.user, context.project) == (False, UNREADABLE, ABSENT)
    assert f"text of {reason}" in context.warnings[0]


async def test_a_server_that_hangs_is_not_waited_for_longer_than_the_timeout(
    connect: Connect, scripted: ScriptedServer
) -> None:
    over = threading.Event()

    def hangs(request: bytes, context: grpc.ServicerContext) -> list[Any]:
        over.wait()
        return [RenderMemoryContextResponse()]

    try:
        scripted.script("RenderMemoryContext", hangs)
        context = await connect(scripted.address).render_context(StoredMemory(user="mia"), timeout=0.25)
        assert not context.enabled
        assert "RenderMemoryContext did not end within 0.25 s" in context.warnings[0]
    finally:
        over.set()


async def test_a_closed_client_renders_nothing(connect: Connect, scripted: ScriptedServer) -> None:
    memory = connect(scripted.address)
    await memory.close()
    with pytest.raises(RuntimeError, match="this client is closed"):
        await memory.render_context(StoredMemory(user="mia"))


async def test_a_state_of_a_newer_server_is_unspecified(connect: Connect, scripted: ScriptedServer) -> None:
    response = RenderMemoryContextResponse(state=MEMORY_CONTEXT_STATE_ENABLED)
    response.user.state = 77  # type: ignore[assignment]
    scripted.script("RenderMemoryContext", answers(response))
    context = await connect(scripted.address).render_context(StoredMemory(user="mia"))
    assert context.user.state is TierState.UNSPECIFIED


async def test_rendered_memory_is_not_appended(memory: AsyncMemoryClient, agent: str, home: Path) -> None:
    """Invariant 14. The answer says of which messages a block was cut out."""
    kept(home, "- a certain preference\n")
    context = await memory.render_context(user=UserFiles())
    session = memory.session(agent=agent)
    appended = await session.append(
        system(f"You are a travel agent.\n\n{context.prompt}"),
        developer(context.block),
        user("Hello!"),
        assistant("Hi!"),
    )
    assert [each.memory_context_removed for each in appended] == [True, True, False, False]
    texts = [message.text or "" async for message in session.messages()]
    assert texts[0].startswith("You are a travel agent.")
    assert not any("a certain preference" in text or "<MEMORY_CONTEXT>" in text for text in texts)


async def test_a_file_comes_back_as_it_was_put(memory: AsyncMemoryClient, agent: str) -> None:
    """Invariant 4, for files."""
    files = memory.files(project=agent)
    content = b"\xef\xbb\xbf# Notes\r\n- \xf0\x9f\x99\x82 \xff\0 \xe2\x80\xa8"
    info = await files.put(content, author="mia")
    file = await files.get()
    assert (file.content, file.text) == (content, content.decode(errors="replace"))
    assert (file.name, file.version, file.etag, file.size, file.author, file.create_time) == (
        info.name,
        info.version,
        info.etag,
        info.size,
        info.author,
        info.create_time,
    )
    assert (info.name, info.version, info.size, info.author) == ("MEMORY.md", 1, len(content), "mia")
    assert abs(datetime.datetime.now(datetime.UTC) - info.create_time) < datetime.timedelta(minutes=5)
    assert "Notes" not in repr(file)
    assert (await files.put("- a\n", "2026-07-25.md")).name == "2026-07-25.md"


async def test_files_belong_to_one_owner(memory: AsyncMemoryClient, agent: str) -> None:
    """Invariant 5: the same id in two tiers is two owners."""
    await memory.files(user=agent).add("- the user's")
    files = memory.files(project=agent)
    with pytest.raises(MemoryFileNotFound) as missing:
        await files.get()
    assert missing.value.metadata["name"] == "MEMORY.md"
    assert (files.project, files.user, memory.files(user=agent).user) == (agent, None, agent)
    assert repr(files).endswith(f"MemoryFiles(project={agent!r})")
    with pytest.raises(FieldRequired):
        await memory.files(user="").get()


async def test_a_put_may_rest_on_what_was_read(memory: AsyncMemoryClient, agent: str) -> None:
    files = memory.files(user=agent)
    with pytest.raises(EtagMismatch):
        await files.put("- a\n", etag="of a file that is not there")
    first = await files.put("- a\n", create_only=True)
    with pytest.raises(EtagMismatch) as error:
        await files.put("- b\n", create_only=True)
    assert error.value.etag == first.etag
    second = await files.put("- b\n", etag=first.etag)
    with pytest.raises(EtagMismatch):
        await files.put("- c\n", etag=first.etag)
    assert await files.put("- b\n", etag=first.etag) == second
    with pytest.raises(EtagMismatch):
        await files.delete("MEMORY.md", first.etag)
    assert await files.delete("MEMORY.md", etag=second.etag)
    assert not await files.delete("MEMORY.md")


async def test_earlier_versions_are_kept(memory: AsyncMemoryClient, agent: str) -> None:
    files = memory.files(user=agent)
    for number in range(1, 53):
        await files.put(f"- {number}\n", author=f"author {number}")
    versions = await files.versions()
    assert [(version.version, version.author) for version in versions] == [
        (number, f"author {number}") for number in range(52, 2, -1)
    ]
    assert (await files.get(version=3)).text == "- 3\n"
    assert (await files.get("MEMORY.md", 52)).text == "- 52\n"
    for gone in (2, 53):
        with pytest.raises(MemoryFileNotFound) as error:
            await files.get(version=gone)
        assert error.value.metadata["version"] == str(gone)
    with pytest.raises(MemoryFileNotFound):
        await files.versions("2026-07-25.md")


async def test_entries_are_added_once(memory: AsyncMemoryClient, agent: str) -> None:
    files = memory.files(user=agent)
    added = await files.add("- a", "mia")
    assert (added.added, added.skipped, added.file.author) == (1, 0, "mia")
    added = await files.add(["- b", "- a", "- b"])
    assert (added.added, added.skipped, added.file.version) == (1, 2, 2)
    assert (await files.get()).text == "- a\n- b\n"
    first = await files.add("- c", request_id="r1")
    assert await files.add("- c", request_id="r1") == first
    with pytest.raises(RequestIdConflict):
        await files.add("- d", request_id="r1")
    for wrong, kind in (([], FieldRequired), (" ", FieldRequired), ("- a\n- b", FieldInvalid)):
        with pytest.raises(kind):
            await files.add(wrong)


async def test_a_log_takes_text_of_a_day(memory: AsyncMemoryClient, agent: str) -> None:
    files = memory.files(project=agent)
    moment = datetime.datetime(2026, 7, 25, 23, 59, tzinfo=datetime.UTC)
    for date in ("2026-07-25", DAY, moment):
        info = await files.log(f"as {type(date).__name__}", date, author="mia")
        assert (info.name, info.author) == ("2026-07-25.md", "mia")
    assert (await files.get("2026-07-25.md")).text == "as str\nas date\nas datetime\n"
    for zone in ("", "Pacific/Kiritimati", "Pacific/Pago_Pago"):
        before, info, after = (
            _today(zone),
            await files.log("today", time_zone=zone),
            _today(zone),
        )
        assert info.name in (f"{before}.md", f"{after}.md")
    assert await files.log("again", DAY, request_id="r1") == await files.log("again", DAY, request_id="r1")
    assert (await files.get("2026-07-25.md")).text.count("again") == 1
    for wrong in ({"date": "2026-02-30"}, {"time_zone": "Mars/Olympus"}, {"date": DAY, "time_zone": "Europe/Berlin"}):
        with pytest.raises(FieldInvalid):
            await files.log("a", **wrong)


def _today(zone: str) -> str:
    offset = {"": 0, "Pacific/Kiritimati": 14, "Pacific/Pago_Pago": -11}[zone]
    return (datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=offset)).date().isoformat()


async def test_a_year_of_logs_is_listed_and_not_rendered(memory: AsyncMemoryClient, agent: str) -> None:
    """The index comes first, then the newest logs; no prompt grows with them."""
    files = memory.files(user=agent)
    days = [DAY - datetime.timedelta(days=number) for number in range(400)]
    for day in reversed(days):
        await files.log(f"what happened on {day}", day)
    await files.add("- prefers uv over pip; details in the log of 2026-07-25")
    names = ["MEMORY.md", *(f"{day}.md" for day in days)]
    for page_size in (0, 7, 1_000):
        assert [file.name async for file in files.list(page_size=page_size)] == names
    context = await memory.render_context(StoredMemory(user=agent))
    assert context.user == loaded(1)
    assert "what happened" not in context.prompt
    answer = await context.tools.call("read_memory", {"tier": "user"})
    assert answer.startswith(f"The newest logs: {', '.join(names[1:15])}.\n")
    assert "\n- prefers uv over pip; details in the log of 2026-07-25\n[MEMORY.md " in answer
    answer = await context.tools.call("read_memory", {"tier": "user", "date": "2025-07-25"})
    assert "\nwhat happened on 2025-07-25\n[2025-07-25.md " in answer


async def test_a_credential_is_refused_with_line_and_kind(
    memory: AsyncMemoryClient, agent: str, server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """Memory is no place for secrets, and nor is an error (design section 7)."""
    files = memory.files(user=agent)
    text = f"# Access\n- the token is {TOKEN}\n"
    writes: Sequence[tuple[Any, int, str]] = (
        (lambda **allowed: files.put(text, **allowed), 2, "content"),
        (lambda **allowed: files.add(["- a", text.splitlines()[1]], **allowed), 1, "entries[1]"),
        (lambda **allowed: files.log(text, DAY, **allowed), 2, "text"),
    )
    with caplog.at_level(logging.DEBUG):
        for write, line, field in writes:
            with pytest.raises(SecretFound) as error:
                await write()
            assert (error.value.line, error.value.field) == (line, field)
            assert "GitHub" in error.value.kind
            assert TOKEN not in f"{error.value!r} {error.value.metadata} {error.value.__cause__}"
        assert await listed(files.list()) == []
    assert TOKEN not in caplog.text
    assert TOKEN not in server.log_text()
    for write, _, _ in writes:
        await write(allow_secrets=True)
    assert TOKEN in (await files.get()).text


async def test_a_file_that_is_full_takes_no_more(memory: AsyncMemoryClient, agent: str) -> None:
    files = memory.files(user=agent)
    full = "- a line of memory\n" * 55_000
    await files.put(full)
    with pytest.raises(MemoryFileFull) as error:
        await files.add([f"- {number} {'a' * 4_000}" for number in range(4)])
    assert (error.value.metadata["name"], error.value.metadata["limit"]) == ("MEMORY.md", "1048576")
    assert (await files.get()).text == full


async def test_an_erased_user_has_no_memory(memory: AsyncMemoryClient, agent: str) -> None:
    files = memory.files(user=agent)
    await files.add("- a")
    await files.log("a", DAY)
    await memory.files(project=agent).add("- a")
    assert (await memory.erase_user(agent)).memory_file_count == 2
    assert await listed(files.list()) == []
    assert [file.name async for file in memory.files(project=agent).list()] == ["MEMORY.md"]


@pytest.mark.parametrize("name", [adapter.name for adapter in ADAPTERS if adapter.name in ("in_memory", "sqlite")])
async def test_two_clients_add_while_a_third_puts_what_is_stale(
    name: str, server_on: Callable[[str], ServerProcess], agent: str
) -> None:
    """Nothing is overwritten: all entries are there, and the stale put is refused."""
    address = server_on(name).address
    async with (
        AsyncMemoryClient(address) as one,
        AsyncMemoryClient(address) as two,
        AsyncMemoryClient(address) as third,
    ):
        stale = await third.files(user=agent).put("- first\n")
        entries = {client: [f"- {which} {number}" for number in range(20)] for which, client in enumerate((one, two))}
        await one.files(user=agent).add("- second")
        calls = [client.files(user=agent).add(line) for client, lines in entries.items() for line in lines]
        late, *added = await asyncio.gather(
            third.files(user=agent).put("- overwritten\n", etag=stale.etag), *calls, return_exceptions=True
        )
        assert isinstance(late, EtagMismatch)
        assert [each.added for each in added if isinstance(each, AddedEntries)] == [1] * 40
        lines = (await third.files(user=agent).get()).text.splitlines()
    assert lines[:2] == ["- first", "- second"]
    assert sorted(lines[2:]) == sorted(line for each in entries.values() for line in each)
