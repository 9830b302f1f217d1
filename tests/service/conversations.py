"""Transcripts of our own, in the formats in which agents keep them: what is rare in the wild, all at once."""

from __future__ import annotations

import json
from typing import Any, Final

Conversation = list[dict[str, Any]]


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def said(text: Any, role: str = "user", **keys: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **keys}


def called(*calls: tuple[str, str, Any], content: str | None = None) -> dict[str, Any]:
    """A message of the model with calls: each its id, the function's name and its arguments."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {
                "id": id_,
                "type": "function",
                "function": {
                    "name": name,
                    "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                },
            }
            for id_, name, arguments in calls
        ],
    }


def answered(id_: str, text: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


LONG_RESULT: Final = "\n".join(f"{row},Łódź–東京,{row * 37 % 1_000}.50,✈️" for row in range(120))

OPENAI: Final[dict[str, Conversation]] = {
    "one message": [said("Hi!")],
    "only rules": [system("Be brief."), {"role": "developer", "content": "Answer in French."}],
    "talk without tools": [
        system("You are a helpful assistant."),
        said("My project is called Atlas.", name="ada"),
        said("Noted: Atlas.", "assistant"),
        said(""),
        said("Say something?", "assistant"),
        said([{"type": "text", "text": "Two"}, {"type": "text", "text": " parts"}]),
        said("I see both.", "assistant"),
    ],
    "parallel calls, results out of order": [
        system("Plan trips."),
        said("Flights and hotels in Kyoto, please."),
        called(("c1", "flights", {"to": "KIX"}), ("c2", "hotels", {"city": "京都"}), ("c3", "weather", {})),
        answered("c3", "sunny"),
        answered("c1", LONG_RESULT),
        answered("c2", "旅館 🏯"),
        said("There are three hotels.", "assistant"),
        said("Book the first."),
        called(("c4", "book", '{"hotel": 1'), content="Booking …"),
        answered("c4", "error: invalid arguments"),
        called(("c5", "book", {"hotel": 1})),
        answered("c5", "booked"),
        said("Done.", "assistant"),
    ],
    "call ids used again and again": [
        said("Count."),
        called(("call_0", "count", {"n": 1})),
        answered("call_0", "1"),
        called(("call_0", "count", {"n": 2})),
        answered("call_0", "2"),
        said("Again."),
        called(("call_0", "count", {"n": 3}), ("call_1", "count", {"n": 4})),
        answered("call_1", "4"),
        answered("call_0", "3"),
        said("Four.", "assistant"),
    ],
    "empty call ids": [
        said("Look twice."),
        called(("", "look", {"at": "left"}), ("", "look", {"at": "right"})),
        answered("", "a wall"),
        answered("", "a door"),
        said("A wall and a door.", "assistant"),
        called(("", "open", {"what": "door"})),
        answered("", "locked"),
        said("It is locked.", "assistant"),
    ],
    "an id armed again before its result": [
        said("Try."),
        called(("x", "slow", {})),
        called(("x", "fast", {})),
        answered("x", "fast result"),
        answered("x", "a late result that nobody waits for"),
        said("Done.", "assistant"),
        said("And now?"),
    ],
    "an interrupted call in the middle and one at the end": [
        system("Use tools."),
        said("Search for it."),
        called(("i1", "search", {"q": "it"}), ("i2", "search", {"q": "that"})),
        answered("i1", "found it"),
        said("Stop! Something else: what is 2 + 2?"),
        said("4.", "assistant"),
        said("Then search again."),
        called(("i3", "search", {"q": "again"})),
    ],
    "a note between call and result": [
        said("Start the job."),
        called(("j", "job", {})),
        said("Is it still running?"),
        said("It is, I will tell you when it ends.", "assistant"),
        answered("j", "finished after 3 minutes"),
        said("It has finished.", "assistant"),
        called(("k", "report", {}), ("l", "archive", {})),
        answered("k", "report.pdf"),
        said("(the network was away for a while)", "developer"),
        answered("l", "archived"),
        said("All done.", "assistant"),
    ],
    "results that nobody asked for": [
        answered("z0", "from a run that was cut off"),
        said("Hello?"),
        answered("z1", "nobody asked"),
        said("Hello!", "assistant"),
        called(("z2", "now", {})),
        answered("z2", "12:00"),
        answered("z2", "12:01"),
        said("Noon.", "assistant"),
    ],
    "null content, CJK and emoji": [
        system("回答は簡潔に。"),
        said("你好，世界 👋🏽 — שלום עולם"),
        said(None, "assistant"),
        said("👩‍👩‍👧‍👦 を翻訳してください。\r\n二行目"),
        called(("訳", "translate", {"text": "家族"})),
        answered("訳", "family \u0000 end"),
        said("<|endoftext|> is plain text, and so is <|im_start|>.", "assistant"),
        said("一二三四五六七八九十" * 40),
        said("好的。", "assistant"),
    ],
    "rules longer than half of small windows": [
        system("rule " * 200),
        system("another rule " * 20),
        {"role": "developer", "content": "short rule"},
        said("Go."),
        said("Going.", "assistant"),
        system("a rule in the middle is an ordinary message"),
        said("Go on."),
        said("word " * 600, "assistant"),
    ],
    "one long turn of an agent": [
        system("Fix the bug."),
        said("It crashes."),
        *(
            message
            for step in range(12)
            for message in (
                called((f"step_{step}", "run", {"command": f"pytest -k case_{step}"}), content=f"Step {step}."),
                answered(f"step_{step}", f"{step} failed\n" + "traceback line\n" * (step * 5)),
            )
        ),
        said("Fixed.", "assistant"),
    ],
}


def used(id_: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": arguments}


def result(id_: str, content: Any, **keys: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **keys}


ANTHROPIC: Final[dict[str, Conversation]] = {
    "several results in one message": [
        said("Compare both files."),
        said(
            [
                {"type": "thinking", "thinking": "I need both.", "signature": "c2lnbmF0dXJl"},
                {"type": "text", "text": "Reading both."},
                used("toolu_1", "read", path="a.txt"),
                used("toolu_2", "read", path="b.txt"),
            ],
            "assistant",
        ),
        said([result("toolu_2", "b"), result("toolu_1", "a", is_error=True)]),
        said([{"type": "text", "text": "They differ."}], "assistant"),
        said("Read the third one, too."),
        said([used("toolu_3", "read", path="c.txt")], "assistant"),
        said([result("toolu_3", [{"type": "text", "text": "c"}]), {"type": "text", "text": "Now summarize."}]),
        said("Three files, three letters.", "assistant"),
    ],
    "several results in one message, some of them strays": [
        said("Go."),
        said([used("t1", "one"), used("t2", "two")], "assistant"),
        said([result("t2", "second"), result("t9", "nobody asked"), result("t1", "first")]),
        said("Good.", "assistant"),
        said([result("t1", "late"), {"type": "text", "text": "Something else: who are you?"}]),
        said("An assistant.", "assistant"),
        said([result("t8", "late, alone")]),
        said("Bye."),
    ],
}
