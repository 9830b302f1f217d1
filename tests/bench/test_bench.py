"""The benchmarks do what they say. What they measure is judged by whoever reads it, not here."""

from __future__ import annotations

import io
import json
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from memoryd_server.engine.pairing import Candidate, place
from memoryd_server.engine.tokens import ESTIMATE
from memoryd_server.services.message_codec import decode_messages
from memoryd_server.stores.records import Record, Role
from tests.bench.bars import Bar
from tests.bench.cases import cases
from tests.bench.histories import BLOCK, Ending, ending, history
from tests.bench.measuring import Measured, Round
from tests.bench.memories import CHARACTERS, index
from tests.bench.operations import WrongAnswer
from tests.bench.options import COPIED_STORES, OF_RUNS, OPERATIONS, REMEMBERING, STORES, Options
from tests.bench.report import bars_file
from tests.bench.run import run
from tests.databases.kinds import MARIADB, MONGODB, POSTGRESQL, REDIS

KEYS = {"store", "op", "history", "callers", "p50_ms", "p99_ms", "ops_per_s", "floor_ratio"}
CROWDED = {"load_window_20", "load_window_2000t", "list_page", "append_1", "append_10"}
WORK = {*OF_RUNS, "commit_run_step_1"}
RENDERINGS = {"render_context", "render_context_stored"}
PAST_ENDINGS = {"load_window_20_past_orphans", "load_window_20_past_open_calls"}


@POSTGRESQL.mark
@MARIADB.mark
@REDIS.mark
@MONGODB.mark
@pytest.mark.timeout(
    600
)  # It starts and fills six stores, one of them a slow stand-in: minutes where others compute, too.
async def test_a_run_measures_every_operation_on_every_store_and_finds_every_answer_right(tmp_path: Path) -> None:
    """WrongAnswer would end the run: each single answer is checked."""
    options = Options(
        histories=(BLOCK,),
        callers=(1,),
        rounds=2,
        slices=1,
        slice_seconds=0.01,
        warm_up_seconds=0.01,
        ending_messages=BLOCK,
        other_sessions=20,
        run_steps=(1,),
        runs=(40, 60),
        copied_messages=4 * BLOCK,
        out=tmp_path / "build" / "bench.json",
        databases=Path(tempfile.gettempdir()),
    )
    printed = io.StringIO()

    await run(options, Console(file=printed, width=200))

    rows = json.loads(options.out.read_text())
    assert all(row.keys() == KEYS for row in rows)
    assert all(row[figure] > 0 for row in rows for figure in ("p50_ms", "p99_ms", "ops_per_s", "floor_ratio"))
    assert all(row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert {(row["store"], row["op"], row["history"]) for row in rows} == {
        *((store, op, BLOCK) for store in STORES for op in OPERATIONS if op not in REMEMBERING | OF_RUNS),
        *((store, op, 0) for store in STORES for op in RENDERINGS),
        *((store, op, 1) for store in STORES for op in WORK),
        *((store, f"{op}_among_60", 1) for store in STORES for op in WORK),
        *((store, op, 2 * BLOCK) for store in STORES for op in PAST_ENDINGS),
        *((f"{store}/floor", op, 0) for store in STORES for op in {*OPERATIONS, *RENDERINGS, *WORK}),
        *((store, f"{op}_among_20", BLOCK) for store in STORES if store != "in_memory" for op in CROWDED),
        *((store, "load_window_20s_without", BLOCK) for store in STORES),
    }
    assert len(rows) == len({(row["store"], row["op"]) for row in rows})
    summary = json.loads(bars_file(options.out).read_text())
    assert {memory["store"] for memory in summary["memory"]} == set(STORES)
    assert all(0 < memory["after_start"] <= memory["peak"] for memory in summary["memory"])
    there, back = summary["copies"]
    assert (there["source"], there["target"]) == (back["target"], back["source"]) == COPIED_STORES
    assert there["messages"] == back["messages"] == 4 * BLOCK
    assert all(row["op"] in printed.getvalue() for row in rows)
    assert {*options.out.parent.iterdir()} == {options.out, bars_file(options.out)}, "data is left behind"


def test_a_history_is_mixed_as_the_benchmarks_say() -> None:
    record, grouped = _placed(10 * BLOCK)

    assert record.messages == 10 * BLOCK
    assert grouped == 300
    assert record.orphan_messages == 20
    assert record.open_messages == record.open_call_count == 20


def test_histories_of_all_lengths_end_alike() -> None:
    """So that windows and pages have one size, whatever the length."""
    short, long = ([*history(length)][-50:] for length in (BLOCK, 7 * BLOCK))

    assert [message.ByteSize() for message in short] == [message.ByteSize() for message in long]


def test_ids_in_a_history_are_unique() -> None:
    messages = [*history(70 * BLOCK), *ending(Ending.ORPHANS, BLOCK)]
    calls = [part.tool_call.id for message in messages for part in message.content.parts if part.HasField("tool_call")]

    assert len({message.id for message in messages}) == len(messages)
    assert len(set(calls)) == len(calls)


def test_a_history_that_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 100"):
        next(history(150))


def test_a_ratio_is_the_median_over_the_rounds() -> None:
    """A round in which something else took the machine does not move it."""
    side = Measured([Round([2, 2, 90], 10), Round([3], 10), Round([500], 1000)])
    floor = Measured([Round([1, 1, 1], 10), Round([2], 10), Round([1], 10)])

    assert side.p50_over(floor) == 2.0
    assert side.throughput_over(floor) == 1.0
    assert floor.p50_ms == 1e-6


def test_a_bar_has_a_right_side() -> None:
    assert Bar("sqlite", "memory", 219, 220).is_reached
    assert not Bar("sqlite", "memory", 221, 220).is_reached
    assert Bar("sqlite", "throughput", 0.5, 0.4, at_least=True).is_reached
    assert not Bar("sqlite", "throughput", 0.3, 0.4, at_least=True).is_reached


def test_a_wrong_answer_is_told() -> None:
    case = next(cases("sqlite", Options()))

    with pytest.raises(WrongAnswer, match="load_window_20"):
        case.operation.check(case.operation.answer_type())


def test_histories_with_summaries_are_compared_with_the_same_without() -> None:
    found = {case.operation.name: case for case in cases("sqlite", Options()) if case.callers == 1}
    lengths = [100, 10_000, 100_000]

    assert [subject.history for subject in found["commit_summary"].subjects] == lengths
    assert [(subject.operation, subject.history) for subject in found["load_window_20s"].subjects] == [
        (operation, length) for length in lengths for operation in ("load_window_20s", "load_window_20s_without")
    ]


def test_memory_is_rendered_inline_and_as_it_is_stored() -> None:
    """Of the same indexes, each with a floor of its own: the requests are of different sizes."""
    found = [case for case in cases("sqlite", Options(operations=("render_context",))) if case.callers == 1]

    assert [case.operation.name for case in found] == ["render_context", "render_context_stored"]
    for tier in ("user", "project"):
        assert len(index(tier)) == CHARACTERS
        assert len(max(index(tier).splitlines(), key=len)) < 160


def test_runs_are_compared_with_longer_ones_and_with_those_of_agents_that_have_more() -> None:
    """Neither the steps of a run nor the runs of its agent may cost a call anything."""
    found = {case.operation.name: case for case in cases("sqlite", Options(operations=tuple(OF_RUNS)))}

    assert found.keys() == WORK
    for name, case in found.items():
        assert [(subject.operation, subject.history, subject.sessions[0].runs) for subject in case.subjects] == [
            (name, 1, 100),
            (name, 10_000, 100),
            (f"{name}_among_100000", 1, 100_000),
        ]


def test_callers_that_append_have_sessions_of_their_own() -> None:
    appends = [case for case in cases("sqlite", Options()) if case.operation.appends and case.callers > 1]

    assert appends
    for case in appends:
        for subject in case.subjects:
            assert max(Counter(subject.sessions).values()) == 1


def _placed(length: int) -> tuple[Record, int]:
    """The record of a history, and how many of its messages are in answered groups."""
    record = Record("0" * 32, 0, ESTIMATE, 0, 0)
    batch = [
        Candidate(Role(message.role), message.parts or (), 1, message.size)
        for message in decode_messages(history(length))
    ]
    record, placements, _ = place(record, batch)
    answered = {placement.head for placement in placements if placement.head != placement.seq}
    return record, sum(placement.head in answered for placement in placements)
