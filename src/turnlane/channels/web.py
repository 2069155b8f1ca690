"""The channel of the plain chat page: the page posts what the visitor says and reads the replies from the store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
from msgspec import Struct

from turnlane.channels.incoming import check_name, check_text, decode_json, require_json, typing_in
from turnlane.errors import InvalidMessage
from turnlane.model.delivery import Delivery, SendResult, Sent
from turnlane.model.message import Message, conversation_key

ID_BYTES_MAX = 256

_TOKEN = re.compile(r"[A-Za-z0-9_-]{16,128}")


class _Said(Struct, forbid_unknown_fields=True):
    id: str
    conversation: str
    text: str
    answers: str | None = None


_INCOMING = msgspec.json.Decoder(_Said)


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
    """Takes `{"id", "conversation", "text"}` from the page, with `"answers"` the button of a question; or
    `{"conversation", "typing": true}`.

    The conversation is a random token that the page made for its visitor. Whoever knows it may read and write that
    conversation, and nobody else finds it: it keeps visitors apart, as a session cookie would. It does not say who may
    chat at all. So the page is served on loopback only, like every channel without a secret, until the operator calls
    it `public`. Only JSON is taken, which the page of another site cannot post here without being asked first (CORS).
    """

    def __init__(self, name: str = "web", *, public: bool = False) -> None:
        self.name = name
        self.previews = Previews()
        self._public = public

    @property
    def secured(self) -> bool:
        return self._public

    def parse(self, headers: Mapping[str, str], body: bytes) -> Sequence[Message]:
        if self.typing(body):
            require_json(headers)
            return []
        said = decode_json(_INCOMING, headers, body)
        check_name("id", said.id, ID_BYTES_MAX)
        check_text("text", said.text)
        check_text("answers", said.answers or "", ID_BYTES_MAX)
        return [
            Message(
                channel=self.name,
                # Ids are one visitor's own business: another visitor's `1` is another message.
                origin_id=f"{said.conversation}/{said.id}",
                conversation=self._conversation(said.conversation),
                sender=said.conversation,
                text=said.text,
                answers=said.answers,
            )
        ]

    def typing(self, body: bytes) -> Sequence[str]:
        return [self._conversation(token) for token in typing_in(body)]

    def _conversation(self, token: str) -> str:
        if not _TOKEN.fullmatch(token):
            raise InvalidMessage("conversation must be 16 to 128 random characters of A-Z, a-z, 0-9, _ and -")
        return conversation_key(self.name, token)

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
