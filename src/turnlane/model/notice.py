"""What the runtime itself says to a person, outside any turn."""

from __future__ import annotations

from typing import Literal

from turnlane.model.session import Session
from turnlane.model.usage import written_cost

BUSY = "I am still working on your last message. This one was not taken; please send it again when I have answered."
FULL = "There are too many messages waiting. This one was not taken; please send it again later."
DROPPED = (
    "There are too many messages waiting. Those that waited longest will not be answered; please send them again later."
)
TOO_FAST = "You are sending messages faster than I can take them. This one was not taken; please send it again later."
CLOSED = "That question is closed already. Nothing was changed."

BUDGET_OF_TODAY = "Today's budget is used up. Your message is kept, and will be answered when there is a new one."
BUDGET_OF_SESSION = (
    "This conversation has used up its budget. Your message is kept; say /new to have it answered in a new session."
)

STOPPED = "Stopped. What you said before is set aside."
NOTHING_TO_STOP = "There is nothing to stop."
NEW = "Your next message starts a new session."
PAUSED = "Paused. What you write is kept until /resume."
RESUMED = "Resumed."


Doing = Literal["nothing", "working", "ending", "asking", "retrying", "paused", "parked"]


def status(doing: Doing, waiting: int, ms: int = 0) -> str:
    """`ms`: for how long it has been working, or until it tries again."""
    return f"{_does(doing, ms)}. {_messages(waiting)} waiting."


def _does(doing: Doing, ms: int) -> str:
    match doing:
        case "nothing":
            return "Nothing runs"
        case "working":
            return f"Working on an answer for {ms // 1000} s"
        case "ending":
            return "Ending what ran"
        case "asking":
            return "Waiting for your answer to my question"
        case "retrying":
            return f"There is no answer yet; trying again {_soon(ms)}"
        case "paused":
            return "Paused"
        case "parked":
            return "Waiting for an operator"


def _soon(ms: int) -> str:
    seconds = -(-ms // 1000)
    if seconds <= 0:
        return "now"
    if seconds < 120:
        return f"in {seconds} s"
    return f"in {seconds // 60} min" if seconds < 7_200 else f"in {seconds // 3_600} h"


def _messages(count: int) -> str:
    return "No message is" if count == 0 else "1 message is" if count == 1 else f"{count} messages are"


def usage(session: Session | None) -> str:
    if session is None:
        return "There is no session yet, and nothing was spent."
    spent = session.usage
    turns = "1 turn" if session.turns == 1 else f"{session.turns} turns"
    money = f" It cost {written_cost(spent.cost)}." if spent.cost else ""
    return f"This session: {turns}, {spent.input_tokens} tokens in, {spent.output_tokens} out.{money}"
