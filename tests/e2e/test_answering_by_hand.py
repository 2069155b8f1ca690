"""People of the business answer in real processes: the agent's program ends, and returns knowing what was said."""

from __future__ import annotations

import asyncio

from tests.e2e.site import SECRET, Site
from tests.e2e.test_busy import Program, ended, program  # noqa: F401 - a fixture

from turnlane.testing.outside import Call, Outside, ask
from turnlane.testing.processes import Turnlane

TAKEOVER = '\n[takeover]\nsilent_for = "{}"'


async def business_says(site: Site, process: Turnlane, text: str) -> None:
    said = {"id": text, "conversation": "alice", "text": text, "role": "business"}
    answer = await ask(f"{await process.ready()}channels/site", said, secret=SECRET)
    assert (answer.status, answer.json["accepted"]) == (202, 1), answer


async def typed(site: Site, *words: str) -> None:
    """An operator at a terminal, in the folder of the site."""
    async with Turnlane(*words, folder=site.folder) as command:
        assert await command.ended() == 0, command.last_words


async def test_a_colleague_ends_the_agents_program_and_it_returns_knowing_all(
    site: Site,
    outside: Outside,
    program: Program,  # noqa: F811 - the fixture
) -> None:
    site.configure(lanes=TAKEOVER.format("2s"), command=program.command)
    runtime = await site.start()
    await site.post(runtime, "m1")
    pids = await program.runs(turn=1)
    await business_says(site, runtime, "I am looking")
    await ended(pids)
    assert program.tidied_up(turn=1)
    await site.post(runtime, "m2")
    await program.runs(turn=2)
    program.may_answer(turn=2)
    await site.all_settled()
    assert [reply.text for reply in outside.replies] == ["m1 + I am looking + m2"]
    assert [row[2] for row in site.turns()] == ["superseded", "answered"]


async def test_a_takeover_survives_a_kill_and_ends_on_time(site: Site, outside: Outside) -> None:
    site.configure(lanes=TAKEOVER.format("3s"))
    runtime = await site.start()
    await business_says(site, runtime, "hello, Anna here")
    await site.post(runtime, "m1")
    runtime.kill()
    await runtime.ended()
    again = await site.start()
    (lane,) = (await site.api(again, "lanes"))["lanes"]
    assert (lane["state"], lane["paused_until"] is not None) == ("paused", True)
    await site.all_settled()
    (call,) = outside.calls
    assert [(said["role"], said["text"]) for said in call.turn["messages"]] == [
        ("business", "hello, Anna here"),
        ("person", "m1"),
    ]
    (resumed,) = [line for line in again.lines if line.get("event") == "lane.resumed"]
    assert resumed["by"] == "time"


async def test_an_operator_answers_from_another_process_while_the_agent_thinks(site: Site, outside: Outside) -> None:
    thinking, may_go_on = asyncio.Event(), asyncio.Event()

    async def think(call: Call) -> str:
        thinking.set()
        await may_go_on.wait()
        return "re: " + " + ".join(call.texts)

    outside.respond = think
    site.configure(lanes=TAKEOVER.format("1h"))
    runtime = await site.start()
    await site.post(runtime, "m1")
    await asyncio.wait_for(thinking.wait(), 20)
    await typed(site, "send", "site/alice", "Anna here", "--as-operator", "--id", "a-1")
    await site.comes_true(lambda: len(outside.replies) == 1)
    may_go_on.set()
    await typed(site, "resume", "site/alice")
    await site.all_settled()
    assert [(reply.text, reply.turn) for reply in outside.replies] == [("Anna here", None), ("re: m1 + Anna here", 2)]
