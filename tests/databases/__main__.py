"""Prints the Debian packages of the database servers that the tests would miss."""

from __future__ import annotations

from pathlib import Path

from tests.databases.kinds import KINDS
from tests.databases.shared import SharedServers, urls_of_environment

if __name__ == "__main__":
    servers = SharedServers(Path(), urls_of_environment())
    print(*sorted({kind.packages for kind in KINDS if servers.missing(kind)} - {""}))
