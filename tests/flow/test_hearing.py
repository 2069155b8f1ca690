"""What platforms tell: messages are stored, echoes are known, statuses find their delivery, nothing odd is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.flow.world import AT_ONCE, World

from turnlane.channels.base import Aside, Heard, Reaction, Received, Status
from turnlane.flow.hear import ASIDE_CHARACTERS_MAX, NO_ANSWER, NOT_TO_US, OUR_OWN, hear
from turnlane.flow.receive import receive
from turnlane.model.message import Message
from turnlane.model.turn import Turn

ALICE = "desk/alice"


async def heard(world: World, what: Heard) -> Received:
    async def store(messages: Sequence[Message]) -> Received:
        return await receive(messages, backend=world.backend, policy_for=lambda _: AT_ONCE)

    return await hear("desk", what, backend=world.backend, receive=store, emit=world.tell, clock=world.clock)


def from_the_phone(text: str, origin_id: str = "phone-1") -> Message:
    return Message("desk", origin_id, ALICE, "Anna", text, role="business")


def reasons(world: World) -> list[object]:
    return [event.facts["why"] for event in world.facts.of("hook.ignored")]


async def answered(world: World, text: str) -> None:
    """One turn, and its answer sent."""

    def answer(turn: Turn) -> str:
        return text

    async with world.working(answer):
        await world.say("alice", "hello")
        await world.settled(ALICE)


async def test_what_we_said_ourselves_is_no_takeover_when_it_comes_back(world: World) -> None:
    """By its receipt, or by its words, whatever the platform made of their marks."""
    await answered(world, "**Hello**, dear _Alice_!")
    assert await heard(world, Heard([from_the_phone("anything", "receipt-1")])) == Received()
    assert await heard(world, Heard([from_the_phone("*Hello*, dear Alice!", "unknown")])) == Received()
    assert reasons(world) == [OUR_OWN, OUR_OWN]
    assert not world.facts.of("lane.paused")


async def test_somebody_who_answers_from_the_phone_takes_over(world: World) -> None:
    await answered(world, "Hello!")
    assert await heard(world, Heard([from_the_phone("I am Anna, let me help")])) == Received(accepted=1)
    assert world.facts.of("lane.paused", ALICE)


async def test_marks_alone_are_an_echo_only_of_the_same_marks(world: World) -> None:
    await answered(world, "👍")
    assert await heard(world, Heard([from_the_phone("👎")])) == Received(accepted=1)
    assert await heard(world, Heard([from_the_phone("👍", "phone-2")])) == Received()


async def test_what_is_overheard_counts_where_we_are_in_the_conversation(world: World) -> None:
    said = Message("desk", "m-100", "desk/room/7", "bob", "by the way")
    assert await heard(world, Heard(overheard=[said])) == Received()
    assert reasons(world) == [NOT_TO_US]
    assert await world.backend.story("desk/room/7") is None
    mentioned = replace(said, origin_id="m-101", text="bot, help")
    assert await heard(world, Heard([mentioned], overheard=[said])) == Received(accepted=2)
    assert await heard(world, Heard(overheard=[replace(said, origin_id="m-102")])) == Received(accepted=1)


async def test_a_status_finds_its_delivery_by_our_id_or_by_the_receipt(world: World) -> None:
    await answered(world, "Hello!")
    (sent,) = await world.backend.deliveries(ALICE)
    await heard(world, Heard(statuses=[Status(ALICE, "delivered", delivery=sent.id)]))
    await heard(world, Heard(statuses=[Status(ALICE, "read", receipt="receipt-1")]))
    await heard(world, Heard(statuses=[Status(ALICE, "read", receipt="of somebody else")]))
    await heard(world, Heard(statuses=[Status("desk/nobody", "read", delivery=sent.id)]))
    told = [event.facts["state"] for event in world.facts.of("delivery.reported", ALICE)]
    assert told == ["delivered", "read"]
    await heard(world, Heard(statuses=[Status(ALICE, "failed", delivery=sent.id, cause="131047: too late")]))
    assert [each.cause for each in await world.backend.outbox(state="failed")] == ["131047: too late"]


@pytest.mark.parametrize(
    ("sign", "options", "said"),
    [
        ("👍", ("Deploy", "Wait"), "Deploy"),
        ("👎🏽", ("Deploy", "Wait"), "Wait"),
        ("❌", (), "no"),
        ("✔️", (), "yes"),
        ("3️⃣", ("a", "b", "c"), "c"),
        ("3️⃣", ("a", "b"), None),
        ("🎉", ("a", "b"), None),
        ("", ("a", "b"), None),
    ],
)
async def test_a_sign_that_is_put_to_a_question_answers_it(
    world: World, sign: str, options: tuple[str, ...], said: str | None
) -> None:
    """D9: where the platform names the question by its own id."""

    async def ask(turn: Turn) -> str:
        return f"so be it: {(await turn.ask('Shall I?', options)).text}"

    async with world.working(ask):
        await world.say("alice", "do it")
        await world.desk.has(1)
        await world.facts.seen("delivery.sent")
        (other, mine) = (Reaction(ALICE, receipt, sign, "alice", receipt) for receipt in ("other", "receipt-1"))
        received = await heard(world, Heard(reactions=[other, mine]))
        assert received.accepted == (said is not None)
        assert reasons(world) == [NO_ANSWER]
        assert world.facts.of("hook.ignored")[0].facts["count"] == (1 if said else 2)
        if said is not None:
            assert (await world.desk.has(2))[1] == f"so be it: {said}"


async def test_what_nobody_can_read_is_kept_within_bounds(world: World) -> None:
    odd = "\0\ud800" + "x" * 2 * ASIDE_CHARACTERS_MAX
    await heard(world, Heard(asides=[Aside("an unknown type", odd)]))
    (kept,) = [stored.event for stored in await world.backend.events() if stored.event.name == "hook.aside"]
    body = str(kept.facts["body"])
    assert len(body) == ASIDE_CHARACTERS_MAX
    assert body[:3] == "\ufffd?x"


async def test_nobody_is_told_that_it_is_stored_before_it_is(world: World) -> None:
    """PEERS: the user is told "queued" only after it is stored; and not again when it comes again."""
    told: list[bool] = []

    async def is_stored() -> None:
        told.append(await world.backend.story(ALICE) is not None)

    said = world.message("alice", "hello")
    looks: list[asyncio.Task[None]] = []
    for _ in range(2):
        await heard(world, Heard([said], when_stored=lambda: looks.append(asyncio.create_task(is_stored()))))
    await asyncio.gather(*looks)
    assert told == [True]


async def test_reasons_are_told_once_with_their_number(world: World) -> None:
    await heard(world, Heard(ignored=["an edit", "our own", "an edit"]))
    told = {event.facts["why"]: event.facts["count"] for event in world.facts.of("hook.ignored")}
    assert told == {"an edit": 2, "our own": 1}
