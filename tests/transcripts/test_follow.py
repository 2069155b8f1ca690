"""Transcripts are read as they grow: everything once, whatever happens to the file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.transcripts.written import (
    FIRST_AT,
    HOUR_MS,
    RECORDED,
    SESSION,
    all_entries,
    answered,
    append,
    line,
    recorded,
    said,
    text,
    texts,
    thinking,
    tool_result,
    tool_use,
    write,
)

from turnlane.model.usage import Usage
from turnlane.transcripts import Followed, Transcripts, files, follow
from turnlane.transcripts.entry import Counts

MODEL = "claude-opus-5-5"


async def test_what_was_said_thought_and_done_is_stored_in_its_order(store: Transcripts, path: Path) -> None:
    write(
        path,
        said("hello", promptId="p1")
        + answered(thinking("who is it?"), text("Hi!"), tool_use("Bash", "t1", command="ls\n-l", timeout=5), hour=1)
        + said(tool_result("t1", [{"type": "text", "text": "a.py"}], is_error=True), hour=2),
    )
    await follow(store, path)
    found = await all_entries(store)
    assert [(entry.kind, entry.text, entry.tool, entry.block) for entry in found] == [
        ("user", "hello", None, 0),
        ("thinking", "who is it?", None, 0),
        ("assistant", "Hi!", None, 1),
        ("tool_use", "command: ls\n-l\ntimeout: 5", "Bash", 2),
        ("tool_result", "a.py", "Bash", 0),
    ]
    assert (found[0].prompt_id, found[0].cwd, found[0].branch, found[0].version) == (
        "p1",
        "/home/user/proj",
        "main",
        "2.1.325",
    )
    assert (found[1].at, found[1].model, found[4].is_error) == (FIRST_AT + HOUR_MS, MODEL, True)


async def test_only_what_is_new_is_read(store: Transcripts, path: Path) -> None:
    write(path, said("one"))
    first = await follow(store, path)
    assert (first.entries, first.counts.lines) == (1, 1)
    assert await follow(store, path) == Followed()
    append(path, answered(text("two"), hour=1))
    second = await follow(store, path)
    assert (second.entries, second.counts.lines) == (1, 1)
    assert await texts(store) == ["one", "two"]


async def test_a_missing_or_empty_file_is_nothing_new(store: Transcripts, path: Path) -> None:
    assert await follow(store, path) == Followed()
    write(path, b"")
    assert await follow(store, path, final=True) == Followed()
    assert await store.sessions() == []


async def test_a_file_that_cannot_be_read_is_named(store: Transcripts, path: Path) -> None:
    write(path / "a file in it", b"")
    followed = await follow(store, path)
    assert [problem.startswith(f"{path}: ") for problem in followed.problems] == [True]


async def test_a_torn_last_line_is_read_once_it_is_whole(store: Transcripts, path: Path) -> None:
    whole = said("and the rest")
    write(path, said("one") + whole[:50])
    assert (await follow(store, path, final=True)).entries == 1
    append(path, whole[50:])
    assert (await follow(store, path)).entries == 1
    assert await texts(store) == ["one", "and the rest"]


async def test_at_a_final_reading_a_last_line_may_lack_its_end(store: Transcripts, path: Path) -> None:
    write(path, said("one") + said("two").removesuffix(b"\n"))
    assert (await follow(store, path)).entries == 1
    assert (await follow(store, path, final=True)).entries == 1
    append(path, b"\n" + said("three"))
    assert (await follow(store, path)).counts == Counts(lines=2, bytes=len(said("three")) + 1)
    assert await texts(store) == ["one", "two", "three"]


async def test_what_each_message_took_counts_once(store: Transcripts, path: Path) -> None:
    """Each line of a message repeats it, and the first ones may know less."""
    write(
        path,
        answered(thinking("hm"), id="msg_1", output=1, hour=1)
        + answered(text("so"), id="msg_1", output=40, hour=1)
        + answered(text("and so"), id="msg_2", output=2, hour=2)
        + answered(text("API Error: 529"), model="<synthetic>", isApiErrorMessage=True, hour=3),
    )
    assert (await follow(store, path)).usage == {MODEL: Usage(300, 42, 60)}
    append(path, answered(tool_use("Bash", "t", command="ls"), id="msg_2", output=50, hour=2))
    assert (await follow(store, path)).usage == {MODEL: Usage(0, 48, 0)}
    assert (await store.session(SESSION)).usage == {MODEL: Usage(300, 90, 60)}


async def test_what_nobody_said_is_kept_apart(store: Transcripts, path: Path) -> None:
    write(
        path,
        said("a note by the program", isMeta=True)
        + said("<task-notification>done</task-notification>", hour=1)
        + line("system", subtype="compact_boundary", content="Conversation compacted", hour=2, logicalParentUuid="u1")
        + said("This session is being continued…", isCompactSummary=True, hour=3)
        + answered(text("API Error: 529"), isApiErrorMessage=True, model="<synthetic>", hour=4)
        + line("summary", summary="Tidying up", hour=5)
        + said("go on", hour=6),
    )
    await follow(store, path)
    found = await all_entries(store)
    kinds = [entry.kind for entry in found]
    assert kinds == ["meta", "meta", "compact", "summary", "error", "summary", "user"]
    assert found[2].parent == "u1"
    assert (await store.session(SESSION)).prompt == "go on"


async def test_lines_without_a_time_come_first_and_begin_nothing(store: Transcripts, path: Path) -> None:
    """Older versions open a file with summaries of others."""
    write(path, line("summary", summary="Earlier", timestamp=None))
    await follow(store, path)
    append(path, said("hello", hour=1) + line("summary", summary="Now", timestamp=None) + said("bye", hour=2))
    await follow(store, path)
    assert await texts(store) == ["Earlier", "hello", "Now", "bye"]
    session = await store.session(SESSION)
    assert (session.began_at, session.ended_at) == (FIRST_AT + HOUR_MS, FIRST_AT + 2 * HOUR_MS)


async def test_subagents_belong_to_their_session(store: Transcripts, path: Path) -> None:
    write(path, said("do it") + said("aside", isSidechain=True, agentId="old", hour=1))
    beside = path.with_suffix("") / "subagents"
    write(beside / "agent-a1.jsonl", answered(text("done"), isSidechain=True, agentId="a1", hour=2))
    followed = await follow(store, path)
    assert (followed.entries, followed.usage) == (3, {MODEL: Usage(150, 17, 30)})
    assert [(entry.text, entry.agent) for entry in await all_entries(store)] == [
        ("do it", None),
        ("aside", "old"),
        ("done", "a1"),
    ]
    await follow(store, path.with_name("agent-older.jsonl"))
    write(path.with_name("agent-older.jsonl"), said("of an older version", hour=3))
    await follow(store, path.with_name("agent-older.jsonl"))
    assert (await all_entries(store))[-1].agent == "older"


async def test_a_fork_has_its_entries_but_costs_nothing_again(store: Transcripts, path: Path) -> None:
    common = said("hello") + answered(text("hi"), id="msg_1", hour=1)
    write(path, common)
    fork = path.with_name("f0000000-0000-4000-8000-000000000002.jsonl")
    write(fork, common + answered(text("on my own"), id="msg_2", hour=2))
    await follow(store, path)
    followed = await follow(store, fork)
    assert (followed.entries, followed.usage) == (3, {MODEL: Usage(150, 17, 30)})
    assert await texts(store) == ["hello", "hi"]
    assert await texts(store, fork.stem) == ["hello", "hi", "on my own"]


@pytest.mark.parametrize("grown", [True, False])
async def test_a_file_written_anew_is_read_anew(store: Transcripts, path: Path, grown: bool) -> None:
    kept = said("kept", hour=2)
    write(path, said("gone in the file", hour=1) + kept)
    await follow(store, path)
    new = said("new " * (200 if grown else 1), hour=3)
    write(path, kept + new)
    followed = await follow(store, path)
    assert (followed.entries, followed.counts.lines) == (1, 2)
    assert len(await all_entries(store)) == 3


async def test_a_file_cut_and_grown_beyond_is_read_anew(store: Transcripts, path: Path) -> None:
    beginning = said("x" * 5_000)
    write(path, beginning + said("first"))
    await follow(store, path)
    write(path, beginning + said("second") + said("third"))
    assert (await follow(store, path)).entries == 2


async def test_bad_lines_are_counted_and_good_ones_kept(
    store: Transcripts, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LINE_BYTES_MAX", 5_000)
    strange = said("half a pair \ud83d, a zero \0, and \U0001f469", hour=2)
    size = write(
        path,
        b"\x80\xff\x00 binary\n"
        + b'{"type": "user", "mess\n'
        + b"\0" * 100
        + said("after a crash", hour=1)
        + strange
        + b"\n[1, 2]\n42\n"
        + line("hologram")
        + line("attachment")
        + said("x" * 6_000)
        + b'{"type":"user","message":{"content":"caf\xe9"},"uuid":"u","timestamp":17}\n'
        + b'{"type":"assistant","message":{"content":[null,7,"plain",{"type":7}],"usage":{"input_tokens":-1e9}}}\n',
    )
    followed = await follow(store, path)
    counts = Counts(lines=12, bad=4, unknown=1, too_long=1, bytes=size)
    assert (followed.counts, followed.entries) == (counts, 4)
    assert sorted(await texts(store)) == [
        "after a crash",
        "caf\ufffd",
        "half a pair \ufffd, a zero \ufffd, and \U0001f469",
        "plain",
    ]


async def test_a_line_of_many_megabytes_is_read(store: Transcripts, path: Path) -> None:
    write(path, said([{"type": "image", "source": {"data": "x" * 5_000_000}}, text("look")]) + said("next", hour=1))
    assert (await follow(store, path)).entries == 3
    assert await texts(store) == ["[image]", "look", "next"]


async def test_texts_are_shortened_to_their_limits(store: Transcripts, path: Path) -> None:
    write(path, said("x" * 200_000) + said(tool_result("t", "y" * 200_000), hour=1))
    await follow(store, path)
    long, tool = await texts(store)
    assert long.endswith("x… [100,000 more characters]")
    assert tool.endswith("y… [196,000 more characters]")


async def test_two_that_follow_one_file_store_and_count_everything_once(
    open_store: Callable[[], Transcripts], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PIECE_ENTRIES", 5)
    write(path, b"".join(said(f"q{n}", hour=n / 60) + answered(text(f"a{n}"), hour=n / 60) for n in range(100)))
    both = await asyncio.gather(*(follow(open_store(), path) for _ in range(2)))
    assert sum(each.entries for each in both) == 200
    assert (both[0] + both[1]).usage == {MODEL: Usage(15_000, 1_700, 3_000)}
    assert (await open_store().session(SESSION)).entries == 200


@pytest.mark.parametrize("file", sorted(RECORDED.glob("*.jsonl")), ids=lambda file: file.stem)
async def test_recorded_transcripts_are_read_whole(store: Transcripts, file: Path) -> None:
    lines = recorded(file)
    session = lines[0]["sessionId"]
    followed = await follow(store, file, session=session)
    assert followed.counts == Counts(lines=len(lines), bytes=followed.counts.bytes)
    asked = [
        "/compact" if "<command-name>/compact<" in entry["message"]["content"] else entry["message"]["content"]
        for entry in lines
        if entry["type"] == "user"
        and isinstance(entry["message"]["content"], str)
        and not entry.get("isMeta")
        and not entry.get("isCompactSummary")
        and not entry["message"]["content"].startswith(("<task-notification>", "<local-command-"))
    ]
    assert [entry.text for entry in await all_entries(store, session) if entry.kind == "user"] == asked
    used = {
        entry["message"]["id"]: entry["message"]["usage"]["output_tokens"]
        for entry in lines
        if entry["type"] == "assistant"
    }
    (spent,) = (await store.session(session[:8])).usage.values()
    assert spent.output_tokens == sum(used.values())


async def test_a_file_name_of_any_bytes_is_followed(store: Transcripts, path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(path.parent) + b"/\xff.jsonl"))
    write(odd, said("hello"))
    assert (await follow(store, odd, session=SESSION)).entries == 1
    assert (await follow(store, odd, session=SESSION)).entries == 0
