"""Fixtures of the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from tests.conformance.drivers import LANGUAGES, Driver, require

DriverOf = Callable[[str], Driver]


@pytest.fixture(scope="session")
def driver_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverOf]:
    """The driver of a language, by its name: one for all tests of a worker, who connect clients of their own names."""
    started: list[Driver] = []
    languages = {language.name: language for language in LANGUAGES}

    @cache
    def start(name: str) -> Driver:
        require(languages[name])
        driver = Driver(languages[name], tmp_path_factory.mktemp("driver") / f"{name}.log")
        started.append(driver)
        return driver

    yield start
    statuses = {driver.language: driver.close() for driver in started}
    assert not any(statuses.values()), statuses
