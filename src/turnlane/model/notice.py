"""What the runtime itself says to a person, outside any turn."""

from __future__ import annotations

from turnlane.model.session import Session
from turnlane.model.usage import written_cost

BUSY = "I am still working on your last message. This one was not taken; please send it again when I have answered."
FULL = "There are too many messages waiting. This one was not taken; please send it again later."
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


def status(*, running_ms: int | None, waiting: int, halted: str | None) -> str:
    """`halted`: paused or parked, if it is."""
    if running_ms is not None:
        doing = f"Working on an answer for {running_ms // 1000} s"
    else:
        doing = {"paused": "Paused", "parked": "Waiting for an operator"}.get(halted or "", "Nothing runs")
    return f"{doing}. {_messages(waiting)} waiting."


def _messages(count: int) -> str:
    return "No message is" if count == 0 else "1 message is" if count == 1 else f"{count} messages are"


def usage(session: Session | None) -> str:
    if session is None:
        return "There is no session yet, and nothing was spent."
    spent = session.usage
    turns = "1 turn" if session.turns == 1 else f"{session.turns} turns"
    money = f" It cost {written_cost(spent.cost)}." if spent.cost else ""
    return f"This session: {turns}, {spent.input_tokens} tokens in, {spent.output_tokens} out.{money}"
