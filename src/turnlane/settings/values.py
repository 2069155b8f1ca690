"""Values that TOML has no type for: each parses what was written, or refuses it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from msgspec import Meta

from turnlane.model.alert import ALERTS
from turnlane.model.policy import LATER, NORMAL, URGENT, Priority


class Duration(int):
    """Milliseconds, written with a unit: "250ms", "3s", "15m", "2h", "1d", "1m30s"."""

    _UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
    _TEXT = re.compile(r"(?:\d{1,15}(?:ms|s|m|h|d))+")
    _PART = re.compile(r"(\d+)(ms|s|m|h|d)")
    _MOST = 36_500 * 86_400_000

    @classmethod
    def parse(cls, text: object) -> Duration:
        if not isinstance(text, str) or not cls._TEXT.fullmatch(text):
            raise ValueError("not a duration")
        units = dict(cls._UNITS)
        total = sum(int(count) * units[unit] for count, unit in cls._PART.findall(text))
        if total > cls._MOST:
            raise ValueError("longer than a century")
        return cls(total)

    @property
    def ms(self) -> int:
        return int(self)

    @property
    def seconds(self) -> float:
        return self / 1_000

    def __str__(self) -> str:
        rest, text = int(self), ""
        for unit, size in self._UNITS:
            count, rest = divmod(rest, size)
            text += f"{count}{unit}" if count else ""
        return text or "0s"

    def __repr__(self) -> str:
        return f"Duration({str(self)!r})"


class Secret:
    """A text that prints as `***`. Deliberately no `str`: whoever needs what is inside says `reveal()`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def parse(cls, text: object) -> Secret:
        if not isinstance(text, str) or not text.strip():
            raise ValueError("not a secret")
        return cls(text)

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()


class Url(str):
    """Where to post to: http or https, with a host."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> Url:
        if not isinstance(text, str) or not text.isprintable() or " " in text:
            raise ValueError("not a URL")
        parts = urlsplit(text)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
            raise ValueError("not a URL")
        return cls(text)


class UrlPath(str):
    """Where we are posted to, in a part of the address that nothing else of ours needs: "/hooks/wati"."""

    __slots__ = ()
    _TEXT = re.compile(r"(/[A-Za-z0-9._~-]{1,64}){1,8}")
    _OURS: ClassVar[frozenset[str]] = frozenset(
        ["api", "channels", "chat", "console", "embed", "embed.js", "healthz", "metrics", "readyz", "update-user"]
    )

    @classmethod
    def parse(cls, text: object) -> UrlPath:
        if not isinstance(text, str) or not cls._TEXT.fullmatch(text) or text.split("/")[1] in cls._OURS:
            raise ValueError("not a path")
        return cls(text)


class Rate(str):
    """How many in which time: "1/s", "20/m", "500/h"."""

    __slots__ = ()
    _TEXT = re.compile(r"([1-9]\d{0,6})/(s|m|h|d)")
    _UNITS: ClassVar[Mapping[str, int]] = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

    @classmethod
    def parse(cls, text: object) -> Rate:
        match = cls._TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[1]) > cls._UNITS[match[2]]:
            raise ValueError("not a rate")
        return cls(match[0])

    @property
    def every_ms(self) -> int:
        """The time for one of them, rounded up: rather too slow than too fast."""
        count, _, unit = self.partition("/")
        return -(-self._UNITS[unit] // int(count))


class Address(str):
    """Where to listen: "127.0.0.1:8484", "localhost:8484", "[::1]:8484"; port 0 takes any that is free."""

    __slots__ = ()
    _TEXT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")

    @classmethod
    def parse(cls, text: object) -> Address:
        match = cls._TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None or int(match[2]) > 65_535:
            raise ValueError("not an address")
        if match[1].startswith("["):
            ip_address(match[1][1:-1])
        return cls(match[0])

    @property
    def host(self) -> str:
        return self.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        return int(self.rpartition(":")[2])

    @property
    def is_loopback(self) -> bool:
        """Only the person at this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:  # A host name may point anywhere.
            return False


class Hosts(tuple[str, ...]):
    """Names of hosts, in a list or with commas between them: a name, `*.` and a name, or either an address or a name
    with its port."""

    __slots__ = ()
    _TEXT = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?P<port>:\d{1,5})?|\[[0-9a-f:.]+\]:\d{1,5}")

    @classmethod
    def parse(cls, given: object) -> Hosts:
        names = [name.strip() for name in given.split(",")] if isinstance(given, str) else given
        if not isinstance(names, list):
            raise ValueError("not a list of hosts")
        for name in names:
            match = cls._TEXT.fullmatch(name.casefold()) if isinstance(name, str) else None
            if match is None or (name.startswith("*") and match["port"]):
                raise ValueError("not a host")
        return cls(names)


class Origins(tuple[str, ...]):
    """Sites by scheme, name and port, as browsers know them: `https://www.example.com`, `https://*.example.com`."""

    __slots__ = ()
    _TEXT = re.compile(r"https?://(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*(?::\d{1,5})?")

    @classmethod
    def parse(cls, given: object) -> Origins:
        if not isinstance(given, list):
            raise ValueError("not a list of sites")
        if not all(isinstance(each, str) and cls._TEXT.fullmatch(each) for each in given):
            raise ValueError("not a site")
        return cls(given)


class AlertNames(tuple[str, ...]):
    """Names of alerts, in a list or with commas between them."""

    __slots__ = ()

    @classmethod
    def parse(cls, given: object) -> AlertNames:
        names = [name.strip() for name in given.split(",") if name.strip()] if isinstance(given, str) else given
        if not isinstance(names, list) or not all(name in ALERTS for name in names):
            raise ValueError("not a list of alerts")
        return cls(names)


class Words(tuple[str, ...]):
    """A program and its arguments: a list, or in a variable one text with quotes as in a shell."""

    __slots__ = ()

    @classmethod
    def parse(cls, given: object) -> Words:
        words = shlex.split(given) if isinstance(given, str) else given
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            raise ValueError("not a command")
        return cls(words)


Count = Annotated[int, Meta(ge=1, le=1_000_000, description="a whole number from 1 to 1000000")]
CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000, description="a whole number from 0 to 1000000")]
Bytes = Annotated[int, Meta(ge=1, le=100_000_000, description="a whole number from 1 to 100000000")]
FileBytes = Annotated[int, Meta(ge=1, le=7_000_000, description="a whole number from 1 to 7000000")]
Files = Annotated[int, Meta(ge=0, le=20, description="a whole number from 0 to 20")]
Temperature = Annotated[float, Meta(ge=0, le=2, description="a number from 0 to 2")]
Factor = Annotated[float, Meta(ge=1, le=100, description="a number from 1 to 100")]
Tokens = Annotated[int, Meta(ge=0, le=10**15, description="a whole number of tokens")]
Money = Annotated[float, Meta(ge=0, le=10**9, description="an amount of money, such as 2.5")]
Share = Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")]
Dollars = Annotated[float, Meta(gt=0, le=1_000_000, description="a number greater than 0")]
Names = Annotated[list[str], Meta(description='a list of texts, like ["Read", "Grep"]')]
Argv = Annotated[list[str], Meta(min_length=1, description='a list like ["python3", "agent.py"]')]
VISITOR_SECRET_MIN = 16
PRIORITIES: Mapping[str, Priority] = {"urgent": URGENT, "normal": NORMAL, "later": LATER}
