"""What the three ways to WhatsApp share: what people send, put in words; whom we listen to; and calls with a token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from urllib.parse import quote, unquote

import msgspec

from turnlane.channels.base import Aside, FileAt, Heard, Reaction, Status
from turnlane.channels.loose import Loose, loosely
from turnlane.channels.mark import marked, unmarked
from turnlane.errors import InvalidBody, InvalidMessage
from turnlane.model.delivery import NotSent, Reported, SendResult, Unknown
from turnlane.model.message import ORIGIN_ID_BYTES_MAX, Attachment, Message, conversation_key
from turnlane.model.value import value
from turnlane.outgoing import Answer, Lost, NotReached, Outgoing, Posted, checked_url

TEXT_MAX = 4_096
TEXT_CHARACTERS_MAX = 250_000
"""Of what comes in, so that it can be stored whatever it is made of. People can write 65,536."""
URL_CHARACTERS_MAX = 8_192
NAME_CHARACTERS_MAX = 255
SENDER_CHARACTERS_MAX = 128
RECEIPT_CHARACTERS_MAX = 512
SENT_AT_MAX = 253_402_300_799_999
SEND_SECONDS_MAX = 30.0
ACCOUNT_SECONDS = 60.0
"""How long nothing is sent once a token was refused: nothing would get through before somebody mends it."""
BUSINESS = "business"
STATES: Mapping[str, Reported] = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "played": "read",
    "failed": "failed",
}

REACTION = "a reaction"
CHANGED = "an edited or deleted message"
NOTICE = "a notice of the platform"
ANOTHER_USER = "somebody who is not among `users`"
ANOTHER_ROOM = "a number or chat that is not among `rooms`"
OUR_OWN = "our own message, come back"
NOTHING_NEW = "a status that tells nothing new"
NO_RECIPIENT = "a status that does not say of which conversation"

WINDOW_CLOSED = (
    "WhatsApp takes no free text more than 24 h after the person last wrote; "
    "send an approved template from the platform, or wait until they write again"
)

_BUTTON = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/\d+$")
_FILE_KINDS = {"gif": "video", "short": "video", "documentWithCaption": "document"}


@value
class Content:
    """What somebody sent, put in words for an agent, with the files that came with it."""

    text: str
    files: tuple[Attachment, ...] = ()
    answers: str | None = None
    reacts_to: str | None = None
    """It is only a sign, put to this message."""


Named = Callable[[str], str]
"""Makes the address of a file of what the platform calls it (`Api.named`)."""


class Hearing:
    """What one request comes to, put together piece by piece."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.messages: list[Message] = []
        self.statuses: list[Status] = []
        self.ignored: list[str] = []
        self.asides: list[Aside] = []
        self.typing: list[str] = []
        self.reactions: list[Reaction] = []

    def heard(self) -> Heard:
        """With an answer, as it then is a 200: other good ones these platforms do not count, and post again."""
        return Heard(
            self.messages,
            typing=self.typing,
            statuses=self.statuses,
            reactions=self.reactions,
            ignored=self.ignored,
            asides=self.asides,
            answer="ok",
        )

    def take(
        self,
        raw: Loose,
        content: Content | str | None,
        *,
        origin_id: str,
        place: Sequence[str],
        sender: str,
        by_us: bool = False,
    ) -> None:
        """A message; or what is known instead: why it is none, or that it cannot be read or stored."""
        if isinstance(content, str):
            self.ignored.append(content)
        elif content is None:
            self.asides.append(raw.aside("a message of a type that nobody here knows"))
        elif not (text := content.text.replace("\0", "")[:TEXT_CHARACTERS_MAX]) and not content.files:
            self.asides.append(raw.aside("a message that says nothing"))
        elif not origin_id or len(origin_id.encode()) > ORIGIN_ID_BYTES_MAX:
            self.asides.append(raw.aside("a message without a usable id"))
        elif (conversation := self.conversation(*place)) is None:
            self.asides.append(raw.aside("a message that does not say from whom"))
        elif content.reacts_to is not None:
            if by_us:
                self.ignored.append(REACTION)
            else:
                sender = sender[:SENDER_CHARACTERS_MAX]
                self.reactions.append(Reaction(conversation, content.reacts_to, text, sender, origin_id))
        else:
            self.messages.append(
                Message(
                    channel=self.channel,
                    origin_id=origin_id,
                    conversation=conversation,
                    sender=sender[:SENDER_CHARACTERS_MAX],
                    text=text,
                    attachments=content.files,
                    sent_at=_milliseconds(raw.whole("timestamp")),
                    role="business" if by_us else "person",
                    answers=content.answers,
                )
            )

    def tell(
        self,
        conversation: str | None,
        state: Reported | None,
        *,
        delivery: str | None = None,
        receipt: str | None = None,
        cause: str | None = None,
    ) -> None:
        """What became of a delivery, where that is news, and it is known of which conversation."""
        if conversation is None or state is None:
            self.ignored.append(NOTHING_NEW if conversation is not None else NO_RECIPIENT)
        else:
            self.statuses.append(Status(conversation, state, delivery, receipt, cause))

    def conversation(self, *place: str) -> str | None:
        """Its key; None if the place has no name, or none that can be stored."""
        try:
            return conversation_key(self.channel, *place) if all(place) else None
        except InvalidMessage:
            return None


# In words


def noted(what: str, *details: str) -> str:
    """`[location 52.5,13.4 Town Hall]`: what was sent, for somebody who only reads."""
    return f"[{' '.join([what, *filter(None, details)])}]"


def location(raw: Loose) -> Content:
    where = f"{raw.text('latitude')},{raw.text('longitude')}"
    said = raw.text("caption", "comment")
    return Content("\n".join(filter(None, [noted("location", where, raw.text("name"), raw.text("address")), said])))


def order(raw: Loose) -> Content:
    items = [_item(item) for item in raw.each("product_items")]
    count = f"{raw.text('item_count')} items" if "item_count" in raw else ""
    return Content("\n".join(filter(None, [noted("order", ", ".join(items) or count), raw.text("text")])))


def _item(raw: Loose) -> str:
    price = " ".join(filter(None, [raw.text("item_price"), raw.text("currency")]))
    return f"{raw.text('quantity') or '1'} × {raw.text('product_retailer_id')}" + (f" at {price}" if price else "")


def media(kind: str, raw: Loose, url: str) -> Content:
    """The caption, or what kind of file it is, and the file."""
    kind = _FILE_KINDS.get(kind, kind)
    name = raw.text("filename", "file_name")
    words = raw.text("caption") or noted(kind, name)
    if not url or len(url) > URL_CHARACTERS_MAX:
        return Content(words)
    media_type = raw.text("mime_type").partition(";")[0].strip()[:NAME_CHARACTERS_MAX]
    file = Attachment(url, name[:NAME_CHARACTERS_MAX] or None, media_type or None, raw.whole("file_size"))
    return Content(words, (file,))


def reaction(raw: Loose) -> Content | str:
    """A sign that was put to a message; without one it was taken away."""
    sign, target = raw.text("emoji"), raw.text("message_id", "target")
    return Content(sign, reacts_to=target) if sign and target else REACTION


def chosen(button: Loose) -> Content:
    """A button or a line of a list. If it is one of ours, it names the question."""
    ours = _BUTTON.search(button.text("id"))
    return Content(button.text("title", "text", "id"), answers=ours[1] if ours else None)


def button_id(delivery: str, number: int) -> str:
    return f"{delivery}/{number}"


def _milliseconds(seconds: int | None) -> int | None:
    return seconds * 1000 if seconds is not None and seconds * 1000 <= SENT_AT_MAX else None


# Whom we listen to


class Guests:
    """Lists of those who are welcome. An empty one: everybody is."""

    def __init__(self, users: Iterable[str], rooms: Iterable[str] = ()) -> None:
        self._users = frozenset(map(bare, users))
        self._rooms = frozenset(rooms)

    def why_not(self, *users: str, room: str = "") -> str | None:
        """A reason that one can count; None: they are welcome. The user may go by several names, or by none here."""
        if self._rooms and room not in self._rooms:
            return ANOTHER_ROOM
        if self._users and users and self._users.isdisjoint(map(bare, users)):
            return ANOTHER_USER
        return None


def bare(user: str) -> str:
    """A number the way all of them can be compared."""
    return user.removeprefix("+").removesuffix("@s.whatsapp.net")


# Calls


class TokenRefused(ConnectionError):
    """The platform does not know us by this token, or not for this."""


class Api:
    """Asks a platform with our token, which appears in nothing that is told of it. Nothing is asked twice."""

    def __init__(self, what: str, base_url: str, token: str | None) -> None:
        self.what = what
        self.base_url = checked_url(base_url, setting="base_url").rstrip("/")
        self._token = token
        self._outgoing = Outgoing()

    async def send(self, path: str, body: object, judge: Callable[[Answer], SendResult]) -> SendResult:
        match await self._post(path, body):
            case Answer() as answer:
                return judge(answer)
            case NotReached(cause):
                return NotSent(f"{self.what} cannot be reached: {self._masked(cause)}")
            case Lost(cause):
                return Unknown(f"{self.what} did not answer: {self._masked(cause)}")

    async def show(self, path: str, body: object, *, put: bool = False) -> None:
        """Have it shown that somebody is at work. Raises ConnectionError if it was not."""
        answer = await (self._put(path, body) if put else self._post(path, body))
        if not isinstance(answer, Answer) or not answer.ok:
            raise ConnectionError(self.told(answer))

    async def ask(self, path: str) -> Loose | None:
        """What it knows; None: nothing. Raises ConnectionError if it cannot tell, TokenRefused if it will not."""
        answer = await self._outgoing.get(self.base_url + path, headers=self._headers, timeout=SEND_SECONDS_MAX)
        match answer:
            case Answer(ok=True, body=body, complete=True):
                return read(body)
            case Answer(status=404):
                return None
            case Answer(status=401 | 403):
                raise TokenRefused(f"{self.what} refuses the token: {self.told(answer)}")
            case _:
                raise ConnectionError(self.told(answer))

    async def _post(self, path: str, body: object) -> Posted:
        encoded = b"" if body is None else msgspec.json.encode(body)
        url = self.base_url + path
        return await self._outgoing.post(url, body=encoded, headers=self._headers, timeout=SEND_SECONDS_MAX)

    async def _put(self, path: str, body: object) -> Posted:
        url, encoded = self.base_url + path, msgspec.json.encode(body)
        return await self._outgoing.put(url, body=encoded, headers=self._headers, timeout=SEND_SECONDS_MAX)

    @property
    def _headers(self) -> Mapping[str, str]:
        return {} if self._token is None else {"authorization": f"Bearer {self._token}"}

    def told(self, answer: Posted) -> str:
        match answer:
            case Answer():
                return f"{self.what} answered {self._masked(str(answer))}"
            case NotReached(cause) | Lost(cause):
                return f"{self.what} did not answer: {self._masked(cause)}"

    def _masked(self, said: str) -> str:
        return said.replace(self._token, "***") if self._token else said

    # Files

    def named(self, url: str) -> str:
        """The address of a file that the platform itself has named: only for such a one is the token shown."""
        return url if self._token is None else marked(url, self._token)

    def unmarked(self, url: str) -> str | None:
        """The address as it was before; None: it was not named by this platform."""
        return None if self._token is None else unmarked(url, self._token)

    def file_at(self, address: str) -> FileAt:
        return FileAt(address, self._headers)

    async def close(self) -> None:
        await self._outgoing.close()


def read(body: bytes) -> Loose:
    """What a platform answers, as far as it can be read."""
    try:
        return Loose(loosely(body))
    except InvalidBody:
        return Loose(None)


def receipt(text: str) -> str | None:
    return text if text and len(text) <= RECEIPT_CHARACTERS_MAX else None


def names_of(conversation: str) -> list[str]:
    """What the platform calls the parts of it: the place that a message came from."""
    return [unquote(part) for part in conversation.split("/")[1:]]


def in_path(name: str) -> str:
    return quote(name, safe="@")


def is_web(url: str) -> bool:
    return url.startswith(("http://", "https://"))
