"""Where transcripts are kept: beside the conversations, never in their way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from turnlane.errors import InvalidSettings
from turnlane.transcripts.entry import Added, Entry, FileState, Piece
from turnlane.transcripts.views import PAGE_ENTRIES, By, Hit, PromptView, Total, TranscriptView, Wanted

DEFAULT_FILE = "turnlane.transcripts.db"
POSTGRES = {"postgresql", "postgres"}


class Transcripts(Protocol):
    """Every verb but `close` may raise BackendUnavailable, and changes nothing then."""

    async def open(self) -> None:
        """Make the tables if there are none. Raises SchemaMismatch if they are of a newer version."""

    async def close(self) -> None:
        """A second time changes nothing."""

    async def states(self, paths: Sequence[str]) -> Mapping[str, FileState]:
        """How far those of the files were read that anybody has begun with."""

    async def add(self, pieces: Sequence[Piece]) -> Sequence[Added | None]:
        """Store the pieces in their order, with how far their files were read: all of them, or none.

        None for a piece whose file somebody else has read on with meanwhile. Entries that are known are passed over.
        """

    async def sessions(
        self,
        *,
        project: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int = 100,
    ) -> list[TranscriptView]:
        """Those that ended last at first."""

    async def session(self, beginning: str) -> TranscriptView:
        """The one whose id begins so. Raises NotFound if there is none, or several."""

    async def entries(
        self, session: str, *, after: tuple[int, int] | None = None, limit: int = PAGE_ENTRIES
    ) -> tuple[list[Entry], tuple[int, int] | None]:
        """A page of them by their time, and after what the next one begins; None: there is no more."""

    async def search(self, wanted: Wanted, *, limit: int = 20) -> list[Hit]:
        """Those that fit best at first; without words, the newest. Nothing that is typed is an error."""

    async def totals(self, by: By, *, since: int | None = None, until: int | None = None) -> list[Total]:
        """Added up by this, in the order of names. What a message took counts once, in however many files it stands."""

    async def note_prompt(
        self, session: str, prompt_id: str | None, at: int, text: str | None, *, project: str | None = None
    ) -> None:
        """Keep what a hook has told. A second time only a text that was missing is added."""

    async def fill_prompts(self, session: str) -> int:
        """Give prompts their text that came without, as far as the transcript has it. Returns how many."""

    async def prompts(self, session: str) -> list[PromptView]: ...


def open_transcripts(backend_url: str, file: Path | None = None) -> Transcripts:
    """The transcripts that belong to a backend, not yet opened: in its Postgres database, or in a file of their own.

    `turnlane.transcripts.db` beside `turnlane.db`; in the current folder if the backend is no file. `file`: another.
    """
    from turnlane.transcripts.sql import SqlTranscripts

    scheme = urlsplit(backend_url).scheme
    if file is None and scheme in POSTGRES:
        try:
            from turnlane.transcripts.postgres import PostgresTables
        except ModuleNotFoundError as error:
            missing = f"{scheme}:// needs the package {error.name}; pip install 'turnlane[postgres]'"
            raise InvalidSettings(missing) from error
        return SqlTranscripts(PostgresTables(backend_url))
    from turnlane.transcripts.sqlite import SqliteTables

    return SqlTranscripts(SqliteTables(file or file_beside(backend_url)))


def is_kept(backend_url: str, file: Path | None = None) -> bool:
    """Whether anybody has begun to keep transcripts there, as far as can be told without opening it."""
    if file is None and urlsplit(backend_url).scheme in POSTGRES:
        return True
    return (file or file_beside(backend_url)).exists()


async def every_entry(store: Transcripts, session: str) -> AsyncIterator[Entry]:
    """In their order, held in memory page by page."""
    page, after = await store.entries(session)
    while True:
        for entry in page:
            yield entry
        if after is None:
            return
        page, after = await store.entries(session, after=after)


def file_beside(backend_url: str) -> Path:
    parts = urlsplit(backend_url)
    if parts.scheme != "sqlite":
        return Path(DEFAULT_FILE)
    store = Path(unquote(parts.path[1:]))
    return store.with_name(f"{store.stem}.transcripts.db")
