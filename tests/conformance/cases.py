"""The cases: JSON files in `cases`, typed by conformance.proto."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf import json_format

from tests.conformance import conformance_pb2 as pb
from tests.conformance.matching import check_expectation

FOLDER: Final = Path(__file__).parent / "cases"

GIVEN: Final = ("agent", "other_agent", "user", "project", "folder", "address")
"""The variables that each case begins with."""

_NAME: Final = re.compile(r"[a-z0-9_]+")
_VARIABLE: Final = re.compile(r"\$\{([a-z_]+)\}")
_REPEAT: Final = re.compile(r"\$\{repeat:(\d+):([^}]*)\}")
_SPECIAL: Final = frozenset({"any"})
_NUMBER: Final = "1"
"""What stands for a variable while a case is checked: a number as well as a text."""


@dataclass(frozen=True)
class Case:
    """A case, as its file has it. Texts with variables may stand where the proto has numbers: commands are typed when
    they are carried out.
    """

    name: str
    is_of_client: bool
    """Whether no store has a part in it."""
    requires: frozenset[str]
    steps: tuple[Mapping[str, Any], ...]
    files: tuple[pb.File, ...]

    def write_files(self, folder: Path) -> None:
        """Writes its files below a folder."""
        for file in self.files:
            path = folder / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            match file.WhichOneof("content"):
                case "link":
                    path.symlink_to(file.link)
                case "data":
                    path.write_bytes(file.data)
                case _:
                    path.write_bytes(file.text.encode())


def read_cases() -> list[Case]:
    """All cases, each checked: what it commands and expects is what the proto has, and what it uses was saved. Raises
    ValueError naming file and case.
    """
    cases: list[Case] = []
    for file in sorted(FOLDER.glob("*.json")):
        try:
            given = json.loads(file.read_text("utf-8"))
            json_format.ParseDict({**given, "cases": []}, pb.CaseFile())
            cases += map(_checked, given["cases"])
        except (ValueError, KeyError, json_format.ParseError) as error:
            raise ValueError(f"{file.name}: {error}") from error
    names = [case.name for case in cases]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"several cases have the name {', '.join(sorted(twice))}")
    return cases


def _checked(given: Mapping[str, Any]) -> Case:
    name = str(given.get("name", ""))
    try:
        if not _NAME.fullmatch(name):
            raise ValueError("a name is of lower case letters, digits and underscores")
        known = set(GIVEN)
        for number, step in enumerate(given["steps"], 1):
            try:
                _check_step(step, known)
            except (ValueError, json_format.ParseError) as error:
                raise ValueError(f"step {number}: {error}") from error
            known |= set(step.get("save", ()))
        steps = [
            {key: value for key, value in step.items() if key not in ("command", "at_once")} for step in given["steps"]
        ]
        typed = json_format.ParseDict({**given, "steps": steps}, pb.Case())
    except (ValueError, KeyError, json_format.ParseError) as error:
        raise ValueError(f"case {name!r}: {error}") from error
    return Case(
        name=name,
        is_of_client=typed.scope == pb.SCOPE_CLIENT,
        requires=frozenset(typed.requires),
        steps=tuple(given["steps"]),
        files=tuple(typed.files),
    )


def _check_step(step: Mapping[str, Any], known: set[str]) -> None:
    if ("command" in step) == ("at_once" in step):
        raise ValueError("it has either a command or several at once")
    if "failure" in step and ("reply" in step or "save" in step):
        raise ValueError("what fails has no reply")
    for command in commands_of(step):
        _check_variables(command, known)
        typed_command(command, dict.fromkeys(known, _NUMBER))
    for reply in (*([step["reply"]] if "reply" in step else ()), *step.get("replies", ())):
        _check_variables(reply, known)
        check_expectation(reply, pb.Reply.DESCRIPTOR)
    if "failure" in step:
        _check_variables(step["failure"], known)
        check_expectation(step["failure"], pb.Failure.DESCRIPTOR)


def _check_variables(value: Any, known: set[str]) -> None:
    if unknown := {name for text in _texts(value) for name in _VARIABLE.findall(text)} - known - _SPECIAL:
        raise ValueError(f"nothing was saved as {', '.join(sorted(unknown))}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, held in value.items():
            yield key
            yield from _texts(held)
    elif isinstance(value, list):
        for held in value:
            yield from _texts(held)


def commands_of(step: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The step's command, or what it sends at once."""
    return [step["command"]] if "command" in step else list(step["at_once"])


def typed_command(command: Mapping[str, Any], variables: Mapping[str, str]) -> pb.Command:
    """A command as a driver is sent it. Raises ParseError for what the proto has not."""
    return json_format.ParseDict(replaced(command, variables), pb.Command())


def replaced(value: Any, variables: Mapping[str, str]) -> Any:
    """A value with its variables replaced by what they stand for. Others stay: they belong to matching."""
    if isinstance(value, str):
        text = _REPEAT.sub(lambda found: int(found[1]) * found[2], value)
        return _VARIABLE.sub(lambda found: variables.get(found[1], found[0]), text)
    if isinstance(value, Mapping):
        return {replaced(key, variables): replaced(held, variables) for key, held in value.items()}
    if isinstance(value, list):
        return [replaced(held, variables) for held in value]
    return value


def new_variables(case: Case, folder: Path, address: str) -> dict[str, str]:
    """What a case begins with: names that no other case uses, its folder, and the server's address."""
    tail = secrets.token_hex(6)
    names = {name: f"{name}-{case.name}-{tail}" for name in GIVEN}
    return {**names, "folder": str(folder), "address": address}
