"""Who writes: at hand, read anew when it changes anywhere, and never a reason not to answer."""

from __future__ import annotations

import pytest

from turnlane.backends.base import Backend
from turnlane.errors import BackendUnavailable
from turnlane.model.delivery import Delivery, SendResult, Sent
from turnlane.model.event import Event
from turnlane.model.person import Person
from turnlane.people.profiles import CACHED_MOST, CACHED_SECONDS, Profiles
from turnlane.testing.doubles import VirtualClock


class Phone:
    """A channel whose platform knows some people."""

    name = "phone"

    def __init__(self) -> None:
        self.knows: dict[str, Person | Exception] = {"alice": Person("phone", "alice", "Alice", labels=("vip",))}
        self.asked: list[str] = []

    async def profile(self, user: str) -> Person | None:
        self.asked.append(user)
        found = self.knows.get(user)
        if isinstance(found, Exception):
            raise found
        return found

    async def send(self, delivery: Delivery) -> SendResult:
        return Sent()

    async def close(self) -> None:
        """Nothing is held."""


class Counted:
    """The store, with a count of how often it is asked about somebody; and it may be out of reach."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.reads = 0
        self.is_away = False

    async def person(self, channel: str, user: str) -> Person | None:
        self.reads += 1
        if self.is_away:
            raise BackendUnavailable("the store is away")
        return await self._backend.person(channel, user)

    def __getattr__(self, name: str) -> object:
        return getattr(self._backend, name)


@pytest.fixture
def store(backend: Backend) -> Counted:
    return Counted(backend)


@pytest.fixture
def said() -> list[Event]:
    return []


@pytest.fixture
def phone() -> Phone:
    return Phone()


@pytest.fixture
def people(store: Counted, clock: VirtualClock, phone: Phone, said: list[Event]) -> Profiles:
    return Profiles(backend=store, clock=clock, channels={"phone": phone}, emit=said.append)  # type: ignore[arg-type]


async def test_whoever_is_at_hand_is_not_looked_up(people: Profiles, store: Counted, backend: Backend) -> None:
    """B1"""
    stored = await backend.save_person(Person("phone", "bob", "Bob"))
    assert await people.of("phone", "bob") == await people.of("phone", "bob") == stored
    assert (store.reads, people.cache.hits, people.cache.misses) == (1, 1, 1)


async def test_after_half_a_day_somebody_is_read_anew(people: Profiles, store: Counted, clock: VirtualClock) -> None:
    await people.of("phone", "bob")
    clock.advance(int(CACHED_SECONDS * 1000))
    await people.of("phone", "bob")
    assert store.reads == 2


async def test_who_wrote_longest_ago_makes_room(people: Profiles, store: Counted) -> None:
    for number in range(CACHED_MOST):
        await people.of("phone", f"user-{number}")
    await people.of("phone", "user-0")
    await people.of("phone", "one-more")
    assert len(people.cache) == CACHED_MOST
    store.reads = 0
    await people.of("phone", "user-0")
    assert store.reads == 0
    await people.of("phone", "user-1")
    assert store.reads == 1


async def test_a_platform_is_asked_beside_the_path_of_a_message(people: Profiles, phone: Phone) -> None:
    """B2: the first look gives what there is, without waiting; what the platform says is there for the next."""
    assert await people.of("phone", "alice") == Person("phone", "alice")
    assert phone.asked == []
    await people.enrich(("phone", "alice"))
    known = await people.of("phone", "alice")
    assert (known.name, known.labels, known.version) == ("Alice", ("vip",), 1)


async def test_an_update_reaches_every_process(
    backend: Backend, clock: VirtualClock, phone: Phone, people: Profiles
) -> None:
    """B2"""
    elsewhere = Profiles(backend=backend, clock=clock, channels={"phone": phone})
    await elsewhere.look()
    await people.enrich(("phone", "alice"))
    assert (await elsewhere.of("phone", "alice")).name == "Alice"
    phone.knows["alice"] = Person("phone", "alice", "Alice B.")
    clock.advance(5)
    assert await people.update("alice", enrich=True) == 1
    await people.enrich(("phone", "alice"))
    await elsewhere.look()
    assert (await elsewhere.of("phone", "alice")).name == (await people.of("phone", "alice")).name == "Alice B."


async def test_who_is_changed_after_the_clock_was_turned_back_is_heard_of(
    backend: Backend, clock: VirtualClock, people: Profiles
) -> None:
    """Clocks decide when something happens, never what is heard."""
    await backend.save_person(Person("phone", "bob", "Bob", enriched_at=1))
    await people.look()
    await people.of("phone", "bob")
    clock.jump(-3_600_000)
    await backend.save_person(Person("phone", "bob", "Robert", enriched_at=1))
    await people.look()
    assert (await people.of("phone", "bob")).name == "Robert"


async def test_an_update_without_enrichment_asks_no_platform(people: Profiles, phone: Phone, backend: Backend) -> None:
    await backend.save_person(Person("phone", "bob", "Bob", enriched_at=1))
    await people.of("phone", "bob")
    await backend.save_person(Person("phone", "bob", "Robert", enriched_at=1))
    assert await people.update("bob") == 1
    assert (await people.of("phone", "bob")).name == "Robert"
    assert await people.update("nobody") == 0
    assert phone.asked == []


async def test_without_the_store_a_turn_goes_on_with_less(people: Profiles, store: Counted, said: list[Event]) -> None:
    """B7: cache, else store, else minimal; said once."""
    store.is_away = True
    for _ in range(3):
        assert await people.of("phone", "bob") == Person("phone", "bob")
    assert [event.name for event in said] == ["profile.fallback"]
    store.is_away = False
    assert await people.of("phone", "bob") == Person("phone", "bob")
    assert people.cache.peek(("phone", "bob")) is not None


async def test_a_platform_that_fails_is_said_and_asked_again_another_time(
    people: Profiles, phone: Phone, said: list[Event]
) -> None:
    phone.knows["alice"] = RuntimeError("the platform is down")
    await people.of("phone", "alice")
    await people.enrich(("phone", "alice"))
    assert [event.name for event in said] == ["profile.unenriched"]
    assert (await people.of("phone", "alice")).version == 0
