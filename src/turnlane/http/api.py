"""What the operator sees and does: lanes, conversations, messages, outbox, dead letters, locks and workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeVar, get_args
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from turnlane.channels.incoming import TEXT_BYTES_MAX, check_text, decode_json
from turnlane.errors import InvalidMessage, NotFound
from turnlane.flow import failed, schedule, steer
from turnlane.flow.explain import explain
from turnlane.flow.steer import Said
from turnlane.http import openapi
from turnlane.http.answer import json_answer
from turnlane.http.audit import concerns
from turnlane.http.base import Bot
from turnlane.http.query import Query, conversation_key_in, name_in, written_after
from turnlane.http.webhooks import read_body
from turnlane.live_settings import VALUE_CHARACTERS_MAX
from turnlane.model.delivery import DeliveryState
from turnlane.model.lane import Kind, LaneState
from turnlane.model.message import channel_of, key_written
from turnlane.model.policy import OnBusy
from turnlane.model.schedule import MISSED_MAX, PROMPT_CHARACTERS_MAX, Missed, Schedule
from turnlane.model.usage import By, day_of_date, summed
from turnlane.model.view import Story
from turnlane.settings import Duration

CONVERSATIONS = "/conversations/"
MESSAGES = "/messages/"
TURNS = "/turns"
STEERING = {
    "/resume": steer.resume,
    "/stop": steer.stop,
    "/retry": steer.retry,
    "/skip": steer.skip,
}
POLICY = "/policy"
RENEW = "/renew"
DEAD_LETTERS = "/deadletters/"
OUTBOX = "/outbox/"
DELIVERY_DECISIONS = {"/resend": failed.resend, "/drop": failed.drop}
DECISIONS = {"/retry": failed.retry_dead_letter, "/drop": failed.drop_dead_letter}
SCHEDULES = "/schedules/"
SCHEDULE_STEERING = {"/pause": schedule.pause, "/resume": schedule.resume, "/remove": schedule.remove}
SCHEDULE_VERBS = ("/fire", *SCHEDULE_STEERING)
SCHEDULE_BYTES_MAX = 12 * PROMPT_CHARACTERS_MAX + 10_000
SETTINGS = "/settings/"
SETTING_BYTES_MAX = 12 * VALUE_CHARACTERS_MAX + 1_000
ANSWER = "/answer"
ANSWER_BYTES_MAX = 12 * openapi.ANSWER_CHARACTERS_MAX + 1_000
"""A character takes twelve bytes at most, however it is escaped."""
VERBS = ("/pause", *STEERING, POLICY, RENEW, ANSWER, "/say")
BODY_BYTES_MAX = 10_000
SAID_BYTES_MAX = 8 * TEXT_BYTES_MAX
"""A text of the greatest length, however its characters are escaped."""


class _Steering(Struct, forbid_unknown_fields=True):
    outbox: bool = False


class _Policy(Struct, forbid_unknown_fields=True):
    on_busy: OnBusy | None = None


class _Answering(Struct, forbid_unknown_fields=True):
    text: Annotated[str, Meta(min_length=1, max_length=openapi.ANSWER_CHARACTERS_MAX)]


class _Nothing(Struct, forbid_unknown_fields=True):
    pass


class _Pausing(_Steering, forbid_unknown_fields=True):
    lasts: str | None = msgspec.field(default=None, name="for")

    def until(self, now: int) -> int | None:
        if self.lasts is None:
            return None
        ms = _duration(self.lasts).ms
        if not ms:
            raise InvalidMessage('for is over at once; give a longer time, like "30m", or leave it out')
        return now + ms


class _Scheduling(Struct, forbid_unknown_fields=True):
    name: str
    conversation: str
    prompt: str
    cron: str | None = None
    zone: str = "UTC"
    every: str | None = None
    missed: Missed = "once"
    missed_max: Annotated[int, Meta(ge=1, le=10_000)] = MISSED_MAX
    enabled: bool = True

    @property
    def schedule(self) -> Schedule:
        every_ms = None if self.every is None else _duration(self.every, "every").ms
        times = (self.cron, self.zone, every_ms, self.missed, self.missed_max, self.enabled)
        return Schedule(self.name, key_written(self.conversation), self.prompt, *times)


class _Setting(Struct, forbid_unknown_fields=True):
    value: str | bool | int | float | None

    @property
    def text(self) -> str:
        """As it would stand in a variable."""
        return self.value if isinstance(self.value, str) else msgspec.json.encode(self.value).decode()


class _Saying(Struct, forbid_unknown_fields=True):
    text: str
    id: str | None = None
    sender: str = "operator"
    takeover: bool = True


_STEERING = msgspec.json.Decoder(_Steering)
_ANSWERING = msgspec.json.Decoder(_Answering)
_PAUSING = msgspec.json.Decoder(_Pausing)
_SAYING = msgspec.json.Decoder(_Saying)
_SCHEDULING = msgspec.json.Decoder(_Scheduling)
_SETTING = msgspec.json.Decoder(_Setting)
_POLICY = msgspec.json.Decoder(_Policy)
_NOTHING = msgspec.json.Decoder(_Nothing)

T = TypeVar("T")


class Api:
    """Every list takes `limit`. http/openapi.py describes each path, and docs/reference/http.md tells of them."""

    def __init__(self, bot: Bot) -> None:
        self._backend = bot.backend
        self._policy_for = bot.policy_for
        self._clock = bot.clock
        self._live = bot.live

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/lanes", self.lanes),
            Route(CONVERSATIONS + "{key:path}", self.conversation),
            Route(CONVERSATIONS + "{key:path}", self.steer, methods=["POST"]),
            Route(MESSAGES + "{id:path}", self.message),
            Route("/outbox", self.outbox),
            Route(OUTBOX + "{id:path}", self.delivery),
            Route(OUTBOX + "{id:path}", self.decide_delivery, methods=["POST"]),
            Route("/deadletters", self.dead_letters),
            Route(DEAD_LETTERS + "{id:path}", self.dead_letter),
            Route(DEAD_LETTERS + "{id:path}", self.decide, methods=["POST"]),
            Route("/schedules", self.schedules),
            Route("/schedules", self.set_schedule, methods=["POST"]),
            Route(SCHEDULES + "{name:path}", self.schedule),
            Route(SCHEDULES + "{name:path}", self.steer_schedule, methods=["POST"]),
            Route("/settings", self.settings),
            Route(SETTINGS + "{name:path}", self.set_setting, methods=["PUT", "DELETE"]),
            Route("/usage", self.usage),
            Route("/sessions", self.sessions),
            Route("/locks", self.locks),
            Route("/workers", self.workers),
            Route("/counts", self.counts),
            Route("/openapi.json", self.openapi),
        ]

    async def lanes(self, request: Request) -> Response:
        query = Query(request, "kind", "state", "channel", "limit")
        lanes = await self._backend.lanes(
            kind=Kind[(query.word("kind", openapi.KINDS) or "turn").upper()],
            state=query.word("state", get_args(LaneState)),
            channel=query.stored("channel"),
            limit=query.limit(),
        )
        return json_answer({"lanes": lanes})

    async def conversation(self, request: Request) -> Response:
        """The whole story, or with `/turns` after the key its turns. Only the path as written tells which."""
        limit = Query(request, "limit").limit()
        written = written_after(request, CONVERSATIONS)
        if asks_for_turns(written):
            story = await self._story(conversation_key_in(written.removesuffix(TURNS)), limit)
            return json_answer({"turns": story.turns})
        return json_answer(await self._story(conversation_key_in(written), limit))

    async def _story(self, key: str, limit: int) -> Story:
        story = await self._backend.story(key, limit=limit)
        if story is None:
            raise NotFound(f"no conversation {key!r}; GET /api/lanes lists them, keys are written CHANNEL/ROOM")
        return story

    async def steer(self, request: Request) -> Response:
        """`POST …/pause` and the other words of `VERBS`."""
        Query(request)
        written = written_after(request, CONVERSATIONS)
        how = _suffix(written, VERBS)
        key = conversation_key_in(written.removesuffix(how))
        concerns(request, key)
        if how == POLICY:
            return json_answer(await steer.behave(self._backend, key, (await _body(request, _POLICY)).on_busy))
        if how == RENEW:
            await _body(request, _NOTHING)
            return json_answer(await steer.renew(self._backend, key))
        if how == ANSWER:
            return await self._answer(request, key)
        if how == "/say":
            return json_answer(await self._say(request, key))
        if how == "/pause":
            pausing = await _body(request, _PAUSING)
            until = pausing.until(self._clock.now())
            return json_answer(await steer.pause(self._backend, key, _kind(pausing), until=until))
        return json_answer(await STEERING[how](self._backend, key, _kind(await _body(request, _STEERING))))

    async def _say(self, request: Request, key: str) -> Said:
        saying = decode_json(_SAYING, request.headers, await read_body(request, SAID_BYTES_MAX))
        id_ = self._clock.token() if saying.id is None else saying.id
        return await steer.say(
            self._backend, key, saying.text, id=id_, sender=saying.sender, takes_over=saying.takeover
        )

    async def _answer(self, request: Request, key: str) -> Response:
        """Answer the question that a turn waits with. `done` is false if none does."""
        body = await read_body(request, ANSWER_BYTES_MAX)
        text = decode_json(_ANSWERING, request.headers, body).text
        check_text("text", text)
        return json_answer(await steer.answer(self._backend, key, text))

    async def message(self, request: Request) -> Response:
        """What became of one message. Its id may hold slashes, written plainly or encoded."""
        Query(request)
        channel, _, origin_id = written_after(request, MESSAGES).partition("/")
        now = self._clock.now()
        return json_answer(await explain(self._backend, name_in(channel), name_in(origin_id), now=now))

    async def outbox(self, request: Request) -> Response:
        query = Query(request, "state", "limit")
        state: DeliveryState = query.word("state", get_args(DeliveryState)) or "queued"
        return json_answer({"deliveries": await self._backend.outbox(state=state, limit=query.limit())})

    async def delivery(self, request: Request) -> Response:
        Query(request)
        return json_answer(await failed.delivery(self._backend, name_in(written_after(request, OUTBOX))))

    async def decide_delivery(self, request: Request) -> Response:
        """`POST …/resend` and `…/drop`."""
        Query(request)
        written = written_after(request, OUTBOX)
        how = _suffix(written, DELIVERY_DECISIONS)
        await _body(request, _NOTHING)
        decided = await DELIVERY_DECISIONS[how](self._backend, name_in(written.removesuffix(how)))
        concerns(request, decided.conversation)
        return json_answer(decided)

    async def dead_letters(self, request: Request) -> Response:
        query = Query(request, "conversation", "limit")
        letters = await self._backend.dead_letters(conversation=query.stored("conversation"), limit=query.limit())
        return json_answer({"dead_letters": letters})

    async def dead_letter(self, request: Request) -> Response:
        Query(request)
        return json_answer(await failed.dead_letter(self._backend, *_turn_named(written_after(request, DEAD_LETTERS))))

    async def decide(self, request: Request) -> Response:
        """`POST …/retry` and `…/drop`."""
        Query(request)
        written = written_after(request, DEAD_LETTERS)
        how = _suffix(written, DECISIONS)
        turn = _turn_named(written.removesuffix(how))
        concerns(request, turn[0])
        await _body(request, _NOTHING)
        return json_answer(await DECISIONS[how](self._backend, *turn))

    async def schedules(self, request: Request) -> Response:
        Query(request)
        return json_answer({"schedules": await self._backend.schedules()})

    async def set_schedule(self, request: Request) -> Response:
        """Add one, or change the one of this name."""
        Query(request)
        body = await read_body(request, SCHEDULE_BYTES_MAX)
        wanted = decode_json(_SCHEDULING, request.headers, body).schedule
        wanted.check()
        policy = self._policy_for(channel_of(wanted.conversation))
        concerns(request, wanted.conversation)
        return json_answer(await schedule.add(self._backend, wanted, policy))

    async def schedule(self, request: Request) -> Response:
        Query(request)
        return json_answer(await schedule.one(self._backend, name_in(written_after(request, SCHEDULES))))

    async def steer_schedule(self, request: Request) -> Response:
        """`POST …/fire` and the other words of `SCHEDULE_VERBS`."""
        Query(request)
        written = written_after(request, SCHEDULES)
        how = _suffix(written, SCHEDULE_VERBS)
        await _body(request, _NOTHING)
        name = name_in(written.removesuffix(how))
        if how == "/fire":
            steered = await schedule.fire(self._backend, name, self._clock.now())
        else:
            steered = await SCHEDULE_STEERING[how](self._backend, name)
        concerns(request, steered.conversation)
        return json_answer(steered)

    async def settings(self, request: Request) -> Response:
        Query(request)
        await self._live.look()
        return json_answer({"settings": self._live.all()})

    async def set_setting(self, request: Request) -> Response:
        """For every process on the store, or not any more; this one goes on with it before it answers."""
        Query(request)
        text = None
        if request.method == "PUT":
            text = decode_json(_SETTING, request.headers, await read_body(request, SETTING_BYTES_MAX)).text
        return json_answer(await self._live.change(name_in(written_after(request, SETTINGS)), text, by="api"))

    async def sessions(self, request: Request) -> Response:
        query = Query(request, "agent", "limit")
        return json_answer({"sessions": await self._backend.sessions(agent=query.stored("agent"), limit=query.limit())})

    async def usage(self, request: Request) -> Response:
        query = Query(request, "by", "since", "until", "channel", "user")
        since, until = query.date("since"), query.date("until")
        spent = await self._backend.spent(
            since=0 if since is None else day_of_date(since),
            until=None if until is None else day_of_date(until),
            channel=query.stored("channel"),
            user=query.stored("user"),
        )
        return json_answer({"usage": summed(spent, query.words("by", get_args(By)))})

    async def locks(self, request: Request) -> Response:
        Query(request)
        return json_answer({"locks": await self._backend.locks()})

    async def workers(self, request: Request) -> Response:
        Query(request)
        return json_answer({"workers": await self._backend.workers()})

    async def counts(self, request: Request) -> Response:
        Query(request)
        return json_answer(await self._backend.counts())

    async def openapi(self, request: Request) -> Response:
        Query(request)
        return json_answer(openapi.description())


async def _body(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """The body, which may be left out. A form is refused even if it is empty: pages of other sites can send those."""
    body = await read_body(request, BODY_BYTES_MAX)
    if not body and "content-type" not in request.headers:
        return decoder.decode(b"{}")
    return decode_json(decoder, request.headers, body or b"{}")


def _suffix(written: str, words: Iterable[str]) -> str:
    """The word that a path ends with, which says what to do."""
    for word in words:
        if written.endswith(word):
            return word
    raise HTTPException(405, f"post to one of {', '.join(words)} after the name", {"allow": "GET, HEAD"})


def _turn_named(written: str) -> tuple[str, int]:
    """`site/alice%233` is turn 3 of site/alice: a bare `#` would end the path."""
    conversation, _, number = written.rpartition("%23")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise NotFound("a dead letter is named CONVERSATION#TURN, its # written %23; GET /api/deadletters lists them")
    return conversation_key_in(conversation), int(number)


def _kind(steering: _Steering) -> Kind:
    return Kind.OUT if steering.outbox else Kind.TURN


def _duration(text: str, name: str = "for") -> Duration:
    try:
        return Duration.parse(text)
    except ValueError:
        raise InvalidMessage(f'{name} must be a duration with its unit, like "30m", "2h" or "1d"') from None


def asks_for_turns(written: str) -> bool:
    """`site/turns` is a conversation, for what stands before the word must be a key: a channel and a room."""
    return written.endswith(TURNS) and "/" in unquote(written.removesuffix(TURNS))
