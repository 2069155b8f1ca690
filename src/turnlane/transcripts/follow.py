"""A transcript on its way into the store, as far as it has been written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from turnlane.model.usage import NO_USAGE, Usage
from turnlane.model.value import value
from turnlane.transcripts.entry import Added, Counts, Piece
from turnlane.transcripts.files import key_of, pieces_of, subagents_of
from turnlane.transcripts.store import Transcripts


@value
class Followed:
    """What was new."""

    entries: int = 0
    counts: Counts = Counts()
    """Of the lines that were read now."""
    usage: Mapping[str, Usage] = field(default_factory=dict)
    """By model: what was never counted before, to be put into the ledger."""
    problems: Sequence[str] = ()
    """Files that could not be read."""

    def __add__(self, other: Followed) -> Followed:
        models = {*self.usage, *other.usage}
        usage = {model: self.usage.get(model, NO_USAGE) + other.usage.get(model, NO_USAGE) for model in models}
        problems = (*self.problems, *other.problems)
        return Followed(self.entries + other.entries, self.counts + other.counts, usage, problems)


def followed(piece: Piece, added: Added) -> Followed:
    return Followed(added.entries, piece.counts, added.usage)


async def follow(store: Transcripts, path: Path, *, session: str | None = None, final: bool = False) -> Followed:
    """Store what a transcript and those of its sub-agents have gained since the last time. None there: nothing new.

    May be called again and by several processes at once: everything is stored once, and counted once. `session`: if the
    file is not named after it. `final`: nobody writes to it any more, so a last line may lack its end.
    """
    everything = Followed()
    for file in [path, *await asyncio.to_thread(subagents_of, path)]:
        try:
            everything += await follow_file(store, file, session, final=final)
        except FileNotFoundError:
            continue  # not written yet, or swept away
        except OSError as error:
            everything += Followed(problems=(f"{file}: {error.strerror or error}",))
    await store.fill_prompts(session or path.stem)
    return everything


async def follow_file(store: Transcripts, path: Path, session: str | None = None, *, final: bool = False) -> Followed:
    """One file alone. Raises OSError if it cannot be read."""
    everything, key = Followed(), key_of(path)
    while True:
        state = (await store.states([key])).get(key)
        # Not closed by hand: whoever is cancelled leaves while a thread may still be reading.
        pieces = pieces_of(path, state, session=session, final=final)
        while piece := await asyncio.to_thread(next, pieces, None):
            (added,) = await store.add([piece])
            if added is None:
                break  # somebody else has come further meanwhile: look where, and go on from there
            everything += followed(piece, added)
        else:
            return everything
