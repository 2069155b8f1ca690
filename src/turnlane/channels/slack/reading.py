"""What Slack tells, read: one pure way for what comes over a socket and what is posted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Meta, Struct

from turnlane.channels.base import Aside, Heard, Hook
from turnlane.channels.loose import Loose, loosely
from turnlane.channels.slack.files import Files
from turnlane.channels.slack.options import Options
from turnlane.channels.slack.place import Place
from turnlane.channels.slack.questions import Choice, choice, is_sign
from turnlane.errors import InvalidBody, InvalidMessage, UnsupportedMediaType
from turnlane.model.message import Attachment, Message, channel_of
from turnlane.model.value import value

ASIDE_CHARACTERS_MAX = 20_000
FILES_MAX = 100
FORM = "application/x-www-form-urlencoded"
SLACKBOT = "USLACKBOT"
TAKEN = ""
"""What is answered to a press of a button and the like: Slack shows people anything else."""

# Why something is not a message to us.
BY_A_BOT = "said by a bot"
NOT_SAID = "an edit, a deletion or a note of Slack's own"
NOT_AMONG_USERS = "said by somebody who is not among users"
NOT_AMONG_ROOMS = "said in a room that is not among rooms"
NO_MENTION = "said in a room without a mention of the bot"
NO_TOKEN = "said in a workspace that no token is for"
OTHER_EVENT = "an event that is not something said"
OTHER_REACTION = "a reaction that answers no question"
OTHER_BUTTON = "a button that is not of a question"
INTERACTION = "a shortcut, a dialog or a slash command"
HELD_BACK = "Slack holds events back: there were too many in an hour"

_SAID = frozenset({None, "file_share", "thread_broadcast", "me_message"})
_INTERACTIONS = frozenset(
    {"shortcut", "message_action", "view_submission", "view_closed", "block_suggestion", "workflow_step_edit"}
)
_SECRETS = frozenset({"token", "response_url", "response_urls", "trigger_id"})

_ID = re.compile(r"\A[A-Za-z0-9_-]{1,64}\Z")
_Id = Annotated[str, Meta(pattern=_ID.pattern)]
_Ts = Annotated[str, Meta(pattern=r"\A[0-9]{1,11}\.[0-9]{1,6}\Z")]
_Word = Annotated[str, Meta(max_length=128)]


class _File(Struct):
    id: str | None = None
    url_private_download: str | None = None
    url_private: str | None = None
    name: str | None = None
    mimetype: str | None = None
    size: int | None = None


class _Spoken(Struct):
    """An event of the kinds `message` and `app_mention`."""

    type: str
    channel: _Id
    ts: _Ts
    user: _Id | None = None
    bot_id: str | None = None
    subtype: str | None = None
    hidden: bool = False
    text: str | None = None
    thread_ts: _Ts | None = None
    channel_type: str | None = None
    files: list[_File] = []

    @property
    def is_direct(self) -> bool:
        return self.channel_type == "im" or (self.channel_type is None and self.channel.startswith("D"))


class _Item(Struct):
    channel: _Id
    ts: _Ts


class _Reacted(Struct):
    user: _Id
    reaction: _Word
    item: _Item
    event_ts: _Ts
    item_user: str | None = None


class _Named(Struct):
    id: _Id


class _Action(Struct):
    value: str | None = None
    action_ts: _Word | None = None


class _Pressed(Struct):
    user: _Named
    actions: list[_Action]


@value
class Reaction:
    """Somebody reacted to something of ours, which may be a question. Whoever can ask Slack finds out."""

    place: Place
    ts: str
    sign: str
    user: str
    origin_id: str


@value
class Read:
    heard: Heard = Heard()
    reaction: Reaction | None = None


def payload_of(hook: Hook) -> Mapping[str, Any]:
    """What was posted, as JSON or in a form. Raises UnsupportedMediaType or InvalidBody."""
    media_type = hook.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == FORM:
        return _form(hook.body)
    if media_type != "application/json":
        raise UnsupportedMediaType(f"Slack posts application/json or {FORM}; this is neither")
    return _json(hook.body)


def _form(body: bytes) -> Mapping[str, Any]:
    try:
        fields = parse_qs(body.decode(), max_num_fields=100)
    except ValueError as error:
        raise InvalidBody("the form cannot be read") from error
    if "payload" in fields:
        return _json(fields["payload"][0].encode(errors="replace"))
    return {name: values[0] for name, values in fields.items()}


def _json(body: bytes) -> Mapping[str, Any]:
    found = loosely(body)
    if not isinstance(found, dict):
        raise InvalidBody("the body is not a JSON object")
    return found


def team_of(payload: Mapping[str, Any], knows: Callable[[str], bool]) -> str | None:
    """The workspace by whose token we heard it. What is said in a shared channel names that of the sender, too."""
    told = Loose(payload)
    named = [*(each.text("team_id") for each in told.each("authorizations")), told.text("team_id")]
    named += [told.inner("team").text("id"), told.inner("user").text("team_id")]
    return next((team for team in named if _ID.fullmatch(team) and knows(team)), None)


def bot_in(payload: Mapping[str, Any]) -> str | None:
    """Who we are there, where Slack says so with the event."""
    bots = [each.text("user_id") for each in Loose(payload).each("authorizations") if each.flag("is_bot")]
    return next(filter(None, bots), None)


class Reader:
    """Reads by the operator's rules. Raises nothing: what it cannot read is an aside."""

    def __init__(self, channel: str, options: Options) -> None:
        self._channel = channel
        self._users = frozenset(options.users)
        self._rooms = frozenset(options.rooms)
        self._mention_only = options.mention_only
        self._direct = options.direct
        self._files = Files(options.tokens, options.base_url)

    def read(self, payload: Mapping[str, Any], *, team: str | None, bot: str | None) -> Read:
        try:
            return self._read(payload, team, bot)
        except msgspec.ValidationError as error:
            return Read(_aside(f"it has a shape that is not known: {error}"[:200], payload))
        except InvalidMessage as error:
            return Read(_aside(str(error)[:200], payload))

    def _read(self, payload: Mapping[str, Any], team: str | None, bot: str | None) -> Read:
        match payload.get("type"):
            case "url_verification":
                challenge = payload.get("challenge")
                return Read(Heard(answer=challenge if isinstance(challenge, str) else ""))
            case "event_callback":
                return _ignored(NO_TOKEN) if team is None else self._event(payload, team, bot)
            case "block_actions":
                return Read(self._pressed(payload))
            case "app_rate_limited":
                return _ignored(HELD_BACK)
            case str(kind) if kind in _INTERACTIONS:
                return Read(Heard(ignored=[INTERACTION], answer=TAKEN))
            case None if isinstance(payload.get("command"), str):
                return Read(Heard(ignored=[INTERACTION], answer=TAKEN))
            case _:
                return Read(_aside("it is of a kind that is not known", payload))

    def _event(self, payload: Mapping[str, Any], team: str, bot: str | None) -> Read:
        event = payload.get("event")
        match event.get("type") if isinstance(event, dict) else None:
            case "message" | "app_mention":
                return Read(self._said(msgspec.convert(event, _Spoken), team, bot))
            case "reaction_added":
                return self._reacted(msgspec.convert(event, _Reacted), team, bot)
            case str():
                return _ignored(OTHER_EVENT)
            case _:
                return Read(_aside("it is an event without a type", payload))

    # Something said

    def _said(self, event: _Spoken, team: str, bot: str | None) -> Heard:
        why = self._unwelcome(event, bot)
        if why is not None or event.user is None:
            return Heard(ignored=[why or BY_A_BOT])
        message = Message(
            channel=self._channel,
            origin_id=f"{team}/{event.channel}/{event.ts}",
            conversation=self._place(event, team).key(self._channel),
            sender=event.user,
            text=_plain_text(event.text or "", bot),
            attachments=tuple(
                found for file in event.files[:FILES_MAX] if (found := self._attachment(file, team)) is not None
            ),
            sent_at=_milliseconds(event.ts),
        )
        return Heard([message]) if self._is_for_us(event, bot) else Heard(overheard=[message])

    def _unwelcome(self, event: _Spoken, bot: str | None) -> str | None:
        if event.bot_id or event.subtype == "bot_message" or event.user in (None, bot, SLACKBOT):
            return BY_A_BOT if event.subtype in _SAID | {"bot_message"} else NOT_SAID
        if event.subtype not in _SAID or event.hidden:
            return NOT_SAID
        if self._users and event.user not in self._users:
            return NOT_AMONG_USERS
        if self._rooms and not event.is_direct and event.channel not in self._rooms:
            return NOT_AMONG_ROOMS
        if not self._is_for_us(event, bot) and event.thread_ts is None:
            return NO_MENTION
        return None

    def _is_for_us(self, event: _Spoken, bot: str | None) -> bool:
        mentioned = event.type == "app_mention" or (bot is not None and f"<@{bot}" in (event.text or ""))
        return event.is_direct or not self._mention_only or mentioned

    def _place(self, event: _Spoken, team: str) -> Place:
        if event.is_direct and self._direct == "room":
            return Place(team, event.channel, event.thread_ts)
        return Place(team, event.channel, event.thread_ts or event.ts)

    def _attachment(self, file: _File, team: str) -> Attachment | None:
        url = file.url_private_download or file.url_private
        if url:
            url = self._files.named(team, _clean(url))
        elif file.id:
            url = self._files.known_by(team, _clean(file.id))
        else:
            return None
        size = file.size if file.size is not None and 0 <= file.size < 2**63 else None
        return Attachment(url, _clean_or_none(file.name), _clean_or_none(file.mimetype), size)

    # Answers to questions

    def _pressed(self, payload: Mapping[str, Any]) -> Heard:
        pressed = msgspec.convert(payload, _Pressed)
        if self._users and pressed.user.id not in self._users:
            return Heard(ignored=[NOT_AMONG_USERS], answer=TAKEN)
        answers = [
            self._answer(chosen, pressed.user.id, f"{chosen.delivery}/{pressed.user.id}/{action.action_ts}")
            for action in pressed.actions
            if (chosen := choice(action.value)) and channel_of(chosen.conversation) == self._channel
        ]
        return Heard(answers, answer=TAKEN) if answers else Heard(ignored=[OTHER_BUTTON], answer=TAKEN)

    def _reacted(self, event: _Reacted, team: str, bot: str | None) -> Read:
        if self._users and event.user not in self._users:
            return _ignored(NOT_AMONG_USERS)
        is_ours = bot is None or event.item_user in (None, bot)
        if not is_sign(event.reaction) or not is_ours or event.user == bot:
            return _ignored(OTHER_REACTION)
        origin_id = f"{team}/{event.item.channel}/{event.item.ts}/{event.user}/{event.reaction}/{event.event_ts}"
        place = Place(team, event.item.channel)
        return Read(reaction=Reaction(place, event.item.ts, event.reaction, event.user, origin_id))

    def answer(self, chosen: Choice, reaction: Reaction) -> Heard:
        """What a reaction comes to, once it is known to what it was."""
        if channel_of(chosen.conversation) != self._channel:
            return Heard(ignored=[OTHER_REACTION])
        return Heard([self._answer(chosen, reaction.user, reaction.origin_id)])

    def _answer(self, chosen: Choice, user: str, origin_id: str) -> Message:
        return Message(
            channel=self._channel,
            origin_id=origin_id,
            conversation=chosen.conversation,
            sender=user,
            text=_clean(chosen.option),
            answers=chosen.delivery,
        )


def _ignored(why: str) -> Read:
    return Read(Heard(ignored=[why]))


def _aside(why: str, payload: Mapping[str, Any]) -> Heard:
    shown = {name: part for name, part in payload.items() if name not in _SECRETS}
    try:
        body = msgspec.json.encode(shown).decode(errors="replace")
    except (UnicodeError, RecursionError, msgspec.MsgspecError):
        body = repr(shown)
    return Heard(asides=[Aside(_clean(why), _clean(body)[:ASIDE_CHARACTERS_MAX])])


def _milliseconds(ts: str) -> int:
    seconds, _, fraction = ts.partition(".")
    return int(seconds) * 1000 + int(fraction[:3].ljust(3, "0"))


def _clean(text: str) -> str:
    """Without what no store can keep: a NUL, half a character."""
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def _clean_or_none(text: str | None) -> str | None:
    return None if text is None else _clean(text)


# Slack's way of writing text

_MARK = re.compile(r"<([^<>\n]+)>")
_PEOPLE = re.compile(r"[@#][A-Za-z0-9_-]+")


def _plain_text(text: str, bot: str | None) -> str:
    """As it was typed, without the mention of the bot. Of somebody else only the id is told, and stays."""
    if bot is not None:
        text = re.sub(rf"[ \t]*<@{re.escape(bot)}(\|[^<>]*)?>:?", "", text)
    text = _MARK.sub(_unmarked, text)
    for written, meant in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(written, meant)
    return _clean(text).strip()


def _unmarked(mark: re.Match[str]) -> str:
    target, _, label = mark[1].partition("|")
    if target.startswith("!"):
        return label or f"@{target[1:].partition('^')[0]}"
    if _PEOPLE.fullmatch(target):
        return f"{target[0]}{label}" if label else mark[0]
    address = target.removeprefix("mailto:").removeprefix("tel:")
    if not label or label in (target, address) or label == re.sub(r"\Ahttps?://", "", target):
        return label or address
    return f"{label} ({address})"
