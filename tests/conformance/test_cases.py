"""Every case in every language, and on every store (design section 10)."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.adapters import ADAPTERS, Adapter
from tests.conformance.cases import Case, read_cases
from tests.conformance.conftest import DriverOf
from tests.conformance.drivers import LANGUAGES, Language
from tests.conformance.known_failures import read_known_failures
from tests.conformance.running import run_case
from tests.conftest import ServerOn
from tests.servers import ServerProcess

CASES = read_cases()
KNOWN_FAILURES = read_known_failures()
IN_MEMORY = "in_memory"
EVERYWHERE = "MEMORYD_CONFORMANCE_EVERYWHERE"
"""With this variable every case runs in every language on every store."""


def _languages(case: Case, adapter: Adapter) -> Iterator[Language]:
    """In which languages a case runs on a store: in all in memory, elsewhere in one in turn. The store makes no
    difference to an SDK, and each SDK meets each store.
    """
    everywhere = adapter.name == IN_MEMORY or EVERYWHERE in os.environ
    turn = zlib.crc32(f"{case.name} {adapter.name}".encode()) % len(LANGUAGES)
    for number, language in enumerate(LANGUAGES):
        if everywhere or number == turn:
            yield language


def _parameters() -> Iterator[ParameterSet]:
    for adapter in filter(lambda adapter: adapter.is_atomic, ADAPTERS):
        database = [adapter.database.mark] if adapter.database else []
        for case in CASES:
            if case.is_of_client and adapter.name != IN_MEMORY:
                continue
            for language in filter(lambda language: case.requires <= language.features, _languages(case, adapter)):
                known = [
                    pytest.mark.xfail(reason=failure.reason, strict=True)
                    for failure in KNOWN_FAILURES
                    if failure.holds(case.name, language.name, adapter.name)
                ]
                name = f"{adapter.name}-{language.name}-{case.name}"
                yield pytest.param(case, language, adapter.name, id=name, marks=[*database, *known])


@pytest.mark.parametrize("language", [pytest.param(language, id=language.name) for language in LANGUAGES])
def test_a_driver_says_what_it_is(language: Language, driver_of: DriverOf, in_memory_server: ServerProcess) -> None:
    """So that no case is left out by mistake."""
    hello = driver_of(language.name).connect(in_memory_server.address)
    assert (hello.language, frozenset(hello.features)) == (language.name, language.features)


def test_known_failures_are_of_cases_that_there_are() -> None:
    assert {failure.case for failure in KNOWN_FAILURES} <= {case.name for case in CASES}


@pytest.mark.parametrize(("case", "language", "store"), list(_parameters()))
def test_case(
    case: Case, language: Language, store: str, driver_of: DriverOf, server_on: ServerOn, tmp_path: Path
) -> None:
    run_case(case, driver_of(language.name), server_on(store).address, tmp_path)
