"""`memoryd serve`, `memoryd config` and what all commands share."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from memoryd import MemoryClient
from memoryd.channel import DEFAULT_ADDRESS
from memoryd_server import limits
from memoryd_server.cli import options
from memoryd_server.config import Settings
from tests.cli.commands import Here, memoryd
from tests.conftest import StartServer

COMMANDS = ("serve", "demo", "config", "import", "sweep", "stores", "sessions", "history", "window")
RUN_COMMANDS = ("list", "show", "approve", "cancel", "delete", "retention")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--listen", "here"], "listen: 'here' is no address: write host:port"),
        (["--listen", "0.0.0.0:1"], "--insecure"),
        (["--tokenizer", "words"], "--tokenizer, MEMORYD_TOKENIZER"),
        (["--drain-seconds", "soon"], "--drain-seconds, MEMORYD_DRAIN_SECONDS"),
        (["--run-retention", "30"], "--run-retention, MEMORYD_RUN_RETENTION"),
        (["--run-recoveries", "-1"], "--run-recoveries, MEMORYD_RUN_RECOVERIES"),
        (["--log-level", "loud"], "--log-level, MEMORYD_LOG_LEVEL"),
        (["--store", "main"], "--store main: write NAME=URL"),
        (["--store", "Main=memory://"], "'Main' is no store name"),
        (["--store", "a=memory://", "--store", "b=memory://"], "--default-store"),
        (["--store", "a=memory://", "--store", "a=sqlite:///b.db"], "--store names 'a' twice"),
        (["--default-store", "x"], "there is no store 'x'"),
        (["--config", "/nowhere/memoryd.toml"], "/nowhere/memoryd.toml cannot be read"),
        (["--data-dir", "/dev/null/x"], "data_dir: the directory /dev/null/x cannot be made"),
    ],
)
def test_a_wrong_setting_is_named(here: Here, arguments: list[str], told: str) -> None:
    done = here.memoryd("serve", *arguments)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"), [(["--listen", "here"], "listen: 'here'"), (["--store", "a=sqlite+nix:///x"], "Store 'a': ")]
)
def test_a_wrong_setting_ends_the_server_at_once(arguments: list[str], told: str) -> None:
    done = memoryd("serve", *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_of_the_environment_and_the_file_are_named_likewise(here: Here, tmp_path: Path) -> None:
    assert "did you mean MEMORYD_LISTEN?" in here.memoryd("serve", MEMORYD_LISTN="x").stderr
    file = tmp_path / "memoryd.toml"
    file.write_text("drain_second = 3\n")
    assert "did you mean drain_seconds?" in here.memoryd("serve", "--config", str(file)).stderr
    file.write_text("drain_seconds = \n")
    assert "is no valid TOML" in here.memoryd("serve", MEMORYD_CONFIG=str(file)).stderr


def test_the_data_directory_is_made(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("--data-dir", str(tmp_path / "a" / "b"))
    with MemoryClient(server.address) as client:
        assert client.store().reachable
    assert server.stop() == 0
    assert (tmp_path / "a" / "b" / "memoryd.db").exists()


def test_config_shows_what_is_in_force_and_where_it_comes_from(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "memoryd.toml"
    file.write_text('log_level = "warning"\nlog_format = "json"\ndrain_seconds = 7\n')
    arguments = [
        "--drain-seconds",
        "3",
        "--store",
        "main=postgresql://ann:hunter2@db/x?password=hunter2",
        "--config",
        str(file),
    ]
    shown = here.memoryd("config", *arguments, MEMORYD_LOG_LEVEL="error")
    assert shown.returncode == 0, shown.stderr
    rows = [text.split() for text in shown.stdout.splitlines()]
    assert ["drain_seconds", "3.0", "flag"] in rows
    assert ["log_level", "error", "environment"] in rows
    assert ["tokenizer", "o200k_base", "default"] in rows
    assert "hunter2" not in shown.stdout
    assert ["append", "most", "3.5", "MiB"] in rows
    assert ["run", "lease", "least", "1", "s"] in rows
    assert ["run", "lease", "most", "3,600", "s"] in rows
    value = json.loads(here.memoryd("config", "--json", *arguments).stdout)
    assert value["settings"]["log_format"] == {
        "value": "json",
        "source": f"file {file}",
        "help": Settings.model_fields["log_format"].description,
    }
    assert value["settings"]["stores.main"]["value"] == "postgresql://ann:***@db/x?password=***"
    assert value["limits"] == limits.describe()


def test_no_two_limits_are_called_the_same(here: Here) -> None:
    """What bounds a value from below, from above, or is its default, is told apart from the others of that name."""
    shown = here.memoryd("config", COLUMNS="200").stdout
    names = [text.rstrip().rsplit("   ", 1)[0].split() for text in shown.partition("\nLimit")[2].splitlines()[1:]]
    assert len(names) == len(limits.describe())
    assert len(set(map(tuple, names))) == len(names)


def test_config_shows_where_the_url_of_each_store_comes_from(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "memoryd.toml"
    file.write_text(
        'default_store = "main"\n[stores.main]\ntype = "postgresql"\n[stores.scratch]\nurl = "memory://"\n'
        '[stores.local]\ntype = "sqlite"\n'
    )
    shown = here.memoryd(
        "config",
        "--json",
        "--config",
        str(file),
        MEMORYD_STORES__LOCAL__URL="sqlite:///local.db",
        DATABASE_URL="postgresql+psycopg://ann:hunter2@db/x?password=hunter2",
    )
    assert shown.returncode == 0, shown.stderr
    settings = json.loads(shown.stdout)["settings"]
    stores = {name: (line["value"], line["source"]) for name, line in settings.items() if name.startswith("stores.")}
    assert stores == {
        "stores.main": (
            "postgresql://ann:***@db/x?password=*** (type postgresql)",
            f"file {file}, URL from DATABASE_URL",
        ),
        "stores.scratch": ("memory://", f"file {file}"),
        "stores.local": ("sqlite:///local.db (type sqlite)", f"environment, file {file}"),
    }


@pytest.mark.parametrize("command", ["serve", "config"])
def test_every_setting_has_a_flag(here: Here, command: str) -> None:
    told = here.memoryd(command, "--help", COLUMNS="200").stdout
    for name in Settings.model_fields:
        assert f"--{name.replace('_', '-').removesuffix('s') if name == 'stores' else name.replace('_', '-')} " in told


def test_the_endpoint_of_summaries_is_set_by_flags_and_environment_together(here: Here) -> None:
    told = here.memoryd("config", "--openai", "model=small", MEMORYD_OPENAI__BASE_URL="http://127.0.0.1:1/v1").stdout
    assert "base_url='http://127.0.0.1:1/v1' model='small'" in told


def test_the_endpoint_of_summaries_says_that_it_is_of_the_environment(here: Here) -> None:
    environment = {"MEMORYD_OPENAI__BASE_URL": "http://127.0.0.1:1/v1", "MEMORYD_OPENAI__MODEL": "small"}
    (told,) = (text for text in here.memoryd("config", **environment).stdout.splitlines() if text.startswith("openai "))
    assert told.split()[-1] == "environment"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--summarizer", "openai"], "set MEMORYD_OPENAI__BASE_URL"),
        (["--openai", "model=small"], "openai.base_url: Field required"),
        (["--openai", "model"], "write NAME=VALUE"),
        (["--openai", "model=a", "--openai", "model=b"], "gives model twice"),
        (["--openai", "model=a", "--openai", "base_url=http://user:hunter2@a/v1"], "put the key into an environment"),
        (["--openai", "model=a", "--openai", "base_url=http://a/v1", "--openai", "key=hunter2"], "no such setting"),
        (["--summarizer", "magic"], "'extractive', 'openai' or 'client'"),
    ],
)
def test_a_wrong_endpoint_of_summaries_is_told_with_what_to_do(here: Here, flags: list[str], message: str) -> None:
    done = here.memoryd("config", *flags)
    assert done.returncode == 2
    assert message in done.stderr
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        *((name,) for name in COMMANDS),
        *(("token", name) for name in ("create", "list", "revoke")),
        *(("runs", name) for name in RUN_COMMANDS),
        (),
    ],
)
def test_help_fits_a_terminal_and_gives_an_example(here: Here, command: tuple[str, ...]) -> None:
    done = here.memoryd(*command, "--help")
    assert done.returncode == 0
    assert f"memoryd {' '.join(command)} " if command else "memoryd demo" in done.stdout
    assert all(len(text) <= 80 for text in done.stdout.splitlines())
    assert not command or "For example:" in done.stdout


def test_the_version_is_told() -> None:
    assert memoryd("--version").stdout == f"memoryd {version('memoryd-server')}\n"


def test_help_loads_no_grpc_and_no_database() -> None:
    """So that it is there at once."""
    code = "import sys, memoryd_server.cli; print({'grpc', 'sqlalchemy', 'pydantic'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_commands_and_clients_have_one_default_address() -> None:
    assert options.DEFAULT_ADDRESS == DEFAULT_ADDRESS == Settings.model_fields["listen"].default


def test_a_command_that_does_not_exist_is_refused() -> None:
    done = memoryd("sesions")
    assert done.returncode == 2
    assert "sesions" in done.stderr
