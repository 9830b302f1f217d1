"""What calls do: how many, how they end, how long they take."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from memoryd_server.metrics import buckets

UNKNOWN_METHOD: Final = "unknown"
"""The label of all methods that the server does not have: callers make up their names."""


class CallMetrics:
    """Counts calls by method and status."""

    def __init__(self, registry: CollectorRegistry, methods: Collection[str]) -> None:
        started = Counter(
            "memoryd_calls_started", "Calls that reached the server, by method.", ["method"], registry=registry
        )
        self._finished = Counter(
            "memoryd_calls_finished",
            "Calls that ended, by method and gRPC status. CANCELLED: the caller went away, or its deadline passed.",
            ["method", "status"],
            registry=registry,
        )
        duration = Histogram(
            "memoryd_call_duration_seconds",
            "Time from the arrival of a call until its last answer was handed over, by method. Of a stream it includes "
            "the time that the caller took to read.",
            ["method"],
            buckets=buckets.SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "memoryd_calls_in_flight", "Calls that are being served now, watches included.", registry=registry
        )
        labels = {method: method.removeprefix("/") for method in methods} | {UNKNOWN_METHOD: UNKNOWN_METHOD}
        # Series that most calls count in stand from the start, so that rates are right from the first call on.
        self._labels = labels
        self._started = {method: started.labels(label) for method, label in labels.items()}
        self._duration = {method: duration.labels(label) for method, label in labels.items()}
        self._finished_with = {(method, "OK"): self._finished.labels(labels[method], "OK") for method in methods}

    def started(self, method: str) -> None:
        """A call of `method` ("/package.Service/Method") arrived."""
        self._started[method if method in self._started else UNKNOWN_METHOD].inc()

    def finished(self, method: str, status: str, seconds: float) -> None:
        """A call ended with the gRPC status of this name."""
        if method not in self._labels:
            method = UNKNOWN_METHOD
        self._duration[method].observe(seconds)
        counter = self._finished_with.get((method, status))
        if counter is None:
            counter = self._finished_with[method, status] = self._finished.labels(self._labels[method], status)
        counter.inc()
