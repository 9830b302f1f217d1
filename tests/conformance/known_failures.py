"""The cases that are known to fail: known_failures.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter, with_config

FILE: Final = Path(__file__).with_suffix(".toml")


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class KnownFailure:
    """Where a case fails, and why."""

    case: str
    reason: str
    languages: tuple[str, ...] = ()
    """Empty: all."""
    stores: tuple[str, ...] = ()
    """Empty: all."""

    def holds(self, case: str, language: str, store: str) -> bool:
        """Whether it is of this case, in this language and on this store."""
        return (
            case == self.case
            and (not self.languages or language in self.languages)
            and (not self.stores or store in self.stores)
        )


def read_known_failures() -> list[KnownFailure]:
    """All of them. Raises ValidationError, a ValueError, for a file that says something else."""
    listed = tomllib.loads(FILE.read_text("utf-8")).get("failure", [])
    return TypeAdapter(list[KnownFailure]).validate_python(listed)
