"""What memory must not hold, and what must not come out of it: credentials are refused and appear nowhere, contents and
rendered blocks are in no log line, and no block is in the database (design section 7, invariant 14)."""

from __future__ import annotations

import base64
import hashlib
import random
import string
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

import grpc
import pytest

from memoryd.v1 import memory_context_service_pb2 as memory
from memoryd.v1 import message_pb2 as pb
from memoryd_server.engine.memory_guide import WARNING
from tests.adapters import EACH_SHARED_ADAPTER
from tests.servers import ServerProcess
from tests.service.database_scan import Contents
from tests.service.memory_calls import Source, add, content_of, listed, log, project, put, render, user, versions
from tests.service.wire import Stubs, new_key, refused, text

INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT
DAY: Final = "2026-01-02"


@dataclass(frozen=True)
class Watched:
    """A server that logs all that it may log, and its database."""

    server: ServerProcess
    url: str

    def places_of(self, said: str) -> list[str]:
        """Where a text is in log and database."""
        logged = [line for line in self.server.log_text().splitlines() if said in line]
        return logged + Contents(self.url).places_of(said.encode())


@pytest.fixture(scope="module", params=EACH_SHARED_ADAPTER)
def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """One on a store of each adapter in turn."""
    directory = tmp_path_factory.mktemp("watched")
    with ExitStack() as running:
        url = running.enter_context(request.param.data(directory))
        flags = ("--store", f"default={url}", "--tokenizer", "estimate", "--log-level", "debug")
        server = ServerProcess(*flags, log=directory / "server.log")
        running.callback(server.close)
        yield Watched(server, url)


@pytest.fixture
def on_watched(watched: Watched) -> Iterator[Stubs]:
    with Stubs(watched.server.address) as stubs:
        yield stubs


_random: Final = random.Random("credentials")
_ALPHANUMERIC: Final = string.ascii_letters + string.digits


def _some(length: int, alphabet: str = _ALPHANUMERIC) -> str:
    return "".join(_random.choices(alphabet, k=length))


CREDENTIALS: Final[dict[str, tuple[str, str]]] = {
    # Made up here and built from parts, so that no scanner of repositories takes them for real ones.
    "AWS access key": ("AK" + "IA" + _some(16, string.ascii_uppercase + string.digits), "{}"),
    "GitHub token": ("gh" + "p_" + _some(36), "token for CI: {}"),
    "GitLab token": ("gl" + "pat-" + _some(20), "- use {} for the registry"),
    "Slack token": ("xo" + "xb-" + _some(12, string.digits) + "-" + _some(12, string.digits) + "-" + _some(24), "{}"),
    "Stripe key": ("sk_" + "live_" + _some(24), "stripe {}"),
    "Google API key": ("AI" + "za" + _some(35), "maps: {}"),
    "OpenAI API key": ("sk-" + "proj-" + _some(40), "export OPENAI_API_KEY={}"),
    "JSON Web Token": (
        ".".join(
            base64.urlsafe_b64encode(part.encode()).decode().rstrip("=")
            for part in ('{"alg":"HS256","typ":"JWT"}', '{"sub":"1234567890","name":"Ana"}', _some(32))
        ),
        "cookie {}",
    ),
    "private key": ("-----BEGIN RSA " + "PRIVATE KEY-----", "{}"),
    "password in a URL": ("hunter" + _some(8), "postgresql://ana:{}@db.example.org/atlas"),
    "password": ("Tr0ub4dor" + _some(6), "the admin password: {}"),
}
"""A credential of each kind, and a line that holds it."""

HARMLESS: Final = (
    f"- commit {hashlib.sha1(b'a').hexdigest()} fixed it",
    f"- the image is sha256:{hashlib.sha256(b'b').hexdigest()}",
    f"- md5 {hashlib.md5(b'c').hexdigest()}",
    f"- the run {uuid.UUID(int=_random.getrandbits(128))} failed",
    f"![chart](data:image/png;base64,{base64.b64encode(_random.randbytes(900)).decode()})",
    "- the password is in the vault, under atlas/db; never write tokens here",
    "- set API_KEY from the environment: `export API_KEY=$(pass atlas)`",
)


def test_credentials_are_refused_with_their_line_and_kind_and_appear_nowhere(
    watched: Watched, on_watched: Stubs, agent: str
) -> None:
    """Neither in the answer nor in the log nor in the store, also after a later write of another file."""
    owner, stubs = user(agent), on_watched
    put(stubs, owner, b"- harmless\n")
    for kind, (secret, template) in CREDENTIALS.items():
        line = template.format(secret)
        writes: dict[str, tuple[Callable[[], object], int]] = {
            "content": (partial(put, stubs, owner, f"- one\n\n{line}\n- four\n".encode(), author="ana"), 3),
            "entries[1]": (partial(add, stubs, owner, "- one", line, request_id="r"), 1),
            "text": (partial(log, stubs, owner, f"## Today\r\n{line}", date=DAY), 2),
        }
        for field, (write, number) in writes.items():
            refusal = refused(write)
            assert (refusal.code, refusal.reason) == (INVALID, "SECRET_FOUND")
            told = (refusal.metadata["field"], refusal.metadata["line"], refusal.metadata["kind"])
            assert told == (field, f"{number}", kind)
            assert f"line {number} of {field}" in refusal.text
            assert kind in refusal.text
            for part in (refusal.text, *refusal.metadata.values(), *refusal.trailing.values()):
                assert secret.encode() not in (part if isinstance(part, bytes) else part.encode())
    assert content_of(stubs, owner) == b"- harmless\n"
    assert len(versions(stubs, owner)) == 1
    assert log(stubs, owner, "all is well", date=DAY).version == 1
    assert put(stubs, project(agent), b"- another file\n").version == 1
    assert render(stubs, Source(stored=agent)).block.endswith("- harmless\n</UNTRUSTED_CONTENT>\n</MEMORY_CONTEXT>")

    logged, stored = watched.server.log_text(), Contents(watched.url)
    for secret, _ in CREDENTIALS.values():
        assert secret not in logged
        assert stored.places_of(secret.encode()) == []


def test_allowed_ones_are_stored_and_not_logged(watched: Watched, on_watched: Stubs, agent: str) -> None:
    """What a write holds already is no concern of one that adds something else."""
    owner, stubs = user(agent), on_watched
    lines = [template.format(secret) + f" {agent}" for secret, template in CREDENTIALS.values()]
    put(stubs, owner, "\n".join(lines[:-2]).encode(), allow_secrets=True)
    add(stubs, owner, lines[-2], allow_secrets=True)
    log(stubs, owner, lines[-1], date=DAY, allow_secrets=True)
    assert add(stubs, owner, "- harmless").added_count == 1

    assert content_of(stubs, owner).decode().splitlines() == [*lines[:-1], "- harmless"]
    assert content_of(stubs, owner, f"{DAY}.md").decode() == f"{lines[-1]}\n"
    assert all(line in render(stubs, Source(stored=agent)).block for line in lines[:-1])
    logged, stored = watched.server.log_text(), Contents(watched.url)
    for secret, _ in CREDENTIALS.values():
        assert secret not in logged
    # The scan finds what is there: what it does not find elsewhere is not.
    assert stored.holds(lines[0].encode())
    assert stored.holds(lines[-1].encode())


def test_hashes_uuids_and_images_are_no_credentials(stubs: Stubs, agent: str) -> None:
    owner = user(agent)
    put(stubs, owner, "\n".join(HARMLESS).encode())
    assert add(stubs, project(agent), *HARMLESS).added_count == len(HARMLESS)
    log(stubs, owner, "\n".join(HARMLESS), date=DAY)

    assert listed(stubs, owner) == ["MEMORY.md", f"{DAY}.md"]


def test_contents_and_blocks_are_in_no_log_line_and_no_block_is_in_the_database(
    watched: Watched, on_watched: Stubs, agent: str
) -> None:
    """Not at the level debug, and not after the block came back in a prompt (invariant 14)."""
    marker, inline, stubs = "c4nary-in-a-file", "c4nary-inline", on_watched
    put(stubs, user(agent), f"- {marker}\n- \xff\n".encode("latin-1"), author=f"author-{marker}")
    add(stubs, user(agent), f"- {marker} added")
    log(stubs, project(agent), f"{marker} logged", date=DAY)
    refused(lambda: put(stubs, user(agent), f"{marker} stale".encode(), etag=f"etag-{marker}"))
    for style in (memory.MEMORY_STYLE_ENCLOSED, memory.MEMORY_STYLE_OPENHANDS):
        unreadable = Source(unreadable=inline, label=f"/{inline}/MEMORY.md")
        for other in (Source(text=f"- {inline}", label=f"/{inline}"), unreadable):
            answer = render(stubs, Source(stored=agent), other, style=style)
            assert marker in answer.block
            for role in (pb.ROLE_SYSTEM, pb.ROLE_DEVELOPER):
                (appended,) = stubs.append(new_key(agent), text(f"Be brief.\n\n{answer.block}\n", role))
                assert appended.memory_context_removed

    assert "AppendMessages" in watched.server.log_text()
    assert [line for line in watched.server.log_text().splitlines() if "c4nary" in line] == []
    for said in ("MEMORY_CONTEXT", "UNTRUSTED_CONTENT", WARNING[:40], inline):
        assert watched.places_of(said) == []
    assert Contents(watched.url).holds(marker.encode())
