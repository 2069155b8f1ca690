"""The Slack channel: reads, sends, shows and looks up, each by a module of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from turnlane.channels.base import FileAt, Heard, Hook, Receive
from turnlane.channels.loose import Loose
from turnlane.channels.markup import fitting, slack_mrkdwn, split
from turnlane.channels.slack.api import Api, Said, cause
from turnlane.channels.slack.beside import Beside
from turnlane.channels.slack.files import Files
from turnlane.channels.slack.history import CannotTell, message_at, since
from turnlane.channels.slack.options import Options
from turnlane.channels.slack.place import Place, place_of
from turnlane.channels.slack.previews import Previews
from turnlane.channels.slack.questions import Choice, meant, options_in
from turnlane.channels.slack.reading import OTHER_REACTION, Reaction, Reader, bot_in, payload_of, team_of
from turnlane.channels.slack.sending import DELIVERY, PREVIEW, addressed, carried_by, carries, contents, judged
from turnlane.channels.slack.signature import Signature
from turnlane.channels.slack.socket import PING_SECONDS, Socket
from turnlane.clock import Clock, SystemClock
from turnlane.errors import BackendUnavailable, Unauthorized
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent
from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.outgoing import checked_url

ROOMS_WITHOUT_STATUS_MAX = 10_000
REACTION_SECONDS_MAX = 2.5
"""Slack wants to be answered within three."""
EDITED_CHARACTERS_MAX = 4_000
"""Slack takes more in a message, but not in an edit of one."""


class Slack:
    """One Slack app, in one workspace or several."""

    show_seconds = 1.0
    indicated_seconds = 60.0
    """Slack takes a status away after two minutes."""

    def __init__(
        self, name: str, options: Options, *, clock: Clock | None = None, ping_seconds: float = PING_SECONDS
    ) -> None:
        self.name = name
        self._options = options
        self._fits = fitting(options.text_max, slack_mrkdwn)
        self._can_be_edited = fitting(min(options.text_max, EDITED_CHARACTERS_MAX), slack_mrkdwn)
        self._clock = clock or SystemClock()
        base_url = checked_url(options.base_url, setting="base_url")
        self._files = Files(options.tokens, base_url)
        self._api = Api(options.tokens, base_url=base_url, timeout=options.timeout, clock=self._clock)
        self._reader = Reader(name, options)
        self._signature = None if options.signing_secret is None else Signature(options.signing_secret)
        self._previews = Previews(
            self._api, clock=self._clock, first_part=self._first_part, streams=options.streaming == "native"
        )
        self._ping_seconds = ping_seconds
        self._beside = Beside()
        self._without_status: set[tuple[str, str]] = set()

    async def close(self) -> None:
        await self._previews.close()
        await self._beside.close()
        await self._api.close()

    # What Slack tells

    @property
    def secured(self) -> bool:
        return self._signature is not None

    async def hear(self, hook: Hook) -> Heard:
        if self._signature is None:
            raise Unauthorized("nothing is posted to this channel: it has no signing_secret, and listens by app_token")
        self._signature.check(hook.headers, hook.body, self._clock.now())
        return await self._read(payload_of(hook))

    async def listen(self, receive: Receive) -> None:
        """Over a socket, if there is an app token."""
        if self._options.app_token is None:
            return

        async def take(payload: Mapping[str, Any]) -> None:
            await receive(await self._read(payload))

        socket = Socket(
            self.name, self._options.app_token, self._api, clock=self._clock, ping_seconds=self._ping_seconds
        )
        await socket.listen(take)

    async def _read(self, payload: Mapping[str, Any]) -> Heard:
        team = team_of(payload, self._api.knows)
        bot = bot_in(payload)
        if bot is None and team is not None and payload.get("type") == "event_callback":
            bot = await self._api.bot_user(team)
        read = self._reader.read(payload, team=team, bot=bot)
        if read.reaction is not None:
            return await self._answer_by(read.reaction)
        for message in read.heard.messages:
            self._previews.heard(message.conversation, message.sender)
        if self._options.receipt is None:
            return read.heard
        return replace(read.heard, when_stored=partial(self._give_receipts, read.heard.messages, self._options.receipt))

    async def _answer_by(self, reaction: Reaction) -> Heard:
        try:
            async with asyncio.timeout(REACTION_SECONDS_MAX):
                message = await message_at(self._api, reaction.place, reaction.ts)
        except (ConnectionError, TimeoutError) as error:
            # For Slack the same as a store that cannot be reached: it tells it again.
            raise BackendUnavailable(f"what a reaction is to cannot be looked up: {error}") from error
        carried = None if message is None else carried_by(message, DELIVERY)
        if message is None or carried is None or carried.get("kind") != "question":
            return Heard(ignored=[OTHER_REACTION])
        option = meant(reaction.sign, options_in(message))
        if option is None:
            return Heard(ignored=[OTHER_REACTION])
        asked_in, delivery = str(carried.get("conversation")), str(carried.get("delivery"))
        return self._reader.answer(Choice(delivery, asked_in, option), reaction)

    def _give_receipts(self, messages: Sequence[Message], sign: str) -> None:
        for message in messages:
            if message.answers is None:
                team, room, ts = message.origin_id.split("/")
                self._beside.do(self._api.write(team, "reactions.add", channel=room, timestamp=ts, name=sign))

    # What we tell

    def parts(self, text: str) -> Sequence[str]:
        return split(text, self._fits)

    def _first_part(self, text: str) -> str:
        # What comes later has no part in it, and need not be looked at.
        return split(text[: self._options.text_max + 1], self._can_be_edited)[0]

    async def send(self, delivery: Delivery) -> SendResult:
        place = self._place(delivery.conversation)
        if isinstance(place, Refused):
            return place
        asked = await self._previews.finish(delivery)
        if asked is None:
            asked = await self._api.write(place.team, "chat.postMessage", **addressed(place), **contents(delivery))
        return judged(asked, now=self._clock.now(), is_in_one_workspace=self._api.is_in_one_workspace)

    async def look_up(self, delivery: Delivery) -> Sent | NotSent | None:
        """Whether it stands there, by the mark that it carries. Raises AskLater."""
        place = self._place(delivery.conversation)
        if isinstance(place, Refused):
            return NotSent(place.cause)
        try:
            async for message in since(self._api, place, delivery.queued_at):
                if carries(message, DELIVERY, delivery.id):
                    return Sent(str(message.get("ts")))
                if carries(message, PREVIEW, delivery.id):
                    self._previews.adopt(delivery, place, str(message.get("ts")))
        except CannotTell:
            return None
        return NotSent("it does not stand there")

    def _place(self, conversation: str) -> Place | Refused:
        place = place_of(conversation)
        if place is None:
            return Refused(f"{conversation} is no place in Slack; write it like {self.name}/T0123.C0123 or …/THREAD")
        if not self._api.knows(place.team):
            return Refused(f"there is no token for the workspace {place.team}; add it to tokens of {self.name}")
        return place

    # What is seen meanwhile

    async def show(self, conversation: str, turn: int, text: str | None) -> None:
        place = place_of(conversation)
        if place is None or self._options.streaming == "off" or not self._api.knows(place.team):
            return
        if text is None:
            await self._previews.end(conversation, place, turn)
        elif text.strip():
            await self._previews.show(conversation, place, turn, text)

    async def indicate(self, conversation: str, latest: str) -> None:
        """In threads, as Slack shows a status nowhere else. A room that takes none is not asked again."""
        place = place_of(conversation)
        if place is None or place.thread is None or not self._options.status or not self._api.knows(place.team):
            return
        if (place.team, place.room) in self._without_status:
            return
        asked = await self._api.write(
            place.team,
            "assistant.threads.setStatus",
            channel_id=place.room,
            thread_ts=place.thread,
            status=self._options.status,
        )
        is_refused = isinstance(asked, Said) and not asked.ok and not asked.is_limit and asked.status < 500
        if is_refused and len(self._without_status) < ROOMS_WITHOUT_STATUS_MAX:
            self._without_status.add((place.team, place.room))

    # What Slack knows

    async def profile(self, user: str) -> Person | None:
        """Raises ConnectionError if Slack cannot say."""
        for team in self._api.teams:
            asked = await self._api.read(team, "users.info", user=user)
            if isinstance(asked, Said) and asked.ok:
                return _person(self.name, user, asked.inner("user"))
            if not isinstance(asked, Said) or asked.error not in {"user_not_found", "user_not_visible"}:
                raise ConnectionError(cause(asked))
        return None

    async def file(self, url: str) -> FileAt | None:
        return await self._files.at(url, self._api)


def _person(channel: str, user: str, found: Loose) -> Person:
    name = found.text("real_name") or found.inner("profile").text("display_name", "real_name")
    return Person(channel, user, name=name or None, user_name=found.text("name") or None)
