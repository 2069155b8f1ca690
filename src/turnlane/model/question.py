"""What a turn asks the person, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence

from turnlane.model.value import value

OPTIONS_MAX = 20


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
    """None: nobody answered in time."""
    by: str | None = None
    """Who did: the sender of the message, or `operator`."""

    @property
    def timed_out(self) -> bool:
        return self.text is None


TIMED_OUT = Answer()


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


def chosen(text: str, options: Sequence[str]) -> str:
    """The option that is meant, by its name or its number, however it is written; else the text as it is."""
    said = text.strip().casefold()
    named = {option.casefold(): option for option in reversed(options)}
    numbered = {str(number): option for number, option in enumerate(options, 1)}
    return named.get(said) or numbered.get(said) or text
