"""`memoryd serve` and `memoryd config`: running a server, and what it would run with."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from memoryd_server.cli.options import NO_VALUE
from memoryd_server.cli.safe_text import one_line
from memoryd_server.cli.terminal import Failure, out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memoryd_server.config import SettingLine, Settings

WRONG_SETTING = 2
"""The exit status for a setting that is wrong, as for a flag that does not exist."""

Listen = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")]
MetricsListen = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Where to serve metrics for Prometheus, over plain HTTP; port 0 takes a free one. Not served by default.",
    ),
]
Store = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=URL",
        help="A store: sqlite:///relative.db, sqlite:////absolute.db, postgresql://user:password@host/database, "
        "mysql://user:password@host/database, redis://host:6379/0, mongodb://user:password@host/database or memory://. "
        "Repeatable. Others on this machine see what flags say: give a URL with a password by the environment or by "
        "the file.",
    ),
]
DefaultStore = Annotated[str | None, typer.Option(metavar="NAME", help="The store of requests that name none.")]
DataDir = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where the SQLite file is when no store is configured.")
]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A TOML file of settings; also the environment's MEMORYD_CONFIG.")
]
Tokenizer = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Vocabulary of sessions that do not say: o200k_base, cl100k_base or estimate."),
]
Summarizer = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who makes summaries where a policy does not say: extractive, openai or client."),
]
OpenAI = Annotated[
    list[str] | None,
    typer.Option(
        "--openai",
        metavar="NAME=VALUE",
        help="The endpoint of the summarizer openai: base_url=https://api.openai.com/v1, model=…; `memoryd config` "
        "shows what else there is. Repeatable. The key comes from the environment.",
    ),
]
RunRetention = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="How long runs are kept after they ended, where their agent's settings do not say: 12h, 30d; none keeps "
        "all.",
    ),
]
RunRecoveries = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="How often a run is taken up after its worker stopped without a word, before it ends FAILED."
    ),
]
DrainSeconds = Annotated[
    str | None, typer.Option(metavar="SECONDS", help="How long calls may go on after SIGTERM or Ctrl-C.")
]
DrainDelaySeconds = Annotated[
    str | None,
    typer.Option(
        metavar="SECONDS",
        help="How long calls are still taken after SIGTERM or Ctrl-C, with health NOT_SERVING, until balancers notice.",
    ),
]
Reflection = Annotated[
    bool | None,
    typer.Option("--reflection/--no-reflection", metavar=NO_VALUE, help="Whether to serve gRPC reflection."),
]
LogLevel = Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")]
LogFormat = Annotated[str | None, typer.Option(metavar="FORMAT", help="console (for people) or json (for programs).")]
TokensFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Serve only callers that show one of its tokens; `memoryd token create` makes them."
    ),
]
TlsCertificate = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Use TLS with this certificate (PEM, with its chain).")
]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate's key (PEM).")]
Insecure = Annotated[
    bool | None,
    typer.Option("--insecure", metavar=NO_VALUE, help="Listen outside of loopback without tokens or without TLS."),
]


@dataclass(frozen=True, slots=True)
class _Flags:
    """The settings that flags give, as `load_settings` takes them."""

    overrides: Mapping[str, Any]
    config_file: Path | None

    @classmethod
    def of(
        cls, config_file: Path | None, store: list[str] | None, openai: list[str] | None, **given: object
    ) -> "_Flags":
        overrides = {name: value for name, value in given.items() if value is not None}
        if openai:
            overrides["openai"] = _named_values("--openai", openai)
        if store:
            overrides["stores"] = _named_stores(store)
        return cls(overrides, config_file)

    def load(self) -> "Settings":
        from memoryd_server.config import SettingsError, load_settings

        try:
            return load_settings(self.overrides, self.config_file)
        except SettingsError as error:
            raise Failure(f"a setting is wrong.\n{error}", status=WRONG_SETTING) from error


def _named_values(flag: str, texts: list[str]) -> dict[str, str]:
    """Values by name. Raises: Failure."""
    values: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise Failure(f"{flag} {one_line(text)}: write NAME=VALUE", status=WRONG_SETTING)
        if name in values:
            raise Failure(f"{flag} gives {one_line(name)} twice", status=WRONG_SETTING)
        values[name] = value
    return values


def _named_stores(texts: list[str]) -> dict[str, dict[str, str]]:
    """The URLs of stores by name. Raises: Failure."""
    stores: dict[str, dict[str, str]] = {}
    for name, store in map(_named_store, texts):
        if name in stores:
            raise Failure(f"--store names {one_line(name)!r} twice: a store has one URL", status=WRONG_SETTING)
        stores[name] = store
    return stores


def _named_store(text: str) -> tuple[str, dict[str, str]]:
    name, separator, url = text.partition("=")
    if not separator or not name or not url or ":" in name:
        from memoryd_server.stores.urls import masked

        raise Failure(
            f"--store {masked(text)}: write NAME=URL, for example --store main=sqlite:///memoryd.db",
            status=WRONG_SETTING,
        )
    return name, {"url": url}


def serve(
    listen: Listen = None,
    metrics_listen: MetricsListen = None,
    store: Store = None,
    default_store: DefaultStore = None,
    data_dir: DataDir = None,
    config: Config = None,
    tokenizer: Tokenizer = None,
    summarizer: Summarizer = None,
    openai: OpenAI = None,
    run_retention: RunRetention = None,
    run_recoveries: RunRecoveries = None,
    drain_seconds: DrainSeconds = None,
    drain_delay_seconds: DrainDelaySeconds = None,
    reflection: Reflection = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    tokens_file: TokensFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    insecure: Insecure = None,
) -> None:
    """Run a server until SIGTERM or Ctrl-C.

    Without any flag it keeps everything in a SQLite file of your data directory, durably, and listens on
    127.0.0.1:7600, for this machine alone. Each setting can also come from the environment (MEMORYD_LISTEN …) or from a
    TOML file; `memoryd config` shows what is in force.

    For example:

    `memoryd serve --listen 127.0.0.1:7700 --data-dir ./memory`
    """
    settings = _Flags.of(
        config,
        store,
        openai,
        listen=listen,
        metrics_listen=metrics_listen,
        default_store=default_store,
        data_dir=data_dir,
        tokenizer=tokenizer,
        summarizer=summarizer,
        run_retention=run_retention,
        run_recoveries=run_recoveries,
        drain_seconds=drain_seconds,
        drain_delay_seconds=drain_delay_seconds,
        reflection=reflection,
        log_level=log_level,
        log_format=log_format,
        tokens_file=tokens_file,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        insecure=insecure,
    ).load()
    from memoryd_server.app import run

    raise typer.Exit(run(settings))


def config(
    listen: Listen = None,
    metrics_listen: MetricsListen = None,
    store: Store = None,
    default_store: DefaultStore = None,
    data_dir: DataDir = None,
    config: Config = None,
    tokenizer: Tokenizer = None,
    summarizer: Summarizer = None,
    openai: OpenAI = None,
    run_retention: RunRetention = None,
    run_recoveries: RunRecoveries = None,
    drain_seconds: DrainSeconds = None,
    drain_delay_seconds: DrainDelaySeconds = None,
    reflection: Reflection = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    tokens_file: TokensFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    insecure: Insecure = None,
    as_json: Annotated[bool, typer.Option("--json", metavar=NO_VALUE, help="One JSON object, for programs.")] = False,
) -> None:
    """Show the settings that are in force, where each comes from, and the limits.

    Takes the flags of `memoryd serve`, to show what it would run with. Secrets are masked.

    For example:

    `MEMORYD_LISTEN=127.0.0.1:7700 memoryd config --drain-seconds 5`
    """
    flags = _Flags.of(
        config,
        store,
        openai,
        listen=listen,
        metrics_listen=metrics_listen,
        default_store=default_store,
        data_dir=data_dir,
        tokenizer=tokenizer,
        summarizer=summarizer,
        run_retention=run_retention,
        run_recoveries=run_recoveries,
        drain_seconds=drain_seconds,
        drain_delay_seconds=drain_delay_seconds,
        reflection=reflection,
        log_level=log_level,
        log_format=log_format,
        tokens_file=tokens_file,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        insecure=insecure,
    )
    settings = flags.load()
    from memoryd_server import limits
    from memoryd_server.config import describe

    lines = describe(settings, flags.overrides, flags.config_file)
    if as_json:
        rows = {line.name: {"value": line.value, "source": line.source, "help": line.help} for line in lines}
        typer.echo(json.dumps({"settings": rows, "limits": limits.describe()}))
    else:
        _print_config(lines, limits.describe())


def _print_config(lines: "Sequence[SettingLine]", limits: Mapping[str, int]) -> None:
    from rich.table import Table

    console = out()
    settings = Table(box=None, pad_edge=False, header_style="dim")
    settings.add_column("Setting", no_wrap=True)
    settings.add_column("Value", overflow="fold", style="bold")
    settings.add_column("From", overflow="fold")
    for line in lines:
        settings.add_row(line.name, one_line(line.value), one_line(line.source))
    console.print(settings)
    console.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("Limit", no_wrap=True)
    table.add_column("")
    table.add_column("", justify="right", no_wrap=True)
    for name, value in limits.items():
        table.add_row(*_limit(name, value))
    console.print(table)


_LIMIT_NAMES: Final = {
    "MAX_ID_BYTES": "id",
    "MAX_NAME_BYTES": "name of a speaker",
    "MAX_METADATA_BYTES": "metadata of a message or a run",
    "MAX_LABELS": "labels of a session",
    "MAX_LABEL_BYTES": "key or value of a label",
    "MAX_RECORD_BYTES": "record of a session",
    "MAX_SETTINGS_BYTES": "settings of a session",
    "MAX_OPEN_CALLS": "open calls of a session",
    "MAX_UNFINISHED_RUNS": "unfinished runs of a session",
    "MAX_STEP_BYTES": "payload of a step",
    "MAX_RUN_REASON_BYTES": "reason of a run's status",
    "MAX_CONTENT_TYPE_BYTES": "content type of a step",
    "MAX_REMOVED_RANGES": "removed ranges of a session",
    "FOLD_BACKOFF_SECONDS": "fold backoff, the first",
    "MAX_SUMMARIES": "summaries kept of a session",
    "MAX_SUMMARY_BYTES": "summary of a client",
    "MAX_TTL_SECONDS": "ttl of a session",
    "MIN_TTL_SECONDS": "ttl of a session",
    "MAX_REASON_BYTES": "reason of a redaction",
    "MAX_FILE_BYTES": "memory file",
    "MAX_FILE_VERSIONS": "versions kept of a memory file",
    "MAX_FILE_REQUESTS": "requests remembered of a memory file",
    "MAX_MEMORY_ENTRIES": "memory entries of a call",
    "DEFAULT_MEMORY_BUDGET": "memory budget, characters",
    "MIN_MEMORY_BUDGET": "memory budget, characters",
    "MAX_MEMORY_BUDGET": "memory budget, characters",
    "MAX_MEMORY_LABEL": "memory label shown, characters",
    "MAX_MEMORY_LABEL_BYTES": "memory label sent",
}
"""Limits that their own names do not tell from others, as people call them."""

_BOUNDS: Final = {"max": "most", "min": "least", "default": "default"}


def _limit(name: str, value: int) -> tuple[str, str, str]:
    """A limit in words, which side of a value it bounds, and itself with its unit."""
    words = name.lower().split("_")
    bound = _BOUNDS.get(words[0], "")
    words = [word for word in words[bool(bound) :] if word not in ("bytes", "seconds")]
    what = _LIMIT_NAMES.get(name) or " ".join(words)
    if "BYTES" in name:
        return what, bound, _binary(value)
    return what, bound, f"{value:,} s" if "SECONDS" in name else f"{value:,}"


def _binary(size: int) -> str:
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size:,} bytes"
