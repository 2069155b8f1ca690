"""The plain web hook channel: anybody who can post JSON can talk, and gets the replies posted back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Meta, Struct

from turnlane.channels.base import AskLater, Heard, Hook
from turnlane.channels.incoming import check_answers, check_name, check_text, decode_json, typing_in, without_typing
from turnlane.channels.secret import Secret
from turnlane.clock import Clock, SystemClock
from turnlane.errors import InvalidMessage
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent, Unknown
from turnlane.model.message import (
    CONVERSATION_BYTES_MAX,
    ORIGIN_ID_BYTES_MAX,
    SENDER_BYTES_MAX,
    Attachment,
    Message,
    conversation_key,
    local_part,
)
from turnlane.outgoing import Answer, Lost, NotReached, Outgoing, checked_url, trace_headers

MESSAGES_MAX = 1_000
ATTACHMENTS_MAX = 100
URL_BYTES_MAX = 8_192
NAME_BYTES_MAX = 1_024
RECEIPT_CHARACTERS_MAX = 512
SENT_AT_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999: what RFC 3339 can write down again."""

ASK_LATER = frozenset({429, 502, 503, 504})
"""Nobody was reached who could tell: too many questions, or a gateway whose receiver is away."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _File(Struct, forbid_unknown_fields=True):
    url: str
    name: str | None = None
    media_type: str | None = None
    size: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None


class _Said(Struct, forbid_unknown_fields=True):
    id: str
    conversation: str
    text: str
    sender: str | None = None
    attachments: Annotated[list[_File], Meta(max_length=ATTACHMENTS_MAX)] = []
    sent_at: Annotated[datetime, Meta(tz=True)] | None = None
    answers: str | None = None
    role: Literal["person", "business"] = "person"


class _ReplyAnswer(Struct):
    """What the receiver of a reply may call it. Other fields are its own business."""

    id: str | None = None
    receipt: str | None = None


class _Known(Struct):
    """What the receiver of replies knows of one of them."""

    sent: bool


_INCOMING = msgspec.json.Decoder(_Said | Annotated[list[_Said], Meta(max_length=MESSAGES_MAX)])
_REPLY_ANSWER = msgspec.json.Decoder(_ReplyAnswer)
_KNOWN = msgspec.json.Decoder(_Known)


class Webhook:
    """Takes `{"id", "conversation", "text", "sender", "attachments", "sent_at", "answers", "role"}`, one or many.

    The last five may be left out; the sender is then called like the conversation, and a person. Also takes
    `{"conversation", "typing": true}`, alone or among them. Replies are posted to `reply_url`; what became of one that
    may or may not have arrived is asked at `lookup_url`.
    """

    def __init__(
        self,
        name: str,
        *,
        secret: str | None = None,
        reply_url: str | None = None,
        lookup_url: str | None = None,
        timeout: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._secret = None if secret is None else Secret(secret)
        self._reply_url = None if reply_url is None else checked_url(reply_url, setting="reply_url")
        self._lookup_url = None if lookup_url is None else checked_url(lookup_url, setting="lookup_url")
        self._timeout = timeout
        self._clock = clock or SystemClock()
        self._outgoing = Outgoing()

    @property
    def secured(self) -> bool:
        return self._secret is not None

    async def hear(self, hook: Hook) -> Heard:
        return Heard(self.parse(hook.headers, hook.body), typing=self.typing(hook.body))

    def parse(self, headers: Mapping[str, str], body: bytes) -> Sequence[Message]:
        """All messages of the request, or an error: one bad message refuses the whole list."""
        if self._secret is not None:
            self._secret.check(headers, body, self._clock.now())
        self.typing(body)  # one bad report refuses the whole list, too
        said = decode_json(_INCOMING, headers, without_typing(body))
        return [self._message(each) for each in (said if isinstance(said, list) else [said])]

    def typing(self, body: bytes) -> Sequence[str]:
        return [self._conversation(name) for name in typing_in(body)]

    async def send(self, delivery: Delivery) -> SendResult:
        """Post the reply once. A 5xx counts as not sent: the receiver says it failed, and the key guards the retry."""
        if self._reply_url is None:
            return Refused(f"the channel {self.name} has nowhere to send replies; set its reply_url")
        body = _reply(delivery)
        headers = {**trace_headers.get(), "idempotency-key": delivery.id, **self._signature(delivery, body)}
        match await self._outgoing.post(self._reply_url, body=body, headers=headers, timeout=self._timeout):
            case Answer(ok=True, body=answer):
                return Sent(_receipt(answer))
            case Answer(status=status) as answered if status == 429 or status >= 500:
                return NotSent(f"reply_url answered {answered}", answered.retry_after(self._clock.now()))
            case Answer() as answered:
                return Refused(f"reply_url answered {answered}", gone=answered.status == 410)
            case NotReached(cause):
                return NotSent(f"reply_url cannot be reached: {cause}")
            case Lost(cause):
                return Unknown(f"reply_url did not answer: {cause}")

    async def look_up(self, delivery: Delivery) -> Sent | NotSent | None:
        """Ask the receiver by the delivery's id. Raises ConnectionError if nobody is there who could tell."""
        if self._lookup_url is None:
            return None
        url, headers = _asking_for(delivery, self._lookup_url), self._signature(delivery, b"")
        match await self._outgoing.get(url, headers=headers, timeout=self._timeout):
            case Answer(status=404):
                return NotSent("lookup_url answered 404: it never came")
            case Answer(status=status, complete=complete) as answered if status in ASK_LATER or not complete:
                after = answered.retry_after(self._clock.now())
                raise AskLater(f"lookup_url answered {answered}", retry_after=after)
            case Answer(status=200, body=answer):
                return _known(answer)
            case Answer():
                return None
            case NotReached(cause) | Lost(cause):
                raise ConnectionError(f"lookup_url did not answer: {cause}")

    def _signature(self, delivery: Delivery, body: bytes) -> Mapping[str, str]:
        return {} if self._secret is None else self._secret.sign(delivery.id, body, self._clock.now())

    async def close(self) -> None:
        await self._outgoing.close()

    def _message(self, said: _Said) -> Message:
        check_name("id", said.id, ORIGIN_ID_BYTES_MAX)
        conversation = self._conversation(said.conversation)
        usual = said.conversation if said.role == "person" else said.role
        sender = usual if said.sender is None else said.sender
        check_name("sender", sender, SENDER_BYTES_MAX)
        check_text("text", said.text)
        check_answers(said.answers, NAME_BYTES_MAX)
        return Message(
            channel=self.name,
            origin_id=said.id,
            conversation=conversation,
            sender=sender,
            text=said.text,
            attachments=tuple(_attachment(file) for file in said.attachments),
            sent_at=None if said.sent_at is None else _milliseconds(said.sent_at),
            answers=said.answers,
            role=said.role,
        )

    def _conversation(self, name: str) -> str:
        check_name("conversation", name, CONVERSATION_BYTES_MAX)
        return conversation_key(self.name, name)


def _attachment(file: _File) -> Attachment:
    check_name("the url of an attachment", file.url, URL_BYTES_MAX)
    check_text("the name of an attachment", file.name or "", NAME_BYTES_MAX)
    check_text("the media_type of an attachment", file.media_type or "", NAME_BYTES_MAX)
    return Attachment(file.url, file.name, file.media_type, file.size)


def _milliseconds(moment: datetime) -> int:
    since = (moment - _EPOCH) // timedelta(milliseconds=1)
    if not 0 <= since <= SENT_AT_MAX:
        raise InvalidMessage("sent_at is out of range; use a time between the years 1970 and 9999")
    return since


def _reply(delivery: Delivery) -> bytes:
    reply: dict[str, object] = {
        "delivery": delivery.id,
        "conversation": local_part(delivery.conversation),
        "turn": delivery.turn,
        "part": delivery.part,
        "parts": delivery.parts,
        "text": delivery.text,
        "in_reply_to": delivery.in_reply_to,
    }
    if delivery.kind != "reply":
        reply["kind"] = delivery.kind
    if delivery.options:
        reply["options"] = delivery.options
    if delivery.resent:
        reply["resent"] = True
    return msgspec.json.encode(reply)


def _asking_for(delivery: Delivery, url: str) -> str:
    parts = urlsplit(url)
    question = f"delivery={quote(delivery.id, safe='')}"
    return parts._replace(query=f"{parts.query}&{question}" if parts.query else question, fragment="").geturl()


def _known(body: bytes) -> Sent | NotSent | None:
    try:
        known = _KNOWN.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Sent(_receipt(body)) if known.sent else NotSent("lookup_url says that it never came")


def _receipt(body: bytes) -> str | None:
    """The id that the receiver gave the reply, if it told one that can be stored. Its answer may be anything else."""
    try:
        answer = _REPLY_ANSWER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    receipt = answer.receipt or answer.id
    return receipt if receipt and len(receipt) <= RECEIPT_CHARACTERS_MAX and "\0" not in receipt else None
