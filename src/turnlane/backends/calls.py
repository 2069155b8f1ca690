"""How often this process asks the store, and how that ends: what its metrics and alerts are made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

READ = "read"
"""All that only looks is counted under one name."""


@dataclass(slots=True)
class Calls:
    """Sums since the start. Plain numbers, as each message passes here several times."""

    made: Counter[str] = field(default_factory=Counter)
    """By verb. Those who wait for a lease have called once, however long they wait."""
    failed: Counter[str] = field(default_factory=Counter)
    """Of these, those that the store could not answer, by verb."""
    groups: int = 0
    """Transactions that were tried: calls that wait at the same time travel in one."""
    conflicts: int = 0
    """Of these, those that were undone as another process had written there meanwhile, and tried again."""
