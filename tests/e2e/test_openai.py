"""Real processes, the real client of OpenAI's, and a service that remembers: killed in a turn, it is paid for once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.agents.openai_service import KEY, MODEL, Mode, OpenAIService, serving
from tests.channels.loopback import answers, loopback
from tests.e2e.site import SECRET, Site

from turnlane.testing.outside import ask
from turnlane.testing.processes import Turnlane


@pytest.fixture
async def service() -> AsyncIterator[OpenAIService]:
    async with serving() as started:
        yield started


async def begun(site: Site, service: OpenAIService, api: str = "conversations", top: str = "") -> Turnlane:
    """A process that has answered m1, and so has a session."""
    agent = f'kind = "openai"\nmodel = "{MODEL}"\napi_key = "{KEY}"\nbase_url = "{service.url}"\napi = "{api}"'
    site.configure(top=top, agent=agent, lanes='backoff = { first = "200ms", most = "500ms" }')
    process = await site.start()
    await site.post(process, "m1")
    await site.outside.until(lambda: len(site.outside.replies) == 1)
    return process


async def texts(site: Site, times: int) -> list[str]:
    await site.outside.until(lambda: len(site.outside.replies) == times)
    return [reply.text for reply in site.outside.replies]


async def test_killed_while_the_model_answers_the_answer_is_found_sent_once_and_paid_for_once(
    site: Site, service: OpenAIService
) -> None:
    process = await begun(site, service)
    hold = asyncio.Event()
    service.next(Mode(hold=hold))
    await site.post(process, "m2")
    await service.until(lambda: len(service.bodies) == 2)
    process.kill()
    await process.ended()
    hold.set()
    await service.until(lambda: len(service.paid) == 2)
    await process.start()
    assert await texts(site, 2) == ["heard m1", "heard m1 | m2"]
    await site.post(process, "m3")
    assert (await texts(site, 3))[-1] == "heard m1 | m2 | m3"
    await site.all_settled()
    assert len(service.paid) == 3
    assert len(service.conversations) == 1
    assert len(site.outside.requests) == 3


async def test_while_the_lost_run_still_works_the_turn_waits_for_it_and_then_takes_its_answer(
    site: Site, service: OpenAIService
) -> None:
    process = await begun(site, service)
    hold = asyncio.Event()
    service.next(Mode(hold=hold))
    await site.post(process, "m2")
    await service.until(lambda: len(service.bodies) == 2)
    process.kill()
    await process.ended()
    await process.start()
    await process.said("turn.retried", times=4)  # more often than it may fail: to wait is no failure
    hold.set()
    assert (await texts(site, 2))[-1] == "heard m1 | m2"
    assert len(service.paid) == 2


async def test_a_run_that_died_with_its_process_is_run_again(site: Site, service: OpenAIService) -> None:
    process = await begun(site, service)
    service.next(Mode(completes=False))
    await site.post(process, "m2")
    await service.until(lambda: len(service.bodies) == 2)
    process.kill()
    await process.ended()
    await process.start()
    assert (await texts(site, 2))[-1] == "heard m1 | m2"
    assert len(service.paid) == 2


async def test_with_chat_completions_the_memory_is_in_the_store_and_outlives_a_kill(
    site: Site, service: OpenAIService
) -> None:
    process = await begun(site, service, "chat")
    process.kill()
    await process.ended()
    await process.start()
    await site.post(process, "m2")
    assert (await texts(site, 2))[-1] == "heard m1 | heard m1 | m2"


async def test_what_the_service_says_about_itself_never_reaches_the_customer(
    site: Site, service: OpenAIService
) -> None:
    process = await begun(site, service)
    service.next(*[Mode(status=500, message="stack trace of the vendor")] * 2, Mode(status=401, message="bad key"))
    await site.post(process, "m2")
    await process.said("turn.dead_lettered")
    await site.all_settled()
    assert not any("vendor" in reply.text or "key" in reply.text for reply in site.outside.replies)


async def test_a_picture_from_the_web_hook_reaches_the_model_and_one_from_inside_the_network_does_not(
    site: Site, service: OpenAIService
) -> None:
    """A16"""
    async with loopback(answers(200, b"\x89PNG", content_type="image/png")) as files:
        process = await begun(site, service, top=f'attachments.hosts = ["{files.url.split("/")[2]}", "127.0.0.1"]')
        urls = [files.url, f"{service.url}/secret.png", "http://169.254.169.254/latest"]
        said = {"id": "m2", "conversation": "alice", "text": "look", "attachments": [{"url": url} for url in urls]}
        answer = await ask(f"{await process.ready()}channels/site", said, secret=SECRET)
        assert answer.status == 202
        await texts(site, 2)
    [text, picture] = service.bodies[1]["input"][1]["content"]
    assert picture["image_url"] == "data:image/png;base64,iVBORw=="
    assert text["text"].count("its host is not among those that files are fetched from") == 2
    assert len(files.requests) == 1
