"""What a turn asks the person, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence

from turnlane.model.message import Message
from turnlane.model.value import value

OPTIONS_MAX = 20
TIMEOUT_SECONDS_MAX = 10 * 365 * 86_400.0
QUESTIONS_MAX = 100
"""Of one turn. Waiting costs it no attempt, so nothing else would stop an agent that does not read the answers."""


@value
class Question:
    text: str
    options: tuple[str, ...] = ()
    """To choose from. Any other text is an answer too: the person may have to say something else first."""
    expires_at: int | None = None


@value
class Answer:
    """What was answered: of the options the one that was meant, or whatever was said instead."""

    text: str | None = None
    """None: nobody answered in time, or the question reached nobody."""
    by: str | None = None
    """Who did: the sender of the message, or `operator`."""

    @property
    def timed_out(self) -> bool:
        return self.text is None


TIMED_OUT = Answer()


YES_OR_NO = ("yes", "no")
"""What a sign says to a question that has no options."""

_SIGNS = {
    **dict.fromkeys("👍✅✔☑👌", 0),
    **dict.fromkeys("👎❌✖⛔🚫", 1),
    **{str(number): number - 1 for number in range(1, 10)},
}
_TONES_AND_VARIANTS = dict.fromkeys([0xFE0F, 0x20E3, *range(0x1F3FB, 0x1F400)])


def meant_by_place(place: int, options: Sequence[str]) -> str | None:
    """The option in this place, from 0. None: there are not so many."""
    among = options or YES_OR_NO
    return among[place] if place < len(among) else None


def meant_by_sign(sign: str, options: Sequence[str]) -> str | None:
    """The option that an emoji stands for: a thumb, a tick, a cross, a number. None: it stands for none."""
    place = _SIGNS.get(sign.translate(_TONES_AND_VARIANTS))
    return None if place is None else meant_by_place(place, options)


@value
class QuestionView:
    """A question of one turn, as it stands."""

    conversation: str
    turn: int
    number: int
    """From 1, in the order the turn asked them."""
    question: Question
    asked_at: int
    answer: Answer | None = None
    """None: it is open, or its turn was over before anybody answered."""
    answered_at: int | None = None

    def was_answered_by(self, message: Message) -> bool:
        meant = Answer(chosen(message.text, self.question.options), message.sender)
        return (self.answer, self.answered_at) == (meant, message.accepted_at)

    @property
    def reached_nobody(self) -> bool:
        """Nobody answered, and that was known before the time was over: it could not be sent, or was dropped."""
        ended, expires_at = self.answer is not None and self.answer.timed_out, self.question.expires_at
        return ended and (expires_at is None or (self.answered_at or 0) < expires_at)


def chosen(text: str, options: Sequence[str]) -> str:
    """The option that is meant, by its name or its number, however it is written; else the text as it is."""
    said = text.strip().casefold()
    named = {option.casefold(): option for option in reversed(options)}
    numbered = {str(number): option for number, option in enumerate(options, 1)}
    return named.get(said) or numbered.get(said) or text
