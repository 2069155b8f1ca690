"""Files of transcripts, read in pieces from where somebody has left off."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from turnlane.transcripts.entry import Counts, FileState, Piece
from turnlane.transcripts.read import Reading, decoded

LINE_BYTES_MAX = 32 * 1024 * 1024
"""A longer line is passed over, and counted."""
PIECE_BYTES = 1024 * 1024
PIECE_ENTRIES = 2_000
MARK_BYTES = 1024
SUBAGENTS = "subagents"
AGENT = "agent-"


def subagents_of(path: Path) -> list[Path]:
    """The files of a session's sub-agents, which stand in a folder beside its own."""
    return sorted(path.with_suffix("").glob(f"{SUBAGENTS}/**/{AGENT}*.jsonl"))


def key_of(path: Path) -> str:
    """Under which the store knows the file, whatever bytes its name holds."""
    return os.fsencode(path.absolute()).decode("utf-8", "replace")


def pieces_of(
    path: Path, state: FileState | None, *, session: str | None = None, final: bool = False
) -> Iterator[Piece]:
    """What is new in the file since `state`, in pieces. Raises OSError if it cannot be read.

    A file that is another one now is read from its beginning. A last line without its end is left for the next time,
    but at a `final` reading one that is whole all the same is taken.
    """
    with path.open("rb") as file:
        head = file.read(MARK_BYTES)
        offset, tail = _left_off(file, head, state)
        counts = Counts() if state is None or offset == 0 else state.counts
        before = state
        reading = reading_of(path, session, state.at if state is not None and offset else 0)
        for line, last, size in _lines(file):
            is_torn = not last.endswith(b"\n")
            if is_torn and not (final and line is not None and decoded(line) is not None):
                break
            if line is None:
                reading.skip(size)
            else:
                reading.read(line)
            offset += size
            tail = (tail + last)[-MARK_BYTES:]
            if reading.counts.bytes >= PIECE_BYTES or len(reading.entries) >= PIECE_ENTRIES:
                piece = _piece(path, before, reading, offset, mark_of(head, tail, offset), counts)
                yield piece
                before, counts = piece.after, piece.after.counts
        if reading.counts.lines:
            yield _piece(path, before, reading, offset, mark_of(head, tail, offset), counts)


def reading_of(path: Path, session: str | None, at: int) -> Reading:
    """A file is named after its session, or after its sub-agent; older ones of those say only inside whose it is."""
    if not path.stem.startswith(AGENT):
        return Reading(session=session or path.stem, fallback=path.stem, at=at)
    agent = path.stem.removeprefix(AGENT) or None
    folders = path.parts[:-1]
    if session is None and SUBAGENTS in folders[1:]:
        session = folders[folders.index(SUBAGENTS, 1) - 1]
    return Reading(session=session, fallback=path.stem, agent=agent, at=at)


def mark_of(head: bytes, tail: bytes, offset: int) -> str:
    size = min(offset, MARK_BYTES)
    return blake2b(head[:size] + tail[-size:] if size else b"", digest_size=16).hexdigest()


def _left_off(file: BinaryIO, head: bytes, state: FileState | None) -> tuple[int, bytes]:
    """Where to go on, and the bytes before it. At the beginning, if the file was cut, written anew or replaced."""
    if state is not None:
        size = min(state.offset, MARK_BYTES)
        file.seek(state.offset - size)
        tail = file.read(size)
        if len(tail) == size and mark_of(head, tail, state.offset) == state.mark:
            return state.offset, tail
    file.seek(0)
    return 0, b""


def _lines(file: BinaryIO) -> Iterator[tuple[bytes | None, bytes, int]]:
    """Each line, its last bytes and its size; None for one that is too long, which is never held in memory."""
    while line := file.readline(LINE_BYTES_MAX + 1):
        if len(line) <= LINE_BYTES_MAX or line.endswith(b"\n"):
            yield line, line[-MARK_BYTES:], len(line)
            continue
        last, size = line[-MARK_BYTES:], len(line)
        while not last.endswith(b"\n") and (more := file.readline(PIECE_BYTES)):
            last, size = (last + more)[-MARK_BYTES:], size + len(more)
        yield None, last, size


def _piece(path: Path, before: FileState | None, reading: Reading, offset: int, mark: str, counts: Counts) -> Piece:
    """What was gathered so far; the reading begins to gather anew."""
    after = FileState(offset, mark, reading.at, counts + reading.counts)
    piece = Piece(key_of(path), before, after, tuple(reading.entries), tuple(reading.usages), reading.counts)
    reading.entries, reading.usages, reading.counts = [], [], Counts()
    return piece


def transcripts_in(folder: Path) -> list[Path]:
    """Every transcript in a folder of projects, those of sub-agents included, in a lasting order."""
    return sorted(path for path in folder.rglob("*.jsonl") if path.is_file())
