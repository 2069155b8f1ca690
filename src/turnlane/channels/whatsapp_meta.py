"""WhatsApp by Meta's own Cloud API: signed web hooks in, the Graph API out."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256

from turnlane.channels import markup
from turnlane.channels.base import FileAt, Heard, Hook
from turnlane.channels.loose import Loose, loosely
from turnlane.channels.markup.characters import units
from turnlane.channels.secret import SharedWord
from turnlane.channels.whatsapp import (
    ACCOUNT_SECONDS,
    BUSINESS,
    STATES,
    TEXT_MAX,
    WINDOW_CLOSED,
    Api,
    Guests,
    Hearing,
    button_id,
    in_path,
    names_of,
    read,
    receipt,
)
from turnlane.channels.whatsapp_meta_content import content_of
from turnlane.clock import Clock, SystemClock
from turnlane.errors import Unauthorized
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent, Unknown, in_words
from turnlane.outgoing import Answer

BASE_URL = "https://graph.facebook.com/v23.0"
TYPING_SECONDS = 20.0
"""It is shown for 25 s; shown again a little earlier it does not flicker."""
QUESTION_MAX = 1_024
BUTTONS_MAX, BUTTON_CHARACTERS_MAX = 3, 20
LINES_MAX, LINE_CHARACTERS_MAX = 10, 24
PAIR_SECONDS = 6.0

REPLAY_SECONDS_MAX = 8 * 86_400
"""Meta posts again for up to seven days what was not taken."""

OLD = "said longer ago than Meta would still post it"
GROUP = "said in a group, where this channel does not speak"
OTHER_NEWS = "news of the account that is no message"
OTHER_FIELDS = frozenset(
    [
        "account_alerts",
        "account_review_update",
        "account_settings_update",
        "account_update",
        "automatic_events",
        "business_capability_update",
        "business_status_update",
        "calls",
        "flows",
        "history",
        "message_template_components_update",
        "message_template_quality_update",
        "message_template_status_update",
        "messaging_handovers",
        "partner_solutions",
        "payment_configuration_update",
        "phone_number_name_update",
        "phone_number_quality_update",
        "security",
        "smb_app_state_sync",
        "template_category_update",
        "template_correct_category_detection",
        "tracking_events",
        "user_preferences",
    ]
)
"""What an app may subscribe to beside messages."""

RATES: Mapping[int, float] = {130429: 5.0, 4: 60.0, 80007: 60.0, 131048: 300.0}
"""By the code of the error: seconds in which the account sends nothing, if Meta names none."""
PAIR_RATE = 131056
WINDOW = 131047
TOKENS = frozenset({0, 3, 10, 190, 131005, *range(200, 300)})
ACCOUNTS: Mapping[int, str] = {
    368: "is blocked for a breach of policy",
    131031: "is locked",
    131042: "has a problem with its payment",
    131045: "is not registered rightly",
    131057: "is in maintenance",
}
PASSING = frozenset({1, 2, 131000, 131016})
"""It failed, says Meta itself, and may not fail again."""

_BY_ITS_OWN_ID = re.compile(r"[A-Z]{2}\.")
"""How a user begins whose phone number is not told (`US.1349…`)."""


class WhatsAppMeta:
    """A conversation is one of our phone numbers and one person, by the id that stays when their number is hidden.

    Meta signs what it posts, but no time of its own, so a request can be shown again. Its messages are known by their
    ids, and change nothing; and the time in them is believed, so that a message is too old long before its id is
    forgotten.
    """

    indicated_seconds = TYPING_SECONDS

    def __init__(
        self,
        name: str,
        *,
        token: str,
        app_secret: str,
        verify_token: str,
        base_url: str = BASE_URL,
        users: Sequence[str] = (),
        rooms: Sequence[str] = (),
        typing: bool = True,
        text_max: int = TEXT_MAX,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self._signer = hmac.new(app_secret.encode(), digestmod=sha256)
        self._verify_token = SharedWord(verify_token)
        self._guests = Guests(users, rooms)
        self._rooms = rooms
        self._typing = typing
        self._text_max = min(text_max, TEXT_MAX)
        self._clock = clock or SystemClock()
        self._api = Api("Meta", base_url, token)

    # What arrives

    @property
    def secured(self) -> bool:
        return True

    def handshake(self, query: Mapping[str, str]) -> str:
        if query.get("hub.mode") != "subscribe":
            raise Unauthorized("this is no handshake of Meta's; set the URL up as a web hook of the app")
        self._verify_token.check(query.get("hub.verify_token", ""))
        return query.get("hub.challenge", "")

    async def hear(self, hook: Hook) -> Heard:
        self._check_signature(hook.headers.get("x-hub-signature-256", ""), hook.body)
        said = Loose(loosely(hook.body))
        hearing = Hearing(self.name)
        if not any(said.each("entry")):
            hearing.asides.append(said.aside("no news of a WhatsApp account"))
        for entry in said.each("entry"):
            for change in entry.each("changes"):
                self._hear_change(hearing, change)
        return hearing.heard()

    def _check_signature(self, given: str, body: bytes) -> None:
        signer = self._signer.copy()
        signer.update(body)
        expected = f"sha256={signer.hexdigest()}"
        if not hmac.compare_digest(given.encode(errors="surrogatepass"), expected.encode()):
            raise Unauthorized("the signature is missing or wrong; set app_secret to the secret of the app that posts")

    def _hear_change(self, hearing: Hearing, change: Loose) -> None:
        field, news = change.text("field"), change.inner("value")
        if field in OTHER_FIELDS:
            hearing.ignored.append(OTHER_NEWS)
        elif field not in {"messages", "smb_message_echoes"}:
            hearing.asides.append(change.aside("a field that nobody here knows"))
        else:
            self._hear_news(hearing, news)

    def _hear_news(self, hearing: Hearing, news: Loose) -> None:
        ours = news.inner("metadata")
        people = _people(news)
        for message in news.each("messages"):
            self._hear_message(hearing, ours, people, message)
        for message in news.each("message_echoes"):
            self._hear_echo(hearing, ours, people, message)
        for status in news.each("statuses"):
            self._hear_status(hearing, ours, status)
        if not any(name in news for name in ("messages", "message_echoes", "statuses")):
            hearing.asides.append(news.aside("neither a message nor a status"))

    def _hear_message(self, hearing: Hearing, ours: Loose, people: Mapping[str, str], message: Loose) -> None:
        number = message.text("from")
        if number and number == ours.text("display_phone_number").removeprefix("+"):
            self._hear_echo(hearing, ours, people, message)
            return
        user = message.text("from_user_id") or people.get(number) or number
        self._take(hearing, ours, message, user, number)

    def _hear_echo(self, hearing: Hearing, ours: Loose, people: Mapping[str, str], message: Loose) -> None:
        """Somebody answered from the phone."""
        number = message.text("to")
        self._take(
            hearing, ours, message, message.text("to_user_id") or people.get(number) or number, number, echo=True
        )

    def _take(
        self, hearing: Hearing, ours: Loose, message: Loose, user: str, number: str, *, echo: bool = False
    ) -> None:
        phone = ours.text("phone_number_id")
        hearing.take(
            message,
            self._why_not(message, user, number, room=phone) or content_of(message, self._file_url),
            origin_id=message.text("id"),
            place=(phone, user),
            sender=BUSINESS if echo else user,
            by_us=echo,
        )

    def _why_not(self, message: Loose, *users: str, room: str) -> str | None:
        said_at = message.whole("timestamp")
        if "group_id" in message:
            return GROUP
        if said_at is not None and self._clock.now() // 1000 - said_at > REPLAY_SECONDS_MAX:
            return OLD
        return self._guests.why_not(*users, room=room)

    def _file_url(self, media: str) -> str:
        return self._api.named(f"{self._api.base_url}/{in_path(media)}")

    def _hear_status(self, hearing: Hearing, ours: Loose, status: Loose) -> None:
        delivery, _, sent_to = status.text("biz_opaque_callback_data").partition(" ")
        user = sent_to or status.text("recipient_user_id", "recipient_id")
        conversation = hearing.conversation(ours.text("phone_number_id"), user)
        hearing.tell(
            conversation,
            STATES.get(status.text("status")),
            delivery=delivery or None,
            receipt=receipt(status.text("id")),
            cause=_cause(status),
        )

    # What leaves

    def parts(self, text: str) -> Sequence[str]:
        return markup.split(text, markup.fitting(self._text_max, markup.whatsapp))

    async def send(self, delivery: Delivery) -> SendResult:
        match names_of(delivery.conversation):
            case [phone, user]:
                message = _addressed(user) | _body(delivery) | {"biz_opaque_callback_data": f"{delivery.id} {user}"}
                return await self._api.send(f"/{in_path(phone)}/messages", message, self._judge)
            case _:
                return Refused(f"{delivery.conversation} is no conversation of WhatsApp; name it CHANNEL/NUMBER/PERSON")

    def _judge(self, answer: Answer) -> SendResult:
        if answer.ok:
            message = next(read(answer.body).each("messages"), Loose(None))
            return Sent(receipt(message.text("id")))
        error, told = read(answer.body).inner("error"), self._api.told(answer)
        code = error.whole("code") if error else None
        if code is None:
            return self._judge_status(answer, told)
        if code in RATES:
            return NotSent(told, answer.retry_after(self._clock.now()) or RATES[code])
        if code == PAIR_RATE:
            return NotSent(told, PAIR_SECONDS, whole_account=False)
        if code == WINDOW:
            return Refused(f"{WINDOW_CLOSED} ({told})", gone=True)
        if code in TOKENS or answer.status == 401:
            return self._refused_token(told)
        if code in ACCOUNTS:
            return NotSent(f"the account {ACCOUNTS[code]}; mend it in Meta's business manager ({told})", 300.0)
        return NotSent(told) if code in PASSING or answer.status >= 500 else Refused(told)

    def _judge_status(self, answer: Answer, told: str) -> SendResult:
        """Whoever answers without an error of Meta's stands between us, and does not know."""
        match answer.status:
            case 401 | 403:
                return self._refused_token(told)
            case 429 | 503:
                return NotSent(told, answer.retry_after(self._clock.now()))
            case status if status >= 500:
                return Unknown(told)
            case _:
                return Refused(told)

    def _refused_token(self, told: str) -> NotSent:
        step = f"renew the token in [channels.{self.name}], with the permission whatsapp_business_messaging"
        return NotSent(f"Meta refuses the token; {step} ({told})", ACCOUNT_SECONDS)

    async def indicate(self, conversation: str, latest: str) -> None:
        """Marks what was said as read, too: the one cannot be had without the other."""
        match names_of(conversation):
            case [phone, _] if self._typing and latest.startswith("wamid."):
                shown = {"messaging_product": "whatsapp", "status": "read", "message_id": latest}
                indicator = {"typing_indicator": {"type": "text"}}
                await self._api.show(f"/{in_path(phone)}/messages", shown | indicator)

    async def file(self, url: str) -> FileAt | None:
        address = self._api.unmarked(url)
        if address is None:
            return None
        found = await self._api.ask(address.removeprefix(self._api.base_url))
        where = found.text("url") if found else ""
        # The token is for Meta, and for nobody who reads what is sent in the clear.
        if where.partition("://")[0] != address.partition("://")[0]:
            raise ConnectionError("Meta does not tell where the file is; it may be older than 30 days")
        return self._api.file_at(where)

    async def who_we_are(self) -> str:
        """For the doctor. Raises ConnectionError."""
        for room in self._rooms or ["me"]:
            if await self._api.ask(f"/{in_path(room)}") is None:
                raise ConnectionError(f"Meta knows no phone number {room}")
        return "the token works"

    async def close(self) -> None:
        await self._api.close()


def _people(news: Loose) -> Mapping[str, str]:
    """Their ids by their numbers; and by no number, if there is only one whom it can be about."""
    contacts = list(news.each("contacts"))
    known = {person.text("wa_id"): person.text("user_id") for person in contacts}
    return known | {"": contacts[0].text("user_id") if len(contacts) == 1 else ""}


def _addressed(user: str) -> dict[str, object]:
    to = "recipient" if _BY_ITS_OWN_ID.match(user) else "to"
    return {"messaging_product": "whatsapp", "recipient_type": "individual", to: user}


def _body(delivery: Delivery) -> dict[str, object]:
    text, options = markup.whatsapp(delivery.text), delivery.options
    if options and units(text) <= QUESTION_MAX and len(set(options)) == len(options):
        if len(options) <= BUTTONS_MAX and _all_fit(options, BUTTON_CHARACTERS_MAX):
            return _interactive("button", text, {"buttons": [_button(delivery, *each) for each in enumerate(options)]})
        if len(options) <= LINES_MAX and _all_fit(options, LINE_CHARACTERS_MAX):
            rows = [_line(delivery, *each) for each in enumerate(options)]
            return _interactive("list", text, {"button": "Choose", "sections": [{"rows": rows}]})
    words = markup.whatsapp(in_words(delivery)) if options else text
    return {"type": "text", "text": {"body": words, "preview_url": False}}


def _all_fit(options: Sequence[str], most: int) -> bool:
    return all(option.strip() and units(option) <= most for option in options)


def _interactive(kind: str, text: str, action: Mapping[str, object]) -> dict[str, object]:
    return {"type": "interactive", "interactive": {"type": kind, "body": {"text": text}, "action": action}}


def _button(delivery: Delivery, number: int, option: str) -> Mapping[str, object]:
    return {"type": "reply", "reply": _line(delivery, number, option)}


def _line(delivery: Delivery, number: int, option: str) -> Mapping[str, object]:
    return {"id": button_id(delivery.id, number), "title": option}


def _cause(status: Loose) -> str | None:
    error = next(status.each("errors"), Loose(None))
    if not error:
        return None
    said = f"{error.text('code')} {error.text('title', 'message')}: {error.inner('error_data').text('details')}"
    return f"{WINDOW_CLOSED} ({said})" if error.whole("code") == WINDOW else said
