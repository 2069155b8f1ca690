"""Every error that Turnlane raises on purpose. `retry` answers: may the same call succeed later?

TurnlaneError
├── InvalidInput           what was handed in cannot be used; the text says what to change
│   ├── InvalidMessage     a message from a channel: the right syntax, the wrong content
│   │   └── TooLarge        more than the store takes in one record
│   ├── InvalidBody        a request's body that cannot be read at all
│   ├── UnsupportedMediaType  a request's body of the wrong content type
│   ├── InvalidSchedule    a time that cannot be read, or never comes
│   └── InvalidSettings    turnlane.toml, the environment or the command line
├── Unauthorized           a wrong or missing secret
├── NotFound               no such channel, agent, conversation, turn or delivery
├── WorkerLost             this worker was declared dead; stop what it runs and join under a new id
├── BackendError
│   ├── BackendUnavailable the store cannot be reached or written just now (retry)
│   │   └── BackendRefused  nor by waiting: a wrong password, no such database, no right to the folder
│   └── SchemaMismatch     the store was made by another version
└── AgentError             raised by or for an agent; a turn that ends in it is judged by `retry`
    ├── AgentFailed        something broke on the way (retry)
    ├── Throttled          the agent asks to be called later (retry, with `retry_after`)
    └── AgentRefused       the agent will not answer this, however often it is asked
"""

from __future__ import annotations


class TurnlaneError(Exception):
    """The root. The text names the next step."""

    retry = False


class InvalidInput(TurnlaneError):
    pass


class InvalidMessage(InvalidInput):
    pass


class TooLarge(InvalidMessage, ValueError):
    pass


class InvalidBody(InvalidInput):
    pass


class UnsupportedMediaType(InvalidInput):
    pass


class InvalidSchedule(InvalidInput):
    pass


class InvalidSettings(InvalidInput):
    pass


class Unauthorized(TurnlaneError):
    pass


class NotFound(TurnlaneError):
    pass


class WorkerLost(TurnlaneError):
    pass


class BackendError(TurnlaneError):
    pass


class BackendUnavailable(BackendError):
    retry = True


class BackendRefused(BackendUnavailable):
    retry = False


class SchemaMismatch(BackendError):
    pass


class AgentError(TurnlaneError):
    pass


class AgentFailed(AgentError):
    retry = True


class Throttled(AgentError):
    retry = True

    def __init__(self, text: str, *, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        """Seconds, if the agent named them."""


class AgentRefused(AgentError):
    pass
