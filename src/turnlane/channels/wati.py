"""WhatsApp by Wati: flat web hooks with a passkey in, session messages out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from urllib.parse import quote, urlencode

import msgspec

from turnlane.channels import markup
from turnlane.channels.base import FileAt, Heard, Hook
from turnlane.channels.loose import Loose, loosely
from turnlane.channels.secret import SharedWord
from turnlane.channels.wati_content import content_of
from turnlane.channels.whatsapp import (
    ACCOUNT_SECONDS,
    BUSINESS,
    TEXT_MAX,
    WINDOW_CLOSED,
    Api,
    Guests,
    Hearing,
    in_path,
    is_web,
    names_of,
    read,
    receipt,
)
from turnlane.clock import Clock, SystemClock
from turnlane.errors import InvalidBody
from turnlane.model.delivery import Delivery, NotSent, Refused, Reported, SendResult, Sent, Unknown, in_words
from turnlane.outgoing import Answer

BASE_URL = "https://live-mt-server.wati.io"
ENCODED_MAX = 6_000
"""Of a text, which travels in the URL: servers take some 8,000 bytes there, and an emoji becomes twelve."""
PASSKEY_HEADER = "x-passkey"

ANOTHER_NUMBER = "another number of the account"
ANNOUNCED = "a first message, which comes as a message, too"
AUTOMATIC = "said by an automation of Wati's"
OTHER_NEWS = "news of the account that is no message"
OTHER_EVENTS = frozenset(["templateMessageSent", "templateMessageFailed", "chatAssigned"])

_TWIN = re.compile(r"_(v2|bsuid)$")
_STATES: Mapping[str, Reported] = {
    "sentMessageDELIVERED": "delivered",
    "sentMessageREAD": "read",
    "sentMessageREPLIED": "read",
    "sessionMessageFailed": "failed",
}
_OURS = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.(.+)")
"""What we call a message when we send it: the delivery, and to whom, as Wati does not tell that with every status."""
_SERVERS = re.compile(r"https://[a-z0-9.-]+\.wati\.io/")
_WINDOW = re.compile(r"expired|24|window|session|ticket", re.IGNORECASE)


class Wati:
    """A conversation is a person, by the id that stays when their number is hidden.

    Takes any body that holds JSON, whatever it calls itself: an object, or a list of them. The passkey comes in the
    URL, in a header or in the body. Of two web hooks that tell the same (`…_v2`) the second changes nothing.
    """

    def __init__(
        self,
        name: str,
        *,
        token: str | None = None,
        passkey: str | None = None,
        base_url: str = BASE_URL,
        number: str | None = None,
        users: Sequence[str] = (),
        text_max: int = TEXT_MAX,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._has_token = token is not None
        self._passkey = None if passkey is None else SharedWord(passkey)
        self._number = number
        self._guests = Guests(users)
        self._text_max = min(text_max, TEXT_MAX)
        self._clock = clock or SystemClock()
        self._api = Api("Wati", base_url, token)

    # What arrives

    @property
    def secured(self) -> bool:
        return self._passkey is not None

    async def hear(self, hook: Hook) -> Heard:
        hearing = Hearing(self.name)
        for event in self._let_in(hook):
            self._hear_event(hearing, event)
        return hearing.heard()

    def _let_in(self, hook: Hook) -> Sequence[Loose]:
        """What the body holds, if it may come in; without the passkey, which is nobody's business from here on."""
        places = [hook.query.get("passkey", ""), hook.headers.get("authorization", "")]
        places.append(hook.headers.get(PASSKEY_HEADER, ""))
        try:
            events = _events(hook.body)
        except InvalidBody:
            self._check(places)
            raise
        for event in events or [Loose(None)]:
            self._check([*places, event.text("passkey")])
        return [Loose({name: value for name, value in event.raw.items() if name != "passkey"}) for event in events]

    def _check(self, places: Sequence[str]) -> None:
        if self._passkey is not None:
            self._passkey.check(*places)

    def _hear_event(self, hearing: Hearing, event: Loose) -> None:
        kind = _TWIN.sub("", event.text("eventType") or "message")
        number = event.text("channelPhoneNumber")
        if self._number and number and number.removeprefix("+") != self._number.removeprefix("+"):
            hearing.ignored.append(ANOTHER_NUMBER)
        elif kind in {"message", "sessionMessageSent"}:
            self._hear_message(hearing, event, by_us=event.flag("owner") or kind == "sessionMessageSent")
        elif kind in _STATES:
            self._hear_status(hearing, event, _STATES[kind])
        elif kind == "newContactMessageReceived":
            hearing.ignored.append(ANNOUNCED)
        elif kind in OTHER_EVENTS:
            hearing.ignored.append(OTHER_NEWS)
        else:
            hearing.asides.append(event.aside("an event that nobody here knows"))

    def _hear_message(self, hearing: Hearing, event: Loose, *, by_us: bool) -> None:
        user = event.text("bsuid", "waId")
        if by_us and _OURS.fullmatch(event.text("localMessageId")):
            self._hear_status(hearing, event, "sent")
            return
        hearing.take(
            event,
            self._why_not(event, by_us=by_us) or content_of(event, self._file_url),
            origin_id=event.text("whatsappMessageId", "id") or self._made_id(event),
            place=(user,),
            sender=event.text("operatorName", "operatorEmail") or BUSINESS if by_us else user,
            by_us=by_us,
        )

    def _why_not(self, event: Loose, *, by_us: bool) -> str | None:
        if by_us and "chatbotTriggeredEventId" in event:
            return AUTOMATIC
        return self._guests.why_not(event.text("waId"), event.text("bsuid"))

    def _made_id(self, event: Loose) -> str:
        """For what comes without one; Wati itself always names one.

        With a time in it, what is posted again is recognised by all that it says. Without, nobody can tell a repetition
        from somebody who says `yes` twice; then each is a message, as an answer too many is better than one too few.
        """
        if event.text("timestamp", "created"):
            return f"made-{sha256(msgspec.json.encode(event.raw, order='sorted')).hexdigest()}"
        return f"made-{self._clock.token()}"

    def _hear_status(self, hearing: Hearing, event: Loose, state: Reported) -> None:
        ours = _OURS.fullmatch(event.text("localMessageId"))
        conversation = hearing.conversation(ours[2] if ours else event.text("bsuid", "waId"))
        known_as = receipt(event.text("whatsappMessageId", "id"))
        cause = " ".join(filter(None, [event.text("failedCode"), event.text("failedDetail")])) or None
        hearing.tell(conversation, state, delivery=ours[1] if ours else None, receipt=known_as, cause=cause)

    # What leaves

    def parts(self, text: str) -> Sequence[str]:
        short_enough = markup.fitting(self._text_max, markup.whatsapp)
        return markup.split(text, lambda piece: short_enough(piece) and _encoded(piece) <= ENCODED_MAX)

    async def send(self, delivery: Delivery) -> SendResult:
        if not self._has_token:
            return Refused(f"the channel {self.name} has no token to send with; set it in [channels.{self.name}]")
        match names_of(delivery.conversation):
            case [user]:
                return await self._api.send(self._path(delivery, user), None, self._judge)
            case _:
                return Refused(f"{delivery.conversation} is no conversation of Wati; name it CHANNEL/PERSON")

    def _path(self, delivery: Delivery, user: str) -> str:
        """The text is a parameter: so it is documented, and bodies are not."""
        asked = {"messageText": markup.whatsapp(in_words(delivery)), "localMessageId": f"{delivery.id}.{user}"}
        if self._number:
            asked["channelPhoneNumber"] = self._number
        return f"/api/v1/sendSessionMessage/{in_path(user)}?{urlencode(asked, quote_via=quote)}"

    def _judge(self, answer: Answer) -> SendResult:
        said, told = read(answer.body), self._api.told(answer)
        if answer.ok:
            return _taken(said, told)
        match answer.status:
            case 401 | 403:
                step = f"renew the token in [channels.{self.name}]"
                return NotSent(f"Wati refuses the token; {step} ({told})", ACCOUNT_SECONDS)
            case 429 | 503:
                return NotSent(told, answer.retry_after(self._clock.now()))
            case status if status >= 500:
                return Unknown(told)
            case _:
                return Refused(told)

    async def file(self, url: str) -> FileAt | None:
        address = self._api.unmarked(url)
        return None if address is None else self._api.file_at(address)

    def _file_url(self, where: str) -> str:
        """Wati tells an address on one of its servers, or only where the file is on them."""
        if not is_web(where):
            return self._api.named(f"{self._api.base_url}/api/v1/getMedia?{urlencode({'fileName': where})}")
        is_watis = where.startswith(f"{self._api.base_url}/") or _SERVERS.match(where)
        return self._api.named(where) if is_watis else where

    async def who_we_are(self) -> str:
        """For the doctor. Raises ConnectionError."""
        await self._api.ask("/api/v1/getContacts?pageSize=1&pageNumber=1")
        return "the token works"

    async def close(self) -> None:
        await self._api.close()


def _encoded(piece: str) -> int:
    return len(quote(markup.whatsapp(piece), safe=""))


def _events(body: bytes) -> Sequence[Loose]:
    said = loosely(body)
    return [Loose(each) for each in (said if isinstance(said, list) else [said])]


def _taken(said: Loose, told: str) -> SendResult:
    """A status of 200 may still say no, most often because the window is closed."""
    result = said.raw.get("result", True)
    if result is False or (isinstance(result, str) and result.lower() in {"false", "error", "failed"}):
        why = said.text("info", "message", "error")
        gone = not why or _WINDOW.search(why) is not None
        return Refused(f"{WINDOW_CLOSED} ({told})" if gone else told, gone=gone)
    message = said.inner("message", "data")
    return Sent(receipt(message.text("whatsappMessageId", "id") or said.text("id")))
