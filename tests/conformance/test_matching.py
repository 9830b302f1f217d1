"""The suite itself: what expectations match, and which cases it takes (conformance.proto)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import cases
from tests.conformance import conformance_pb2 as pb
from tests.conformance.cases import read_cases, replaced
from tests.conformance.matching import at, check_expectation, differences, json_of, unmatched


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({}, {"a": 1}),
        ({"a": {"b": "x"}}, {"a": {"b": "x", "c": 1}, "d": 2}),
        ({"a": 3}, {"a": "3"}),
        ({"a": "9007199254740993"}, {"a": "9007199254740993"}),
        ({"a": [{"b": 1}, {}]}, {"a": [{"b": 1, "c": 2}, {"d": 3}]}),
        ({"a": "${any}"}, {"a": "x"}),
        ({"a": "${any}"}, {"a": 1}),
        ({"a": "${match:x+}"}, {"a": "xx"}),
        ({"a": "${match:x.y}"}, {"a": "x\ny"}),
        ({"a": '${json:{"b": 1.0, "a": 9007199254740993}}'}, {"a": '{"a":9007199254740993,"b":1.00}'}),
        ({"a": 85.9375}, {"a": 85.9375}),
        ({"a": True}, {"a": True}),
    ],
)
def test_an_expectation_matches(expected: Any, actual: Any) -> None:
    assert list(differences(expected, actual)) == []


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1}, {}),
        ({"a": 1}, {"a": 2}),
        ({"a": 9007199254740993}, {"a": "9007199254740992"}),
        ({"a": {"b": 1}}, {"a": 1}),
        ({"a": []}, {"a": [1]}),
        ({"a": [1]}, {"a": []}),
        ({"a": "${any}"}, {"a": ""}),
        ({"a": "${any}"}, {"a": "0"}),
        ({"a": "${any}"}, {"a": []}),
        ({"a": "${match:x+}"}, {"a": "xxy"}),
        ({"a": '${json:{"a": 9007199254740993}}'}, {"a": '{"a": 9007199254740992}'}),
        ({"a": "${json:1}"}, {"a": "not json"}),
        ({"a": True}, {"a": 1}),
        ({"a": 0}, {"a": False}),
    ],
)
def test_an_expectation_does_not_match(expected: Any, actual: Any) -> None:
    [difference] = differences(expected, actual)
    assert difference.startswith("a ")


def test_a_reply_shows_its_defaults_where_there_is_no_presence() -> None:
    found = json_of(pb.Reply(appended=pb.Appended()))
    assert (found["count"], found["appended"]) == ("0", {"messages": []})
    assert "window" not in found


def test_each_expectation_takes_a_reply_of_its_own() -> None:
    assert unmatched([{"a": 1}, {"a": 1}], [{"a": 1}, {"a": 2}]) == [{"a": 1}]
    assert unmatched([{"a": 2}, {"a": 1}], [{"a": 1}, {"a": 2}]) == []


def test_a_path_leads_into_objects_and_lists() -> None:
    value = {"a": [{"b": 1}]}
    assert at(value, "a.0.b") == 1
    assert [at(value, path) for path in ("a.1.b", "a.x", "c", "a.0.b.c")] == [None] * 4


def test_an_expectation_of_a_field_that_there_is_not_is_refused() -> None:
    check_expectation(
        {"window": {"stats": {"last_seq": 1}}, "appended": {"messages": [{"id": ""}]}}, pb.Reply.DESCRIPTOR
    )
    with pytest.raises(ValueError, match=r"has no field window\.stats\.last_sq"):
        check_expectation({"window": {"stats": {"last_sq": 1}}}, pb.Reply.DESCRIPTOR)


def test_variables_and_repetitions_are_replaced_in_keys_and_values() -> None:
    value = {"${a}": ["x${a}", {"b": "${repeat:3:ab}"}], "c": 1, "d": "${any}"}
    assert replaced(value, {"a": "1"}) == {"1": ["x1", {"b": "ababab"}], "c": 1, "d": "${any}"}


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({}, "either a command or several"),
        ({"command": {"append": {"sesion": {}}}}, "no field named"),
        ({"command": {"store_type": {}}, "reply": {"txt": ""}}, "has no field txt"),
        ({"command": {"store_type": {}}, "reply": {"text": "${nothing}"}}, "nothing was saved as nothing"),
        ({"command": {"store_type": {}}, "reply": {}, "failure": {}}, "has no reply"),
        ({"command": {"store_type": {}}, "failure": {"cod": ""}}, "has no field cod"),
        ({"command": {"store_type": {}}, "replay": {}}, "no field named"),
    ],
)
def test_a_case_that_is_mistyped_is_refused_by_name(
    step: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "FOLDER", tmp_path)
    (tmp_path / "some.json").write_text(json.dumps({"cases": [{"name": "a_case", "steps": [step]}]}))
    with pytest.raises(ValueError, match=rf"some\.json: case 'a_case': .*{reason}"):
        read_cases()


def test_there_are_cases_of_every_service() -> None:
    """At least 150, as the suite is to have."""
    read = read_cases()
    used = {name for case in read for step in case.steps for command in cases.commands_of(step) for name in command}
    of_cases = {field.name for field in pb.Command.DESCRIPTOR.oneofs_by_name["operation"].fields} - {"measure"}
    assert len(read) >= 150
    assert used - {"client", "timeout"} == of_cases
