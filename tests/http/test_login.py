"""The login: a token for a badge, what the badge is good for, and what is made of every attempt to get around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from importlib.resources import files
from urllib.parse import quote

import httpx2
import pytest
from starlette.exceptions import HTTPException
from tests.http.conftest import SmallBot, in_process

from turnlane.http.access import COOKIE
from turnlane.http.attempts import ADDRESSES_MAX, OVERALL, PER_ADDRESS, Attempts
from turnlane.http.badge import LASTS_SECONDS, Badges
from turnlane.http.login import FORM, FORM_BYTES_MAX, TO_CHARACTERS_MAX, own_place
from turnlane.http.server import create_app
from turnlane.model.event import Event
from turnlane.testing.doubles import VirtualClock

HOST = "bots.example.com"
LOGIN = "/console/login"
OPERATOR, VIEWER = "the operator's: token/é", "the viewer's"
PAUSE = "/api/conversations/site%2Falice/pause"
A_STRANGER = "203.0.113.9"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def guarded(clock: VirtualClock) -> AsyncIterator[SmallBot]:
    """On an address that others reach, with both tokens."""
    bot = SmallBot(operator_token=OPERATOR, clock=clock)
    bot.viewer_token = VIEWER
    await bot.backend.open()
    await bot.say("site/alice", "hi")
    yield bot
    await bot.backend.close()


def browser(bot: SmallBot, address: str = "198.51.100.7") -> httpx2.AsyncClient:
    """Keeps its cookies, and follows no redirect by itself."""
    app = create_app(bot, listen_host="0.0.0.0", metrics=bot.metrics)
    return at(app, address)


def at(app: object, address: str) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False, client=(address, 4321))  # type: ignore[arg-type]  # Starlette's own types are narrower
    return httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}")


async def log_in(client: httpx2.AsyncClient, token: str = OPERATOR, **form: str) -> httpx2.Response:
    return await client.post(LOGIN, data={"token": token, **form}, headers={"origin": f"http://{HOST}"})


async def csrf_of(client: httpx2.AsyncClient) -> dict[str, str]:
    me = (await client.get("/api/me")).json()
    return {"x-turnlane-csrf": me["csrf"]}


def badge_of(client: httpx2.AsyncClient) -> str:
    badge = client.cookies.get(COOKIE)
    assert badge is not None
    return badge


async def answers_to(bot: SmallBot, badge: str) -> int:
    async with browser(bot) as client:
        return (await client.get("/api/lanes", headers={"cookie": f"{COOKIE}={badge}"})).status_code


def told(bot: SmallBot, name: str) -> list[Event]:
    return [event for event in bot.events if event.name == name]


# In and out


async def test_who_is_not_logged_in_is_sent_to_the_login_and_back(guarded: SmallBot) -> None:
    async with browser(guarded) as client:
        sent = await client.get("/console?state=parked&x=%2F")
        assert sent.status_code == 303
        assert sent.headers["location"] == f"{LOGIN}?to=" + quote("/console?state=parked&x=%2F")
        page = await client.get(sent.headers["location"])
        assert page.status_code == 200
        assert 'value="/console?state=parked&amp;x=%2F"' in page.text
        entered = await log_in(client, to="/console?state=parked&x=%2F")
        assert (entered.status_code, entered.headers["location"]) == (303, "/console?state=parked&x=%2F")
        assert (await client.get("/console")).status_code == 200
        assert (await client.get(LOGIN)).headers["location"] == "/console"


async def test_the_api_says_401_and_names_the_login(guarded: SmallBot) -> None:
    async with browser(guarded) as client:
        answer = await client.get("/api/lanes")
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert LOGIN in answer.json()["detail"]


@pytest.mark.parametrize(
    ("token", "role"), [(OPERATOR, "operator"), (VIEWER, "viewer"), (f" {OPERATOR}\n", "operator")]
)
async def test_the_token_decides_the_role(guarded: SmallBot, token: str, role: str) -> None:
    async with browser(guarded) as client:
        await log_in(client, token)
        me = (await client.get("/api/me")).json()
    assert (me["role"], me["open"], len(me["csrf"])) == (role, False, 64)
    (accepted,) = told(guarded, "login.accepted")
    assert accepted.facts == {"from": "198.51.100.7", "role": role}


async def test_a_token_in_the_header_needs_no_badge_and_no_csrf(guarded: SmallBot) -> None:
    async with browser(guarded) as client:
        header = {b"authorization": f"Bearer {OPERATOR}".encode()}
        assert (await client.get("/api/me", headers=header)).json() == {"role": "operator", "csrf": None, "open": False}
        assert (await client.post(PAUSE, headers=header)).status_code == 200


async def test_on_loopback_without_a_token_everybody_is_in(bot: SmallBot) -> None:
    await bot.say("site/alice", "hi")
    async with in_process(bot) as client:
        assert (await client.get("/api/me")).json() == {"role": "operator", "csrf": None, "open": True}
        assert (await client.get(LOGIN)).headers["location"] == "/console"
        assert (await client.post(LOGIN, data={"token": "any"})).headers["location"] == "/console"
        assert (await client.get("/console")).status_code == 200
        assert (await client.post(PAUSE)).status_code == 200


async def test_on_loopback_a_token_that_is_set_is_asked_for(guarded: SmallBot) -> None:
    async with in_process(guarded) as client:
        assert (await client.get("/console")).status_code == 303
        assert (await client.get("/api/me")).status_code == 401
        assert (await client.post(LOGIN, data={"token": OPERATOR})).status_code == 303
        assert (await client.get("/api/me")).json()["role"] == "operator"


async def test_logging_out_makes_the_browser_forget(guarded: SmallBot) -> None:
    async with browser(guarded) as client:
        await log_in(client)
        assert (await client.post("/console/logout", headers={"origin": "https://evil.example"})).status_code == 403
        left = await client.post("/console/logout")
        assert (left.status_code, left.headers["location"]) == (303, LOGIN)
        assert COOKIE not in client.cookies
        assert (await client.get("/api/me")).status_code == 401


# The badge


@pytest.mark.parametrize(
    ("headers", "secure"),
    [
        ({}, False),
        ({"origin": f"http://{HOST}"}, False),
        ({"origin": f"https://{HOST}"}, True),
        ({"x-forwarded-proto": "https"}, True),
    ],
)
async def test_the_cookie_is_for_the_browser_alone(guarded: SmallBot, headers: dict[str, str], secure: bool) -> None:
    async with browser(guarded) as client:
        answer = await client.post(LOGIN, data={"token": OPERATOR}, headers=headers)
    cookie = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    assert cookie["httponly"] is True
    assert (cookie["samesite"].lower(), cookie["path"], cookie["domain"]) == ("strict", "/", "")
    assert cookie["max-age"] == str(LASTS_SECONDS)
    assert bool(cookie["secure"]) is secure
    assert answer.headers["cache-control"] == "no-store"


async def test_a_badge_is_good_for_a_shift_and_no_longer(guarded: SmallBot, clock: VirtualClock) -> None:
    async with browser(guarded) as client:
        await log_in(client)
        badge = badge_of(client)
    clock.advance(LASTS_SECONDS * 1000 - 1)
    assert await answers_to(guarded, badge) == 200
    clock.advance(1)
    assert await answers_to(guarded, badge) == 401


async def test_every_process_with_the_same_tokens_takes_a_badge(guarded: SmallBot, clock: VirtualClock) -> None:
    async with browser(guarded) as client:
        await log_in(client)
        badge = badge_of(client)
    other = SmallBot(operator_token=OPERATOR, clock=clock)
    other.viewer_token = "not what it was"
    await other.backend.open()
    assert await answers_to(other, badge) == 200
    other.operator_token = "not what it was either"
    assert await answers_to(other, badge) == 401
    await other.backend.close()


def _forged(badge: str) -> list[str]:
    role, end, nonce, seal = badge.split(".")
    others = Badges({"operator": b"another", "viewer": b"token"})
    return [
        "",
        ".",
        "....",
        "operator",
        badge[:-1],
        badge[1:],
        badge + "0",
        badge.upper(),
        f"operator.{end}.{nonce}.{seal}",
        f"{role}.{int(end) + 1}.{nonce}.{seal}",
        f"{role}.{end}.{nonce}x.{seal}",
        f"{role}.{end}.{nonce}.",
        f"{role}.{end}.{nonce}.{'0' * 64}",
        f"{role}.x.{nonce}.{seal}",
        f"root.{end}.{nonce}.{seal}",
        f"{role}.{end}.{nonce}.{seal}.{seal}",
        f"{role}.{end}.{nonce}.{'é' * 64}",
        others.issue("operator", nonce=nonce, now=int(end)),
        others.issue("viewer", nonce=nonce, now=int(end)),
    ]


async def test_a_badge_that_was_made_up_cut_or_changed_is_none(guarded: SmallBot) -> None:
    async with browser(guarded) as client:
        await log_in(client, VIEWER)
        badge = badge_of(client)
        assert await answers_to(guarded, badge) == 200
        client.cookies.clear()
        for forged in _forged(badge):
            cookie = {b"cookie": f"{COOKIE}={forged}".encode()}
            assert (await client.get("/api/lanes", headers=cookie)).status_code == 401, forged
            assert (await client.get("/console", headers=cookie)).status_code == 303, forged
    # Nobody guesses a seal, and an old badge is no attempt.
    assert told(guarded, "login.refused") == []


# Changing something by a badge


async def test_a_change_needs_what_only_our_page_can_read(guarded: SmallBot) -> None:
    async with browser(guarded) as client, browser(guarded) as another:
        await log_in(client)
        await log_in(another)
        right = await csrf_of(client)
        of_another = await csrf_of(another)
        assert right != of_another
        for wrong in ({}, {"x-turnlane-csrf": ""}, {"x-turnlane-csrf": right["x-turnlane-csrf"][:-1]}, of_another):
            refused = await client.post(PAUSE, headers=wrong)
            assert refused.status_code == 403
            assert "/api/me" in refused.json()["detail"]
        assert (await client.post(PAUSE, headers={b"x-turnlane-csrf": b"\xff\xfe"})).status_code == 403
        assert (await client.get(PAUSE.removesuffix("/pause"))).json()["lanes"][0]["state"] != "paused"
        assert (await client.post(PAUSE, headers=right)).status_code == 200
        assert (await client.get(PAUSE.removesuffix("/pause"))).json()["lanes"][0]["state"] == "paused"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": f"https://{HOST}.evil.example"},
        {"origin": f"http://{HOST}:8080"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_another_sites_page_changes_nothing_whatever_it_knows(guarded: SmallBot, headers: dict[str, str]) -> None:
    async with browser(guarded) as client:
        await log_in(client)
        csrf = await csrf_of(client)
        assert (await client.post(PAUSE, headers=headers | csrf)).status_code == 403
        assert (await client.post(LOGIN, data={"token": OPERATOR}, headers=headers)).status_code == 403
        own = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
        assert (await client.post(PAUSE, headers=own | csrf)).status_code == 200


async def test_a_viewers_badge_changes_nothing(guarded: SmallBot) -> None:
    async with browser(guarded) as client:
        await log_in(client, VIEWER)
        refused = await client.post(PAUSE, headers=await csrf_of(client))
    assert refused.status_code == 403
    assert "viewer" in refused.json()["detail"]


# Where the login leads


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/console",
        "//evil.example/console",
        "/\\evil.example",
        "/console\\..\\evil",
        "/console@evil.example",
        "/consolation",
        "console",
        "",
        "/",
        "/api/lanes",
        "javascript:alert(1)",
        "/console\r\nset-cookie: a=b",
        "/console/\x00",
        "/console/ü",
        " /console",
        "/console#" + "x" * TO_CHARACTERS_MAX,
        LOGIN,
        "/console/logout",
    ],
)
async def test_the_login_leads_nowhere_but_into_the_console(guarded: SmallBot, wanted: str) -> None:
    assert own_place(wanted) == "/console"
    async with browser(guarded) as client:
        page = await client.get(LOGIN, params={"to": wanted})
        assert 'value="/console"' in page.text
        entered = await log_in(client, to=wanted)
    assert entered.headers["location"] == "/console"


@pytest.mark.parametrize("wanted", ["/console", "/console/", "/console?a=b", "/console#/conversation/site%2Falice"])
def test_every_place_of_the_console_can_be_wanted(wanted: str) -> None:
    assert own_place(wanted) == wanted


# The page


async def test_the_page_asks_nobody_else_and_is_in_nobodys_frame(guarded: SmallBot) -> None:
    async with browser(guarded) as client:
        for answer in (await client.get(LOGIN), await log_in(client, "wrong"), await client.get("/console/login.js")):
            policy = answer.headers["content-security-policy"]
            for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
                assert part in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert "form-action 'self'" in (await client.get(LOGIN)).headers["content-security-policy"]


def test_the_page_loads_nothing_from_elsewhere_and_holds_no_script_of_its_own() -> None:
    page = (files("turnlane.http") / "console" / "login.html").read_text("utf-8")
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "onclick" not in page
    assert "style=" not in page
    assert page.count("<script") == page.count('<script src="/') + page.count('<script type="module" src="/') == 2


async def test_what_the_login_page_is_given_shows_as_text(guarded: SmallBot) -> None:
    markup = "/console?\"><script>alert('1')</script>"
    async with browser(guarded) as client:
        page = await client.get(LOGIN, params={"to": markup})
    assert "<script>alert" not in page.text
    assert "&quot;&gt;&lt;script&gt;" in page.text


async def test_the_template_itself_is_not_served(guarded: SmallBot) -> None:
    async with browser(guarded) as client:
        assert (await client.get("/console/login.html")).status_code == 404
        assert (await client.get("/console/login.css")).headers["content-type"].startswith("text/css")


async def test_what_is_no_form_is_refused(guarded: SmallBot) -> None:
    async with browser(guarded) as client:
        assert (await client.post(LOGIN, json={"token": OPERATOR})).status_code == 415
        assert (await client.post(LOGIN, data={"token": "x" * FORM_BYTES_MAX})).status_code == 413
        for body in (b"", b"token", b"&" * 100 + b"token=%ff%00", b"\xff=\xfe"):
            answer = await client.post(LOGIN, content=body, headers={"content-type": FORM})
            assert answer.status_code in (400, 401), body


# Wrong tokens


async def test_a_wrong_token_is_said_to_be_wrong_and_told_of(guarded: SmallBot) -> None:
    async with browser(guarded) as client:
        refused = await log_in(client, "s3cret guess")
        assert refused.status_code == 401
        assert "not right" in refused.text
        assert "set-cookie" not in refused.headers
        await client.get("/api/lanes", headers={"authorization": "Bearer s3cret guess"})
        shown = refused.text + str(guarded.events)
    assert [event.facts["way"] for event in told(guarded, "login.refused")] == ["form", "header"]
    assert "s3cret" not in shown


async def test_tokens_are_in_no_event_error_or_page(guarded: SmallBot) -> None:
    seen = ""
    async with browser(guarded) as client:
        for token in ("wrong", OPERATOR, VIEWER):
            seen += (await log_in(client, token)).text
        badge = badge_of(client)
        for path in ("/api/me", "/console", "/api/settings", PAUSE):
            seen += (await client.get(path)).text
            seen += (await client.get(path, headers={"authorization": "Bearer nothing"})).text
        seen += (await client.post(PAUSE)).text
    seen += str(guarded.events) + str(await guarded.backend.events())
    assert all(secret not in seen for secret in (OPERATOR, VIEWER, badge))


@pytest.mark.parametrize("way", ["form", "header"])
async def test_too_many_wrong_tokens_have_to_wait(guarded: SmallBot, clock: VirtualClock, way: str) -> None:
    async with browser(guarded, A_STRANGER) as client:

        async def tries(token: str) -> httpx2.Response:
            if way == "form":
                return await log_in(client, token)
            return await client.get("/api/lanes", headers={b"authorization": f"Bearer {token}".encode()})

        for _ in range(PER_ADDRESS.burst):
            assert (await tries("wrong")).status_code == 401
        for token in ("wrong", OPERATOR):
            refused = await tries(token)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == str(PER_ADDRESS.every_ms // 1000)
            assert "too many" in refused.text
        assert len(told(guarded, "login.refused")) == PER_ADDRESS.burst
        clock.advance(PER_ADDRESS.every_ms)
        assert (await tries("wrong")).status_code == 401
        assert (await tries("wrong")).status_code == 429
        clock.advance(PER_ADDRESS.every_ms)
        assert (await tries(OPERATOR)).status_code in (200, 303)


async def test_who_is_logged_in_or_comes_from_elsewhere_does_not_wait(guarded: SmallBot) -> None:
    app = create_app(guarded, listen_host="0.0.0.0", metrics=guarded.metrics)
    async with at(app, A_STRANGER) as stranger, at(app, A_STRANGER) as inside, at(app, "198.51.100.7") as elsewhere:
        await log_in(inside)
        for _ in range(PER_ADDRESS.burst):
            await log_in(stranger, "wrong")
        assert (await log_in(stranger)).status_code == 429
        assert (await inside.get("/api/lanes")).status_code == 200
        assert (await log_in(elsewhere)).status_code == 303


async def test_many_who_guess_lock_out_each_other_and_nobody_who_knows(guarded: SmallBot) -> None:
    app = create_app(guarded, listen_host="0.0.0.0", metrics=guarded.metrics)
    wrong = {"authorization": "Bearer wrong"}
    for number in range(OVERALL.burst):
        async with at(app, f"10.0.{number // 250}.{number % 250}") as stranger:
            assert (await stranger.get("/api/lanes", headers=wrong)).status_code == 401
    async with at(app, "10.0.0.0") as stranger:
        assert (await stranger.get("/api/lanes", headers=wrong)).status_code == 429
    async with at(app, "198.51.100.7") as knows:
        assert (await log_in(knows)).status_code == 303


async def test_an_address_of_ipv6_is_its_network(guarded: SmallBot) -> None:
    app = create_app(guarded, listen_host="0.0.0.0", metrics=guarded.metrics)
    for number in range(PER_ADDRESS.burst):
        async with at(app, f"2001:db8::{number}") as stranger:
            assert (await log_in(stranger, "wrong")).status_code == 401
    async with at(app, "2001:db8::ffff") as stranger, at(app, "2001:db8:0:1::1") as neighbour:
        assert (await log_in(stranger, "wrong")).status_code == 429
        assert (await log_in(neighbour, "wrong")).status_code == 401


async def test_old_addresses_on_a_new_socket_are_not_one_network(guarded: SmallBot) -> None:
    app = create_app(guarded, listen_host="0.0.0.0", metrics=guarded.metrics)
    async with at(app, "::ffff:10.0.0.1") as stranger, at(app, "::ffff:10.0.0.2") as another:
        for _ in range(PER_ADDRESS.burst):
            assert (await log_in(stranger, "wrong")).status_code == 401
        assert (await log_in(stranger, "wrong")).status_code == 429
        assert (await log_in(another, "wrong")).status_code == 401


def test_no_more_addresses_are_remembered_than_fit(clock: VirtualClock) -> None:
    attempts = Attempts(clock)
    for _ in range(PER_ADDRESS.burst):
        attempts.failed(A_STRANGER)
    with pytest.raises(HTTPException):
        attempts.check(A_STRANGER)
    for number in range(ADDRESSES_MAX):
        attempts.failed(f"10.1.{number // 250}.{number % 250}")
    attempts.check(A_STRANGER)


# Behind proxies


@pytest.mark.parametrize(
    ("proxies", "forwarded", "address"),
    [
        (0, "203.0.113.9", "10.0.0.1"),
        (1, "203.0.113.9", "203.0.113.9"),
        (1, "1.1.1.1, 203.0.113.9", "203.0.113.9"),
        (2, "1.1.1.1, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        (2, "203.0.113.9", "10.0.0.1"),
        (1, "not an address", "10.0.0.1"),
        (1, "", "10.0.0.1"),
    ],
)
async def test_the_caller_is_whom_our_own_proxies_name(
    guarded: SmallBot, proxies: int, forwarded: str, address: str
) -> None:
    guarded.proxies = proxies
    async with browser(guarded, "10.0.0.1") as client:
        headers = {"x-forwarded-for": forwarded, "origin": f"http://{HOST}"}
        await client.post(LOGIN, data={"token": OPERATOR}, headers=headers)
    (accepted,) = told(guarded, "login.accepted")
    assert accepted.facts["from"] == address
