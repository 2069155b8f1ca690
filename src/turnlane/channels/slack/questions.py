"""A question in Slack: its buttons, what pressing one says, and what a reaction says instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from turnlane.channels.loose import Loose
from turnlane.channels.markup import fitting, slack_mrkdwn, split
from turnlane.model.delivery import Delivery
from turnlane.model.question import meant_by_place

ACTION = "turnlane_answer"
SECTION_CHARACTERS_MAX = 3_000
SECTIONS_MAX = 40
BUTTON_CHARACTERS_MAX = 75
VALUE_CHARACTERS_MAX = 2_000

_SIGNS: Mapping[str, int] = {
    **dict.fromkeys(["+1", "thumbsup", "white_check_mark", "heavy_check_mark", "ballot_box_with_check"], 0),
    **dict.fromkeys(["-1", "thumbsdown", "x", "negative_squared_cross_mark", "no_entry", "no_entry_sign"], 1),
    **{
        word: place
        for place, word in enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    },
}


class Choice(Struct):
    """What a button carries, so that whoever hears of it needs to know nothing else."""

    delivery: str
    conversation: str
    option: str


_CHOICE = msgspec.json.Decoder(Choice)


def blocks(delivery: Delivery) -> list[dict[str, Any]]:
    """The question with a button for each option."""
    pieces = split(delivery.text, fitting(SECTION_CHARACTERS_MAX, slack_mrkdwn))
    sections: list[dict[str, Any]] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": slack_mrkdwn(piece)}}
        for piece in pieces[:SECTIONS_MAX]
        if piece.strip()
    ]
    return [*sections, {"type": "actions", "elements": list(_buttons(delivery))}]


def _buttons(delivery: Delivery) -> Iterator[dict[str, Any]]:
    for number, option in enumerate(delivery.options, 1):
        yield {
            "type": "button",
            "action_id": f"{ACTION}_{number}",
            "text": {"type": "plain_text", "text": _label(option), "emoji": False},
            "value": _value(delivery, option, number),
        }


def _label(option: str) -> str:
    return option if len(option) <= BUTTON_CHARACTERS_MAX else option[: BUTTON_CHARACTERS_MAX - 1] + "…"


def _value(delivery: Delivery, option: str, number: int) -> str:
    carried = msgspec.json.encode(Choice(delivery.id, delivery.conversation, option)).decode()
    if len(carried) <= VALUE_CHARACTERS_MAX:
        return carried
    # An option is known by its number, too.
    return msgspec.json.encode(Choice(delivery.id, delivery.conversation, str(number))).decode()


def choice(value: object) -> Choice | None:
    """What the button carries. None: it is none of ours."""
    if not isinstance(value, str):
        return None
    try:
        return _CHOICE.decode(value.encode(errors="replace"))
    except msgspec.DecodeError:
        return None


def is_sign(reaction: str) -> bool:
    return _plain(reaction) in _SIGNS


def meant(reaction: str, options: Sequence[str]) -> str | None:
    """The option that a reaction stands for. None: there are not so many."""
    place = _SIGNS.get(_plain(reaction))
    return None if place is None else meant_by_place(place, options)


def options_in(message: Mapping[str, Any]) -> list[str]:
    """The options of a question that we posted, read back from its buttons."""
    buttons = [button for block in Loose(message).each("blocks") for button in block.each("elements")]
    return [found.option for button in buttons if (found := choice(button.raw.get("value")))]


def _plain(reaction: str) -> str:
    """Without the tone of the skin."""
    return reaction.partition("::")[0]
