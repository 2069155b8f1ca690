"""How much may be spent, and what to do about it."""

from __future__ import annotations

from typing import Literal

from turnlane.model.usage import Usage
from turnlane.model.value import value

Scope = Literal["session", "user", "channel", "day"]
"""One session for as long as it lasts; one user, one channel or everything, on one day."""

SCOPES: tuple[Scope, ...] = ("session", "user", "channel", "day")


@value
class Budget:
    tokens: int | None = None
    """Read and written together."""
    cost: int | None = None
    """In millionths."""
    warn: float = 0.8
    """From this share on the operator is warned."""
    stops: bool = True
    """Once it is used up, no turn starts that would be paid from it."""

    def share(self, spent: Usage) -> float:
        """How much of it is used; of tokens and money whichever is nearer to its end."""
        used = [(spent.tokens, self.tokens), (spent.cost, self.cost)]
        return max((part / whole if whole else 1.0 for part, whole in used if whole is not None), default=0.0)


@value
class Budgets:
    """None: there is no bound."""

    session: Budget | None = None
    user: Budget | None = None
    channel: Budget | None = None
    day: Budget | None = None

    def of(self, scope: Scope) -> Budget | None:
        budget: Budget | None = getattr(self, scope)
        return budget


NO_BUDGETS = Budgets()
