"""What stores do: operations, commits, windows, background work."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from memoryd_server.engine.instruments import FOLD_OUTCOMES, Instruments
from memoryd_server.engine.windows import WindowStats
from memoryd_server.metrics import buckets
from memoryd_server.stores.base import (
    Change,
    Committed,
    Deleted,
    Known,
    Outcome,
    Pooled,
    PoolStatus,
    SessionKey,
    Store,
    StoreUnavailable,
)
from memoryd_server.stores.measured import OPERATIONS

_COMMITTED: Final = "committed"
_KNOWN: Final = "known"
_CONFLICT: Final = "conflict"
_DEPENDENT: Final = "dependent"


class StoreFamilies:
    """The metrics that stores have, each with the store's name as a label."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, help_: str, *labels: str) -> Counter:
            return Counter(name, help_, ["store", *labels], registry=registry)

        def gauge(name: str, help_: str) -> Gauge:
            return Gauge(name, help_, ["store"], registry=registry)

        def histogram(name: str, help_: str, edges: Sequence[float], *labels: str) -> Histogram:
            return Histogram(name, help_, ["store", *labels], buckets=edges, registry=registry)

        self.up = gauge("memoryd_store_up", "1 when the store answered the last time that it was asked, 0 when not.")
        self.operation_duration = histogram(
            "memoryd_store_operation_duration_seconds",
            "Time of a store's operation, failed ones included, by operation of the store contract.",
            buckets.SECONDS,
            "operation",
        )
        self.operation_errors = counter(
            "memoryd_store_operation_errors",
            "Operations that failed, by kind: unavailable (the database did not answer, or refused for now), cancelled "
            "(the call ended meanwhile), unexpected (see the log).",
            "operation",
            "kind",
        )
        self.pool_size = gauge("memoryd_store_pool_size", "The most connections to the database.")
        self.pool_in_use = gauge("memoryd_store_pool_in_use", "Connections with which calls are being served.")
        self.pool_waiting = gauge("memoryd_store_pool_waiting", "Calls that wait for a connection.")
        self.commit_changes = histogram("memoryd_commit_changes", "Changes of a commit.", buckets.BATCH)
        self.commit_sessions = histogram("memoryd_commit_sessions", "Sessions of a commit.", buckets.BATCH)
        self.commit_backlog = gauge(
            "memoryd_commit_backlog", "Changes that wait for their commit, or to be tried again after a conflict."
        )
        self.changes = counter(
            "memoryd_changes",
            "Changes of sessions that reached the store, by outcome: committed; conflict (another call changed the "
            "session first: tried again); known (an id was seen before: answered from what is stored); dependent (one "
            "before it in the same commit was refused: tried again).",
            "outcome",
        )
        self.window_messages = histogram("memoryd_window_messages", "Messages of a window.", buckets.MESSAGES)
        self.window_tokens = histogram("memoryd_window_tokens", "Tokens of a window.", buckets.TOKENS)
        self.window_left_out = counter(
            "memoryd_window_left_out_messages",
            "Messages that windows left out, by reason: limit, orphan_result (a result without its call), "
            "open_tool_call (a group with an unanswered call).",
            "reason",
        )
        self.windows_over_limit = counter(
            "memoryd_windows_over_limit", "Windows whose newest group alone is over the limit."
        )
        self.window_shortened = counter(
            "memoryd_window_shortened_messages", "Messages whose texts were shortened to fit a window."
        )
        self.watchers = gauge("memoryd_watchers", "Watches of sessions that are open now.")
        self.folds = counter(
            "memoryd_folds",
            "Folds that ended, those of clients included, by outcome: committed; void (the history changed where they "
            "lay: planned anew); cancelled (the server drains: another one goes on); unavailable (the store did not "
            "answer); abandoned (a client's model failed); or why the summarizer failed, as WindowStats tells it.",
            "outcome",
        )
        self.fold_duration = histogram(
            "memoryd_fold_duration_seconds", "Time from the lease of a fold to its end.", buckets.FOLD_SECONDS
        )
        self.folded = counter("memoryd_folded_messages", "Messages that committed summaries took in.")
        self.folds_under_way = gauge("memoryd_folds_under_way", "Folds that this server works on now.")
        self.expired = counter("memoryd_expired_sessions", "Sessions that this server ended, since their ttl was over.")
        self.abandoned = counter(
            "memoryd_abandoned_runs", "Runs that this server ended, since nobody had claimed them for 30 days."
        )
        self.sweep_deleted = counter(
            "memoryd_sweep_deleted_rows",
            "Rows that background work deleted, by kind: messages, events, lookups, sessions (names of sessions of "
            "which nothing is left), summaries, runs, steps, files.",
            "kind",
        )
        self.sweep_failures = counter(
            "memoryd_sweep_failures", "Failures of background work, at one session or as a whole; it is tried again."
        )
        self.sweep_success = gauge(
            "memoryd_sweep_last_success_timestamp_seconds",
            "When background work last came to its end on this server, in seconds since the Unix epoch; 0 before.",
        )


class StoreMetrics(Instruments):
    """The metrics of one store. They are the engine's instruments and the meter of the store's operations."""

    def __init__(self, families: StoreFamilies, name: str) -> None:
        self._name = name
        self._families = families
        # All series stand from the start, so that rates are right from the first event on.
        self._durations = {operation: families.operation_duration.labels(name, operation) for operation in OPERATIONS}
        self._up = families.up.labels(name)
        self._commit_changes = families.commit_changes.labels(name)
        self._commit_sessions = families.commit_sessions.labels(name)
        self._changes = {
            outcome: families.changes.labels(name, outcome) for outcome in (_COMMITTED, _KNOWN, _CONFLICT, _DEPENDENT)
        }
        self._window_messages = families.window_messages.labels(name)
        self._window_tokens = families.window_tokens.labels(name)
        self._beyond_limit, self._orphans, self._open = (
            families.window_left_out.labels(name, reason) for reason in ("limit", "orphan_result", "open_tool_call")
        )
        self._over_limit = families.windows_over_limit.labels(name)
        self._shortened = families.window_shortened.labels(name)
        self._watchers = families.watchers.labels(name)
        self._folds = {outcome: families.folds.labels(name, outcome) for outcome in FOLD_OUTCOMES}
        self._fold_duration = families.fold_duration.labels(name)
        self._folded = families.folded.labels(name)
        self._folds_under_way = families.folds_under_way.labels(name)
        self._expired = families.expired.labels(name)
        self._abandoned = families.abandoned.labels(name)
        self._deleted = {
            field.name: families.sweep_deleted.labels(name, field.name) for field in dataclasses.fields(Deleted)
        }
        self._sweep_failures = families.sweep_failures.labels(name)
        self._sweep_success = families.sweep_success.labels(name)

    def watch(self, store: Store, backlog: Callable[[], int]) -> None:
        """Has the store's pool, if it has one, and the changes that wait read whenever they are asked for. The store is
        open by now.
        """
        self.reached(True)
        self._families.commit_backlog.labels(self._name).set_function(backlog)
        if isinstance(store, Pooled):
            self._watch_pool(store.pool_status)

    def _watch_pool(self, status: Callable[[], PoolStatus]) -> None:
        self._families.pool_size.labels(self._name).set_function(lambda: status().size)
        self._families.pool_in_use.labels(self._name).set_function(lambda: status().in_use)
        self._families.pool_waiting.labels(self._name).set_function(lambda: status().waiting)

    def ended(self, operation: str, seconds: float, error: BaseException | None) -> None:
        self._durations[operation].observe(seconds)
        if error is not None:
            self._families.operation_errors.labels(self._name, operation, _kind(error)).inc()

    def committed(self, changes: Sequence[Change], outcomes: Sequence[Outcome]) -> None:
        self._commit_changes.observe(len(changes))
        self._commit_sessions.observe(len({change.key for change in changes}))
        refused: set[SessionKey] = set()
        for change, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, Committed):
                told = _COMMITTED
            else:
                told = _KNOWN if isinstance(outcome, Known) else _DEPENDENT if change.key in refused else _CONFLICT
                refused.add(change.key)
            self._changes[told].inc()

    def window_cut(self, stats: WindowStats) -> None:
        self._window_messages.observe(stats.window_messages)
        self._window_tokens.observe(stats.window_tokens)
        left_out = stats.left_out
        if left_out.limit_count:
            self._beyond_limit.inc(left_out.limit_count)
        if left_out.orphan_count:
            self._orphans.inc(left_out.orphan_count)
        if left_out.open_count:
            self._open.inc(left_out.open_count)
        if stats.over_limit:
            self._over_limit.inc()
        if stats.shortened:
            self._shortened.inc(len(stats.shortened))

    def reached(self, reachable: bool) -> None:
        self._up.set(reachable)

    def watchers(self, change: int) -> None:
        self._watchers.inc(change)

    def fold_began(self) -> None:
        self._folds_under_way.inc()

    def fold_ended(self, outcome: str, seconds: float, messages: int) -> None:
        self._folds_under_way.dec()
        self.task_ended(outcome, seconds, messages)

    def task_ended(self, outcome: str, seconds: float, messages: int) -> None:
        self._folds[outcome].inc()
        self._fold_duration.observe(seconds)
        if messages:
            self._folded.inc(messages)

    def expired(self, sessions: int) -> None:
        self._expired.inc(sessions)

    def abandoned(self, runs: int) -> None:
        self._abandoned.inc(runs)

    def swept(self, deleted: Deleted) -> None:
        for kind, counter in self._deleted.items():
            counter.inc(getattr(deleted, kind))
        self._sweep_success.set(time.time())

    def sweep_failed(self) -> None:
        self._sweep_failures.inc()


def _kind(error: BaseException) -> str:
    if isinstance(error, StoreUnavailable):
        return "unavailable"
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "unexpected"
