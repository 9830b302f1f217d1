"""Starting a server: with nothing set, with settings, and with a wrong one, which it names before it ends at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from memoryd.v1 import session_pb2 as session
from memoryd_server.config import load_settings
from tests.conftest import StartServer
from tests.servers import MEMORYD, ServerProcess, memoryd_environment
from tests.service.wire import Stubs, seqs, text

WRONG_SETTING: Final = 2
KEY: Final = session.SessionKey(agent="a", session_id="s")


def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `memoryd serve`, which must end by itself."""
    return subprocess.run(
        [str(MEMORYD), "serve", *arguments],
        env=memoryd_environment(environment),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@dataclass(frozen=True)
class Wrong:
    """A wrong setting, and what the message about it says: what is wrong, and what to do."""

    says: tuple[str, ...]
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    file: str = ""


WRONG: Final[dict[str, Wrong]] = {
    "an address that is none": Wrong(
        ("listen", "'nowhere'", "host:port", "--listen", "MEMORYD_LISTEN"), ("--listen", "nowhere")
    ),
    "a port that is none": Wrong(("listen", "127.0.0.1:99999"), ("--listen", "127.0.0.1:99999")),
    "an IPv6 address without brackets": Wrong(("listen", "brackets", "[::1]:7600"), ("--listen", "::1:7600")),
    "an address that others reach": Wrong(("listen", "0.0.0.0:0", "--insecure"), ("--listen", "0.0.0.0:0")),
    "a host that is not this machine's": Wrong(
        ("listen", "192.0.2.1:7600", "choose another"), ("--listen", "192.0.2.1:7600", "--insecure")
    ),
    "a variable that is no setting": Wrong(
        ("MEMORYD_LISTNE", "did you mean MEMORYD_LISTEN?"), environment={"MEMORYD_LISTNE": "127.0.0.1:0"}
    ),
    "a variable with a wrong value": Wrong(
        ("drain_seconds", "'soon'", "MEMORYD_DRAIN_SECONDS"), environment={"MEMORYD_DRAIN_SECONDS": "soon"}
    ),
    "a variable that must be JSON": Wrong(
        ("MEMORYD_STORES", "MEMORYD_STORES__MAIN__URL="), environment={"MEMORYD_STORES": "{"}
    ),
    "an empty variable of stores": Wrong(
        ("MEMORYD_STORES", "MEMORYD_STORES__MAIN__URL=", "unset"), environment={"MEMORYD_STORES": ""}
    ),
    "a store that is a mere URL": Wrong(
        ("stores.m: a store has settings of its own", "MEMORYD_STORES__M__URL=", "--store m=URL", "[stores.m]"),
        environment={"MEMORYD_STORES": '{"m": "postgresql://ada:hunter2@db/memory"}'},
    ),
    "a store's variable without what it sets": Wrong(
        ("stores.main: a store has settings of its own", "MEMORYD_STORES__MAIN__URL="),
        environment={"MEMORYD_STORES__MAIN": "postgresql://ada:hunter2@db/memory"},
    ),
    "stores without names": Wrong(
        ("stores: stores are named", "[stores.main]"), file='stores = ["postgresql://ada:hunter2@db/memory"]'
    ),
    "a key of the file that is no setting": Wrong(
        ("listne", "no such setting", "did you mean listen?"), file='listne = "127.0.0.1:0"'
    ),
    "a key of a store that is no setting": Wrong(
        ("stores.main.path", "no such setting"), file='[stores.main]\npath = "memoryd.db"'
    ),
    "a value of the file that is wrong": Wrong(("tokenizer", "'gpt2'", "o200k_base"), file='tokenizer = "gpt2"'),
    "a file that is no TOML": Wrong(("TOML", "line 1"), file="listen =\n"),
    "a store without a URL": Wrong(
        ("Store 'main'", "no URL", "MEMORYD_STORES__MAIN__URL"), file='[stores.main]\ntype = "sqlite"'
    ),
    "a store without a URL that another program's could be": Wrong(
        ("Store 'main'", "no URL", "MEMORYD_STORES__MAIN__URL", "DATABASE_URL", "postgresql://"),
        environment={"MEMORYD_STORES__MAIN__TYPE": "postgresql", "REDIS_URL": "redis://localhost"},
    ),
    "a store without a type or a URL of its own": Wrong(
        ("Store 'main'", "no URL", "MEMORYD_STORES__MAIN__URL"),
        environment={"MEMORYD_STORES__MAIN__URL": "", "DATABASE_URL": "sqlite:///memoryd.db"},
    ),
    "another program's URL that is for another type": Wrong(
        ("Store 'main'", "type is postgresql", "begins with mysql:", "DATABASE_URL"),
        environment={
            "MEMORYD_STORES__MAIN__TYPE": "postgresql",
            "DATABASE_URL": "mysql+pymysql://ada:hunter2@127.0.0.1:1/memory",
        },
    ),
    "another program's URL that cannot be reached": Wrong(
        ("store 'main'", "postgresql://ada:***@127.0.0.1:1/memory", "does not answer", "DATABASE_URL"),
        environment={
            "MEMORYD_STORES__MAIN__TYPE": "postgresql",
            "DATABASE_URL": "postgresql+psycopg2://ada:hunter2@127.0.0.1:1/memory",
        },
    ),
    "one of several stores that cannot be reached": Wrong(
        ("store 'archive'", "postgresql://ada:***@127.0.0.1:1/memory", "does not answer"),
        ("--store", "default=memory://", "--store", "archive=postgresql://ada:hunter2@127.0.0.1:1/memory"),
    ),
    "a store with an empty URL": Wrong(("Store 'main'", "no URL"), environment={"MEMORYD_STORES__MAIN__URL": ""}),
    "a store that cannot be reached": Wrong(
        ("store 'main'", "postgresql://ada:***@127.0.0.1:1/memory", "does not answer", "start the database first"),
        ("--store", "main=postgresql://ada:hunter2@127.0.0.1:1/memory"),
    ),
    "a Redis that cannot be reached": Wrong(
        ("store 'main'", "redis://ada:***@127.0.0.1:1/0", "does not answer", "start the database first"),
        ("--store", "main=redis://ada:hunter2@127.0.0.1:1/0"),
    ),
    "a MongoDB that cannot be reached": Wrong(
        ("store 'main'", "mongodb://ada:***@127.0.0.1:1/memory", "does not answer", "start the database first"),
        ("--store", "main=mongodb://ada:hunter2@127.0.0.1:1/memory"),
    ),
    "a MongoDB whose port cannot be": Wrong(
        ("Store 'main'", "URL cannot be used", "between 0 and 65535"),
        ("--store", "main=mongodb://ada:hunter2@127.0.0.1:99999/memory"),
    ),
    "a MongoDB whose servers DNS does not name": Wrong(
        ("Store 'main'", "URL cannot be used"),
        ("--store", "main=mongodb+srv://ada:hunter2@memoryd.invalid/memory"),
    ),
    "a MongoDB of another program that names no database": Wrong(
        ("Store 'main'", "names no database", "MONGODB_DB_NAME", "MONGODB_URI"),
        environment={"MEMORYD_STORES__MAIN__TYPE": "mongodb", "MONGODB_URI": "mongodb://ada:hunter2@127.0.0.1:1"},
    ),
    "a store with a password among its options": Wrong(
        ("store 'main'", "postgresql://ada@127.0.0.1:1/memory?password=***", "does not answer"),
        ("--store", "main=postgresql://ada@127.0.0.1:1/memory?password=hunter2"),
    ),
    "a store with a password and an unknown option": Wrong(
        ("Store 'main'", "colour"), ("--store", "main=mysql://ada:hunter2@127.0.0.1:1/memory?passwd=hunter2&colour=x")
    ),
    "a store with a password that is not encoded": Wrong(
        ("Store 'main'", "Percent-encode"), ("--store", "main=postgresql://ada:x/hunter2@hunter2@127.0.0.1:1/memory")
    ),
    "a store with a password and without a name": Wrong(
        ("postgresql://ada:***@127.0.0.1:1/memory", "NAME=URL"),
        ("--store", "postgresql://ada:hunter2@127.0.0.1:1/memory"),
    ),
    "a store with a password and a name that is none": Wrong(
        ("postgresql://ada:***@127.0.0.1:1/memory?password=***", "NAME=URL"),
        ("--store", "postgresql://ada:hunter2@127.0.0.1:1/memory?password=hunter2"),
    ),
    "a store whose URL is its name": Wrong(
        ("no store name", "postgresql://ada:***@host"),
        file='[stores."postgresql://ada:hunter2@host/a"]\nurl = "memory://"',
    ),
    "a default store that is a URL": Wrong(
        ("default_store", "postgresql://ada:***@host"), ("--default-store", "postgresql://ada:hunter2@host/a")
    ),
    "a store with a driver that is not used": Wrong(
        ("Store 'main'", "aiosqlite", "sqlite:"), ("--store", "main=sqlite+aiosqlite:///memoryd.db")
    ),
    "a store of an unknown scheme": Wrong(("Store 'main'", "'carrier-pigeon'"), ("--store", "main=carrier-pigeon://x")),
    "a store of an unknown type": Wrong(
        ("Store 'main'", "'sqllite'", "in_memory, sqlite, postgresql, mysql, redis and mongodb"),
        file='[stores.main]\ntype = "sqllite"\nurl = "memory://"',
    ),
    "a store whose type and URL differ": Wrong(
        ("Store 'main'", "in_memory", "sqlite"), file='[stores.main]\ntype = "in_memory"\nurl = "sqlite:///x.db"'
    ),
    "a store that names no file": Wrong(("Store 'main'", "names no file"), ("--store", "main=sqlite://")),
    "a store without a name": Wrong(("NAME=URL",), ("--store", "memory://")),
    "a store name that is none": Wrong(
        ("stores", "'Main'", "--store"), ("--store", "Main=postgresql://ada:hunter2@db/memory")
    ),
    "a default store that is unknown": Wrong(
        ("default_store", "'mian'", "main"), ("--store", "main=memory://", "--default-store", "mian")
    ),
    "several stores without a default": Wrong(
        ("default_store", "MEMORYD_DEFAULT_STORE"), ("--store", "a=memory://", "--store", "b=memory://")
    ),
    "an unknown flag": Wrong(("--lsiten",), ("--lsiten", "127.0.0.1:0")),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_named_and_ends_the_server_at_once(tmp_path: Path, name: str) -> None:
    wrong = WRONG[name]
    flags = list(wrong.flags)
    if wrong.file:
        (tmp_path / "memoryd.toml").write_text(wrong.file)
        flags += ["--config", str(tmp_path / "memoryd.toml")]
    ended = serve(*flags, **wrong.environment, HOME=str(tmp_path))

    assert ended.returncode == WRONG_SETTING
    assert not ended.stdout
    for part in wrong.says:
        assert part in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "hunter2" not in ended.stderr


@pytest.mark.parametrize(
    ("driver", "url", "extra"),
    [
        ("asyncpg", "postgresql://ada:hunter2@127.0.0.1:1/memory", "postgresql"),
        ("asyncmy", "mysql://ada:hunter2@127.0.0.1:1/memory", "mysql"),
        ("redis", "redis://ada:hunter2@127.0.0.1:1/0", "redis"),
        ("motor", "mongodb://ada:hunter2@127.0.0.1:1/memory", "mongodb"),
    ],
)
def test_a_driver_that_is_missing_is_named_with_what_to_install(
    tmp_path: Path, driver: str, url: str, extra: str
) -> None:
    # What Python runs at its start, before anything is imported.
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{driver!r}] = None\n")
    ended = serve("--store", f"main={url}", PYTHONPATH=str(tmp_path))

    assert ended.returncode == WRONG_SETTING
    assert f"Store 'main': its driver {driver} is not installed" in ended.stderr
    assert f"pip install 'memoryd-server[{extra}]'" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "hunter2" not in ended.stderr


PLACES: Final[dict[str, tuple[Callable[[Path], tuple[str, ...]], str]]] = {
    # Below a file, since the tests may run as root, to whom every directory is writable.
    "a data directory that cannot be made": (lambda file: ("--data-dir", str(file / "data")), "data_dir"),
    "a data directory that is a file": (lambda file: ("--data-dir", str(file)), "data_dir"),
    "a database in no directory": (lambda file: ("--store", f"main=sqlite:///{file}/memoryd.db"), "Store 'main'"),
    "a database that is none": (lambda file: ("--store", f"main=sqlite:///{file}"), "Store 'main'"),
    "a settings file that is missing": (lambda file: ("--config", f"{file}.toml"), "settings file"),
    "a settings file that cannot be read": (lambda file: ("--config", str(file.parent)), "settings file"),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_place_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    flags, says = PLACES[name]
    file = tmp_path / "notes.txt"
    file.write_text("This is no database, and no directory.\n" * 100)
    ended = serve(*flags(file), HOME=str(tmp_path))

    assert ended.returncode == WRONG_SETTING
    assert says in ended.stderr
    assert str(tmp_path) in ended.stderr
    assert "Traceback" not in ended.stderr
    assert file.read_text().startswith("This is no database")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--tokens-file", "gone.toml"), "tokens_file"),
        (("--tls-certificate", "gone.pem", "--tls-key", "gone.key"), "tls_certificate, tls_key"),
    ],
)
def test_credentials_that_cannot_be_used_end_the_start_before_a_store_is_touched(
    tmp_path: Path, flags: tuple[str, ...], says: str
) -> None:
    ended = serve(*flags, "--store", f"main=sqlite:///{tmp_path}/memoryd.db", HOME=str(tmp_path))

    assert ended.returncode == WRONG_SETTING
    assert f"memoryd cannot start: {says}: " in ended.stderr
    assert "store opened" not in ended.stderr
    assert not list(tmp_path.iterdir())


def test_a_port_that_is_taken_is_named(server: ServerProcess, tmp_path: Path) -> None:
    """Two servers never share a port silently."""
    ended = serve("--listen", server.address, "--data-dir", str(tmp_path))

    assert ended.returncode == WRONG_SETTING
    assert server.address in ended.stderr
    assert "the port is taken" in ended.stderr
    assert "--listen" in ended.stderr


def test_without_any_setting_it_keeps_a_sqlite_file_in_the_data_directory(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = start_server(environment={"HOME": str(tmp_path), "XDG_DATA_HOME": ""})
    with Stubs(server.address) as stubs:
        stubs.append(KEY, text("one"))
    assert server.stop() == 0
    (database,) = tmp_path.rglob("memoryd.db")
    server.restart()
    with Stubs(server.address) as stubs:
        assert seqs(stubs.messages(KEY)) == [1]

    assert database.parent.name == "memoryd"
    defaults = load_settings()
    assert defaults.listen == "127.0.0.1:7600"
    assert not defaults.insecure
    assert defaults.reflection


def test_settings_come_from_flags_then_the_environment_then_the_file(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "memoryd.toml").write_text(
        'tokenizer = "cl100k_base"\nlog_level = "error"\nlog_format = "console"\n'
        f'[stores.default]\nurl = "sqlite:///{tmp_path}/of-the-file.db"\n'
    )
    server = start_server(
        "--log-format",
        "json",
        environment={
            "MEMORYD_CONFIG": str(tmp_path / "memoryd.toml"),
            "MEMORYD_LOG_LEVEL": "info",
            "MEMORYD_LOG_FORMAT": "console",
        },
    )
    with Stubs(server.address) as stubs:
        stubs.append(KEY, text("one"))
        assert stubs.session(KEY).tokenizer == session.TOKENIZER_CL100K_BASE

    assert (tmp_path / "of-the-file.db").exists()
    assert '"event": "serving"' in server.log_text()


def test_another_programs_url_serves_a_store_that_has_only_a_type(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(
        environment={
            "MEMORYD_STORES__MAIN__TYPE": "sqlite",
            "DATABASE_URL": f"sqlite+aiosqlite:///{tmp_path}/of-the-application.db",
        }
    )
    with Stubs(server.address) as stubs:
        stubs.append(KEY, text("one"))

    assert (tmp_path / "of-the-application.db").exists()


def test_another_programs_url_chooses_no_store(start_server: StartServer, tmp_path: Path) -> None:
    """Nothing but memoryd's own settings says where memory is kept (design section 8)."""
    server = start_server(
        environment={
            "HOME": str(tmp_path),
            "XDG_DATA_HOME": "",
            "DATABASE_URL": f"sqlite:///{tmp_path}/of-the-application.db",
        }
    )
    with Stubs(server.address) as stubs:
        stubs.append(KEY, text("one"))

    assert not (tmp_path / "of-the-application.db").exists()
    assert list(tmp_path.rglob("memoryd.db"))


def test_a_stores_own_url_goes_before_another_programs(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "memoryd.toml").write_text(f'[stores.main]\ntype = "sqlite"\nurl = "sqlite:///{tmp_path}/own.db"\n')
    start_server(
        "--config",
        str(tmp_path / "memoryd.toml"),
        environment={"DATABASE_URL": f"sqlite:///{tmp_path}/of-the-application.db"},
    )

    assert (tmp_path / "own.db").exists()
    assert not (tmp_path / "of-the-application.db").exists()


def test_an_ipv6_address_can_be_listened_on(start_server: StartServer) -> None:
    server = start_server("--listen", "[::1]:0", "--store", "default=memory://", "--tokenizer", "estimate")

    assert server.address.startswith("[::1]:")
    with Stubs(server.address) as stubs:
        stubs.append(KEY, text("one"))


def test_a_store_in_memory_says_at_the_start_that_it_keeps_nothing(in_memory_server: ServerProcess) -> None:
    (said,) = [line for line in in_memory_server.log_text().splitlines() if "this store is not durable" in line]
    assert "nothing is kept beyond its end" in said
    assert "sqlite or postgresql" in said
