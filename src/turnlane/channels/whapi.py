"""WhatsApp by Whapi.cloud: a phone of the business, connected like a browser; web hooks in, its API out."""

from __future__ import annotations

from collections.abc import Sequence

from turnlane.channels import markup
from turnlane.channels.base import FileAt, Heard, Hook
from turnlane.channels.loose import Loose, loosely
from turnlane.channels.secret import SharedWord
from turnlane.channels.whapi_content import content_of
from turnlane.channels.whatsapp import (
    ACCOUNT_SECONDS,
    BUSINESS,
    OUR_OWN,
    STATES,
    TEXT_MAX,
    Api,
    Guests,
    Hearing,
    bare,
    in_path,
    names_of,
    read,
    receipt,
)
from turnlane.clock import Clock, SystemClock
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent, Unknown, in_words
from turnlane.model.person import Person
from turnlane.outgoing import Answer

BASE_URL = "https://gate.whapi.cloud"
SECRET_HEADER = "x-turnlane-secret"
TYPING_SECONDS = 10.0
TRIAL_SECONDS = 3_600.0

OTHER_NEWS = "news of the account that is no message"
OTHER_NAMES = frozenset(
    [
        "messages_updates",
        "messages_removed",
        "messages_removed_all",
        "chats",
        "chats_updates",
        "chats_removed",
        "contacts",
        "contacts_updates",
        "groups",
        "groups_participants",
        "groups_updates",
        "labels",
        "labels_removed",
        "calls",
        "qr",
        "health",
        "user",
        "errors",
        "service",
    ]
)
"""What Whapi posts beside messages, statuses and presences."""
PUBLIC = "a story or the post of a channel"


class Whapi:
    """A conversation is a chat: a person's (`…@s.whatsapp.net`) or a group (`…@g.us`).

    Whapi signs nothing, so a word of our own must come along: as `Authorization: Bearer …` or `X-Turnlane-Secret`,
    which are set with the web hook, or as `?secret=` in its URL. What it posts again is known by the messages' ids.
    """

    indicated_seconds = TYPING_SECONDS

    def __init__(
        self,
        name: str,
        *,
        token: str,
        secret: str | None = None,
        base_url: str = BASE_URL,
        users: Sequence[str] = (),
        rooms: Sequence[str] = (),
        typing: bool = True,
        text_max: int = TEXT_MAX,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._secret = None if secret is None else SharedWord(secret)
        self._guests = Guests(users, rooms)
        self._typing = typing
        self._text_max = min(text_max, TEXT_MAX)
        self._clock = clock or SystemClock()
        self._api = Api("Whapi", base_url, token)

    # What arrives

    @property
    def secured(self) -> bool:
        return self._secret is not None

    async def hear(self, hook: Hook) -> Heard:
        if self._secret is not None:
            headers = hook.headers
            places = [headers.get("authorization", ""), headers.get(SECRET_HEADER, ""), hook.query.get("secret", "")]
            self._secret.check(*places)
        news = Loose(loosely(hook.body))
        hearing = Hearing(self.name)
        for message in news.each("messages"):
            self._hear_message(hearing, message)
        for status in news.each("statuses"):
            self._hear_status(hearing, status)
        for presence in news.each("presences"):
            self._hear_presence(hearing, presence)
        hearing.ignored += [OTHER_NEWS] * len(OTHER_NAMES & news.raw.keys())
        if not any(name in news for name in ("messages", "statuses", "presences", *OTHER_NAMES)):
            hearing.asides.append(news.aside("nothing that anybody here knows"))
        return hearing.heard()

    def _hear_message(self, hearing: Hearing, message: Loose) -> None:
        chat, by_us = message.text("chat_id"), message.flag("from_me")
        sender = message.text("from") or bare(chat)
        hearing.take(
            message,
            self._why_not(message, chat, sender) or content_of(message, self._file_url),
            origin_id=message.text("id"),
            place=(chat,),
            sender=BUSINESS if by_us else sender,
            by_us=by_us,
        )

    def _why_not(self, message: Loose, chat: str, sender: str) -> str | None:
        by_us = message.flag("from_me")
        if by_us and message.text("source") == "api":
            return OUR_OWN
        if chat.endswith(("@newsletter", "@broadcast")) or message.text("type") == "story":
            return PUBLIC
        # Whoever of the business speaks, it is the other side that must be welcome.
        return self._guests.why_not(*([sender] if not by_us else [] if chat.endswith("@g.us") else [chat]), room=chat)

    def _hear_status(self, hearing: Hearing, status: Loose) -> None:
        conversation = hearing.conversation(_chat(status.text("recipient_id")))
        error = next(status.each("errors"), Loose(None)).text("message", "details") or None
        state = STATES.get(status.text("status"))
        hearing.tell(conversation, state, receipt=receipt(status.text("id")), cause=error)

    def _hear_presence(self, hearing: Hearing, presence: Loose) -> None:
        conversation = hearing.conversation(_chat(presence.text("contact_id")))
        if conversation is not None and presence.text("status") in {"typing", "recording"}:
            hearing.typing.append(conversation)

    # What leaves

    def parts(self, text: str) -> Sequence[str]:
        return markup.split(text, markup.fitting(self._text_max, markup.whatsapp))

    async def send(self, delivery: Delivery) -> SendResult:
        """Questions are asked in words: buttons of a connected phone are not shown on every device."""
        match names_of(delivery.conversation):
            case [chat]:
                body = {"to": chat, "body": markup.whatsapp(in_words(delivery)), "typing_time": 0}
                return await self._api.send("/messages/text", body, self._judge)
            case _:
                return Refused(f"{delivery.conversation} is no chat of WhatsApp; name it CHANNEL/CHAT_ID")

    def _judge(self, answer: Answer) -> SendResult:
        said, told = read(answer.body), self._api.told(answer)
        if answer.ok:
            return Refused(told) if said.raw.get("sent") is False else Sent(receipt(said.inner("message").text("id")))
        match answer.status:
            case 401:
                step = f"connect the phone again, or renew the token in [channels.{self.name}]"
                return NotSent(f"Whapi refuses us; {step} ({told})", ACCOUNT_SECONDS)
            case 402:
                return NotSent(f"the trial of Whapi is used up; choose a plan ({told})", TRIAL_SECONDS)
            case 429 | 503:
                return NotSent(told, answer.retry_after(self._clock.now()))
            case status if status >= 500:
                # Between Whapi and WhatsApp there is a phone: it may fail after the message has left.
                return Unknown(told)
            case _:
                return Refused(told)

    async def indicate(self, conversation: str, latest: str) -> None:
        match names_of(conversation):
            case [chat] if self._typing:
                presence = {"presence": "typing", "delay": TYPING_SECONDS}
                await self._api.show(f"/presences/{in_path(chat)}", presence, put=True)

    async def file(self, url: str) -> FileAt | None:
        """What came with a link of its own is fetched there, by whoever may."""
        address = self._api.unmarked(url)
        return None if address is None else self._api.file_at(address)

    def _file_url(self, media: str) -> str:
        return self._api.named(f"{self._api.base_url}/media/{in_path(media)}")

    async def profile(self, user: str) -> Person | None:
        number = bare(user)
        contact = await self._api.ask(f"/contacts/{in_path(number)}")
        if contact is None:
            return None
        chat = await self._api.ask(f"/chats/{in_path(_chat(number))}")
        labels = tuple(label.text("name") for label in chat.each("labels") if "name" in label) if chat else ()
        return Person(
            self.name,
            user,
            name=contact.text("name", "pushname") or None,
            user_name=contact.text("pushname") or None,
            labels=labels,
            chat_id=_chat(number),
        )

    async def who_we_are(self) -> str:
        """For the doctor. Raises ConnectionError."""
        health = await self._api.ask("/health")
        state = health.inner("status").text("text") if health else ""
        if state not in {"", "AUTH"}:
            raise ConnectionError(f"the phone is not connected ({state}); scan the code on Whapi's page")
        return "the token works, and the phone is connected"

    async def close(self) -> None:
        await self._api.close()


def _chat(name: str) -> str:
    return name if "@" in name or not name else f"{name}@s.whatsapp.net"
