"""Counts and times of a server, for Prometheus.

Labels take their values from the server alone: its methods, gRPC's statuses, the configured stores, the operations of
their contract, and fixed words. Nothing that a caller makes up becomes a label, so that the number of series is bounded
and the port tells nobody's names.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection
from importlib.metadata import version

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from memoryd_server.metrics.calls import CallMetrics
from memoryd_server.metrics.stores import StoreFamilies, StoreMetrics


class Metrics:
    """All metrics of a server, in a registry of its own."""

    def __init__(self, methods: Collection[str]) -> None:
        """`methods`: those that the server has, as "/package.Service/Method"."""
        # Prometheus itself asks for these second series of each counter and histogram no more.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        build = Info("memoryd_build", "The server's versions.", registry=self.registry)
        build.info(
            {
                "version": version("memoryd-server"),
                "python_version": platform.python_version(),
                "grpc_version": version("grpcio"),
            }
        )
        self.calls = CallMetrics(self.registry, methods)
        self._families = StoreFamilies(self.registry)

    def of_store(self, name: str) -> StoreMetrics:
        """The metrics of a configured store."""
        return StoreMetrics(self._families, name)

    def watch_calls_in_flight(self, count: Callable[[], int]) -> None:
        """Has the number of calls that are being served read whenever it is asked for, from any thread."""
        self.calls.in_flight.set_function(count)


__all__ = ["Metrics"]
