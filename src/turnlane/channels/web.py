"""The channel of the chat page: the page posts what the visitor says and reads the replies from the store."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from turnlane.channels.base import Heard, Hook
from turnlane.channels.incoming import check_answers, check_name, check_text, decode_json, require_json, typing_in
from turnlane.channels.visitor import HEADER, Visitors
from turnlane.clock import Clock, SystemClock
from turnlane.errors import InvalidMessage, Unauthorized
from turnlane.model.delivery import Delivery, SendResult, Sent
from turnlane.model.message import Attachment, Message, conversation_key
from turnlane.model.value import value

ID_BYTES_MAX = 256
FILE_NAME_BYTES_MAX = 256
FILE_BYTES_MAX = 700_000
FILES_MAX = 5
TEXT_BESIDE_FILES_BYTES_MAX = 100_000
"""So that a message fits where a store takes only so much in one record."""

OWN = "me"
"""What a page calls the conversation of its signed visitor. Which one it is follows from the signature."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")
_DATA = re.compile(r"data:([a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,127});base64,")


class _File(Struct, forbid_unknown_fields=True):
    name: str
    url: str


class _Said(Struct, forbid_unknown_fields=True):
    id: str
    conversation: str
    text: str
    attachments: list[_File] = []
    answers: str | None = None


_INCOMING = msgspec.json.Decoder(_Said)


@value
class Look:
    """How the page shows itself, and on whose pages it may be shown."""

    title: str = "Turnlane"
    greeting: str = ""
    sites: Sequence[str] = ()


@value
class Place:
    """One visitor's conversation."""

    token: str
    """What is theirs in its name."""
    key: str
    visitor: str


class Previews:
    """What the turns that run in this process have to say so far, and who looks at it.

    One for each conversation at most, and only while its turn runs, so there are no more than turns run at once.
    """

    def __init__(self) -> None:
        self._present: dict[str, tuple[int, str]] = {}
        self._watchers: dict[str, set[asyncio.Event]] = {}

    def of(self, conversation: str) -> tuple[int, str] | None:
        """The turn that runs, and what it has to say so far."""
        return self._present.get(conversation)

    def put(self, conversation: str, turn: int, text: str | None) -> None:
        if text is not None:
            self._present[conversation] = (turn, text)
        elif self._present.get(conversation, (None,))[0] == turn:
            del self._present[conversation]
        for moved in self._watchers.get(conversation, ()):
            moved.set()

    @contextmanager
    def watched(self, conversations: Collection[str]) -> Iterator[asyncio.Event]:
        """Set whenever something of one of them changes; whoever watches clears it."""
        moved = asyncio.Event()
        for key in conversations:
            self._watchers.setdefault(key, set()).add(moved)
        try:
            yield moved
        finally:
            for key in conversations:
                self._watchers[key].discard(moved)
                if not self._watchers[key]:
                    del self._watchers[key]


class Web:
    """Takes `{"id", "conversation", "text", "attachments"}` from the page, with `"answers"` the button of a question;
    or `{"conversation", "typing": true}`.

    The conversation is a random token that the page made for its visitor. Whoever knows it may read and write that
    conversation, and nobody else finds it: it keeps visitors apart, as a session cookie would. It does not say who may
    chat at all. So the page is served on loopback only, like every channel without a secret, until the operator calls
    it `public`. Only JSON is taken, which the page of another site cannot post here without being asked first (CORS).

    With a `visitor_secret` the conversation may be `me`: that of the visitor whom the request's header proves. No token
    leads there.
    """

    def __init__(
        self,
        name: str = "web",
        *,
        public: bool = False,
        look: Look | None = None,
        visitor_secret: str | None = None,
        signed_only: bool = False,
        file_bytes_max: int = FILE_BYTES_MAX,
        files_max: int = FILES_MAX,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.look = look or Look()
        self.file_bytes_max = file_bytes_max
        self.files_max = files_max
        self.previews = Previews()
        self._public = public
        self._visitors = Visitors(visitor_secret, clock or SystemClock()) if visitor_secret else None
        self._signed_only = signed_only

    @property
    def secured(self) -> bool:
        return self._public

    async def hear(self, hook: Hook) -> Heard:
        return Heard(self.parse(hook.headers, hook.body), typing=self.typing(hook.headers, hook.body))

    def parse(self, headers: Mapping[str, str], body: bytes) -> Sequence[Message]:
        if self.typing(headers, body):
            require_json(headers)
            return []
        said = decode_json(_INCOMING, headers, body)
        place = self.place(said.conversation, headers)
        check_name("id", said.id, ID_BYTES_MAX)
        check_text("text", said.text)
        check_answers(said.answers, ID_BYTES_MAX)
        return [
            Message(
                channel=self.name,
                # Ids are one visitor's own business: another visitor's `1` is another message.
                origin_id=f"{place.token}/{said.id}",
                conversation=place.key,
                sender=place.visitor,
                text=said.text,
                attachments=self._attachments(said),
                answers=said.answers,
            )
        ]

    def typing(self, headers: Mapping[str, str], body: bytes) -> Sequence[str]:
        return [self.place(token, headers).key for token in typing_in(body)]

    def place(self, token: str, headers: Mapping[str, str]) -> Place:
        """Where the page of this request talks. Raises Unauthorized, or InvalidMessage for what is no token."""
        if token == OWN:
            if self._visitors is None:
                raise Unauthorized("no visitor is known by a signature here; set visitor_secret in turnlane.toml")
            visitor = self._visitors.proven(headers.get(HEADER, ""))
            # The full stop keeps it apart from all tokens that a page can name.
            own = f"v.{self._visitors.token(visitor)}"
            return Place(own, conversation_key(self.name, own), visitor)
        if self._signed_only:
            raise Unauthorized("this chat knows its visitors by the site that it is part of; open it from there")
        if not _TOKEN.fullmatch(token):
            raise InvalidMessage("conversation must be 16 to 128 random characters of A-Z, a-z, 0-9, _ and -")
        return Place(token, conversation_key(self.name, token), token)

    def _attachments(self, said: _Said) -> tuple[Attachment, ...]:
        if len(said.attachments) > self.files_max:
            raise InvalidMessage(f"a message may have {self.files_max} files; send the others with another one")
        if said.attachments:
            check_text("the text beside files", said.text, TEXT_BESIDE_FILES_BYTES_MAX)
        files = tuple(map(_attachment, said.attachments))
        if sum(file.size or 0 for file in files) > self.file_bytes_max:
            raise InvalidMessage(f"the files of a message may have {self.file_bytes_max} bytes together; send less")
        return files

    async def send(self, delivery: Delivery) -> SendResult:
        """The page reads its conversation's outbox, so what is stored is sent."""
        return Sent()

    async def show(self, conversation: str, turn: int, text: str | None) -> None:
        """Seen by pages that are connected to this very process. The answer itself reaches every page."""
        self.previews.put(conversation, turn, text)

    async def look_up(self, delivery: Delivery) -> Sent:
        return Sent()

    async def close(self) -> None:
        """Nothing is held."""


def _attachment(file: _File) -> Attachment:
    check_name("the name of a file", file.name, FILE_NAME_BYTES_MAX)
    head = _DATA.match(file.url)
    if head is None:
        raise InvalidMessage("the url of a file must be data:TYPE;base64,… with its type in lower case")
    try:
        size = len(base64.b64decode(file.url[head.end() :], validate=True))
    except (binascii.Error, ValueError):
        raise InvalidMessage("the url of a file is not in base64; send it again") from None
    return Attachment(file.url, file.name, head[1], size)
