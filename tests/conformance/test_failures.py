"""What goes wrong between client and server is a typed error in every language, in time (design section 10)."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from google.protobuf.duration_pb2 import Duration

from memoryd.v1 import error_reason_pb2, history_service_pb2
from memoryd.v1.session_pb2 import SessionKey
from memoryd_server.credentials import token_editing
from tests.certificates import Authority
from tests.conformance import conformance_pb2 as pb
from tests.conformance.conftest import DriverOf
from tests.conformance.drivers import LANGUAGES, Driver
from tests.conftest import StartServer
from tests.databases.servers import free_ports
from tests.servers import ServerProcess

TIMEOUT_SECONDS: Final = 3.0
SLACK_SECONDS: Final = 3.0
"""What a busy machine may add."""

CALL: Final = history_service_pb2.GetSessionRequest(session=SessionKey(agent="a", session_id="s"))
NOT_FOUND: Final = error_reason_pb2.ERROR_REASON_SESSION_NOT_FOUND
"""What the call is told by a server that serves it."""

EACH_LANGUAGE: Final = [pytest.param(language.name, id=language.name) for language in LANGUAGES]


@pytest.fixture(params=EACH_LANGUAGE)
def driver(request: pytest.FixtureRequest, driver_of: DriverOf) -> Driver:
    return driver_of(request.param)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def guarded(start_server: StartServer, authority: Authority, tmp_path: Path) -> tuple[ServerProcess, str]:
    """A server with TLS that asks for tokens, and a token."""
    tokens = tmp_path / "tokens.toml"
    token = token_editing.create(tokens, "acme", "")[0]
    certificate = authority.issue(tmp_path / "certificate")
    server = start_server("--store", "default=memory://", "--tokens-file", str(tokens), *certificate.flags)
    return server, token


def failure_of(driver: Driver, *, timeout: float | None = None) -> pb.Failure:
    """What a call fails with."""
    command = pb.Command(client="failing", get_session=CALL)
    if timeout is not None:
        command.timeout.FromNanoseconds(round(timeout * 1e9))
    return driver.reply(command).failure


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Its body must not take longer, by much."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds + SLACK_SECONDS


def test_a_token_that_is_none_and_a_missing_one_are_told_apart(
    driver: Driver, guarded: tuple[ServerProcess, str], authority: Authority
) -> None:
    server, token = guarded
    ca = str(authority.path)
    driver.connect(server.address, "failing", ca=ca, token=token)
    assert failure_of(driver).reason == NOT_FOUND
    driver.connect(server.address, "failing", ca=ca, token="mem_nonsense")
    wrong = failure_of(driver)
    assert (wrong.code, wrong.reason) == ("UNAUTHENTICATED", error_reason_pb2.ERROR_REASON_CREDENTIAL_INVALID)
    assert "CredentialInvalid" in wrong.type
    driver.connect(server.address, "failing", ca=ca)
    missing = failure_of(driver)
    assert (missing.code, missing.reason) == ("UNAUTHENTICATED", error_reason_pb2.ERROR_REASON_CREDENTIAL_MISSING)
    assert "CredentialMissing" in missing.type


def test_a_certificate_of_another_authority_is_told_as_such(
    driver: Driver, guarded: tuple[ServerProcess, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And the token is not sent."""
    server, token = guarded
    other = Authority(tmp_path_factory.mktemp("other"))
    driver.connect(server.address, "failing", ca=str(other.path), token=token, timeout=seconds(TIMEOUT_SECONDS))
    with within(TIMEOUT_SECONDS):
        failure = failure_of(driver)
    assert (failure.code, failure.reason) == ("UNAVAILABLE", error_reason_pb2.ERROR_REASON_UNSPECIFIED)
    assert "tlsfailed" in failure.type.lower()


def test_a_server_that_was_never_there_is_told_before_the_deadline(driver: Driver) -> None:
    [port] = free_ports(1)
    driver.connect(f"127.0.0.1:{port}", "failing", timeout=seconds(30))
    with within(TIMEOUT_SECONDS):
        failure = failure_of(driver)
    assert (failure.code, failure.reason) == ("UNAVAILABLE", error_reason_pb2.ERROR_REASON_UNSPECIFIED)
    assert "ServerUnavailable" in failure.type


def test_a_server_that_has_gone_is_told_within_the_deadline(driver: Driver, start_server: StartServer) -> None:
    server = start_server("--store", "default=memory://")
    driver.connect(server.address, "failing", timeout=seconds(TIMEOUT_SECONDS))
    assert failure_of(driver).reason == NOT_FOUND
    server.kill()
    with within(TIMEOUT_SECONDS):
        failure = failure_of(driver)
    assert failure.reason == error_reason_pb2.ERROR_REASON_UNSPECIFIED
    assert failure.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    assert "ServerUnavailable" in failure.type or "DeadlineExceeded" in failure.type


def test_a_server_that_does_not_answer_is_told_at_the_deadline_of_client_or_call(
    driver: Driver, start_server: StartServer
) -> None:
    server = start_server("--store", "default=memory://")
    driver.connect(server.address, "failing", timeout=seconds(1))
    assert failure_of(driver).reason == NOT_FOUND
    server.process.send_signal(signal.SIGSTOP)
    try:
        for timeout in (None, 0.2):
            with within(1 if timeout is None else timeout):
                failure = failure_of(driver, timeout=timeout)
            assert failure.code == "DEADLINE_EXCEEDED"
            assert "DeadlineExceeded" in failure.type
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert failure_of(driver, timeout=30).reason == NOT_FOUND


def test_a_token_is_not_sent_unencrypted_to_another_machine(driver: Driver) -> None:
    """Unless its user says so."""
    command = pb.Command(client="failing", connect=pb.Connect(address="memory.example:7600", token="mem_secret"))
    refused = driver.reply(command).failure
    assert refused.message
    assert "mem_secret" not in refused.message
    command.connect.allow_token_without_tls = True
    driver.call(command)
    driver.call(pb.Command(client="failing", close=pb.Close()))


def seconds(count: float) -> Duration:
    """A length of time for a command."""
    length = Duration()
    length.FromNanoseconds(round(count * 1e9))
    return length
