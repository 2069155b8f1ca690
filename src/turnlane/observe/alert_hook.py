"""Alerts to a web hook of the operator's own, signed, and again until it takes them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from turnlane.channels.secret import Secret
from turnlane.clock import Clock
from turnlane.model.event import Event
from turnlane.model.policy import Backoff
from turnlane.model.value import value
from turnlane.observe.alerts import Change
from turnlane.outgoing import Answer, Outgoing, checked_url

ANSWER_SECONDS_MAX = 10.0
WAITING_MAX = 100
"""So many wait to be told; past that the oldest is left out."""
TRIES_MAX = 10
AGAIN = Backoff(first_ms=1_000, factor=2, most_ms=300_000)


@value
class _Told:
    """One change on its way, the same however often it is tried."""

    id: str
    alert: str
    body: bytes


class AlertHook:
    """Tells each change once, in order. What is not taken is told again under the same id, for some ten minutes."""

    def __init__(
        self,
        url: str,
        *,
        secret: str | None,
        machine: str,
        clock: Clock,
        emit: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self._url = checked_url(url, setting="alerts.url")
        self._secret = None if secret is None else Secret(secret)
        self._place = {"machine": machine, "process": clock.token()}
        self._clock = clock
        self._emit = emit
        self._outgoing = Outgoing()
        self._waiting: deque[_Told] = deque()
        self._arrived = asyncio.Event()

    def tell(self, change: Change) -> None:
        self._waiting.append(_told(change, self._place))
        if len(self._waiting) > WAITING_MAX:
            self._say_untold(self._waiting.popleft(), f"more than {WAITING_MAX} wait, so the oldest was left out")
        self._arrived.set()

    async def run(self) -> None:
        """Tell what waits, for ever."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                await self._tell_in_the_end(self._waiting.popleft())

    async def _tell_in_the_end(self, told: _Told) -> None:
        for tries in range(1, TRIES_MAX + 1):
            failed = await self._post(told)
            if failed is None:
                return
            if tries in (1, TRIES_MAX):  # what is between would say the same
                self._say_untold(told, failed if tries == 1 else f"given up after {tries} tries: {failed}")
            if tries < TRIES_MAX:
                await asyncio.sleep(AGAIN.delay_ms(tries) / 1000)

    async def _post(self, told: _Told) -> str | None:
        """Why it could not be told, None if it was."""
        headers = {"idempotency-key": told.id}
        if self._secret is not None:
            headers |= self._secret.sign(told.id, told.body, self._clock.now())
        answer = await self._outgoing.post(self._url, body=told.body, headers=headers, timeout=ANSWER_SECONDS_MAX)
        if isinstance(answer, Answer):
            return None if answer.ok else f"the web hook answered {answer}"
        return f"the web hook gave no answer: {answer.cause}"

    def _say_untold(self, told: _Told, cause: str) -> None:
        self._emit(Event("alert.untold", self._clock.now(), None, {"alert": told.alert, "cause": cause}))

    async def close(self) -> None:
        await self._outgoing.close()


def _told(change: Change, place: dict[str, str]) -> _Told:
    alert = change.alert
    since = datetime.fromtimestamp(alert.since / 1000, UTC)
    id_ = "/".join([alert.alert, f"{since:%Y-%m-%dT%H:%MZ}", place["machine"], place["process"], change.how])
    said = {
        "id": id_,
        "alert": alert.alert,
        "state": change.how,
        "severity": alert.severity,
        "since": _written(alert.since),
        "at": _written(change.at),
        "value": alert.value,
        "threshold": alert.threshold,
        "text": alert.text,
        "next_step": alert.next_step,
        **place,
    }
    return _Told(id_, alert.alert, msgspec.json.encode(said))


def _written(at: int) -> str:
    moment = datetime.fromtimestamp(at / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
