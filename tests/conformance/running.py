"""Carries out the steps of a case through a driver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.conformance import conformance_pb2 as pb
from tests.conformance.cases import Case, commands_of, new_variables, replaced, typed_command
from tests.conformance.drivers import REPLY_SECONDS, Driver
from tests.conformance.matching import at, differences, json_of, unmatched


class CaseFailed(AssertionError):
    """A step came out otherwise than its case says."""


def run_case(case: Case, driver: Driver, address: str, folder: Path) -> None:
    """Runs a case with a new client of the server. Raises CaseFailed at the first step that is not as expected, and
    DriverFault.
    """
    case.write_files(folder)
    driver.connect(address)
    variables = new_variables(case, folder, address)
    for number, step in enumerate(case.steps, 1):
        try:
            variables |= _run_step(step, driver, variables)
        except CaseFailed as failed:
            note = f" ({step['note']})" if "note" in step else ""
            raise CaseFailed(f"{case.name}, step {number}{note}: {failed}") from None


def _run_step(step: Mapping[str, Any], driver: Driver, variables: Mapping[str, str]) -> dict[str, str]:
    """Returns: what the step saves."""
    commands = [typed_command(command, variables) for command in commands_of(step)]
    if "at_once" in step:
        _run_at_once(step, driver, commands, variables)
        return {}
    reply = driver.reply(commands[0])
    if "failure" in step:
        if not reply.HasField("failure"):
            raise CaseFailed(f"it succeeds: {json_of(reply)}")
        _check(step["failure"], json_of(reply.failure), variables)
        return {}
    if reply.HasField("failure"):
        raise CaseFailed(f"it fails: {reply.failure}")
    found = json_of(reply)
    _check(step.get("reply", {}), found, variables)
    if present := [path for path in step.get("absent", ()) if at(found, path) is not None]:
        raise CaseFailed(f"{', '.join(present)} is set: {found}")
    saved = {name: at(found, path) for name, path in step.get("save", {}).items()}
    if nothing := [name for name, value in saved.items() if value is None]:
        raise CaseFailed(f"there is nothing to save as {', '.join(nothing)}: {found}")
    return {name: str(value) for name, value in saved.items()}


def _run_at_once(
    step: Mapping[str, Any], driver: Driver, commands: list[pb.Command], variables: Mapping[str, str]
) -> None:
    waiting = [driver.send(command) for command in commands]
    replies = [json_of(reply.result(REPLY_SECONDS)) for reply in waiting]
    if left := unmatched(replaced(step.get("replies", []), variables), replies):
        raise CaseFailed(f"no reply of its own has {left}: {replies}")


def _check(expected: Any, found: Any, variables: Mapping[str, str]) -> None:
    if wrong := list(differences(replaced(expected, variables), found)):
        raise CaseFailed("; ".join(wrong) + f"\nin {str(found)[:4000]}")
