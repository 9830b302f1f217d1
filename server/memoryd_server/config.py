"""Settings: by flag, environment (`MEMORYD_…`) and TOML file, in that order (design section 9)."""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from platformdirs import user_data_path
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as EnvironmentUnreadable

from memoryd_server import limits
from memoryd_server.durations import parse_duration
from memoryd_server.stores.fallbacks import fallback
from memoryd_server.stores.urls import masked
from memoryd_server.summarizers.base import OPENAI

ENV_PREFIX: Final = "MEMORYD_"
CONFIG_FILE_ENV: Final = "MEMORYD_CONFIG"
"""Environment variable with the path of the TOML file, when no flag names it."""

CLIENT_ENV: Final = frozenset(
    {"MEMORYD_ADDRESS", "MEMORYD_STORE", "MEMORYD_TOKEN", "MEMORYD_CA", "MEMORYD_TLS", CONFIG_FILE_ENV}
)
"""Variables of the same prefix that are not settings of the server."""

DEFAULT_STORE: Final = "default"

_NO_TABLE: Final = frozenset({"dict_type", "model_type"})
"""What pydantic calls a value that should have keys of its own."""

_STORE_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")


class SettingsError(Exception):
    """A setting is wrong. The text names it and says what to do."""


class StoreSettings(BaseModel):
    """A store of the server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: str | None = Field(
        None, description="in_memory, sqlite, postgresql, mysql, redis or mongodb; default: as the URL says"
    )
    url: str | None = Field(
        None,
        description="memory://, sqlite:///relative.db, sqlite:////absolute.db, "
        "postgresql://user:password@host/database, mysql://user:password@host/database, redis://host:6379/0 or "
        "mongodb://user:password@host/database; default: for a type, what DATABASE_URL, REDIS_URL or MONGODB_URI says",
    )


class OpenAISettings(BaseModel):
    """The endpoint of the summarizer `openai`: any server with OpenAI's chat completions."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_url: str = Field(
        description="with its version, such as https://api.openai.com/v1 or http://127.0.0.1:11434/v1"
    )
    model: str = Field(description="the model that makes the summaries, as the endpoint names it")
    key_variable: str | None = Field(
        "OPENAI_API_KEY", description="environment variable that holds the key; empty for an endpoint without keys"
    )
    input_limit: Annotated[int, Field(ge=1_024)] = Field(
        24_000, description="tokens of conversation in one request: what is longer is folded in several"
    )
    answer_limit: Annotated[int, Field(ge=1)] | None = Field(
        None, description="tokens that the model may produce; default: twice the summary; models that think need more"
    )
    limit_parameter: Literal["max_tokens", "max_completion_tokens"] = Field(
        "max_tokens", description="the name of that limit: OpenAI's newer models ask for max_completion_tokens"
    )
    timeout: Annotated[float, Field(gt=0, le=600)] = Field(60.0, description="seconds of one attempt")
    attempts: Annotated[int, Field(ge=1, le=20)] = Field(4, description="attempts of one call, with backoff")

    @field_validator("base_url")
    @classmethod
    def _holds_no_secret(cls, value: str) -> str:
        if "@" in urlsplit(value).netloc:
            raise ValueError(
                "it holds a user or a password: put the key into an environment variable, and name that with "
                "key_variable"
            )
        return value


def retention_seconds(text: str) -> int:
    """A retention as a person writes it; 0 for `none`, which keeps all. Raises: ValueError."""
    if text.strip().lower() == "none":
        return 0
    try:
        return int(parse_duration(text, 1, limits.MAX_RUN_RETENTION_SECONDS).total_seconds())
    except ValueError as error:
        raise ValueError(f"{error}; none keeps all") from None


class ConfiguredStore(NamedTuple):
    """A store with the URL that is in force."""

    type: str | None
    url: str | None
    variables: tuple[str, ...] = ()
    """Those of other programs that its URL comes from, where its settings give none (`stores.fallbacks`)."""

    def origin(self, name: str) -> str:
        """What a message about its URL adds, so that a person finds the place; empty for a URL of the settings."""
        if not self.variables:
            return ""
        return (
            f" The URL is that of {', '.join(self.variables)}, as the store's settings give none: "
            f"{ENV_PREFIX}STORES__{name.upper()}__URL sets one."
        )


class Settings(BaseSettings):
    """What a server can be told. Every field is also the environment variable MEMORYD_<FIELD>."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True, validate_default=False
    )

    listen: str = Field("127.0.0.1:7600", description="address and port to listen on; port 0 takes a free one")
    metrics_listen: str | None = Field(
        None,
        description="address and port to serve metrics for Prometheus on, over plain HTTP; port 0 takes a free one; "
        "default: not served",
    )
    tokens_file: Path | None = Field(
        None, description="file of the bearer tokens that callers may show; default: every caller is welcome"
    )
    tls_certificate: Path | None = Field(
        None, description="PEM file of the server's certificate, with the chain to its CA; default: no TLS"
    )
    tls_key: Path | None = Field(None, description="PEM file of the certificate's key")
    insecure: bool = Field(False, description="listen outside of loopback without tokens or without TLS")
    data_dir: Path = Field(
        default_factory=lambda: user_data_path("memoryd"),
        description="directory of the SQLite file that is used when no store is configured",
    )
    stores: dict[str, StoreSettings] = Field(
        default_factory=dict, description="stores by name: MEMORYD_STORES__<NAME>__URL, or [stores.<name>] in the file"
    )
    default_store: str | None = Field(
        None, description="the store of requests that name none; default: the only one, or the one named 'default'"
    )
    tokenizer: Literal["o200k_base", "cl100k_base", "estimate"] = Field(
        "o200k_base", description="vocabulary of sessions that do not say"
    )
    summarizer: Literal["extractive", "openai", "client"] = Field(
        "extractive", description="who makes summaries where a policy does not say"
    )
    openai: OpenAISettings | None = Field(
        None, description="the endpoint of the summarizer openai: MEMORYD_OPENAI__BASE_URL, MEMORYD_OPENAI__MODEL"
    )
    run_retention: str = Field(
        "30d", description="how long runs are kept after they ended, such as 12h or 30d; none keeps all"
    )
    run_recoveries: Annotated[int, Field(ge=0, le=1_000)] = Field(
        3, description="how often a run is taken up after its worker stopped without a word, before it ends FAILED"
    )
    drain_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        30.0, description="how long calls may go on after SIGTERM"
    )
    drain_delay_seconds: Annotated[float, Field(ge=0, le=3600)] = Field(
        0.0,
        description="how long calls are taken after SIGTERM, with health NOT_SERVING, before drain_seconds begin; "
        "behind a balancer: as long as it takes to notice",
    )
    reflection: bool = Field(True, description="serve gRPC reflection")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")
    log_format: Literal["console", "json"] = Field("console", description="for people or for programs")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags come in as the initial values, before the environment; the file is the last source."""
        del settings_cls, dotenv_settings, file_secret_settings
        file = _FileSource(cls, _current_file)
        return init_settings, env_settings, file

    @field_validator("listen", "metrics_listen")
    @classmethod
    def _listens_at_an_address(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value

    @field_validator("run_retention")
    @classmethod
    def _retains_for_a_time(cls, value: str) -> str:
        retention_seconds(value)
        return value

    @field_validator("stores")
    @classmethod
    def _store_names_are_names(cls, value: dict[str, StoreSettings]) -> dict[str, StoreSettings]:
        for name in value:
            if not _STORE_NAME.fullmatch(name):
                raise ValueError(
                    f"{masked(name)!r} is no store name: it begins with a letter and holds a-z, 0-9, _ and -, at most "
                    "63"
                )
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Settings:
        if (self.tls_certificate is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_certificate"
            raise ValueError(
                f"{missing}: a certificate and its key go together: give both --tls-certificate and --tls-key "
                "(MEMORYD_TLS_CERTIFICATE, MEMORYD_TLS_KEY), or neither"
            )
        self._check_exposure()
        if self.summarizer == OPENAI and self.openai is None:
            raise ValueError(
                "openai: the summarizer is openai, and its endpoint is not set: set MEMORYD_OPENAI__BASE_URL and "
                "MEMORYD_OPENAI__MODEL, or choose another summarizer (MEMORYD_SUMMARIZER)"
            )
        if self.default_store is not None and self.default_store not in self.effective_stores:
            raise ValueError(
                f"default_store: there is no store {masked(self.default_store)!r}; configured are "
                f"{', '.join(sorted(self.effective_stores))}"
            )
        if self.default_store is None and len(self.stores) > 1 and DEFAULT_STORE not in self.stores:
            raise ValueError(
                "default_store: several stores are configured and none is named 'default': say which one requests use "
                "that name none (--default-store, MEMORYD_DEFAULT_STORE)"
            )
        return self

    def _check_exposure(self) -> None:
        if self.insecure or is_loopback(split_address(self.listen)[0]):
            return
        lacks = []
        if self.tokens_file is None:
            lacks.append(("callers are not authenticated", "--tokens-file (MEMORYD_TOKENS_FILE)"))
        if self.tls_certificate is None:
            lacks.append(
                ("nothing is encrypted", "--tls-certificate and --tls-key (MEMORYD_TLS_CERTIFICATE, MEMORYD_TLS_KEY)")
            )
        if lacks:
            raise ValueError(
                f"listen: {self.listen} is reachable from other machines, and {' and '.join(why for why, _ in lacks)}: "
                f"set {', and '.join(what for _, what in lacks)}, listen on 127.0.0.1, or accept it with --insecure "
                "(MEMORYD_INSECURE=true)"
            )

    @property
    def run_retention_microseconds(self) -> int:
        """How long runs are kept after they ended; 0 for ever."""
        return retention_seconds(self.run_retention) * 1_000_000

    @property
    def effective_stores(self) -> Mapping[str, ConfiguredStore]:
        """The configured stores; a SQLite file in the data directory when there are none."""
        if self.stores:
            return {name: _configured(store) for name, store in self.stores.items()}
        path = (self.data_dir / "memoryd.db").expanduser().absolute()
        return {DEFAULT_STORE: ConfiguredStore("sqlite", f"sqlite:///{path}")}

    @property
    def effective_default_store(self) -> str:
        """The name of the store that requests without a name use."""
        if self.default_store is not None:
            return self.default_store
        stores = self.effective_stores
        return next(iter(stores)) if len(stores) == 1 else DEFAULT_STORE


def _configured(store: StoreSettings) -> ConfiguredStore:
    found = None if store.url else fallback(store.type, os.environ)
    if found is None:
        return ConfiguredStore(store.type, store.url)
    return ConfiguredStore(store.type, found.url, found.variables)


_current_file: Mapping[str, Any] = {}


class _FileSource(PydanticBaseSettingsSource):
    """The values of the TOML file, which `load_settings` has read."""

    def __init__(self, settings_cls: type[BaseSettings], values: Mapping[str, Any]) -> None:
        super().__init__(settings_cls)
        self._values = values

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        """One field's value, as the base class asks for it."""
        del field
        return self._values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """All values, unknown ones included, so that they are refused."""
        return dict(self._values)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[v6]:port". Raises: ValueError that says what is wrong."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{address!r} is no address: write host:port, for example 127.0.0.1:7600 or [::1]:7600")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"{address!r} is no address: write an IPv6 host in brackets, for example [::1]:7600")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _StoreSettings(Settings):
    """Settings for what opens stores and serves none: a default store is not asked for."""

    @model_validator(mode="after")
    def _fits_together(self) -> _StoreSettings:
        return self


def load_settings(
    overrides: Mapping[str, Any] | None = None, config_file: Path | None = None, *, serves: bool = True
) -> Settings:
    """The settings in force.

    `overrides` are those given by flags. `config_file` defaults to the one that `MEMORYD_CONFIG` names, else none is
    read. `serves`: whether they are a server's; where only its stores are used, they need not fit one.

    Raises: SettingsError.
    """
    global _current_file  # noqa: PLW0603 - pydantic builds its sources without arguments of ours.
    path = config_file or (Path(os.environ[CONFIG_FILE_ENV]) if os.environ.get(CONFIG_FILE_ENV) else None)
    _check_environment()
    _current_file = {} if path is None else _read_file(path)
    try:
        return (Settings if serves else _StoreSettings)(**dict(overrides or {}))
    except ValidationError as error:
        raise SettingsError(_explain(error, path)) from error
    except EnvironmentUnreadable as error:  # A variable must hold JSON and does not: only the stores' are such.
        raise SettingsError(
            f"stores: {ENV_PREFIX}STORES or a variable that begins with {ENV_PREFIX}STORES__ cannot be read: "
            f"{_store_advice('main')}, or unset the variable"
        ) from error
    finally:
        _current_file = {}


def _read_file(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the settings file {path} is no valid TOML: {error}") from error


def _check_environment() -> None:
    for name in os.environ:
        if not name.startswith(ENV_PREFIX) or name in CLIENT_ENV:
            continue
        field = name.removeprefix(ENV_PREFIX).partition("__")[0].lower()
        if field not in Settings.model_fields:
            known = [ENV_PREFIX + known.upper() for known in Settings.model_fields]
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise SettingsError(f"the environment variable {name} is no setting of memoryd: {hint}")


def _store_advice(name: str) -> str:
    return (
        f"write {ENV_PREFIX}STORES__{name.upper()}__URL=sqlite:////var/lib/memoryd.db (or another URL), "
        f'--store {name}=URL, or [stores.{name}] with a line url = "URL" in the file'
    )


def _explain(error: ValidationError, path: Path | None) -> str:
    lines = []
    for problem in error.errors():
        where = [masked(str(part)) for part in problem["loc"]]
        text = problem["msg"].removeprefix("Value error, ")
        if where[:1] == ["stores"] and problem["type"] in _NO_TABLE:
            what = "stores are named" if len(where) == 1 else "a store has settings of its own"
            text = f"{what}: {_store_advice(where[1] if len(where) > 1 else 'main')}"
        if not where:
            lines.append(text)
            continue
        name = ".".join(where)
        env = ENV_PREFIX + "__".join(where).upper()
        flag = "--store" if where[0] == "stores" else "--" + where[0].replace("_", "-")
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(where[0], Settings.model_fields, 1)
            hint = f"; did you mean {near[0]}?" if near and len(where) == 1 else ""
            lines.append(f"{name}: there is no such setting{hint}")
        else:
            place = f"{flag}, {env}" + (f", or {name} in {path}" if path else "")
            # A URL may hold a password, and a whole table may hold a URL.
            got = "" if where[0] in ("stores", "openai") else f"got {problem['input']!r}; "
            lines.append(f"{name}: {text} ({got}set by {place})")
    return "\n".join(lines)


class SettingLine(NamedTuple):
    """A setting as `memoryd config` prints it."""

    name: str
    value: str
    source: str
    help: str


@dataclass(frozen=True, slots=True)
class _Sources:
    flags: Mapping[str, Any]
    file: Mapping[str, Any]
    path: Path | None

    def of(self, name: str) -> str:
        if name in self.flags:
            return "flag"
        variable = ENV_PREFIX + name.upper()
        if any(key == variable or key.startswith(f"{variable}__") for key in os.environ):
            return "environment"
        return f"file {self.path}" if name in self.file else "default"

    def of_store(self, name: str) -> str:
        """All sources of a store's settings, the one that wins first: its type and its URL may differ in theirs."""
        every = f"{ENV_PREFIX}STORES"
        own = f"{every}__{name.upper()}__"
        has_it = {
            "flag": name in self.flags.get("stores", {}),
            "environment": any(key == every or key.startswith(own) for key in os.environ),
            f"file {self.path}": name in self.file.get("stores", {}),
        }
        return ", ".join(source for source, has in has_it.items() if has) or "default"


def describe(
    settings: Settings, overrides: Mapping[str, Any] | None = None, config_file: Path | None = None
) -> Sequence[SettingLine]:
    """Each setting with its value (secrets masked), where it came from, and what it is.

    `overrides` and `config_file` are those that the settings were loaded with.
    """
    path = config_file or (Path(os.environ[CONFIG_FILE_ENV]) if os.environ.get(CONFIG_FILE_ENV) else None)
    sources = _Sources(overrides or {}, {} if path is None else _read_file(path), path)
    lines = []
    for name, field in Settings.model_fields.items():
        if name == "stores":
            for store, store_settings in settings.effective_stores.items():
                value = mask_url(store_settings.url)
                if store_settings.type:
                    value = f"{value} (type {store_settings.type})"
                source = sources.of_store(store)
                if store_settings.variables:
                    source = f"{source}, URL from {', '.join(store_settings.variables)}"
                lines.append(SettingLine(f"stores.{store}", value, source, field.description or ""))
            continue
        current = settings.effective_default_store if name == "default_store" else getattr(settings, name)
        value = "(none)" if current is None else str(current)
        lines.append(SettingLine(name, value, sources.of(name), field.description or ""))
    return lines


def mask_url(url: str | None) -> str:
    """A store's URL without its secrets."""
    return masked(url) if url else "(no URL)"
