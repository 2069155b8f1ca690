"""Whatever stands in a file, and however it grows: no good line is lost, none is stored twice, nothing stops."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transcripts.written import SESSION, answered, append, line, said, text, texts, thinking, tool_result

from turnlane.transcripts import Transcripts, follow, open_transcripts
from turnlane.transcripts.importing import import_folder

GOOD = [
    *(said(f"good {number}") for number in range(10)),
    *(answered(text(f"good {number}"), id=f"msg_{number}") for number in range(10, 20)),
    *(answered(thinking(f"good {number}"), id="msg_one") for number in range(20, 25)),
    said("good 25 " + "\\u0000\ud800 é \U0001f469" * 50),
    said(tool_result("t", "good 26 " + "x" * 20_000)),
]
WORDS = [f"good {number}" for number in range(len(GOOD))]

wholes = st.integers(0, len(GOOD) - 1).map(lambda number: (number, GOOD[number]))
torn = st.builds(
    lambda number, at: GOOD[number][: at % (len(GOOD[number]) - 2)] + b"\n", st.integers(0, 26), st.integers(0)
)
binary = st.binary(max_size=200).map(lambda data: data + b"\n")
json_of_no_account = st.sampled_from(
    [b"{}\n", b"[]\n", b"null\n", b'{"type":7}\n', b'{"type":"user"}\n', b'{"type":"assistant","message":[]}\n', b"\n"]
)
nested = st.just(b'{"type":"user","message":' + b"[" * 50_000 + b"]" * 50_000 + b"}\n")
junk = st.one_of(torn, binary, json_of_no_account, nested, st.just(line("hologram"))).map(lambda data: (None, data))


@settings(max_examples=60, database=None)
@given(parts=st.lists(wholes | junk, max_size=30), cuts=st.lists(st.integers(0, 100_000), max_size=4))
def test_no_good_line_is_lost_and_nothing_stops(parts: list[tuple[int | None, bytes]], cuts: list[int]) -> None:
    data = b"".join(part for _, part in parts)
    good = sorted({number for number, _ in parts if number is not None})
    places = sorted(cut % (len(data) + 1) for cut in cuts)
    grown = [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
    assert asyncio.run(stored(grown)) == sorted(WORDS[number] for number in good)


async def stored(grown: list[bytes]) -> list[str]:
    """The first two words of whatever was stored of a file that grew so, and was followed each time; or imported."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "projects", f"{SESSION}.jsonl")
        store, other = (open_transcripts("memory://", Path(folder, name)) for name in ("one.db", "other.db"))
        try:
            for data in grown:
                append(path, data)
                assert not (await follow(store, path)).problems
            await import_folder(other, path.parent)
            found = await beginnings(store)
            assert await beginnings(other) == found
            return found
        finally:
            await store.close()
            await other.close()


async def beginnings(store: Transcripts) -> list[str]:
    return sorted(" ".join(each.split()[:2]) for each in await texts(store))
