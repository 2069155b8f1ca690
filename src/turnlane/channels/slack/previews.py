"""An answer that is seen while it grows: a message that is edited or streamed, and in the end is the answer."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from turnlane.channels.markup import slack_mrkdwn
from turnlane.channels.slack.api import Api, Asked, Said, cause
from turnlane.channels.slack.beside import Beside
from turnlane.channels.slack.history import CannotTell, since
from turnlane.channels.slack.place import Place
from turnlane.channels.slack.sending import NOT_TO_BE_EDITED, PREVIEW, addressed, carries
from turnlane.channels.slack.shown import Edited, Streamed, unmentioning
from turnlane.clock import Clock
from turnlane.model.delivery import Delivery, delivery_id

KEPT_SECONDS = 5.0
"""How long a preview that is over waits to become the answer, before it is taken away. Where another process sends the
answer, both are seen for so long."""
STRAYS_LOOKED_FOR_MS = 3_600_000
CLOSE_SECONDS_MAX = 3.0
RECIPIENTS_MAX = 10_000
ROOMS_MAX = 10_000
QUIET_SECONDS = 5.0
"""After Slack said that there were too many calls, without a word for how long."""


@dataclass(slots=True, eq=False)
class Preview:
    message: Edited
    turn: int
    text: str
    ending: asyncio.Task[object] | None = None
    may_be_answer: bool = False
    """It was told to be, whatever became of that: it is never taken away any more."""


class Previews:
    """Of the turns that run in this process: one for each conversation at most."""

    def __init__(self, api: Api, *, clock: Clock, first_part: Callable[[str], str], streams: bool) -> None:
        self._api = api
        self._clock = clock
        self._first_part = first_part
        self._streams = streams
        self._shown: dict[str, Preview] = {}
        self._recipients: OrderedDict[str, str] = OrderedDict()
        self._quiet_until: dict[str, float] = {}
        self._streamless: set[tuple[str, str]] = set()
        self._beside = Beside()

    def heard(self, conversation: str, user: str) -> None:
        """Who said something last: a stream is for somebody."""
        self._recipients[conversation] = user
        self._recipients.move_to_end(conversation)
        if len(self._recipients) > RECIPIENTS_MAX:
            self._recipients.popitem(last=False)

    # What the engine shows

    async def show(self, conversation: str, place: Place, turn: int, text: str) -> None:
        """Raises ConnectionError if Slack does not take it. Told to be quiet for a while, it is."""
        if self._is_quiet(place):
            return
        text = self._first_part(text)
        known = self._shown.get(conversation)
        if known is not None and known.turn != turn:
            await self._take_away(conversation, known)
            known = None
        if known is None:
            await self._begin(conversation, place, turn, text)
        elif known.text != text:
            _go_on(known)
            if self._check(place, await known.message.grow(text)):
                known.text = text

    async def end(self, conversation: str, place: Place, turn: int) -> None:
        """Let it be the answer, if that comes soon; else take it away. One of a lost process is looked for."""
        known = self._shown.get(conversation)
        if known is None:
            await self._take_stray_away(conversation, place, turn)
        elif known.ending is None:
            known.ending = self._beside.do(self._end_later(conversation, known))
            if known.ending is None:
                await self._take_away(conversation, known)

    async def finish(self, delivery: Delivery) -> Asked | None:
        """Make the preview of this answer the answer. None: there is none, or not any more."""
        known = self._shown.get(delivery.conversation)
        if known is None or delivery.kind != "reply" or (delivery.turn, delivery.part) != (known.turn, 1):
            return None
        _go_on(known)
        known.may_be_answer = True
        asked = await known.message.complete(delivery)
        if isinstance(asked, Said) and asked.error in NOT_TO_BE_EDITED:
            del self._shown[delivery.conversation]
            await known.message.take_away()
            return None
        if isinstance(asked, Said) and asked.ok:
            del self._shown[delivery.conversation]
            return Said(asked.status, asked.headers, {**asked.data, "ts": known.message.ts})
        return asked

    def adopt(self, delivery: Delivery, place: Place, ts: str) -> None:
        """One that a lost process left: `finish` makes it the answer."""
        if delivery.turn is not None and delivery.conversation not in self._shown:
            self._shown[delivery.conversation] = Preview(Edited(self._api, place, ts), delivery.turn, "")

    async def close(self) -> None:
        """Take away what nobody will finish any more."""
        await self._beside.close()
        left = [(key, known) for key, known in self._shown.items() if known.ending is not None]
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await asyncio.gather(*(self._take_away(key, known) for key, known in left))
        except TimeoutError:
            return  # the next process that runs the turn looks for it

    # How it is done

    async def _begin(self, conversation: str, place: Place, turn: int, text: str) -> None:
        message = await self._stream(conversation, place, text) or await self._post(conversation, place, turn, text)
        if message is not None:
            self._shown[conversation] = Preview(message, turn, text)

    async def _stream(self, conversation: str, place: Place, text: str) -> Edited | None:
        """None: it cannot be one. A room that takes no streams is not asked again."""
        recipient = self._recipients.get(conversation)
        can_be = self._streams and place.thread is not None and (place.team, place.room) not in self._streamless
        if not can_be or recipient is None:
            return None
        asked = await self._api.write(
            place.team,
            "chat.startStream",
            channel=place.room,
            thread_ts=place.thread,
            markdown_text=unmentioning(text),
            recipient_team_id=place.team,
            recipient_user_id=recipient,
        )
        if isinstance(asked, Said) and not asked.ok and not asked.is_limit and asked.status < 500:
            if len(self._streamless) < ROOMS_MAX:
                self._streamless.add((place.team, place.room))
            return None
        said = self._check(place, asked)
        ts = None if said is None else said.text("ts")
        return None if ts is None else Streamed(self._api, place, ts, text)

    async def _post(self, conversation: str, place: Place, turn: int, text: str) -> Edited | None:
        if self._is_quiet(place):
            return None
        asked = await self._api.write(
            place.team,
            "chat.postMessage",
            **addressed(place),
            text=slack_mrkdwn(text),
            metadata=_marks(conversation, turn),
        )
        said = self._check(place, asked)
        ts = None if said is None else said.text("ts")
        return None if ts is None else Edited(self._api, place, ts)

    async def _end_later(self, conversation: str, known: Preview) -> None:
        await asyncio.sleep(KEPT_SECONDS)
        if self._shown.get(conversation) is known:
            await self._take_away(conversation, known)

    async def _take_away(self, conversation: str, known: Preview) -> None:
        self._shown.pop(conversation, None)
        if not known.may_be_answer:
            await known.message.take_away()

    async def _take_stray_away(self, conversation: str, place: Place, turn: int) -> None:
        marked = delivery_id(conversation, turn, 1)
        try:
            async for message in since(self._api, place, self._clock.now() - STRAYS_LOOKED_FOR_MS):
                if carries(message, PREVIEW, marked):
                    await Edited(self._api, place, str(message.get("ts"))).take_away()
        except CannotTell:
            return

    def _is_quiet(self, place: Place) -> bool:
        return self._clock.monotonic() < self._quiet_until.get(place.team, 0.0)

    def _check(self, place: Place, asked: Asked) -> Said | None:
        """None: Slack wants to hear less of us, which is no failure; what is not shown now is shown later."""
        if isinstance(asked, Said) and asked.ok:
            return asked
        if isinstance(asked, Said) and asked.is_limit:
            quiet = asked.retry_after(self._clock.now()) or QUIET_SECONDS
            self._quiet_until[place.team] = self._clock.monotonic() + quiet
            return None
        raise ConnectionError(cause(asked))


def _go_on(known: Preview) -> None:
    if known.ending is not None:
        known.ending.cancel()
        known.ending = None


def _marks(conversation: str, turn: int) -> Mapping[str, Any]:
    carried = {"delivery": delivery_id(conversation, turn, 1), "conversation": conversation}
    return {"event_type": PREVIEW, "event_payload": carried}
