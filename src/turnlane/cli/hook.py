"""What Claude Code calls at each event: keeps it in the spool, wakes whoever listens, and is gone.

Standard library only, and little of it: it runs while a person waits at the keyboard. Whatever goes wrong is written
beside the spool, and never fails the person's session. `install`, `uninstall` and `status` are in hook_settings.py.
"""

from __future__ import annotations

import os
import sys
import time

PAYLOAD_BYTES_MAX = 128 * 1024
"""A longer event is cut: what tools answered is in the transcript, too."""
STDIN_BYTES_MAX = 64 * 1024 * 1024
TEXT_CHARACTERS_MAX = 4_000
"""Of each text in an event that is cut."""
START_AGAIN_SECONDS = 10.0
"""How long a worker that was started may take until it listens."""
LOG_BYTES_MAX = 1_000_000

NEW, WRITING, WAKE, LOG, STARTED, START = "new", "writing", "wake", "hook.log", "started", "start.json"
"""In the spool: events, events that are being written, the pipe of who listens, troubles, when a worker was last
started, and how to start one."""


def main(argv: list[str] | None = None) -> int:
    """Always 0: any other answer would mean something to Claude Code."""
    spool, verbose = read_options(sys.argv[1:] if argv is None else argv)
    try:
        keep(spool, sys.stdin.buffer.read(STDIN_BYTES_MAX))
        if not wake(spool):
            start_worker(spool)
    except Exception as error:  # noqa: BLE001 - whatever it is, the person at the keyboard has other worries
        complain(spool, error, verbose=verbose)
    return 0


def read_options(argv: list[str]) -> tuple[str, bool]:
    """`[hook] [--spool FOLDER] [--verbose]`; anything else is none of our business here."""
    spool = argv[argv.index("--spool") + 1] if "--spool" in argv[:-1] else default_spool()
    return spool, "--verbose" in argv


def default_spool() -> str:
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.environ.get("TURNLANE_SPOOL") or os.path.join(home, "turnlane", "spool")


# Keep


def keep(spool: str, payload: bytes) -> str:
    """Durable when this returns. The name sorts by time, and is the event's id."""
    for folder in (NEW, WRITING):
        os.makedirs(os.path.join(spool, folder), mode=0o700, exist_ok=True)
    name = f"{time.time_ns():020d}-{os.getpid()}-{os.urandom(4).hex()}.json"
    written, kept = os.path.join(spool, WRITING, name), os.path.join(spool, NEW, name)
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _write_all(descriptor, payload if len(payload) <= PAYLOAD_BYTES_MAX else cut(payload))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(written, kept)
    _sync_folder(os.path.dirname(kept))
    return name


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _sync_folder(path: str) -> None:
    """A name is durable when its folder is."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cut(payload: bytes) -> bytes:
    """The same event with its long texts cut short; what is no JSON is cut where it is too long."""
    import json

    try:
        event = json.loads(payload)
    except ValueError:
        return payload[:PAYLOAD_BYTES_MAX]
    shortened = json.dumps(_shortened(event)).encode()
    return shortened if len(shortened) <= PAYLOAD_BYTES_MAX else json.dumps(_bare(event)).encode()


def _shortened(value: object) -> object:
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARACTERS_MAX else value[:TEXT_CHARACTERS_MAX] + "…"
    if isinstance(value, list):
        return [_shortened(each) for each in value[:100]]
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    return value


def _bare(event: object) -> object:
    """Who, what and where, and nothing else."""
    if not isinstance(event, dict):
        return None
    return {key: _shortened(each) for key, each in event.items() if isinstance(each, str | int | float | None)}


# Wake


def wake(spool: str) -> bool:
    """False: nobody listens."""
    try:
        pipe = os.open(os.path.join(spool, WAKE), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # there is no pipe, or nobody at its other end
        return False
    try:
        os.write(pipe, b"!")
    except BlockingIOError:
        return True  # so many have woken it that one more makes no difference
    finally:
        os.close(pipe)
    return True


def start_worker(spool: str) -> bool:
    """In the background, and free of this process; it ends by itself. False: nobody said how, or one is on its way."""
    started = os.path.join(spool, STARTED)
    now = time.time()
    try:
        if 0 <= now - os.stat(started).st_mtime < START_AGAIN_SECONDS:
            return False
    except FileNotFoundError:
        pass  # the first one ever
    try:
        with open(os.path.join(spool, START), encoding="utf-8") as file:
            import json

            how = json.load(file)
    except FileNotFoundError:
        return False
    with open(started, "w", encoding="utf-8"):
        os.utime(started, (now, now))
    log = os.path.join(spool, "worker.log")
    os.posix_spawn(
        how["argv"][0],
        how["argv"],
        worker_environment(os.environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return True


def worker_environment(environ: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    """Without what Claude Code tells its own children: the worker is nobody's child."""
    return {name: value for name, value in environ.items() if not name.startswith(("CLAUDE", "ANTHROPIC_"))}


# Complain


def complain(spool: str, error: Exception, *, verbose: bool) -> None:
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {type(error).__name__}: {error}\n"
    if verbose:
        sys.stderr.write(line)
    try:
        path = os.path.join(spool, LOG)
        if not os.path.exists(path) or os.stat(path).st_size < LOG_BYTES_MAX:
            with open(path, "a", encoding="utf-8") as log:
                log.write(line)
    except OSError:
        return  # there is no place left to complain at


if __name__ == "__main__":
    sys.exit(main())
