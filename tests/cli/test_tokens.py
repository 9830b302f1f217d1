"""`memoryd token`, and how commands show tokens and speak TLS."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from memoryd import MemoryClient, user
from memoryd_server.credentials import token_file
from memoryd_server.credentials.token_editing import create, entries_of, revoke
from tests.certificates import Authority
from tests.cli.commands import Here, memoryd
from tests.conftest import StartServer

TOKEN = re.compile(r"memoryd_[A-Za-z0-9_-]{43}\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


class TestCreate:
    def test_shows_the_token_once_and_keeps_its_hash(self, here: Here, path: Path) -> None:
        done = here.memoryd("token", "create", "--tenant", "acme", "--name", "ci", "--file", str(path))
        assert done.returncode == 0, done.stderr
        assert TOKEN.fullmatch(done.stdout)
        token = done.stdout.strip()
        assert token not in done.stderr
        assert "only this once" in done.stderr

        (entry,) = entries_of(path)
        assert (entry.tenant, entry.name) == ("acme", "ci")
        assert bytes.fromhex(entry.sha256) == token_file.digest_of(token)
        assert token not in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600

    def test_leaves_what_others_wrote_as_it_is(self, here: Here, path: Path) -> None:
        """Comments, order, mode, and where a link leads."""
        mine = f'# Of the night shift.\n[[tokens]]\ntenant = "acme" # the first\nsha256 = "{"a" * 64}"\n'
        path.write_text(mine)
        path.chmod(0o640)
        link = path.with_name("link.toml")
        link.symlink_to(path.name)
        for _ in range(2):
            here.ok("token", "create", "--tenant", "rival", "--file", str(link), address="")
        assert path.read_text().startswith(mine)
        assert [entry.tenant for entry in entries_of(path)] == ["acme", "rival", "rival"]
        assert path.stat().st_mode & 0o777 == 0o640
        assert link.is_symlink()
        assert sorted(each.name for each in path.parent.iterdir()) == ["link.toml", "tokens.toml"]

    @pytest.mark.parametrize(
        "content",
        [
            "",
            "\n",
            "# Nobody yet.",
            "tokens = []",
            "tokens = [] # Nobody yet.\n# Nothing more.\n",
            f'[[tokens]]\ntenant = "acme"\nsha256 = "{"a" * 64}"\n# The end.',
            f'[[tokens]]\r\ntenant = "acme"\r\nsha256 = "{"a" * 64}"\r\n',
        ],
    )
    def test_goes_on_from_any_file(self, path: Path, content: str) -> None:
        path.write_bytes(content.encode())
        before = list(entries_of(path))
        made = [create(path, "acme", "")[1] for _ in range(2)]
        assert entries_of(path) == [*before, *made]
        for entry in entries_of(path):
            revoke(path, entry.sha256)
        assert not entries_of(path)
        assert create(path, "acme", "")[1] in entries_of(path)

    def test_keeps_all_that_are_made_at_once(self, path: Path) -> None:
        with ThreadPoolExecutor(8) as pool:
            tokens = list(pool.map(lambda number: create(path, f"tenant {number}", "")[0], range(24)))
        known = {bytes.fromhex(entry.sha256): entry.tenant for entry in entries_of(path)}
        assert [known[token_file.digest_of(token)] for token in tokens] == [f"tenant {number}" for number in range(24)]

    def test_takes_any_text_as_tenant_and_name(self, here: Here, path: Path) -> None:
        for odd in ("é", "e\u0301", 'a "b" \\ #', "🌍", " a ", "[[tokens]]", "x" * 256):
            here.ok("token", "create", "--tenant", odd, "--name", odd, "--file", str(path), address="")
            assert (entries_of(path)[-1].tenant, entries_of(path)[-1].name) == (odd, odd)

    @pytest.mark.parametrize("tenant", ["", "é" * 129, "a\nb", "a\x7f", "\x1b[31m", "a\u2028b", "\udcff"])
    def test_refuses_a_tenant_that_is_none(self, here: Here, path: Path, tenant: str) -> None:
        done = here.memoryd("token", "create", "--tenant", tenant, "--file", str(path))
        assert done.returncode == 2
        assert "a tenant is 1 to 256 bytes of UTF-8, on one line and without control characters" in " ".join(
            done.stderr.split()
        )
        assert not path.exists()

    @pytest.mark.parametrize("name", ["a\nb", "a\x01", "\u2029", "\udcff"])
    def test_refuses_a_name_that_is_not_one_line(self, here: Here, path: Path, name: str) -> None:
        done = here.memoryd("token", "create", "--tenant", "acme", "--name", name, "--file", str(path))
        assert done.returncode == 2
        assert "a token's name is UTF-8, on one line and without control characters" in " ".join(done.stderr.split())
        assert not path.exists()

    def test_writes_the_token_where_its_owner_alone_can_read_it(self, here: Here, path: Path, tmp_path: Path) -> None:
        written = tmp_path / "token"
        create_it = ("token", "create", "--tenant", "acme", "--file", str(path), "--out", str(written))
        done = here.memoryd(*create_it)
        assert (done.returncode, done.stdout) == (0, "")
        assert f"{written} alone has the token itself" in " ".join(done.stderr.split())
        assert TOKEN.fullmatch(written.read_text())
        assert written.stat().st_mode & 0o777 == 0o600
        (entry,) = entries_of(path)
        assert bytes.fromhex(entry.sha256) == token_file.digest_of(written.read_text().strip())

        again = here.memoryd(*create_it)
        assert again.returncode == 1
        assert "exists already" in again.stderr
        assert entries_of(path) == [entry]

    def test_leaves_no_file_of_a_token_that_it_did_not_make(self, here: Here, path: Path, tmp_path: Path) -> None:
        written = tmp_path / "token"
        for tenant, out in (("", written), ("acme", tmp_path / "none" / "token")):
            done = here.memoryd("token", "create", "--tenant", tenant, "--file", str(path), "--out", str(out))
            assert done.returncode != 0
            assert not out.exists()
            assert not path.exists()

    def test_says_where_it_cannot_write(self, here: Here, path: Path) -> None:
        for file in (path / "tokens.toml", path.parent / "none" / "tokens.toml"):
            done = here.memoryd("token", "create", "--tenant", "acme", "--file", str(file))
            assert done.returncode == 1
            assert not done.stdout
            assert f"the directory {file.parent} cannot be opened" in " ".join(done.stderr.split())
        path.write_text("[[tokens")
        done = here.memoryd("token", "create", "--tenant", "acme", "--file", str(path))
        assert "no valid TOML" in done.stderr
        assert path.read_text() == "[[tokens"

    def test_takes_the_file_of_the_environment(self, here: Here, path: Path) -> None:
        assert here.memoryd("token", "create", "--tenant", "a", MEMORYD_TOKENS_FILE=str(path)).returncode == 0
        done = here.memoryd("token", "create", "--tenant", "a")
        assert done.returncode == 2
        assert "--file" in done.stderr


class TestList:
    def test_shows_everything_but_tokens(self, here: Here, path: Path) -> None:
        made = [create(path, tenant, name) for tenant, name in (("acme", "ci"), ("acme", ""), ("b\u202ec", "x"))]
        shown = here.ok("token", "list", "--file", str(path), address="")
        for token, entry in made:
            assert entry.id in shown
            assert token not in shown
            assert entry.sha256 not in shown
        assert "\u202e" not in shown
        rows = here.ok("token", "list", "--json", "--file", str(path), address="").splitlines()
        assert [json.loads(row)["id"] for row in rows] == [entry.id for _, entry in made]
        assert json.loads(rows[0]) | {"id": "", "created": ""} == {
            "id": "",
            "tenant": "acme",
            "name": "ci",
            "created": "",
        }

    def test_says_what_to_do_without_any(self, here: Here, path: Path) -> None:
        assert "cannot be read" in here.memoryd("token", "list", "--file", str(path)).stderr
        path.write_text("")
        assert "`memoryd token create`" in here.memoryd("token", "list", "--file", str(path)).stderr


class TestRevoke:
    def test_takes_out_the_token_of_this_id(self, here: Here, path: Path) -> None:
        path.write_text("# Mine.\n")
        _, first = create(path, "acme", "ci")
        _, second = create(path, "acme", "ci")
        here.ok("token", "revoke", first.id, "--file", str(path), address="")
        assert entries_of(path) == [second]
        here.ok("token", "revoke", "ci", "--file", str(path), address="")
        assert not entries_of(path)
        assert path.read_text() == "# Mine.\n"
        create(path, "acme", "again")
        assert [entry.name for entry in entries_of(path)] == ["again"]

    def test_asks_which_of_several_is_meant(self, here: Here, path: Path) -> None:
        made = [create(path, "acme", "ci")[1] for _ in range(2)]
        done = here.memoryd("token", "revoke", "ci", "--file", str(path))
        assert done.returncode == 2
        assert all(entry.id in done.stderr for entry in made)
        assert len(entries_of(path)) == 2

    def test_of_none_says_so_and_does_not_repeat_it(self, here: Here, path: Path) -> None:
        """Somebody may have given the token itself."""
        token, _ = create(path, "acme", "")
        done = here.memoryd("token", "revoke", token, "--file", str(path))
        assert done.returncode == 1
        assert token not in done.stderr
        assert len(entries_of(path)) == 1


class TestCommands:
    """What every command that talks to a server can be told."""

    @pytest.fixture
    def guarded(self, start_server: StartServer, tmp_path: Path, path: Path) -> tuple[str, Path, str]:
        authority = Authority(tmp_path)
        token, _ = create(path, "acme", "")
        flags = ("--tokens-file", str(path), *authority.issue(tmp_path / "tls").flags)
        server = start_server("--store", "default=memory://", "--tokenizer", "estimate", *flags)
        with MemoryClient(server.address, ca=authority.path, token=token) as client:
            client.session(agent="assistant", id="s").append(user("one"))
        return server.address, authority.path, token

    def test_show_a_token_and_speak_tls(self, here: Here, guarded: tuple[str, Path, str], tmp_path: Path) -> None:
        address, ca, token = guarded
        file = tmp_path / "token"
        file.write_text(f"{token}\n")
        by_flags = here.memoryd("sessions", "--ca", str(ca), "--token-file", str(file), address=address)
        by_environment = here.memoryd("sessions", address=address, MEMORYD_CA=str(ca), MEMORYD_TOKEN=token)
        for done in (by_flags, by_environment):
            assert done.returncode == 0, done.stderr
            assert "assistant" in done.stdout
        both = here.memoryd(
            "sessions", "--token-file", str(file), address=address, MEMORYD_CA=str(ca), MEMORYD_TOKEN="no"
        )
        assert both.returncode == 0, both.stderr

    def test_say_what_is_missing_or_wrong(self, here: Here, guarded: tuple[str, Path, str], tmp_path: Path) -> None:
        address, ca, _ = guarded
        stranger = Authority(tmp_path / "tls")
        for given, says in (
            ({"MEMORYD_CA": str(ca)}, "asks for a token. Give yours with --token-file FILE or in MEMORYD_TOKEN"),
            ({"MEMORYD_CA": str(ca), "MEMORYD_TOKEN": "memoryd_wrong"}, "does not accept the call's token"),
            ({}, "it may ask for TLS"),
            ({"MEMORYD_CA": str(stranger.path)}, "is not from a CA that the client trusts"),
            ({"MEMORYD_TLS": "true"}, "Commands take ca as --ca FILE"),
            ({"MEMORYD_CA": "/nowhere/ca.pem"}, "cannot be read: No such file or directory"),
            ({"MEMORYD_TOKEN": "two words"}, "It is given by --token-file or MEMORYD_TOKEN"),
        ):
            done = here.memoryd("sessions", address=address, **given)
            assert done.returncode != 0
            assert says in " ".join(done.stderr.split())
            assert "memoryd_wrong" not in done.stderr
            assert "Traceback" not in done.stderr

    def test_read_the_token_of_a_file_or_say_why_not(self, here: Here, tmp_path: Path) -> None:
        file = tmp_path / "token"
        assert "cannot be read" in here.memoryd("sessions", "--token-file", str(file)).stderr
        file.write_bytes(b"\xff\xfe")
        assert "is no text" in here.memoryd("sessions", "--token-file", str(file)).stderr
        file.write_text("\n")
        assert "token is empty" in here.memoryd("sessions", "--token-file", str(file)).stderr

    def test_send_no_token_unencrypted_to_another_machine(self, here: Here) -> None:
        done = here.memoryd("sessions", address="memory.example.com:7600", MEMORYD_TOKEN="memoryd_secret")
        assert done.returncode == 2
        told = " ".join(done.stderr.split())
        for part in ("memory.example.com:7600 unencrypted", "--ca FILE", "--tls", "--allow-token-without-tls"):
            assert part in told
        assert "memoryd_secret" not in told

    def test_take_no_token_on_the_command_line(self, here: Here) -> None:
        """Every process of the machine can read it there."""
        assert here.memoryd("sessions", "--token", "memoryd_secret").returncode == 2

    def test_that_run_a_server_pass_over_what_is_for_clients(self, here: Here) -> None:
        done = here.memoryd("config", MEMORYD_TOKEN="memoryd_secret", MEMORYD_CA="ca.pem", MEMORYD_TLS="true")
        assert done.returncode == 0, done.stderr
        assert "memoryd_secret" not in done.stdout


def test_config_shows_the_files_and_not_what_they_hold(here: Here, path: Path) -> None:
    token, entry = create(path, "acme", "")
    shown = here.ok("config", "--tokens-file", str(path), "--json", address="")
    settings = json.loads(shown)["settings"]
    assert settings["tokens_file"]["value"] == str(path)
    assert settings["tls_key"]["value"] == "(none)"
    assert token not in shown
    assert entry.sha256 not in shown


def test_a_token_works_from_a_pipe(start_server: StartServer, path: Path) -> None:
    """As in `memoryd token create … > token`, before a server that reads the file."""
    made = memoryd("token", "create", "--tenant", "acme", "--file", str(path))
    server = start_server("--store", "default=memory://", "--tokens-file", str(path))
    done = memoryd("sessions", address=server.address, MEMORYD_TOKEN=made.stdout.strip())
    assert done.returncode == 0, done.stderr
