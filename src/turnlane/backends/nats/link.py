"""The connection to the servers, for threads that wait for each answer: it lives in a thread with an event loop."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from base64 import b64decode
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, NoRespondersError, NoServersError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout

from turnlane.backends.nats.target import Target
from turnlane.clock import SystemClock
from turnlane.event_loop import happens

T = TypeVar("T")

CONNECT_SECONDS_MAX = 5
OPEN_SECONDS_MAX = 8.0
TRIES = 2
PING_SECONDS = 2
PINGS_LOST_MAX = 2
"""A frozen server is noticed after so many pings: nats-py's own default is four minutes."""
ANSWER_SECONDS_MAX = 2.0
PATIENCE_SECONDS = 8.0
"""How long a question is asked that nobody answers: longer than an election of a new leader takes, most of the time."""
ASK_AGAIN_SECONDS = 0.1
PAGE = 1000
"""Records that are read with one request."""
PAGE_BYTES = 16_000_000
NEVER_SO_MANY = 1 << 62
NAME_LETTERS = 8
"""Of what tells the batches of one connection from those of others that are open at the same time."""
BATCH_MAX = 1000
"""Records of one atomic batch, at most; a limit of the server."""

MESSAGE_ID = "Nats-Msg-Id"
WRONG_LAST_SEQUENCE = {10071, 10164}
DUPLICATE_IN_BATCH = 10201
STORE_FAILED = 10049
BUSY = {10158, 10176, 10210, 10203, 10199}
"""The same again will do: too many batches are open, one was cut, or a write of the same id is under way."""


@dataclass(slots=True)
class Write:
    """One record to be stored, and on what condition."""

    subject: str
    payload: bytes
    after: int | None = None
    """Only if this is the last record of its subject. None: whatever is."""
    id: str | None = None
    """Only if no record came with this id."""
    replaces: bool = False
    """The records before it on this subject go."""

    def headers(self) -> dict[str, str]:
        headers = {}
        if self.after is not None:
            headers["Nats-Expected-Last-Subject-Sequence"] = str(self.after)
        if self.id is not None:
            headers[MESSAGE_ID] = self.id
        if self.replaces:
            headers["Nats-Rollup"] = "sub"
        return headers


@dataclass(slots=True)
class Stored:
    """One record as it is on the server."""

    subject: str
    seq: int
    payload: bytes
    id: str | None = None
    """Under which it was written, where several were read at once."""


def in_batches(units: Iterable[T], records: Callable[[T], int]) -> Iterator[list[T]]:
    """As many as the server takes together, each unit whole. `records`: for how many a unit counts."""
    batch: list[T] = []
    size = 0
    for unit in units:
        if batch and size + records(unit) > BATCH_MAX:
            yield batch
            batch, size = [], 0
        batch.append(unit)
        size += records(unit)
    if batch:
        yield batch


class Refused(Exception):
    """What was written depended on something that is not so any more: read again, decide again."""


class Duplicate(Exception):
    """One of the ids was used before; `seq`: by that record, if the server says so."""

    def __init__(self, seq: int | None = None) -> None:
        super().__init__(seq)
        self.seq = seq


class ServerError(Exception):
    """The server says no, and would again."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code


CUT_SHORT = "the server was cut off in its first word"
AUTHORIZATION_VIOLATION = "authorization violation"
TROUBLE: tuple[type[Exception], ...] = (OSError, TimeoutError, FutureTimeout, asyncio.TimeoutError, NatsError)
"""The servers cannot be reached, or do not answer."""
FAILURES: tuple[type[Exception], ...] = (*TROUBLE, ServerError, Refused)


class Link:
    """`connect` first. The blocking calls are for other threads than the one of `on_hint`."""

    def __init__(self, target: Target, on_hint: Callable[[bytes], None], on_reconnect: Callable[[], None]) -> None:
        self._target = target
        self._prefix = target.stream
        self._on_hint = on_hint
        self._on_reconnect = on_reconnect
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="turnlane-nats", daemon=True)
        self._client: Client | None = None
        self._connecting_anew: asyncio.Task[None] | None = None
        self._batches = 0
        self._hints: deque[Callable[[], bytes]] = deque()
        self._hinting: asyncio.Task[None] | None = None
        self._called_mine: set[str] = set()
        self._me = SystemClock().token()[:NAME_LETTERS]

    # The thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # A client that loses its connection while it is being made leaves tasks, of which asyncio would complain.
        if left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def connect(self) -> None:
        self._thread.start()
        self.wait_for(self._connect())

    async def _connect(self) -> None:
        async def reconnected() -> None:
            self._on_reconnect()

        async def disconnected() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.add_done_callback(self._connect_anew_if_it_failed)

        async def hint(message: Msg) -> None:
            self._on_hint(message.data)

        errors: list[Exception] = []
        given_up = asyncio.Event()

        async def note(error: Exception) -> None:
            """Whoever waits for an answer hears of it; nats-py would print it."""
            if self._client is None:
                errors.append(error)
                if len(errors) > TRIES * len(self._target.servers):
                    given_up.set()

        options: dict[str, Any] = {}
        if self._target.creds:
            options["user_credentials"] = self._target.creds
        if (tls := self._target.tls()) is not None:
            options["tls"] = tls
        connecting = nats.connect(
            self._target.servers,
            name="turnlane",
            no_echo=True,
            connect_timeout=CONNECT_SECONDS_MAX,
            allow_reconnect=True,
            max_reconnect_attempts=1,
            reconnect_time_wait=0.2,
            ping_interval=PING_SECONDS,
            max_outstanding_pings=PINGS_LOST_MAX,
            error_cb=note,
            disconnected_cb=disconnected,
            reconnected_cb=reconnected,
            **options,
        )
        # nats-py tries again for ever where TLS fails, and otherwise does not say why it gave up.
        try:
            client = await _first(connecting, given_up)
        except (NoServersError, TimeoutError) as error:
            raise _worst([error, *errors]) from error
        except ValueError as error:
            raise ConnectionError(CUT_SHORT) from error
        # Somebody who is there gives a clear answer at once; from now on it is waited for.
        client.options["max_reconnect_attempts"] = -1
        self._client = client
        await client.subscribe(f"{self._prefix}-hint", cb=hint)
        await client.flush(CONNECT_SECONDS_MAX)

    def _connect_anew_if_it_failed(self, reconnecting: asyncio.Task[Any]) -> None:
        """nats-py ends for good where a server is cut off in its first word, and then nobody would connect again."""
        if not reconnecting.cancelled() and isinstance(reconnecting.exception(), ValueError):
            self._connecting_anew = asyncio.create_task(self._connect_anew())

    async def _connect_anew(self) -> None:
        while True:
            try:
                await self._connect()
            except TROUBLE:
                await asyncio.sleep(ASK_AGAIN_SECONDS)
            else:
                return self._on_reconnect()

    def close(self) -> None:
        if self._thread.is_alive():
            with suppress(*TROUBLE):
                self.wait_for(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    async def _close(self) -> None:
        if self._client is not None:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await self._client.close()

    @property
    def client(self) -> Client:
        if self._client is None:
            raise ConnectionError("not connected")
        return self._client

    @property
    def max_payload(self) -> int:
        return self.client.max_payload

    @property
    def server_version(self) -> tuple[int, int, int]:
        version = self.client.connected_server_version
        return version.major, version.minor, version.patch

    # Asking the server

    def api(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self.wait_for(self._api(path, body))

    async def _api(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Asked again while nobody answers but a server is there, as when a leader is elected. Twice does no harm.

        So it is while a server that was told to delete a stream still clears it away, and cannot make one of its name.
        """
        payload = json.dumps(body).encode() if body is not None else b""
        until = self._loop.time() + PATIENCE_SECONDS
        while True:
            try:
                answer = await self.client.request(f"$JS.API.{path}", payload, timeout=ANSWER_SECONDS_MAX)
                return _judged(json.loads(answer.data))
            except (NatsTimeout, NoRespondersError, ServerError) as error:
                is_final = isinstance(error, ServerError) and error.code != STORE_FAILED
                if is_final or self._loop.time() > until or not self.client.is_connected:
                    raise
                await asyncio.sleep(ASK_AGAIN_SECONDS)

    # Writing

    def write(self, writes: Sequence[Write]) -> int:
        """All of them or nothing. Returns the sequence of the last; the others are right before it."""
        return self.wait_for(self._write(writes))

    async def _write(self, writes: Sequence[Write]) -> int:
        if len(writes) == 1:
            [only] = writes
            return await self._publish(only.subject, only.payload, only.headers())
        self._batches += 1
        name = f"{self._me}{self._batches:x}"  # kept with each record, so it is short
        publish = self.client.publish
        for number, each in enumerate(writes[:-1], 1):
            headers = each.headers()
            headers["Nats-Batch-Id"], headers["Nats-Batch-Sequence"] = name, str(number)
            await publish(each.subject, each.payload, headers=headers)
        last = writes[-1]
        headers = last.headers()
        headers |= {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(len(writes)), "Nats-Batch-Commit": "1"}
        return await self._publish(last.subject, last.payload, headers)

    async def _publish(self, subject: str, payload: bytes, headers: dict[str, str]) -> int:
        if self._hints:
            self._hinting = asyncio.create_task(self._send_hints())  # while the server stores
        answer = await self.client.request(subject, payload, timeout=ANSWER_SECONDS_MAX, headers=headers)
        said = _judged(json.loads(answer.data))
        if said.get("duplicate"):
            raise Duplicate(said["seq"])
        seq: int = said["seq"]
        return seq

    def origin_of(self, ids: Sequence[str]) -> list[int | None]:
        """The record that came with each id, if one did."""
        return self.wait_for(self._all(map(self._origin_of, ids)))

    async def _origin_of(self, id_: str) -> int | None:
        """Asked by a batch that can never be stored.

        Not by `Nats-Expected-Last-Msg-Id`: with several replicas each of them refuses that for itself, too late, and
        then calls the stream broken.
        """
        asked = f"{self._prefix}.asked"
        try:
            await self._write([Write(asked, b"", id=id_), Write(f"{asked}.never", b"", after=NEVER_SO_MANY)])
        except Refused:
            return None
        except Duplicate:
            return await self._seq_of(id_, asked)
        raise ServerError(0, "the server stored what it was asked to refuse")

    async def _seq_of(self, id_: str, subject: str) -> int | None:
        """Of an id that is known: the server refuses the record, and names the one that it knows."""
        try:
            await self._write([Write(subject, b"", id=id_, replaces=True)])
        except Duplicate as duplicate:
            return duplicate.seq
        return None

    @staticmethod
    async def _all(work: Iterable[Awaitable[T]]) -> list[T]:
        return list(await asyncio.gather(*work))

    def hint(self, payload: Callable[[], bytes]) -> None:
        """To the other processes, with the next write or by `send_hints`. It may be lost."""
        self._hints.append(payload)

    def send_hints(self) -> None:
        if self._hints:
            asyncio.run_coroutine_threadsafe(self._send_hints(), self._loop)

    async def _send_hints(self) -> None:
        with suppress(*TROUBLE):
            while self._hints:
                await self.client.publish(f"{self._prefix}-hint", self._hints.popleft()())

    def is_alone(self, subject: str) -> bool:
        """Whether no other connection calls this subject its own. From now on this one does, until it is closed."""
        return self.wait_for(self._is_alone(subject))

    async def _is_alone(self, subject: str) -> bool:
        async def answer(message: Msg) -> None:
            await message.respond(b"")

        if subject not in self._called_mine:
            self._called_mine.add(subject)
            await self.client.subscribe(subject, cb=answer)
            await self.client.flush(CONNECT_SECONDS_MAX)
        try:
            await self.client.request(subject, timeout=ANSWER_SECONDS_MAX)
        except NoRespondersError:
            return True
        return False

    # Reading

    def last(self, subjects: Sequence[str]) -> dict[str, Stored]:
        """The last record of each subject that has any, by the word of the leader."""
        found = self.wait_for(self._all(self._last(subject) for subject in subjects))
        return {stored.subject: stored for stored in found if stored is not None}

    async def _last(self, subject: str) -> Stored | None:
        return await self._get({"last_by_subj": subject})

    def last_of_many(self, subjects: Sequence[str]) -> dict[str, Stored]:
        """The same in one request, by the word of any server: one that is a replica may be behind."""
        return self.wait_for(self._last_of_many(subjects))

    async def _last_of_many(self, subjects: Sequence[str]) -> dict[str, Stored]:
        found: dict[str, Stored] = {}
        for first in range(0, len(subjects), SUBJECTS_AT_ONCE_MAX):
            wanted = {"multi_last": subjects[first : first + SUBJECTS_AT_ONCE_MAX]}
            async for message in self._answers(f"$JS.API.DIRECT.GET.{self._prefix}", wanted):
                stored = _read(message)
                found[stored.subject] = stored
        return found

    def record(self, seq: int) -> Stored | None:
        return self.wait_for(self._get({"seq": seq}))

    async def _get(self, which: Mapping[str, Any]) -> Stored | None:
        try:
            said = await self._api(f"STREAM.MSG.GET.{self._prefix}", which)
        except ServerError as error:
            if error.code == NO_MESSAGE:
                return None
            raise
        message = said["message"]
        return Stored(message["subject"], message["seq"], b64decode(message.get("data", "")))

    def following(self, subject: str, seq: int, most: int = PAGE) -> list[Stored]:
        """Records of the subject (which may have wildcards) from that sequence on, in order."""
        return self.wait_for(self._following(subject, seq, most))

    async def _following(self, subject: str, seq: int, most: int) -> list[Stored]:
        wanted = {"seq": max(seq, 1), "batch": most, "next_by_subj": subject, "max_bytes": PAGE_BYTES}
        found: list[Stored] = []
        async for message in self._answers(f"$JS.API.DIRECT.GET.{self._prefix}", wanted):
            found.append(_read(message))
        return found

    async def _answers(self, subject: str, body: Mapping[str, Any]) -> AsyncIterator[Msg]:
        """Until the server says that there are no more."""
        client = self.client
        inbox = client.new_inbox()
        heard = Heard()
        answers = await client.subscribe(inbox, cb=heard.hear, pending_msgs_limit=-1, pending_bytes_limit=-1)
        try:
            await client.publish(subject, json.dumps(body).encode(), reply=inbox)
            while True:
                message = await heard.next()
                status = (message.headers or {}).get("Status")
                if status == "503":
                    raise NoRespondersError
                if status is not None:
                    return
                yield message
        finally:
            await answers.unsubscribe()

    def newest(self, *subjects: str) -> list[Stored]:
        """The last record of each subject that matches one of these, oldest first."""
        return self.wait_for(self._newest_in_the_end(subjects))

    async def _newest_in_the_end(self, subjects: Sequence[str]) -> list[Stored]:
        """What the server remembers of a reader is gone with it; then all is read anew."""
        until = self._loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await self._newest(subjects)
            except (ServerError, NatsTimeout, NoRespondersError) as error:
                lost = not isinstance(error, ServerError) or error.code == NO_CONSUMER
                if not lost or self._loop.time() > until:
                    raise
                await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def _newest(self, subjects: Sequence[str]) -> list[Stored]:
        config = {
            "ack_policy": "none",
            "deliver_policy": "last_per_subject",
            "filter_subjects": subjects,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": 60_000_000_000,
        }
        made = await self._api(f"CONSUMER.CREATE.{self._prefix}", {"stream_name": self._prefix, "config": config})
        name, pending = made["name"], made.get("num_pending", 0)
        found: list[Stored] = []
        while pending > 0:
            wanted = {"batch": min(pending, PAGE), "no_wait": True}
            pulled = self._pulled(f"$JS.API.CONSUMER.MSG.NEXT.{self._prefix}.{name}", wanted)
            page = [_delivered(message) async for message in pulled]
            if not page:
                break
            pending -= len(page)
            found += page
        await self._api(f"CONSUMER.DELETE.{self._prefix}.{name}")
        return found

    async def _pulled(self, subject: str, wanted: Mapping[str, Any]) -> AsyncIterator[Msg]:
        left = wanted["batch"]
        async for message in self._answers(subject, wanted):
            yield message
            left -= 1
            if not left:
                return


SUBJECTS_AT_ONCE_MAX = 500
"""Of one request; the server takes some thousand."""
NO_MESSAGE = 10037
NO_CONSUMER = 10014


REFUSED = (AuthorizationError, ssl.SSLCertVerificationError)
"""No waiting mends these."""


class Heard:
    """Messages of a subscription. Most have come by the time they are asked for, and then nothing is waited for."""

    def __init__(self) -> None:
        self._messages: deque[Msg] = deque()
        self._came = asyncio.Event()

    async def hear(self, message: Msg) -> None:
        self._messages.append(message)
        self._came.set()

    async def next(self) -> Msg:
        if not self._messages:
            self._came.clear()
            if not await happens(self._came, within=ANSWER_SECONDS_MAX):
                raise NatsTimeout
        return self._messages.popleft()


def is_last(page: Sequence[Stored]) -> bool:
    """Whether a page is as short as it is because there was no more, when it was read. (False may be wrong.)"""
    return len(page) < PAGE and sum(len(stored.payload) for stored in page) < PAGE_BYTES // 2


def _worst(errors: Sequence[Exception]) -> Exception:
    """What a server says that is there, rather than that another one is not; else the last."""
    return next(filter(is_refused, errors), errors[-1])


def is_refused(error: Exception) -> bool:
    # nats-py has a class for it, and only sometimes uses it.
    return isinstance(error, REFUSED) or AUTHORIZATION_VIOLATION in str(error).lower()


async def _first(work: Coroutine[Any, Any, T], given_up: asyncio.Event) -> T:
    """What comes of it, unless it is given up, or takes too long."""
    doing, waiting = asyncio.ensure_future(work), asyncio.ensure_future(given_up.wait())
    done, _ = await asyncio.wait({doing, waiting}, timeout=OPEN_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if doing in done:
        return doing.result()
    doing.cancel()
    raise TimeoutError("no answer")


def _judged(said: dict[str, Any]) -> dict[str, Any]:
    error = said.get("error")
    if error is None:
        return said
    code, text = error.get("err_code", error.get("code", 0)), error.get("description", "")
    if code in WRONG_LAST_SEQUENCE or code in BUSY:
        raise Refused(text)
    if code == DUPLICATE_IN_BATCH:
        raise Duplicate
    raise ServerError(code, text)


def _read(message: Msg) -> Stored:
    headers = message.headers or {}
    return Stored(headers["Nats-Subject"], int(headers["Nats-Sequence"]), message.data, headers.get(MESSAGE_ID))


def _delivered(message: Msg) -> Stored:
    id_ = message.headers.get(MESSAGE_ID) if message.headers else None
    return Stored(message.subject, message.metadata.sequence.stream, message.data, id_)


def milliseconds(stamp: str) -> int:
    """Of a time as the servers write it."""
    head, _, fraction = stamp.rstrip("Z").partition(".")
    whole = datetime.fromisoformat(f"{head}+00:00").timestamp()
    return int(whole) * 1000 + int((fraction + "000")[:3])
