"""What the model is told about memory: how to keep it where it is, and with which tools (design section 7)."""

from __future__ import annotations

import json
import re
from itertools import combinations

import pytest

from memoryd_server import limits
from memoryd_server.engine.memory_guide import ADD, INDEX, LOG, READ, REWRITE, WARNING, Place, instructions, tools
from memoryd_server.stores.records import Tier
from tests.engine.json_schemas import accepts, check_schema
from tests.engine.rendered_blocks import imitations, markers

TOOLS = {READ, ADD, LOG, REWRITE}
FILES = {
    Tier.USER: Place("~/.openhands/memory/MEMORY.md", is_stored=False),
    Tier.PROJECT: Place("/srv/atlas/.openhands/memory/MEMORY.md", is_stored=False),
}
STORED = {tier: Place(place.path, is_stored=True) for tier, place in FILES.items()}
SETS = {
    "files": FILES,
    "stored": STORED,
    "user stored": {Tier.USER: STORED[Tier.USER], Tier.PROJECT: FILES[Tier.PROJECT]},
    "project stored": {Tier.USER: FILES[Tier.USER], Tier.PROJECT: STORED[Tier.PROJECT]},
    "user's file": {Tier.USER: FILES[Tier.USER]},
    "project stored alone": {Tier.PROJECT: STORED[Tier.PROJECT]},
}


@pytest.mark.parametrize("places", SETS.values(), ids=SETS)
class TestInstructions:
    def test_they_name_the_places_and_only_those(self, places: dict[Tier, Place]) -> None:
        text = instructions(places)
        for tier in Tier:
            named = f"{tier.name.capitalize()} memory, " in text
            assert named == (tier in places)
            shown = FILES[tier].path in text
            assert shown == (tier in places and not places[tier].is_stored)

    def test_they_name_the_tools_where_the_store_holds_a_tier(self, places: dict[Tier, Place]) -> None:
        stored = [tier for tier, place in places.items() if place.is_stored]
        text = instructions(places)
        assert set(re.findall(r"`(\w+_memory)`", text)) == (TOOLS if stored else set())
        assert {tool.name for tool in tools(stored)} == (TOOLS if stored else set())
        assert ("file tools" in text) == (len(stored) < len(places))

    def test_they_teach_what_the_design_says(self, places: dict[Tier, Place]) -> None:
        text = " ".join(instructions(places).split())
        for taught in (
            f"{limits.DEFAULT_MEMORY_BUDGET:,} characters",
            "YYYY-MM-DD.md",
            "only when the index points to it",
            "Near the end of a task",
            "durable and broadly useful",
            "missing",
            "bottom",
            "top is left out first",
            "Merge duplicates",
            "prune",
            "Never record secrets",
            "trivially",
            "AGENTS.md",
            INDEX,
        ):
            assert taught in text, taught

    def test_they_tell_the_budget(self, places: dict[Tier, Place]) -> None:
        assert "under about 6,000 characters" in instructions(places)
        assert "under about 1,000 characters" in instructions(places, 1_000)

    def test_they_are_no_part_of_a_block(self, places: dict[Tier, Place]) -> None:
        text = instructions(places)
        assert not markers(text)
        assert not imitations(text)
        assert text == text.strip()
        assert not any(line != line.rstrip() for line in text.split("\n"))

    def test_the_same_places_give_the_same_bytes(self, places: dict[Tier, Place]) -> None:
        assert instructions(places) == instructions(dict(places))


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("~/.openhands/memory/MEMORY.md", "~/.openhands/memory"),
        ("/MEMORY.md", "the same folder"),
        ("MEMORY.md", "the same folder"),
        ("C:\\Users\\ana\\MEMORY.md", "the same folder"),
        ("/with space/ü/index.md", "/with space/ü"),
    ],
)
def test_daily_logs_are_beside_the_index(path: str, folder: str) -> None:
    assert f"the file {path}, and daily logs in {folder}." in instructions({Tier.USER: Place(path, is_stored=False)})


@pytest.mark.parametrize("stored", [list(some) for count in (1, 2) for some in combinations(Tier, count)])
class TestTools:
    def test_their_schemas_are_valid_and_closed(self, stored: list[Tier]) -> None:
        """In the form that OpenAI and Anthropic take: an object whose properties are described."""
        for tool in tools(stored):
            schema = json.loads(tool.input_schema)
            check_schema(schema)
            assert schema["type"] == "object"
            assert schema["additionalProperties"] is False
            assert all(inner.get("description") for inner in schema["properties"].values())
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool.name)
            assert tool.description

    def test_they_take_the_tiers_that_the_store_holds_and_no_other(self, stored: list[Tier]) -> None:
        schemas = {tool.name: json.loads(tool.input_schema) for tool in tools(stored)}
        for tier in Tier:
            name = tier.name.lower()
            arguments: dict[str, dict[str, object]] = {
                READ: {"tier": name},
                ADD: {"tier": name, "entries": ["- a"]},
                LOG: {"tier": name, "text": "learned"},
                REWRITE: {"tier": name, "content": ""},
            }
            for tool, given in arguments.items():
                assert accepts(schemas[tool], given) == (tier in stored)
                assert not accepts(schemas[tool], {**given, "path": "/etc/passwd"})
                assert not any(
                    accepts(schemas[tool], {key: value for key, value in given.items() if key != left_out})
                    for left_out in given
                )
            for tool in (READ, LOG):
                assert accepts(schemas[tool], {**arguments[tool], "date": "2026-01-31"}) == (tier in stored)

    def test_they_take_as_many_entries_as_a_call_may_add(self, stored: list[Tier]) -> None:
        add = next(json.loads(tool.input_schema) for tool in tools(stored) if tool.name == ADD)
        tier = stored[0].name.lower()
        for count, allowed in (
            (0, False),
            (1, True),
            (limits.MAX_MEMORY_ENTRIES, True),
            (limits.MAX_MEMORY_ENTRIES + 1, False),
        ):
            assert accepts(add, {"tier": tier, "entries": ["- a"] * count}) == allowed
        assert not accepts(add, {"tier": tier, "entries": "- a"})
        assert not accepts(add, {"tier": tier, "entries": [1]})


def test_there_are_no_tools_where_the_store_holds_nothing() -> None:
    assert tools([]) == ()


def test_the_warning_is_a_paragraph_and_no_part_of_memory() -> None:
    assert not markers(WARNING)
    assert not imitations(WARNING)
    assert "\n\n" not in WARNING
    assert WARNING.strip() == WARNING
