"""`memoryd memory`, but for push and pull: looking at memory and changing it, against a real server."""

from __future__ import annotations

import datetime
import getpass
import io
import itertools
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import typer

from memoryd import MemoryClient, MemoryFileNotFound, MemoryFiles, SessionSettings, user
from memoryd_server.cli.memory import commands
from memoryd_server.cli.options import Server
from tests.cli.commands import Here, at_a_terminal, environment, memoryd
from tests.servers import MEMORYD, START_SECONDS, ServerProcess

TOKEN = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
DANGEROUS = "\x1b\x07\u202e\x9b"


@pytest.fixture
def server(in_memory_server: ServerProcess) -> ServerProcess:
    """The commands are the same on every store."""
    return in_memory_server


@pytest.fixture
def files(client: MemoryClient, agent: str) -> MemoryFiles:
    """The memory files of a user who is named like the test's agent."""
    return client.files(user=agent)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own, where no variable leads elsewhere."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("OH_PERSISTENCE_DIR", raising=False)
    return home


def index_of(files: MemoryFiles) -> str:
    return files.get().text


def folded(text: str) -> str:
    return " ".join(text.split())


# Adding and logging.


def test_entries_are_added_as_they_are_given(here: Here, server: ServerProcess, files: MemoryFiles, agent: str) -> None:
    """A bullet is no option, whatever letters follow its dash."""
    entries = ["- prefers uv over pip", "# Tools", "-- a dash of dashes", "* lives in Oslo", "- h"]
    said = here.ok("memory", "add", "--user", agent, *entries, address=server.address)
    assert said == f"Added 5 entries to MEMORY.md of user {agent} (version 1).\n"
    assert index_of(files).splitlines() == entries
    assert files.get().author == getpass.getuser()
    said = here.ok("memory", "add", "- h", "- new", "--user", agent, "--author", "ana", address=server.address)
    assert said == f"Added 1 entry to MEMORY.md of user {agent} (version 2); 1 was there already.\n"
    assert files.get().author == "ana"
    known = json.loads(
        here.ok("memory", "add", "- h", "* lives in Oslo", "--json", "--user", agent, address=server.address)
    )
    assert (known["added"], known["skipped"], known["file"]["version"]) == (0, 2, 2)


def test_entries_come_line_by_line_from_standard_input(server: ServerProcess, files: MemoryFiles, agent: str) -> None:
    """More than one call holds, with the line ends and the mark that an editor on Windows leaves."""
    lines = [f"- entry {number}" for number in range(300)]
    text = "\ufeff" + "\r\n".join([*lines[:10], "", "  ", *lines[10:]]) + "\r\n"
    done = subprocess.run(
        [str(MEMORYD), "memory", "add", "--user", agent, "-"],
        env=environment(server.address),
        input=text.encode(),
        capture_output=True,
        timeout=START_SECONDS,
        check=True,
    )
    assert done.stdout.decode() == f"Added 300 entries to MEMORY.md of user {agent} (version 2).\n"
    assert index_of(files).splitlines() == lines


def test_a_secret_is_refused_by_its_place_and_kind(
    here: Here, server: ServerProcess, files: MemoryFiles, agent: str
) -> None:
    done = here.memoryd("memory", "add", "--user", agent, "- fine", f"- key {TOKEN}", address=server.address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "memoryd: nothing was written: entry 2 holds a credential (GitHub token); take it out, or repeat the command "
        "with --allow-secrets if it is none\n"
    )
    piped = memoryd("memory", "add", "--user", agent, address=server.address, stdin=f"- a\n\n\n- {TOKEN}\n")
    assert "nothing was written: line 4 of standard input holds a credential (GitHub token)" in piped.stderr
    logged = here.memoryd("memory", "log", "--user", agent, f"found\n\n{TOKEN}", address=server.address)
    assert "line 3 holds a credential (GitHub token)" in logged.stderr
    assert TOKEN not in done.stderr + piped.stderr + logged.stderr + logged.stdout
    assert list(files.list()) == []
    here.ok("memory", "add", "--user", agent, f"- key {TOKEN}", "--allow-secrets", address=server.address)
    assert TOKEN in index_of(files)


@pytest.mark.parametrize("command", ["add", "log"])
@pytest.mark.parametrize("text", ["-x", "--flag is needed", "---", "-5 degrees", "-hello"])
def test_text_that_looks_like_an_option_leads_to_where_it_is_none(
    command: str, text: str, here: Here, server: ServerProcess, files: MemoryFiles, agent: str
) -> None:
    refused = here.memoryd("memory", command, "--user", agent, text, address=server.address)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "No such option: -" in refused.stderr
    metavar = {"add": "ENTRY", "log": "TEXT"}[command]
    assert f"(`memoryd memory {command} --user ID -- {metavar}`), or on standard input" in folded(refused.stderr)
    assert list(files.list()) == []
    here.ok("memory", command, "--user", agent, "--", text, address=server.address)
    piped = memoryd("memory", command, "--project", agent, address=server.address, stdin=f"{text}\n")
    assert piped.returncode == 0
    (stored,) = files.list()
    assert files.get(stored.name).text == f"{text}\n"


def test_a_misspelt_option_leads_to_the_option(here: Here, agent: str) -> None:
    done = here.memoryd("memory", "add", "--user", agent, "- a", "--jsn", address="127.0.0.1:9")
    assert done.returncode == 2
    assert done.stderr.startswith("memoryd: No such option: --jsn (Possible options: --json, --tls). Text that begins ")


@pytest.mark.parametrize("command", ["add", "log"])
def test_there_must_be_something_to_add(command: str, server: ServerProcess, files: MemoryFiles, agent: str) -> None:
    done = memoryd("memory", command, "--user", agent, address=server.address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("memoryd: there is nothing to ")
    assert list(files.list()) == []


def test_what_is_no_entry_is_named_by_its_number(here: Here, server: ServerProcess, agent: str) -> None:
    done = here.memoryd("memory", "add", "- a", "two\nlines", "--user", agent, address=server.address)
    assert done.returncode == 1
    assert "entry 2" in done.stderr
    assert "entries[" not in done.stderr


def test_a_log_is_of_today_here_unless_the_day_is_told(
    here: Here, server: ServerProcess, files: MemoryFiles, agent: str
) -> None:
    def today() -> str:
        return f"{datetime.datetime.now().astimezone():%Y-%m-%d}.md"

    before = today()
    here.ok("memory", "log", "--user", agent, "- moved", "the API", address=server.address)
    (first,) = files.list()
    assert first.name in {before, today()}
    assert files.get(first.name).text == "- moved the API\n"
    options = ["--date", "2026-07-25", "--author", "ana", "--json"]
    told = json.loads(here.ok("memory", "log", "--user", agent, *options, "x", address=server.address))
    assert (told["name"], told["version"], told["author"]) == ("2026-07-25.md", 1, "ana")
    piped = memoryd("memory", "log", "--user", agent, "--date", "2026-07-25", address=server.address, stdin="y\nz\n\n")
    assert piped.stdout == f"Logged in 2026-07-25.md of user {agent} (version 2).\n"
    assert files.get("2026-07-25.md").text == "x\ny\nz\n"
    here.ok("memory", "log", "--user", agent, "--time-zone", "Pacific/Kiritimati", "far", address=server.address)
    for wrong in (
        ["--date", "2026-02-30"],
        ["--time-zone", "Nowhere/Else"],
        ["--date", "2026-07-25", "--time-zone", "UTC"],
    ):
        assert here.memoryd("memory", "log", "--user", agent, *wrong, "x", address=server.address).returncode in {1, 2}


# Showing.


def test_files_and_versions_are_listed(here: Here, server: ServerProcess, files: MemoryFiles, agent: str) -> None:
    files.put("- a\n", author="ana")
    files.put("- a\n- b\n", author="bob")
    files.put("x", "2026-07-24.md")
    files.put("x", "2026-07-25.md")
    listed = here.ok("memory", "show", "--user", agent, address=server.address).splitlines()
    assert [line.split()[0] for line in listed] == ["File", "MEMORY.md", "2026-07-25.md", "2026-07-24.md"]
    assert listed[1].split()[-1] == "bob"
    versions = here.ok("memory", "show", "--versions", "--user", agent, address=server.address).splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in versions[1:]] == [("2", "bob"), ("1", "ana")]
    told = here.ok("memory", "show", "MEMORY.md", "--versions", "--json", "--user", agent, address=server.address)
    assert [json.loads(line)["author"] for line in told.splitlines()] == ["bob", "ana"]
    names = here.ok("memory", "show", "--json", "--user", agent, address=server.address).splitlines()
    assert [json.loads(line)["name"] for line in names] == ["MEMORY.md", "2026-07-25.md", "2026-07-24.md"]
    assert here.ok("memory", "show", "--version", "1", "--user", agent, address=server.address) == "- a\n"


def test_a_file_goes_into_a_pipe_byte_by_byte(server: ServerProcess, files: MemoryFiles, agent: str) -> None:
    """Also where it is no text; JSON, which holds only text, carries it as Base64 then."""
    content = b"\xef\xbb\xbf- a\r\n\xff\x00" + EVIL.encode() + b" no line end"
    files.put(content)
    command = [str(MEMORYD), "memory", "show", "MEMORY.md", "--user", agent]
    done = subprocess.run(
        command, env=environment(server.address), capture_output=True, timeout=START_SECONDS, check=True
    )
    assert done.stdout == content
    told = json.loads(memoryd(*command[1:], "--json", address=server.address).stdout)
    assert "content" not in told
    assert told["content_base64"].startswith("77u/")


def test_content_never_reaches_a_terminal_raw(server: ServerProcess, files: MemoryFiles, agent: str) -> None:
    files.put(f"- a {EVIL}\r\n- b\rc\x00\ufeff\u2028 end\n")
    for command in (["show", "MEMORY.md"], ["render"]):
        shown = on_a_terminal("memory", *command, "--user", agent, address=server.address)
        assert "- a ␛]0;owned␇␛[2J" in shown
        assert "end" in shown
        for character in DANGEROUS + "\x00\ufeff\u2028":
            assert character not in shown, command


def on_a_terminal(*arguments: str, address: str) -> str:
    """Runs a command whose standard output is a terminal. Returns: what it writes there."""
    terminal, stdout = pty.openpty()
    try:
        process = subprocess.Popen(
            [str(MEMORYD), *arguments],
            env=environment(address, {"NO_COLOR": "1"}),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.DEVNULL,
        )
    finally:
        os.close(stdout)
    written = b""
    try:
        while part := os.read(terminal, 65_536):
            written += part
    except OSError:  # How Linux tells that nobody has the other end any more.
        pass
    finally:
        os.close(terminal)
    assert process.wait(START_SECONDS) == 0
    return written.decode()


def test_names_and_authors_never_reach_a_terminal_raw(
    here: Here, server: ServerProcess, client: MemoryClient, agent: str
) -> None:
    owner = f"{agent}{EVIL}"
    client.files(user=owner).put("- a", author=EVIL)
    client.files(user=owner).put("- a\n- b", author=EVIL)
    for command in (
        ["show"],
        ["show", "--versions"],
        ["show", EVIL],
        ["show", "2026-01-01.md"],
        ["show", "--version", "9"],
        ["add", "- c"],
        ["add", f"- {TOKEN}", "--author", EVIL],
        ["log", "x", "--date", EVIL],
        ["log", "x", "--time-zone", EVIL],
        ["edit", EVIL],
        ["delete", EVIL, "--yes"],
        ["push", f"/none/{EVIL}"],
        ["push", f"/none/{EVIL}", "--file", EVIL],
        ["delete", "MEMORY.md", "--yes"],
        ["show"],
    ):
        done = here.memoryd("memory", *command, "--user", owner, address=server.address)
        for character in DANGEROUS:
            assert character not in done.stdout + done.stderr, command


def test_what_is_not_there_leads_to_what_is(here: Here, server: ServerProcess, files: MemoryFiles, agent: str) -> None:
    nobody = here.memoryd("memory", "show", "--user", agent, address=server.address)
    assert (nobody.returncode, nobody.stdout) == (0, "")
    assert f"user {agent} has no memory files. `memoryd memory add --user" in folded(nobody.stderr)
    missing = here.memoryd("memory", "show", "MEMORY.md", "--user", agent, address=server.address)
    assert missing.returncode == 1
    assert missing.stderr.startswith(f"memoryd: user {agent} has no MEMORY.md; `memoryd memory show --user ")
    files.put("- a")
    gone = here.memoryd("memory", "show", "--version", "7", "--user", agent, address=server.address)
    assert gone.returncode == 1
    assert f"user {agent} has no version 7 of MEMORY.md; `memoryd memory show MEMORY.md --versions" in gone.stderr


@pytest.mark.parametrize("given", [[], ["--user", "a", "--project", "b"], ["--user", ""], ["--project", ""]], ids=str)
@pytest.mark.parametrize(
    "command", [["show"], ["add", "- x"], ["log", "x"], ["edit"], ["delete", "MEMORY.md"], ["push"], ["pull"]], ids=str
)
def test_memory_files_have_one_owner(here: Here, command: list[str], given: list[str]) -> None:
    done = here.memoryd("memory", *command, *given, address="127.0.0.1:9")
    assert (done.returncode, done.stdout) == (2, "")
    assert "memory files have one owner: give either --user ID or --project ID" in done.stderr or (
        " is empty: give the id of a " in done.stderr
    )


# What people leave out or mix up.


GROUP = typer.main.get_group(commands)
ODD_WORDS = ["", "-", "--", "-x", "a\nb", "\udcff", "-1", "=", "[/red]", "~no-such-user/x", "x" * 5_000]


def odd_lines(name: str, owner: str) -> Iterator[list[str]]:
    """Command lines of a command: empty, with each option in front of odd words, and with each two options."""
    options = [option for parameter in GROUP.commands[name].params for option in parameter.opts if option[0] == "-"]
    own = [option for option in options if option.lstrip("-").replace("-", "_") not in Server.__dataclass_fields__]
    yield []
    yield from ([option] for option in options)
    yield from ([word] for word in ODD_WORDS)
    yield from ([option, word] for option in own for word in ODD_WORDS)
    yield from map(list, itertools.combinations_with_replacement(own, 2))
    yield from (["--user", owner, first, second] for first in own for second in ("", "--", "\udcff", "x"))


@pytest.mark.parametrize("name", sorted(GROUP.commands))
def test_no_command_line_ends_with_a_traceback(
    name: str, here: Here, server: ServerProcess, agent: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is left out or mixed up: a sentence and a status (an error that nobody expects would come through)."""
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    for words in odd_lines(name, agent):
        state = str(home / "state")
        done = here.memoryd("memory", name, *words, address=server.address, XDG_STATE_HOME=state, HOME=str(home))
        assert done.returncode in {0, 1, 2}, words
        assert done.returncode == 0 or done.stderr.strip(), words
        assert "Traceback" not in done.stderr, words


@pytest.mark.parametrize("options", [[], ["--json"], ["--agent", "a"], ["--budget", "2000", "--instructions"]], ids=str)
def test_a_rendering_needs_somebody_whose_memory_it_is(here: Here, options: list[str]) -> None:
    done = here.memoryd("memory", "render", *options, address="127.0.0.1:9")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("memoryd: whose memory? Give --user ID or --user-files for the user tier, ")


# Rendering.


def test_each_tier_is_rendered_from_where_it_is(
    here: Here, server: ServerProcess, client: MemoryClient, files: MemoryFiles, agent: str, home: Path, tmp_path: Path
) -> None:
    files.put("- stored of the user\n")
    client.files(project=agent).put("- stored of the project\n")
    for folder, text in ((home, "- filed of the user\n"), (tmp_path, "- filed of the project\n")):
        (folder / ".openhands" / "memory").mkdir(parents=True)
        (folder / ".openhands" / "memory" / "MEMORY.md").write_text(text)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "MEMORY.md").write_text("- filed elsewhere\n")

    def block(*arguments: str) -> list[str]:
        done = here.memoryd("memory", "render", *arguments, address=server.address)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("<MEMORY_CONTEXT>\n")
        assert done.stdout.endswith("\n</MEMORY_CONTEXT>\n")
        assert "memory: loaded, 1 line" in done.stderr
        return re.findall(r"^- (.*)$", done.stdout, re.MULTILINE)

    assert block("--user", agent, "--project", agent) == ["stored of the user", "stored of the project"]
    workspace = str(tmp_path)
    assert block("--user", agent, "--project-files", workspace) == ["stored of the user", "filed of the project"]
    assert block("--user-files", "--project", agent) == ["filed of the user", "stored of the project"]
    assert block("--project-files", workspace, "--user-files") == ["filed of the user", "filed of the project"]
    assert block("--user-files", str(tmp_path / "other")) == ["filed elsewhere"]
    assert block("--user-files", str(tmp_path / "other"), "--style", "openhands") == ["filed elsewhere"]


def test_a_bare_project_files_is_of_this_folder(
    here: Here, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".openhands" / "memory").mkdir(parents=True)
    (tmp_path / ".openhands" / "memory" / "MEMORY.md").write_text("- here\n")
    monkeypatch.chdir(tmp_path)
    for arguments in (["--project-files"], ["--project-files", "--style", "enclosed"]):
        assert "\n- here\n" in here.ok("memory", "render", *arguments, address=server.address)


def test_what_became_of_the_tiers_is_told_beside_the_block(
    here: Here, server: ServerProcess, files: MemoryFiles, agent: str, tmp_path: Path
) -> None:
    """A warning is told once, and safely: a file may be named as it likes."""
    files.put("".join(f"- line {number}\n" for number in range(100)))
    workspace = tmp_path / f"work{EVIL}"
    (workspace / ".openhands" / "memory" / "MEMORY.md").mkdir(parents=True)
    options = ["--user", agent, "--project-files", str(workspace), "--budget", "300", "--instructions"]
    done = here.memoryd("memory", "render", *options, address=server.address)
    assert done.returncode == 0
    assert re.search(r"^user memory: truncated, \d+ lines, \d+ left out$", done.stderr, re.MULTILINE)
    assert "project memory: unreadable\n" in done.stderr
    assert done.stderr.count("it is a folder, not a file") == 1
    assert "# Keeping memory" in done.stdout
    for character in DANGEROUS:
        assert character not in done.stderr
    told = json.loads(here.ok("memory", "render", *options, "--json", address=server.address))
    assert told["enabled"] is True
    assert (told["user"]["state"], told["project"]["state"]) == ("truncated", "unreadable")
    assert told["block"].startswith("<MEMORY_CONTEXT>")
    assert len(told["warnings"]) == 1


def test_an_agent_opts_in_and_out(here: Here, server: ServerProcess, files: MemoryFiles, agent: str) -> None:
    """Opt-in is `load_memory` in the agent's settings (design section 7)."""
    files.put("- a\n")
    render = ["memory", "render", "--user", agent, "--agent", agent]
    done = here.memoryd(*render, address=server.address)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"agent {agent} does not use memory, so it gets none; `memoryd memory enable" in folded(done.stderr)
    said = here.ok("memory", "enable", agent, address=server.address)
    assert said.startswith(f"Agent {agent} uses memory: ")
    assert "\n- a\n" in here.ok(*render, address=server.address)
    told = here.ok("memory", "disable", agent, "--json", address=server.address)
    assert json.loads(told) == {"agent": agent, "load_memory": False}
    assert here.ok(*render, address=server.address) == ""
    assert here.ok("memory", "disable", agent, address=server.address).startswith(f"Agent {agent} uses no memory")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "whose memory?"),
        (["--user", "a", "--user-files"], "user memory has one place"),
        (["--project", "a", "--project-files", "."], "project memory has one place"),
        (["--user", ""], "user is empty"),
        (["--user", "a", "--budget", "255"], "256"),
        (["--user", "a", "--style", "loud"], "enclosed"),
    ],
    ids=str,
)
def test_a_rendering_that_cannot_be_is_a_usage_error(here: Here, given: list[str], told: str) -> None:
    done = here.memoryd("memory", "render", *given, address="127.0.0.1:9")
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["show", "--user", "a"],
        ["render", "--user", "a"],
        ["add", "- x", "--user", "a"],
        ["log", "x", "--user", "a"],
        ["delete", "MEMORY.md", "--user", "a"],
        ["enable", "a"],
        ["pull", "--user", "a"],
    ],
    ids=str,
)
def test_a_server_that_is_not_there_is_named_in_one_sentence(here: Here, command: list[str]) -> None:
    """Rendering, too, which in an agent goes on without memory: a person wants to know."""
    done = here.memoryd("memory", *command, address="127.0.0.1:9")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("memoryd: no server answers at 127.0.0.1:9. Start one with `memoryd serve`")


@pytest.mark.parametrize(
    "command", ["show", "render", "add", "log", "edit", "delete", "push", "pull", "enable", "disable"]
)
def test_each_command_explains_itself_with_an_example(here: Here, command: str) -> None:
    done = here.memoryd("memory", command, "--help")
    assert done.returncode == 0
    assert "For example:" in done.stdout
    assert f"memoryd memory {command} " in done.stdout
    assert f" {command} " in here.memoryd("memory", "--help").stdout


# Editing and deleting.


def edit(
    *arguments: str, editor: Sequence[str] | Path | None, address: str, temporary: Path
) -> subprocess.CompletedProcess[str]:
    """Runs `memoryd memory edit` at a terminal, with an editor: a script of Python that is given the file's path."""
    terminal, stdin = pty.openpty()
    words = "" if editor is None else f"'{sys.executable}' '{editor}'" if isinstance(editor, Path) else editor[0]
    try:
        return subprocess.run(
            [str(MEMORYD), "memory", "edit", *arguments],
            env=environment(address, {"VISUAL": "", "EDITOR": words, "TMPDIR": str(temporary)}),
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
            check=False,
        )
    finally:
        os.close(terminal)
        os.close(stdin)


@pytest.fixture
def drafts(tmp_path: Path) -> Path:
    """Where an edit keeps its text."""
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    return drafts


def script(tmp_path: Path, code: str) -> Path:
    """An editor that does this to the file `draft`."""
    path = tmp_path / "an editor.py"
    path.write_text(f"import sys, pathlib\ndraft = pathlib.Path(sys.argv[1])\n{code}\n")
    return path


APPENDS = "draft.write_bytes(draft.read_bytes() + b'- mine\\n')"


def test_a_file_is_edited_or_made(
    server: ServerProcess, files: MemoryFiles, agent: str, tmp_path: Path, drafts: Path
) -> None:
    owner = ["--user", agent]
    editor = script(tmp_path, f"assert draft.parent.stat().st_mode & 0o077 == 0\n{APPENDS}")
    made = edit(*owner, editor=editor, address=server.address, temporary=drafts)
    assert made.stdout == f"Made MEMORY.md of user {agent} (version 1).\n", made.stderr
    files.put(b"- \xff\r\n", "2026-07-25.md")
    changed = edit("2026-07-25.md", *owner, editor=editor, address=server.address, temporary=drafts)
    assert changed.stdout == f"Changed 2026-07-25.md of user {agent} (version 2).\n"
    assert files.get("2026-07-25.md").content == b"- \xff\r\n- mine\n"
    assert files.get("2026-07-25.md").author == getpass.getuser()
    same = edit(*owner, editor=script(tmp_path, ""), address=server.address, temporary=drafts)
    assert (same.returncode, same.stderr) == (0, "")
    assert "stays as it is" in same.stdout
    assert files.get().version == 1
    assert list(drafts.iterdir()) == []


def test_an_edit_never_overwrites_what_changed_meanwhile(
    server: ServerProcess, files: MemoryFiles, agent: str, tmp_path: Path, drafts: Path
) -> None:
    """The text is kept, and the command that is told goes on with it."""
    files.put("- a\n")
    meanwhile = (
        "import memoryd\n"
        f"with memoryd.MemoryClient({server.address!r}) as client:\n"
        f"    client.files(user={agent!r}).add('- theirs')\n"
    )
    lost = edit("--user", agent, editor=script(tmp_path, meanwhile + APPENDS), address=server.address, temporary=drafts)
    assert (lost.returncode, lost.stdout) == (1, "")
    assert f"MEMORY.md of user {agent} was changed meanwhile, and nothing was written over it." in folded(lost.stderr)
    assert index_of(files) == "- a\n- theirs\n"
    (kept,) = drafts.glob("*/MEMORY.md")
    assert kept.read_text() == "- a\n- mine\n"
    assert f"Your text is in {kept}." in lost.stderr
    assert lost.stderr.splitlines()[-1].endswith(
        f"memoryd memory edit MEMORY.md --user {shlex.quote(agent)} --from {shlex.quote(str(kept))}"
    )
    merges = script(tmp_path, "draft.write_text('- a\\n- theirs\\n- mine\\n')")
    done = edit("--user", agent, "--from", str(kept), editor=merges, address=server.address, temporary=drafts)
    assert done.returncode == 0, done.stderr
    assert index_of(files) == "- a\n- theirs\n- mine\n"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (f"draft.write_text('- a\\n- {TOKEN}\\n')", "line 2 holds a credential (GitHub token)"),
        (f"{APPENDS}\nsys.exit(3)", "ended with status 3"),
    ],
    ids=["secret", "editor fails"],
)
def test_the_text_of_an_edit_that_fails_is_kept(
    code: str, told: str, server: ServerProcess, files: MemoryFiles, agent: str, tmp_path: Path, drafts: Path
) -> None:
    files.put("- a\n")
    done = edit("--user", agent, editor=script(tmp_path, code), address=server.address, temporary=drafts)
    assert done.returncode == 1
    assert told in done.stderr
    assert TOKEN not in done.stderr
    (kept,) = drafts.glob("*/MEMORY.md")
    assert f" --from {shlex.quote(str(kept))}" in done.stderr
    assert index_of(files) == "- a\n"


@pytest.mark.parametrize(
    ("editor", "told"),
    [
        (None, "no editor is named: set EDITOR"),
        (["no-such-editor --wait"], "the editor no-such-editor cannot be started: No such file or directory"),
        (["an 'open quote"], "VISUAL or EDITOR is no command"),
        (["false"], "the editor false ended with status 1"),
    ],
    ids=["none", "missing", "no command", "gives up"],
)
def test_without_an_editor_nothing_happens(
    editor: Sequence[str] | None, told: str, server: ServerProcess, files: MemoryFiles, agent: str, drafts: Path
) -> None:
    done = edit("--user", agent, editor=editor, address=server.address, temporary=drafts)
    assert done.returncode in {1, 2}
    assert told in done.stderr
    assert list(files.list()) == []
    assert list(drafts.iterdir()) == []


def test_an_edit_needs_a_terminal_and_a_name_of_a_memory_file(here: Here, server: ServerProcess, agent: str) -> None:
    done = here.memoryd("memory", "edit", "--user", agent, address=server.address, EDITOR="true")
    assert done.returncode == 2
    assert "there is no terminal to edit on; `memoryd memory add --user" in done.stderr
    named = here.memoryd("memory", "edit", "../notes.md", "--user", agent, address=server.address, EDITOR="true")
    assert named.returncode == 2
    assert "../notes.md is no memory file: one is MEMORY.md, or YYYY-MM-DD.md" in named.stderr


def test_a_deletion_asks_and_takes_all_versions(
    here: Here, server: ServerProcess, files: MemoryFiles, agent: str
) -> None:
    files.put("- a\n")
    files.put("- a\n- b\n", author="ana")
    command = ["memory", "delete", "MEMORY.md", "--user", agent]
    unasked = here.memoryd(*command, address=server.address)
    assert (unasked.returncode, unasked.stdout) == (2, "")
    refused = at_a_terminal(*command, address=server.address, typed="n\n")
    assert refused.returncode == 1
    assert "version 2 of " in folded(refused.stderr)
    assert "by ana, 8 bytes, and the 1 version before it." in folded(refused.stderr)
    assert index_of(files) == "- a\n- b\n"
    assert here.ok(*command, "--yes", address=server.address) == f"Deleted MEMORY.md of user {agent}.\n"
    with pytest.raises(MemoryFileNotFound):
        files.versions()
    assert here.memoryd(*command, "--yes", address=server.address).returncode == 1


def test_what_came_while_a_person_thought_is_not_deleted(
    here: Here, server: ServerProcess, files: MemoryFiles, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.put("- a\n")

    def answer_late(question: str, *, yes: bool) -> None:
        files.add("- wait!")

    monkeypatch.setattr("memoryd_server.cli.memory_changes.confirm", answer_late)
    done = here.memoryd("memory", "delete", "MEMORY.md", "--user", agent, address=server.address)
    assert done.returncode == 1
    assert "was changed meanwhile. Nothing was deleted; repeat the command" in folded(done.stderr)
    assert index_of(files) == "- a\n- wait!\n"


def test_an_erasure_tells_of_memory_files(
    here: Here, server: ServerProcess, client: MemoryClient, files: MemoryFiles, agent: str
) -> None:
    """The files of a user go with an erasure (design section 3)."""
    client.session(agent=agent, id="s").append(user("x"), create=SessionSettings(user_id=agent))
    files.put("- a\n")
    files.put("x", "2026-07-25.md")
    client.files(project=agent).put("- stays\n")
    done = here.memoryd("erase", agent, "--yes", address=server.address)
    assert done.returncode == 0
    assert "1 session with 1 message, 2 memory files with all versions, and what is still stored" in folded(done.stderr)
    assert "and 2 memory files deleted.\n" in done.stdout
    assert list(files.list()) == []
    assert client.files(project=agent).get().text == "- stays\n"
    files.put("- a\n")
    alone = here.memoryd("erase", agent, "--yes", address=server.address)
    assert "0 sessions with 0 messages, 1 memory file with all versions" in folded(alone.stderr)
