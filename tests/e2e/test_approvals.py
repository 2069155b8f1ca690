"""Approvals (D9) with real processes: asked, killed, started again, answered."""

from __future__ import annotations

import sys

import pytest
from tests.e2e.site import SECRET, Site, eventually

from turnlane.model.notice import CLOSED
from turnlane.testing.outside import Outside, Reply, ask
from turnlane.testing.processes import Turnlane

PROGRAM = """
import json, sys
turn = json.load(sys.stdin)["turn"]
if not turn["answers"]:
    print(json.dumps({"ask": {"text": "Deploy now?", "options": ["yes", "no"], "timeout": float(sys.argv[1])}}))
else:
    print(json.dumps({"text": f"{turn['messages'][0]['text']}: {turn['answers'][0]['text']}"}))
"""


async def asked(site: Site, outside: Outside, *, on_ask: str, seconds: float = 600) -> Turnlane:
    """A process whose turn has asked."""
    site.configure(lanes=f'on_ask = "{on_ask}"', command=[sys.executable, "-c", PROGRAM, str(seconds)])
    runtime = await site.start()
    await site.post(runtime, "deploy")
    await outside.until(lambda: len(outside.replies) == 1)
    return runtime


async def press(runtime: Turnlane, outside: Outside, id: str, text: str) -> None:
    """The button of the first question."""
    said = {"id": id, "conversation": "alice", "text": text, "answers": outside.replies[0].key}
    answer = await ask(f"{await runtime.ready()}channels/site", said, secret=SECRET)
    assert (answer.status, answer.json["accepted"]) == (202, 1)


def texts(outside: Outside) -> list[str]:
    return [reply.text for reply in outside.replies]


@pytest.mark.parametrize("on_ask", ["set_aside", "hold"])
async def test_asked_killed_restarted_and_answered_the_turn_goes_on_once(
    site: Site, outside: Outside, on_ask: str
) -> None:
    (await asked(site, outside, on_ask=on_ask)).kill()
    runtime = await site.start()
    await site.post(runtime, "yes")
    await outside.until(lambda: len(outside.replies) == 2)
    await site.all_settled()
    assert texts(outside) == ["Deploy now?", "deploy: yes"]
    assert [(number, outcome) for _, number, outcome, _ in site.turns()] == [(1, "answered")]


async def test_who_has_not_been_asked_yet_does_not_answer(site: Site, outside: Outside) -> None:
    """The receiver is busy when the question comes, and meanwhile the person writes about something else."""
    is_busy = True

    async def receive(reply: Reply) -> int:
        return 429 if is_busy else 200

    outside.receive = receive
    site.configure(command=[sys.executable, "-c", PROGRAM, "600"])
    runtime = await site.start()
    await site.post(runtime, "deploy")

    async def was_refused() -> bool:
        story = await site.api(runtime, "conversations/site%2Falice")
        return any(attempt["result"] == "retried" for attempt in story["attempts"])

    await eventually(was_refused)
    await site.post(runtime, "yes")
    is_busy = False
    await outside.until(lambda: len(outside.replies) == 1)
    await site.post(runtime, "no")
    await outside.until(lambda: len(outside.replies) == 3)
    assert texts(outside) == ["Deploy now?", "deploy: no", "Deploy now?"]


async def test_answered_twice_the_second_changes_nothing(site: Site, outside: Outside) -> None:
    runtime = await asked(site, outside, on_ask="set_aside")
    await press(runtime, outside, "a-1", "no")
    await press(runtime, outside, "a-2", "yes")
    await outside.until(lambda: len(outside.replies) == 3)
    await site.all_settled()
    assert sorted(texts(outside)) == sorted(["Deploy now?", "deploy: no", CLOSED])
    assert [(number, outcome) for _, number, outcome, _ in site.turns()] == [(1, "answered")]


async def test_timed_out_the_agent_is_told_also_after_a_restart(site: Site, outside: Outside) -> None:
    (await asked(site, outside, on_ask="set_aside", seconds=1.0)).kill()
    await site.start()
    await outside.until(lambda: len(outside.replies) == 2)
    assert texts(outside) == ["Deploy now?", "deploy: None"]


async def test_an_operator_answers_over_the_api(site: Site, outside: Outside) -> None:
    runtime = await asked(site, outside, on_ask="set_aside")
    url = f"{await runtime.ready()}api/conversations/site%2Falice/answer"
    answer = await ask(url, {"text": "2"})
    assert (answer.status, answer.json["done"]) == (200, True)
    await outside.until(lambda: len(outside.replies) == 2)
    assert texts(outside) == ["Deploy now?", "deploy: no"]
    story = await site.api(runtime, "conversations/site%2Falice")
    [question] = story["questions"]
    assert (question["question"]["options"], question["answer"]) == (["yes", "no"], {"text": "no", "by": "operator"})

    async def idle() -> bool:
        return (await ask(url, {"text": "1"})).json["done"] is False

    await eventually(idle)
