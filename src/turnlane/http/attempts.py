"""How often somebody may try a wrong token."""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address, ip_network
from math import ceil

from starlette.exceptions import HTTPException

from turnlane.clock import Clock
from turnlane.model.pace import Pace

PER_ADDRESS = Pace(every_ms=30_000, burst=10)
OVERALL = Pace(every_ms=2_000, burst=200)
"""Of all addresses together. Beyond it, only those are turned away that have failed lately."""

ADDRESSES_MAX = 10_000
"""Remembered at once. Who is forgotten begins anew, which takes ten thousand others that have failed, too."""

LONG_AGO = -(2**62)
"""On a clock that may have begun a moment ago."""

IPV6_PREFIX = 64
"""The least that anybody is given; within it one may choose an address for each try."""


class Attempts:
    """Of one process, by where they come from. Only failures count.

    Who has not failed is never turned away, so that strangers who guess cannot lock out somebody who knows.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free_at: OrderedDict[str, int] = OrderedDict()
        self._all_free_at = LONG_AGO

    def check(self, address: str) -> None:
        """Raises a 429 after too many. Even a right token is not looked at then, or guessing would go on unhindered."""
        now = self._now()
        free_at = _saved_up(self._free_at.get(_network_of(address), LONG_AGO), PER_ADDRESS, now)
        if free_at == _saved_up(LONG_AGO, PER_ADDRESS, now):
            return  # it has not failed, or so long ago that it does not count any more
        waits_ms = max(free_at, self._all_free_at) - now
        if waits_ms > 0:
            seconds = ceil(waits_ms / 1000)
            detail = f"too many wrong tokens came from this address; try again in {seconds} s"
            raise HTTPException(429, detail, {"retry-after": str(seconds)})

    def failed(self, address: str) -> None:
        now, network = self._now(), _network_of(address)
        self._free_at[network] = _one_more(self._free_at.pop(network, LONG_AGO), PER_ADDRESS, now)
        self._all_free_at = _one_more(self._all_free_at, OVERALL, now)
        if len(self._free_at) > ADDRESSES_MAX:
            self._free_at.popitem(last=False)

    def _now(self) -> int:
        return int(self._clock.monotonic() * 1000)


def _one_more(free_at: int, pace: Pace, now: int) -> int:
    """Beyond the limit nothing is added, so that whoever has to wait never waits for more than one."""
    return free_at if free_at > now else _saved_up(free_at, pace, now) + pace.every_ms


def _saved_up(free_at: int, pace: Pace, now: int) -> int:
    """Time without a failure counts for later ones, but for no more than a burst; as with messages (flow/flood.py)."""
    return max(free_at, now - (pace.burst - 1) * pace.every_ms)


def _network_of(address: str) -> str:
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address):
        return str(parsed.ipv4_mapped or ip_network((parsed, IPV6_PREFIX), strict=False))
    return str(parsed)
