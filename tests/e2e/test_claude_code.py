"""A real `turnlane run` that answers with the real Claude Code, with a model API on loopback."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.agents.anthropic import Anthropic
from tests.agents.test_claude_code_for_real import STUCK, kill_the_program, processes_in, runs_a_tool, transcript
from tests.e2e.site import SECRET, Site

from turnlane.agents.claude_code.options import found_program
from turnlane.model.notice import STOPPED
from turnlane.testing.outside import Outside, ask
from turnlane.testing.processes import Turnlane

pytestmark = pytest.mark.skipif(
    found_program(["claude"], os.environ) is None, reason="needs Claude Code; the package claude-agent-sdk brings it"
)

AGENT = """
kind = "claude_code"
cwd = "people/{{conversation}}"
allowed_tools = ["Bash(tail *)"]
env = {{ HOME = "{home}", ANTHROPIC_BASE_URL = "{url}", ANTHROPIC_API_KEY = "key", CLAUDE_CODE_MAX_RETRIES = "0" }}
"""


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Anthropic]:
    async with Anthropic() as api:
        yield api
    # A runtime that is killed outright cannot end what it started.
    kill_the_program(tmp_path)


def configure(site: Site, api: Anthropic, on_busy: str = "collect") -> None:
    agent = AGENT.format(home=site.folder, url=api.url)
    site.configure(lanes=f'on_busy = "{on_busy}"\nbackoff = {{ first = "100ms" }}', lease=3, agent=agent)


async def say(process: Turnlane, id: str, text: str, conversation: str = "alice") -> None:
    said = [{"id": id, "conversation": conversation, "text": text}]
    answer = await ask(f"{await process.ready()}channels/site", said, secret=SECRET)
    assert answer.status == 202, answer


async def answers(outside: Outside, *texts: str, conversation: str = "alice") -> None:
    """These are all that was ever said in the conversation, in this order."""

    def said() -> list[str]:
        return [reply.text for reply in outside.replies if reply.conversation == conversation]

    await outside.until(lambda: len(said()) >= len(texts))
    assert said() == list(texts)


async def test_sessions_go_on_over_turns_and_a_restart_of_everything(
    site: Site, outside: Outside, api: Anthropic
) -> None:
    configure(site, api)
    process = await site.start()
    await say(process, "a1", "I am Alice")
    await say(process, "b1", "I am Bob", "bob")
    await outside.until(lambda: len(outside.replies) == 2)
    await say(process, "a2", "/clear")
    await outside.until(lambda: len(outside.replies) == 3)
    process.terminate()
    assert await process.ended() == 0
    await process.start()
    await say(process, "a3", "who am I?")
    await say(process, "b2", "and me?", "bob")
    alice = ('I heard ["I am Alice"]', 'I heard ["I am Alice", "/clear"]')
    await answers(outside, *alice, 'I heard ["I am Alice", "/clear", "who am I?"]')
    await answers(outside, 'I heard ["I am Bob"]', 'I heard ["I am Bob", "and me?"]', conversation="bob")
    assert len(api.asked) == 5


async def test_a_worker_killed_in_the_middle_of_a_turn_is_followed_by_one_answer(
    site: Site, outside: Outside, api: Anthropic
) -> None:
    configure(site, api)
    process = await site.start()
    await say(process, "m1", "one")
    await answers(outside, 'I heard ["one"]')
    await say(process, "m2", "two HOLD")
    await site.comes_true(lambda: b"two HOLD" in transcript(site.folder, ""))
    process.kill()
    await process.ended()
    assert processes_in(site.folder) != {}
    await process.start()
    await api.until(lambda: len(api.asked) == 3)
    assert len(processes_in(site.folder)) == 1
    api.release()
    await answers(outside, 'I heard ["one"]', 'I heard ["one", "two HOLD"]')
    await say(process, "m3", "three")
    await answers(outside, 'I heard ["one"]', 'I heard ["one", "two HOLD"]', 'I heard ["one", "two HOLD", "three"]')


async def test_an_answer_that_a_killed_worker_never_heard_is_not_paid_for_again(
    site: Site, outside: Outside, api: Anthropic
) -> None:
    configure(site, api)
    process = await site.start()
    await say(process, "m1", "one HOLD")
    await site.comes_true(lambda: b"one HOLD" in transcript(site.folder, ""))
    process.freeze()
    api.release()
    await site.comes_true(lambda: b'"end_turn"' in transcript(site.folder, ""))
    process.kill()
    await process.ended()
    await process.start()
    await answers(outside, 'I heard ["one HOLD"]')
    assert len(api.asked) == 1
    await say(process, "m2", "two")
    await answers(outside, 'I heard ["one HOLD"]', 'I heard ["one HOLD", "two"]')
    sessions = await site.api(process, "conversations/site/alice")
    assert '"input_tokens": 300' in str(sessions).replace("'", '"')


async def test_a_program_killed_in_the_middle_of_a_turn_is_run_again(
    site: Site, outside: Outside, api: Anthropic
) -> None:
    configure(site, api)
    process = await site.start()
    await say(process, "m1", "one HOLD")
    await api.until(lambda: len(api.asked) == 1)
    kill_the_program(site.folder)
    await process.said("turn.retried")
    api.release()
    await answers(outside, 'I heard ["one HOLD"]')


async def test_an_overloaded_api_never_reaches_the_customer(site: Site, outside: Outside, api: Anthropic) -> None:
    configure(site, api)
    api.failing_with = 529
    process = await site.start()
    await say(process, "m1", "one")
    await api.until(lambda: len(api.asked) == 3)
    assert outside.requests == []
    api.failing_with = None
    await answers(outside, 'I heard ["one"]')


async def test_a_stuck_tool_dies_with_its_turn(site: Site, outside: Outside, api: Anthropic) -> None:
    configure(site, api)
    process = await site.start()
    await say(process, "m1", "one")
    await answers(outside, 'I heard ["one"]')
    (site.folder / "people" / "site%2Falice" / "never-ends").touch()
    await say(process, "m2", STUCK)
    await site.comes_true(lambda: runs_a_tool(site.folder))
    await say(process, "m3", "/stop")
    await site.comes_true(lambda: processes_in(site.folder) == {})
    await say(process, "m4", "four")
    await answers(outside, 'I heard ["one"]', STOPPED, 'I heard ["one", "four"]')


async def test_an_interrupted_turn_is_asked_again_with_what_interrupted_it(
    site: Site, outside: Outside, api: Anthropic
) -> None:
    configure(site, api, on_busy="interrupt")
    process = await site.start()
    await say(process, "m1", "one")
    await answers(outside, 'I heard ["one"]')
    await say(process, "m2", "two HOLD")
    await site.comes_true(lambda: b"two HOLD" in transcript(site.folder, ""))
    await say(process, "m3", "three")
    await api.until(lambda: len(api.asked) == 3)
    api.release()
    await answers(outside, 'I heard ["one"]', 'I heard ["one", "two HOLD\\nthree"]')


async def test_what_is_said_meanwhile_steers_the_turn(site: Site, outside: Outside, api: Anthropic) -> None:
    configure(site, api, on_busy="steer")
    process = await site.start()
    await say(process, "m1", "one HOLD")
    await api.until(lambda: len(api.asked) == 1)
    await say(process, "m2", "two")
    await site.comes_true(lambda: transcript(site.folder, "").count(b'"enqueue"') == 2)
    api.release()
    await answers(outside, 'I heard ["one HOLD"]', 'I heard ["one HOLD", "two"]')
    assert {(reply.turn, reply.in_reply_to) for reply in outside.replies} == {(1, ("m1", "m2"))}
