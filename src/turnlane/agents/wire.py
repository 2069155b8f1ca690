"""How a turn is written down for an agent outside this process, and how its answer is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from turnlane.agents.answer import TOKENS_MAX, checked
from turnlane.errors import AgentFailed
from turnlane.model.message import Attachment, Message
from turnlane.model.person import Person
from turnlane.model.question import OPTIONS_MAX, TIMEOUT_SECONDS_MAX, Answer
from turnlane.model.turn import Reply, Turn
from turnlane.model.usage import Usage

SESSION_CHARACTERS_MAX = 4_096
ERROR_CHARACTERS_MAX = 300

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Tokens = Annotated[int, Meta(ge=0, le=TOKENS_MAX)]


class _Usage(Struct, forbid_unknown_fields=True):
    input_tokens: _Tokens = 0
    output_tokens: _Tokens = 0
    cached_tokens: _Tokens = 0
    reasoning_tokens: _Tokens = 0


class _Ask(Struct, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1)]
    options: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=OPTIONS_MAX)] = []
    timeout: Annotated[float, Meta(gt=0, le=TIMEOUT_SECONDS_MAX)] | None = None


class _Asking(Struct, forbid_unknown_fields=True):
    ask: _Ask


class _Answer(Struct, forbid_unknown_fields=True):
    text: str | None
    session: Annotated[str, Meta(min_length=1, max_length=SESSION_CHARACTERS_MAX)] | None = None
    usage: _Usage | None = None
    model: Annotated[str, Meta(min_length=1, max_length=SESSION_CHARACTERS_MAX)] | None = None


class _Piece(Struct, forbid_unknown_fields=True):
    piece: str


_ANSWER = msgspec.json.Decoder(_Answer)
_PIECE = msgspec.json.Decoder(_Piece)
_ASKING = msgspec.json.Decoder(_Asking)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Pieces:
    """Reads an answer as it comes: lines like `{"piece": "…"}` are shown, and what follows them is the answer."""

    def __init__(self, turn: Turn) -> None:
        self.length = 0
        """How many bytes were pieces; the answer begins behind them."""
        self._turn = turn
        self._said = ""
        self._line = bytearray()
        self._is_over = False

    def feed(self, data: bytes) -> None:
        if self._is_over:
            return
        self._line += data
        # Joined at the end: to add each to all before it would take seconds for megabytes of small ones.
        if fresh := "".join(self._taken()):
            self._said += fresh
            self._turn.show(self._said)

    def _taken(self) -> Iterator[str]:
        while end := self._line.find(b"\n") + 1:
            line = bytes(self._line[:end])
            try:
                piece = _PIECE.decode(line).piece if line.strip() else ""
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._is_over = True
                return
            self.length += end
            del self._line[:end]
            yield piece


Heard = Callable[[bytes], None]
Call = Callable[[bytes, Heard], Awaitable[bytes]]
"""Hand a turn to the agent outside, tell what it writes as it comes, and return all of it."""


async def converse(turn: Turn, call: Call) -> Reply:
    """Call the agent, and again with the answer for as long as it asks the person something."""
    answers = list(turn.answers)
    while True:
        pieces = Pieces(turn)
        body = (await call(encode_turn(turn, answers), pieces.feed))[pieces.length :]
        question = _question(body)
        if question is None:
            return decode_answer(body)
        number = len(answers) + 1
        answers.append(await turn.ask(question.text, question.options, question.timeout, number=number))


def _question(body: bytes) -> _Ask | None:
    try:
        if "ask" not in _OBJECT.decode(body):
            return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # nor an answer, which whoever reads it tells
    try:
        return _ASKING.decode(body).ask
    except msgspec.DecodeError as error:
        raise AgentFailed(
            f'the question cannot be read: {_short(error)}; ask like {{"ask": {{"text": "…"}}}}'
        ) from None


def _short(error: Exception) -> str:
    return str(error)[:ERROR_CHARACTERS_MAX]


def encode_turn(turn: Turn, answers: Sequence[Answer] = ()) -> bytes:
    """`{"turn": {…}}`, the same for every agent outside."""
    return msgspec.json.encode(
        {
            "turn": {
                "id": turn.id,
                "number": turn.number,
                "attempt": turn.attempt,
                "epoch": turn.epoch,
                "conversation": turn.conversation,
                "channel": turn.channel,
                "session": turn.session,
                "moved_from": turn.moved_from,
                "messages": [_message(message) for message in turn.messages],
                "answers": [{"text": each.text, "by": each.by, "timed_out": each.timed_out} for each in answers],
                **({"person": _person(turn.person)} if turn.person is not None and turn.person.version else {}),
            }
        }
    )


def _person(person: Person) -> dict[str, object]:
    return {
        "id": person.user,
        "name": person.name,
        "user_name": person.user_name,
        "labels": person.labels,
        "chat_id": person.chat_id,
    }


def decode_answer(body: bytes) -> Reply:
    """The reply in `{"text", "session", "usage"}`. Raises AgentFailed, saying where the answer is wrong."""
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AgentFailed(f'the answer cannot be read: {_short(error)}; answer like {{"text": "…"}}') from None
    if "\0" in (answer.session or ""):
        raise AgentFailed("the answer's session contains a NUL character; leave it out")
    usage = answer.usage or _Usage()
    return checked(
        Reply(
            answer.text,
            answer.session,
            Usage(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens),
            model=answer.model,
        )
    )


def _message(message: Message) -> dict[str, object]:
    return {
        "id": message.id,
        "role": message.role,
        "sender": message.sender,
        "text": message.text,
        "sent_at": None if message.sent_at is None else _rfc3339(message.sent_at),
        "attachments": [_attachment(each) for each in message.attachments],
    }


def _attachment(attachment: Attachment) -> dict[str, object]:
    return {
        "url": attachment.url,
        "name": attachment.name,
        "media_type": attachment.media_type,
        "size": attachment.size,
    }


def _rfc3339(milliseconds: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
