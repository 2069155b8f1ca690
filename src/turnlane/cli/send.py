"""`turnlane send`: puts a message in, as the person, or an answer out, by hand; whether or not a server runs."""

from __future__ import annotations

import asyncio
import math
import sys
from dataclasses import dataclass

import click

from turnlane.backends import Backend
from turnlane.backends.base import Acceptance, Arrival
from turnlane.channels.incoming import TEXT_BYTES_MAX, check_text
from turnlane.cli import common
from turnlane.cli.main import EXIT_WAITED, Failed
from turnlane.cli.table import local_time, one_line
from turnlane.clock import SystemClock
from turnlane.errors import InvalidMessage
from turnlane.flow import steer
from turnlane.live_settings import LiveSettings
from turnlane.model.command import command_in
from turnlane.model.delivery import dropped_id, notice_id
from turnlane.model.explanation import steering_command
from turnlane.model.lane import Kind
from turnlane.model.message import (
    ORIGIN_ID_BYTES_MAX,
    SENDER_BYTES_MAX,
    Message,
    channel_of,
    conversation_key,
    local_part,
)
from turnlane.model.view import DeliveryView, Story, TurnView
from turnlane.settings import Settings, policy_for

LOOK_AGAIN_SECONDS = 1.0
UNANSWERED = {"superseded": "set aside", "refused": "refused", "dropped": "dropped"}


@dataclass(frozen=True, slots=True)
class Said:
    """What became of the message, as `--json` has it."""

    verdict: str
    conversation: str
    message: str
    seq: int
    workers_live: int
    turn: int | None = None
    outcome: str | None = None
    cause: str | None = None
    replies: tuple[str, ...] = ()


@click.command()
@click.argument("conversation")
@click.argument("text")
@click.option("--id", "origin_id", metavar="ID", help="The message's own id; sent twice, it is taken in once.")
@click.option("--sender", metavar="NAME", help="Who says it. Default: the conversation's own name.")
@click.option("--wait", "seconds", type=click.FloatRange(0), metavar="SECONDS", help="Wait for the reply and print it.")
@click.option("--as-operator", is_flag=True, help="Answer the person by hand; the agent is silent for a while.")
@click.option("--no-takeover", is_flag=True, help="With --as-operator: the agent goes on.")
@common.as_json
@common.reads_store
def command(
    given: common.Given,
    conversation: str,
    text: str,
    origin_id: str | None,
    sender: str | None,
    seconds: float | None,
    as_operator: bool,
    no_takeover: bool,
    as_json: bool,
) -> None:
    """Put TEXT into CONVERSATION (CHANNEL/ROOM, such as web/alice) as the person. `-` reads TEXT from standard input.

    Works with no server running: the message is stored, and answered once a worker runs.
    """
    if seconds is not None and not math.isfinite(seconds):
        raise click.BadParameter("give a number of seconds", param_hint="--wait")
    if no_takeover and not as_operator:
        raise click.UsageError("--no-takeover goes with --as-operator: only who answers takes over")
    if as_operator and seconds is not None:
        raise click.UsageError("--wait waits for the agent's reply; who answers with --as-operator gets none")
    settings = given.load()
    text = sys.stdin.read() if text == "-" else text
    if as_operator:
        _answer_by_hand(settings, conversation, text, origin_id, sender, takes_over=not no_takeover, as_json=as_json)
        return
    message = _message(conversation, text, origin_id, sender)
    said = common.run(_send(settings, message, seconds))
    if as_json:
        common.echo_json(said)
    else:
        _tell(said, waited=seconds is not None)
    if said.outcome == "dead_letter":
        raise Failed(f"turn {said.turn} was given up on: {said.cause}; see `turnlane deadletters`")
    if said.outcome in UNANSWERED:
        why = f"{UNANSWERED[said.outcome]}{f' ({said.cause})' if said.cause else ''}, and is not answered"
        raise Failed(f"it was {why}; `turnlane explain {said.message}` tells more", EXIT_WAITED)
    if seconds is not None and said.outcome is None:
        raise Failed(f"no reply within {seconds:g}s; `turnlane show {said.conversation}` tells more", EXIT_WAITED)


def _answer_by_hand(
    settings: Settings,
    conversation: str,
    text: str,
    id_: str | None,
    sender: str | None,
    *,
    takes_over: bool,
    as_json: bool,
) -> None:
    key = common.conversation_named(conversation)
    _check("text", text, TEXT_BYTES_MAX)
    id_ = f"cli-{SystemClock().token()}" if id_ is None else id_
    who = "operator" if sender is None else sender
    _check("--id", id_, ORIGIN_ID_BYTES_MAX)
    _check("--sender", who, SENDER_BYTES_MAX)

    async def say() -> tuple[steer.Said, int]:
        async with common.opened(settings) as backend:
            said = await steer.say(backend, key, text, id=id_, sender=who, takes_over=takes_over)
            await common.acted(backend, settings, f"--as-operator {key}", key)
            return said, await common.workers_live(backend, SystemClock().now())

    said, live = common.run(say())
    if as_json:
        common.echo_json(said)
    else:
        _tell_by_hand(key, said, live)
    if said.state == "failed":
        again = f"`turnlane outbox resend {said.delivery}` tries again"
        raise Failed(f"it was not sent to {key}: {said.cause}; {again}")


def _tell_by_hand(key: str, said: steer.Said, live: int) -> None:
    state = (said.state or "queued") if said.done else "duplicate, nothing changed"
    click.echo(f"{state}: delivery {said.delivery} of {key}")
    lane = said.lane
    if lane.paused_until is not None:
        click.echo(f"the agent is silent until {local_time(lane.paused_until):%Y-%m-%d %H:%M:%S};", err=True, nl=False)
        click.echo(f" `{steering_command('resume', lane)}` lets it go on sooner", err=True)
    if not live and said.state == "queued":
        click.echo("no worker is running; `turnlane run` will send it", err=True)


def _message(conversation: str, text: str, origin_id: str | None, sender: str | None) -> Message:
    typed = common.conversation_named(conversation)
    clock = SystemClock()
    message = Message(
        channel=channel_of(typed),
        origin_id=f"cli-{clock.token()}" if origin_id is None else origin_id,
        conversation=typed,
        sender=local_part(typed) if sender is None else sender,
        text=text,
        sent_at=clock.now(),
    )
    conversation_key(typed)  # refuses one that is too long
    _check("text", text, TEXT_BYTES_MAX)
    _check("--id", message.origin_id, ORIGIN_ID_BYTES_MAX)
    _check("--sender", message.sender, SENDER_BYTES_MAX)
    return message


def _check(name: str, value: str, bytes_max: int) -> None:
    if not common.is_utf8(value):
        raise InvalidMessage(f"{name} is not valid UTF-8; set the terminal to UTF-8 and type it again")
    if not value.strip():
        raise InvalidMessage(f"{name} is empty; give it at least one character")
    check_text(name, value, bytes_max)


async def _send(settings: Settings, message: Message, seconds: float | None) -> Said:
    policy_for(settings, message.channel)  # no store is made for a channel that is not there
    async with common.opened(settings, create=True) as backend:
        settings = await LiveSettings(backend, settings).look()
        command = command_in(message.text, settings.commands.by_word)
        arrival = Arrival(message, policy_for(settings, message.channel), command)
        (acceptance,) = await backend.accept([arrival])
        if seconds is not None:
            await _settled(backend, message.conversation, acceptance.seq, seconds)
        return await _said(backend, message, acceptance, waited=seconds is not None)


async def _settled(backend: Backend, conversation: str, seq: int, seconds: float) -> None:
    """Wait until the message has its outcome, but not longer than that."""
    try:
        async with asyncio.timeout(seconds):
            while not _has_outcome(await backend.story(conversation), seq):
                await backend.changed(LOOK_AGAIN_SECONDS)
    except TimeoutError:
        return


def _has_outcome(story: Story | None, seq: int) -> bool:
    if story is None:
        return False
    return seq in story.outcomes or any(lane.kind is Kind.TURN and lane.done_seq >= seq for lane in story.lanes)


async def _said(backend: Backend, message: Message, acceptance: Acceptance, *, waited: bool) -> Said:
    story, seq = await backend.story(message.conversation), acceptance.seq
    turn, own = None, None
    replies: tuple[str, ...] = ()
    if waited and story is not None and _has_outcome(story, seq):
        own = story.outcomes.get(seq)
        turn = None if own else next((turn for turn in reversed(story.turns) if turn.first <= seq <= turn.last), None)
        replies = tuple(each.text for each in story.deliveries if _answers(each, turn, message, seq))
    return Said(
        verdict=acceptance.verdict,
        conversation=message.conversation,
        message=message.id,
        seq=acceptance.seq,
        workers_live=await common.workers_live(backend, SystemClock().now()),
        turn=turn.number if turn else None,
        outcome=turn.outcome if turn else own,
        cause=turn.cause if turn else None,
        replies=replies,
    )


def _answers(delivery: DeliveryView, turn: TurnView | None, message: Message, seq: int) -> bool:
    if turn is not None:
        return delivery.turn == turn.number
    return delivery.id in (notice_id(message.conversation, seq), dropped_id(message.conversation, seq))


def _tell(said: Said, *, waited: bool) -> None:
    state = {"accepted": "accepted", "rejected": "refused, too many wait"}.get(
        said.verdict, "duplicate, nothing changed"
    )
    # With --wait the reply alone goes to standard output, so that a script can use it.
    click.echo(f"{state}: {one_line(said.message)} is message {said.seq} of {said.conversation}", err=waited)
    if not said.workers_live and said.outcome is None:
        click.echo("no worker is running; it is stored, and `turnlane run` will answer it", err=True)
    for reply in said.replies:
        click.echo(reply)
