"""Values as lists for the records of a log, and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import lru_cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from turnlane.model.delivery import Delivery
from turnlane.model.lane import NOTHING_RARE, Kind, Lane, Rare
from turnlane.model.message import Message
from turnlane.model.person import Person
from turnlane.model.policy import Policy
from turnlane.model.question import QuestionView
from turnlane.model.session import Session
from turnlane.model.usage import Account, Spent, Usage, amounts
from turnlane.model.view import AttemptView, TurnView

T = TypeVar("T")

encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode
decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode


class Shape(Generic[T]):
    """A value as a list: its fields in order, without those at the end that have their defaults."""

    def __init__(self, cls: type[T], *, without: Sequence[str] = ()) -> None:
        kept = [each for each in fields(cls) if each.name not in without]  # type: ignore[arg-type]
        self._cls = cls
        self._names = [each.name for each in kept]
        self._values = attrgetter(*self._names)
        self._defaults = [_default(each) for each in kept]

    def pack(self, value: T) -> list[Any]:
        return _without_defaults(self._values(value), self._defaults)

    def unpack(self, values: Sequence[Any], **others: Any) -> T:
        return msgspec.convert({**dict(zip(self._names, values, strict=False)), **others}, self._cls)


def _without_defaults(values: Sequence[Any], defaults: Sequence[Any]) -> list[Any]:
    end = len(values)
    while end and values[end - 1] == defaults[end - 1]:
        end -= 1
    return list(values[:end])


def _default(each: Any) -> Any:
    if each.default is not MISSING:
        return each.default
    return each.default_factory() if each.default_factory is not MISSING else MISSING


MESSAGE = Shape(Message, without=["conversation"])
DELIVERY = Shape(Delivery, without=["conversation"])
TURN_OVER = Shape(TurnView, without=["conversation"])
ATTEMPT = Shape(AttemptView, without=["conversation"])
QUESTION = Shape(QuestionView, without=["conversation"])
SESSION = Shape(Session)
PERSON = Shape(Person)

_policy_from = msgspec.json.Decoder(Policy).decode


class Policies:
    """By the digest of their text: each is stored once and never changes."""

    def __init__(self, load: Callable[[str], bytes]) -> None:
        self._load = load
        self._policies: dict[str, Policy] = {}
        self._digests: dict[int, tuple[Policy, str]] = {}
        self.new: dict[str, bytes] = {}
        """Not known to be stored yet."""
        self.rated = False

    def policy(self, digest: str) -> Policy:
        policy = self._policies.get(digest)
        if policy is None:
            policy = self._policies[digest] = _policy_from(self._load(digest))
        return policy

    def digest(self, policy: Policy) -> str:
        known = self._digests.get(id(policy))
        if known is not None:
            return known[1]
        text = encode(policy)
        digest = blake2b(text, digest_size=8).hexdigest()
        if digest not in self._policies:
            self._policies[digest] = policy
            self.new[digest] = text
        if len(self._digests) > 1000:
            self._digests.clear()
        self._digests[id(policy)] = (policy, digest)
        return digest


KINDS = tuple(Kind)
_LANE_NAMES = [each.name for each in fields(Lane) if each.name not in ("kind", "key", "policy", "runs_under", "rare")]
_LANE_DEFAULTS = [each.default for each in fields(Lane) if each.name in _LANE_NAMES]
_lane_values = attrgetter(*_LANE_NAMES)


_everything = attrgetter(*[each.name for each in fields(Lane)])


def copied(lane: Lane) -> Lane:
    return Lane(*_everything(lane))


def lane_to(lane: Lane, policies: Policies) -> list[Any]:
    under = None if lane.runs_under is None else policies.digest(lane.runs_under)
    rare = None if lane.rare is NOTHING_RARE or lane.rare == NOTHING_RARE else lane.rare
    values = _without_defaults(_lane_values(lane), _LANE_DEFAULTS)
    return [lane.kind, policies.digest(lane.policy), under, rare, *values]


def lane_from(packed: Sequence[Any], key: str, policies: Policies) -> Lane:
    kind, digest, under, rare, *values = packed
    lane = Lane(KINDS[kind], key, policies.policy(digest))
    for name, value in zip(_LANE_NAMES, values, strict=False):
        setattr(lane, name, value)
    if under is not None:
        lane.runs_under = policies.policy(under)
    if rare is not None:
        lane.rare = msgspec.convert(rare, Rare)
    lane.aside = tuple((first, last) for first, last in lane.aside) if lane.aside else ()
    return lane


NOTHING_SPENT = (0,) * (1 + len(fields(Usage)))


def spent_to(spent: Spent) -> tuple[int, ...]:
    return (spent.turns, *amounts(spent.usage))


def spent_from(account: Account, packed: Sequence[int]) -> Spent:
    return Spent(account, packed[0], Usage(*packed[1:]))


def all_spent(day: int, channel: str, user: str, value: Mapping[str, Sequence[int]]) -> Iterator[Spent]:
    for name, packed in value.items():
        agent, _, model = name.partition("\n")
        yield spent_from(Account(day, channel, user, agent, model), packed)


_UNSAFE = re.compile(rb"[^!-~]|[.*>=]")
_ESCAPED = re.compile(rb"=([0-9A-F]{2})")


@lru_cache(maxsize=10_000)
def token(text: str) -> str:
    """One word of a subject: as it is, but for what means something there."""
    return _UNSAFE.sub(lambda found: b"=%02X" % found[0][0], text.encode()).decode() or "="


def text_of(word: str) -> str:
    if word == "=":
        return ""
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), word.encode()).decode()


def message_id(channel: str, origin_id: str, times_forgotten: int = 0) -> str:
    """Under which the server recognises a message that comes again."""
    digest = blake2b(f"{channel}\n{origin_id}".encode(), digest_size=16).hexdigest()
    return digest if not times_forgotten else f"{digest}-{times_forgotten}"
