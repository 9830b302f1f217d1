"""What every call passes through, one concern a file, in the order of `chain`."""

from __future__ import annotations

from collections.abc import Sequence

import grpc.aio

from memoryd_server.interceptors.access_log import AccessLog
from memoryd_server.interceptors.authentication import Authentication
from memoryd_server.interceptors.correlation import Correlation
from memoryd_server.interceptors.deadline import Deadline
from memoryd_server.interceptors.draining import Draining
from memoryd_server.interceptors.error_boundary import ErrorBoundary
from memoryd_server.interceptors.in_flight import InFlight
from memoryd_server.interceptors.metrics import CallMeter, CallMetrics


def chain(
    in_flight: InFlight, authentication: Authentication, draining: Draining, meter: CallMeter | None = None
) -> Sequence[grpc.aio.ServerInterceptor]:
    """The interceptors, outermost first (design section 9). Without a meter nobody counts calls."""
    metrics = () if meter is None else (CallMetrics(meter),)
    return (in_flight, Correlation(), AccessLog(), *metrics, ErrorBoundary(), authentication, draining, Deadline())


__all__ = ["Authentication", "Draining", "InFlight", "chain"]
