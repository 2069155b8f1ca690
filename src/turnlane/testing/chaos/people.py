"""The people who write to the bot, in bursts and sometimes the same thing twice, and then wait for their answers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from turnlane.app import Bot
from turnlane.errors import BackendUnavailable
from turnlane.event_loop import happens
from turnlane.model.delivery import question_id
from turnlane.model.lane import Kind
from turnlane.model.message import Message, conversation_key

LOOK_SECONDS = 0.2
POST_SECONDS_MAX = 30.0


@dataclass(frozen=True)
class Plan:
    """What is done to a bot. The seed decides who says what when, and which fault hits whom."""

    seed: int = 1
    seconds: float = 60.0
    messages: int | None = None
    """So many at most; None: as many as there is time for."""
    processes: int = 3
    conversations: int = 12
    lease: float = 1.0
    """In seconds. Short, so that much is taken over; a function that blocks its process for longer loses its turns."""
    patience: float = 60.0
    """Seconds in which all must be answered once the faults are over."""
    texts: Sequence[str] = ()
    """What people say. Unless given: something with a reference that is found again if it turns up elsewhere."""


class People:
    """Write through `bot`, which takes messages in and runs nothing, until the plan is done."""

    def __init__(self, bot: Bot, plan: Plan) -> None:
        self.said: dict[str, list[str]] = {}
        """Ids by conversation; each was accepted before the next was sent."""
        self.happened: Counter[str] = Counter()
        self.waited = 0.0
        """Seconds until all was answered, or patience was over."""
        self.left_at = 0.0
        """When that was."""
        self._bot = bot
        self._plan = plan
        self._left = plan.messages if plan.messages is not None else -1
        self._over = asyncio.Event()
        self._answered: set[str] = set()

    async def write(self) -> None:
        """Returns when the plan's time is over, or all its messages are said."""
        people = [asyncio.create_task(self._write_as(place)) for place in range(self._plan.conversations)]
        try:
            await asyncio.wait(people, timeout=self._plan.seconds)
        finally:
            self._over.set()
            await asyncio.gather(*people)

    async def _write_as(self, place: int) -> None:
        chance = Random(f"{self._plan.seed}/person/{place}")
        channel = list(self._bot.channels)[place % len(self._bot.channels)]
        name = f"person-{place}"
        conversation = conversation_key(channel, name)
        said = self.said[conversation] = []
        while not self._over.is_set() and self._left:
            for _ in range(chance.randint(1, 4)):
                if not self._left:
                    break
                self._left -= 1
                origin_id = f"{name}-{len(said) + 1}"
                text = self._text(place, len(said) + 1, chance)
                await self._post(Message(channel, origin_id, conversation, name, text), chance)
                said.append(origin_id)
                self.happened["messages accepted"] += 1
            await self._pause(chance.uniform(0, 0.6))

    def _text(self, place: int, number: int, chance: Random) -> str:
        if self._plan.texts:
            return chance.choice(self._plan.texts)
        return f"Hello, this is my message {number} ({reference(place, number)})"

    async def _post(self, message: Message, chance: Random) -> None:
        """Until the store says that it has it; and, as platforms do, now and then once more."""
        times = 2 if chance.random() < 0.1 else 1
        give_up_at = time.monotonic() + POST_SECONDS_MAX
        while times:
            try:
                received = await self._bot.receive([message])
            except BackendUnavailable:
                if time.monotonic() > give_up_at:
                    raise
                self.happened["messages sent again, as no answer came"] += 1
                await asyncio.sleep(0.02)
                continue
            times -= 1
            self.happened["messages that came twice"] += received.duplicates
            self.happened["messages refused (on_full)"] += received.rejected

    async def _pause(self, seconds: float) -> None:
        await happens(self._over, within=seconds)

    async def are_answered(self) -> bool:
        """Wait until nothing is left to answer or to send. False: the plan's patience is over."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._plan.patience):
                while await self._waiting():
                    await self._bot.backend.changed(LOOK_SECONDS)
        except TimeoutError:
            return False
        finally:
            self.left_at = time.monotonic()
            self.waited = self.left_at - began
        return True

    async def _waiting(self) -> int:
        await self._answer_what_is_asked()
        counts = await self._bot.backend.counts()
        # What `on_unknown = "hold"` keeps for an operator: here is one, who lets it go.
        for lane in await self._bot.backend.lanes(kind=Kind.OUT, state="parked"):
            self.happened["replies held for an operator, and let go"] += 1
            await self._bot.backend.unpark(lane.conversation, Kind.OUT)
        return counts.messages_waiting + counts.deliveries_waiting

    async def _answer_what_is_asked(self) -> None:
        """Whoever still writes answers without knowing it; once nobody does, somebody must, as soon as they see it."""
        for lane in await self._bot.backend.lanes(limit=len(self.said)):
            for asked in await self._bot.backend.questions(lane.conversation, limit=1) if lane.pending else ():
                id_ = question_id(asked.conversation, asked.turn, asked.number)
                shown = await self._bot.backend.delivery(id_) if asked.answer is None else None
                if shown is not None and shown.state == "sent" and id_ not in self._answered:
                    self._answered.add(id_)
                    said = self.said[lane.conversation]
                    channel, name = lane.conversation.split("/")
                    text = next(iter(asked.question.options), "yes")
                    said.append(f"{name}-{len(said) + 1}")
                    await self._post(Message(channel, said[-1], lane.conversation, name, text), Random(0))


def reference(place: int, number: int) -> str:
    """Found in an answer to anybody else, it tells whose words these were."""
    return f"ref-{place}-{number}"
