"""Who may ask: the operator and viewers by their tokens, and on loopback no page of another site."""

from __future__ import annotations

import httpx2
import pytest
from tests.http.conftest import SmallBot, in_process

from turnlane.errors import InvalidSettings
from turnlane.http.listen import bind, inherited_socket, is_loopback
from turnlane.http.server import create_app

GUARDED = ["/api/lanes", "/api/events", "/api/counts", "/api/nothing", "/metrics"]


def problem(answer: httpx2.Response, status: int) -> str:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    detail: str = answer.json()["detail"]
    return detail


@pytest.mark.parametrize("path", GUARDED)
@pytest.mark.parametrize("listen_host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize(
    "given", [None, b"Bearer wrong", b"Bearer ", b"Basic b3BlcmF0b3I=", b"operator", b"Bearer operato\xff"]
)
async def test_the_operators_side_needs_the_operators_token(
    bot: SmallBot, path: str, listen_host: str, given: bytes | None
) -> None:
    bot.operator_token = "operator"
    headers = {} if given is None else {b"authorization": given}
    async with in_process(bot, listen_host=listen_host) as client:
        answer = await client.get(path, headers=headers)
    problem(answer, 401)
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_the_operator_comes_in_from_anywhere(bot: SmallBot) -> None:
    bot.operator_token = "opérator"
    async with in_process(bot, listen_host="0.0.0.0") as client:
        headers = {b"authorization": "Bearer opérator".encode(), b"host": b"bots.example.com"}
        assert (await client.get("/api/lanes", headers=headers)).status_code == 200
        assert (await client.get("/metrics", headers=headers)).status_code == 200


async def test_health_needs_no_token(bot: SmallBot) -> None:
    bot.operator_token = "operator"
    async with in_process(bot, listen_host="0.0.0.0") as client:
        assert (await client.get("/healthz")).json() == {"status": "up"}
        assert (await client.get("/readyz")).json() == {"status": "ready"}


async def test_nothing_is_served_to_the_world_without_a_token(bot: SmallBot) -> None:
    with pytest.raises(InvalidSettings, match="operator_token"):
        create_app(bot, listen_host="0.0.0.0")


VIEWER = {"authorization": "Bearer viewer"}
CHANGES = [
    ("POST", "/api/conversations/site%2Falice/pause"),
    ("POST", "/api/conversations/site%2Falice/say"),
    ("POST", "/api/schedules"),
    ("PUT", "/api/settings/lanes.debounce"),
    ("DELETE", "/api/settings/lanes.debounce"),
    ("PATCH", "/api/nothing"),
]


@pytest.mark.parametrize("path", ["/api/lanes", "/api/settings", "/api/me", "/metrics", "/console"])
async def test_a_viewer_sees_what_the_operator_sees(bot: SmallBot, path: str) -> None:
    bot.operator_token, bot.viewer_token = "operator", "viewer"
    async with in_process(bot, listen_host="0.0.0.0") as client:
        assert (await client.get(path, headers=VIEWER)).status_code == 200
        assert (await client.head(path, headers=VIEWER)).status_code == 200


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_a_viewer_changes_nothing(bot: SmallBot, method: str, path: str) -> None:
    bot.operator_token, bot.viewer_token = "operator", "viewer"
    await bot.say("site/alice", "hi")
    before = await bot.backend.events()
    async with in_process(bot, listen_host="0.0.0.0") as client:
        answer = await client.request(method, path, headers=VIEWER, json={"text": "hi", "value": "9s"})
    assert "operator token" in problem(answer, 403)
    assert await bot.backend.events() == before


async def test_only_a_token_that_is_set_lets_anybody_in(bot: SmallBot) -> None:
    bot.operator_token = "operator"
    async with in_process(bot, listen_host="0.0.0.0") as client:
        problem(await client.get("/api/lanes", headers=VIEWER), 401)


@pytest.mark.parametrize("path", ["/", "/api/lanes", "/metrics", "/chat/chat.js"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8484", "", "[", "10.0.0.1"])
async def test_a_name_that_was_pointed_at_this_machine_is_refused(
    client: httpx2.AsyncClient, path: str, host: str
) -> None:
    problem(await client.get(path, headers={"host": host}), 403)


@pytest.mark.parametrize("host", ["127.0.0.1:8484", "localhost", "LOCALHOST:8484", "[::1]:8484", "127.8.9.10"])
async def test_every_name_of_this_machine_is_welcome(client: httpx2.AsyncClient, host: str) -> None:
    assert (await client.get("/api/lanes", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("path", ["/", "/api/lanes", "/api/events", "/metrics"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "http://127.0.0.1:3000"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    ],
)
async def test_pages_of_other_sites_may_not_ask(client: httpx2.AsyncClient, path: str, headers: dict[str, str]) -> None:
    answer = await client.get(path, headers=headers)
    problem(answer, 403)
    assert "access-control-allow-origin" not in answer.headers


async def test_our_own_page_and_a_followed_link_may(client: httpx2.AsyncClient) -> None:
    own = {"origin": "http://127.0.0.1:8484", "sec-fetch-site": "same-origin"}
    assert (await client.get("/api/lanes", headers=own)).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (await client.get("/", headers=link)).status_code == 200


def test_loopback_is_known_by_every_name() -> None:
    assert all(is_loopback(host) for host in ["127.0.0.1", "127.1.2.3", "::1", "localhost", "Localhost."])
    assert not any(is_loopback(host) for host in ["0.0.0.0", "::", "", "10.0.0.1", "localhost.evil.example"])


@pytest.mark.parametrize("listen", ["8484", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:http", ":8484", "a b:1"])
def test_an_address_that_cannot_be_read_names_the_form(listen: str) -> None:
    with pytest.raises(InvalidSettings, match="HOST:PORT"):
        bind(listen)


def test_a_port_that_is_taken_names_the_next_step() -> None:
    with bind("127.0.0.1:0") as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidSettings, match="--listen"):
            bind(f"127.0.0.1:{port}")


def test_a_socket_is_inherited_only_from_a_supervisor() -> None:
    assert inherited_socket({}) is None
    with pytest.raises(InvalidSettings, match="unset it"):
        inherited_socket({"TURNLANE_LISTEN_FD": "no number"})
    with bind("127.0.0.1:0") as bound:
        port = bound.getsockname()[1]
        inherited = inherited_socket({"TURNLANE_LISTEN_FD": str(bound.detach())})
    assert inherited is not None
    with inherited:
        assert inherited.getsockname()[1] == port
