"""A whole folder of projects, brought into the store: as fast as it can be written, in little memory, resumable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from turnlane.model.value import value
from turnlane.transcripts.entry import FileState, Piece
from turnlane.transcripts.files import key_of, pieces_of, transcripts_in
from turnlane.transcripts.follow import Followed, follow_file, followed
from turnlane.transcripts.store import Transcripts

GROUP_BYTES = 4 * 1024 * 1024
"""Of lines that are stored in one transaction: many small files cost one wait for the disk together."""
PAGE_FILES = 500
"""Whose places are looked up together."""


@value
class Progress:
    files: int
    files_done: int = 0
    new: Followed = Followed()


@dataclass(slots=True)
class _Group:
    pieces: list[Piece] = field(default_factory=list)
    files_done: int = 0
    problems: list[str] = field(default_factory=list)


async def import_folder(
    store: Transcripts, folder: Path, report: Callable[[Progress], None] = lambda progress: None
) -> Progress:
    """Store what is new in every transcript under the folder. Each commit counts: killed, it goes on from there."""
    paths = await asyncio.to_thread(transcripts_in, folder)
    progress = Progress(len(paths))
    for start in range(0, len(paths), PAGE_FILES):
        page = {key_of(path): path for path in paths[start : start + PAGE_FILES]}
        groups = _groups(page, await store.states(list(page)))
        group = await asyncio.to_thread(next, groups, None)
        while group is not None:
            # The next files are read while these are written.
            new, following = await asyncio.gather(_add(store, page, group), asyncio.to_thread(next, groups, None))
            progress = Progress(progress.files, progress.files_done + group.files_done, progress.new + new)
            report(progress)
            group = following
    return progress


def _groups(page: Mapping[str, Path], states: Mapping[str, FileState]) -> Iterator[_Group]:
    group, size = _Group(), 0
    for key, path in page.items():
        try:
            for piece in pieces_of(path, states.get(key), final=True):
                group.pieces.append(piece)
                size += piece.counts.bytes
                if size >= GROUP_BYTES:
                    yield group
                    group, size = _Group(), 0
        except OSError as error:
            group.problems.append(f"{path}: {error.strerror or error}")
        group.files_done += 1
    yield group


async def _add(store: Transcripts, page: Mapping[str, Path], group: _Group) -> Followed:
    new = Followed(problems=tuple(group.problems))
    added = await store.add(group.pieces) if group.pieces else ()
    overtaken = {}
    for piece, each in zip(group.pieces, added, strict=True):
        if each is None:
            overtaken[piece.path] = page[piece.path]
        else:
            new += followed(piece, each)
    return new + await _catch_up(store, list(overtaken.values()))


async def _catch_up(store: Transcripts, paths: Sequence[Path]) -> Followed:
    """Somebody else reads them just now; what they leave is taken."""
    new = Followed()
    for path in paths:
        new += await follow_file(store, path, final=True)
    return new
