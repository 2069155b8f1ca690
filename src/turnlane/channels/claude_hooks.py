"""The channel of Claude Code's hooks: takes the events that `turnlane hook` keeps in the spool, each once."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from turnlane.channels.base import Aside, Heard, Receive
from turnlane.errors import BackendUnavailable, InvalidMessage
from turnlane.event_loop import happens
from turnlane.model.delivery import Delivery, Refused, SendResult
from turnlane.model.message import Message, conversation_key

NEW, WRITING, WAKE, LOCK = "new", "writing", "wake", "lock"
"""As `turnlane hook` knows them (cli/hook.py), and the lock of who takes."""

TAKEN_AT_ONCE = 200
LOOK_SECONDS = 1.0
"""How often to look without being woken: whoever waits for the lock, or a wake-up that got lost."""
RETRY_SECONDS = 0.5
WRITING_SECONDS_MAX = 3600.0
"""What is still being written after so long was left by a hook that was killed."""
SENDER = "keyboard"
MACHINE = "machine"
"""What is added to an event: where the files are that it names."""

_NAME = re.compile(r"(\d{20})-\d+-[0-9a-f]{8}\.json")


class ClaudeHooks:
    """One process at a time takes from a spool; if it is gone, the next one does."""

    def __init__(self, name: str, *, spool: str | os.PathLike[str], machine: str = "") -> None:
        self.name = name
        self._machine = machine
        self._spool = Path(spool).expanduser()
        self._unreadable: set[str] = set()
        """Left where they are, for whoever may read them, and told of once."""

    async def listen(self, receive: Receive) -> None:
        for folder in (NEW, WRITING):
            (self._spool / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        async with self._alone(), _woken(self._spool / WAKE) as woken:
            self._sweep()
            while True:
                woken.clear()
                while await self._take(receive):
                    pass
                await happens(woken, within=LOOK_SECONDS)

    async def send(self, delivery: Delivery) -> SendResult:
        return Refused("nobody at a keyboard can be answered; let the agent of this channel say nothing")

    async def close(self) -> None:
        """Nothing is held: the lock ends with `listen`."""

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        descriptor = os.open(self._spool / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            # The lock is another process's, which tells nobody when it is gone.
            while not _is_locked(descriptor):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_SECONDS)
            yield
        finally:
            os.close(descriptor)

    def _sweep(self) -> None:
        """Remove what hooks that were killed have left. The time is that of the files, and so of their disk."""
        (self._spool / LOCK).touch()
        now = (self._spool / LOCK).stat().st_mtime
        for left in (self._spool / WRITING).iterdir():
            with suppress(FileNotFoundError):  # it was not left after all
                if now - left.stat().st_mtime > WRITING_SECONDS_MAX:
                    left.unlink()

    async def _take(self, receive: Receive) -> bool:
        """Some of what is there, oldest first. False: there was nothing, or it cannot be stored just now.

        A file goes when its event is durable. If we are gone before that, it is taken again, and known by its name.
        """
        there = set(os.listdir(self._spool / NEW)) - self._unreadable
        names = sorted(name for name in there if _NAME.fullmatch(name))[:TAKEN_AT_ONCE]
        if not names:
            return False
        read = [self._read(name) for name in names]
        messages = [each for each in read if isinstance(each, Message)]
        heard = Heard(messages, asides=[each for each in read if isinstance(each, Aside)])
        try:
            await receive(heard)
        except BackendUnavailable:
            await asyncio.sleep(RETRY_SECONDS)
            return False
        for name in set(names) - self._unreadable:
            (self._spool / NEW / name).unlink(missing_ok=True)
        return True

    def _read(self, name: str) -> Message | Aside | None:
        try:
            text = (self._spool / NEW / name).read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            self._unreadable.add(name)
            return Aside("an event of Claude Code whose file cannot be read", str(error))
        try:
            event = json.loads(text)
            session = event["session_id"]
            if not session:
                raise ValueError("no session")
            return Message(
                channel=self.name,
                origin_id=name,
                conversation=conversation_key(self.name, session),
                sender=SENDER,
                text=json.dumps({**event, MACHINE: self._machine}),
                sent_at=int(name[:20]) // 1_000_000,
            )
        except (ValueError, KeyError, TypeError, RecursionError, InvalidMessage):
            return Aside("an event of Claude Code that cannot be read", text)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            return False
        raise
    return True


@asynccontextmanager
async def _woken(path: Path) -> AsyncIterator[asyncio.Event]:
    """Set whenever somebody writes to the pipe. While it is open here, they find that somebody listens."""
    with suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    # Open for writing, too, so that the pipe does not end each time that somebody closes it.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    woken = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear() -> None:
        with suppress(BlockingIOError):
            os.read(descriptor, 4096)
        woken.set()

    loop.add_reader(descriptor, hear)
    try:
        yield woken
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
