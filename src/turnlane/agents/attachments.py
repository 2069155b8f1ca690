"""The bytes of what came with a message, for agents: bounded, and only from where the operator says."""

from __future__ import annotations

import asyncio
import base64
import binascii
import mimetypes
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import PurePosixPath
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from turnlane.agents.transcribe import Transcriber
from turnlane.errors import AgentFailed
from turnlane.model.message import Attachment
from turnlane.outgoing import Answer, Lost, NotReached, Outgoing

FILE_BYTES_MAX = 10_000_000
TOTAL_BYTES_MAX = 20_000_000
FETCH_SECONDS_MAX = 30.0
NAME_CHARACTERS_MAX = 100
UNKNOWN_TYPE = "application/octet-stream"
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Which models see."""
TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})
"""Which are text, though their type does not begin so."""

Locate = Callable[[str], Awaitable[tuple[str, Mapping[str, str]] | None]]
"""Where to fetch what an address names, and with which headers. None: as it stands. Raises ConnectionError."""

_PORTS = {"http": 80, "https": 443}
_CARRIES_OTHERS = (ip_network("64:ff9b::/96"), ip_network("2002::/16"))
"""Addresses outside that stand for any address, inside as well."""


@dataclass(frozen=True, slots=True)
class File:
    """An attachment that is here."""

    name: str
    media_type: str
    data: bytes

    @property
    def data_url(self) -> str:
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"

    @property
    def text(self) -> str | None:
        """What stands in it, under its name. None: it is no text."""
        if self.media_type.startswith("text/") or self.media_type in TEXTS:
            return f"[attachment {self.name}]\n{self.data.decode(errors='replace')}"
        return None

    def left_out(self, why: str) -> str:
        """The line that stands in its place."""
        return f"[attachment {self.name} ({self.media_type}): {why}]"


class Attachments:
    """Fetches from the hosts that the operator names, and reads `data:` URLs.

    `hosts`: a name (`files.example.com`), all under a name (`*.example.com`), or a name or an address with its port
    (`minio.internal:9000`). Only the last may be inside the network: a bare name that stands for an address in there
    is refused, and what was checked is what is connected to. No redirect is followed.
    """

    def __init__(
        self,
        *,
        hosts: Sequence[str] = (),
        file_bytes_max: int = FILE_BYTES_MAX,
        total_bytes_max: int = TOTAL_BYTES_MAX,
        timeout: float = FETCH_SECONDS_MAX,
        transcriber: Transcriber | None = None,
        locate: Locate | None = None,
    ) -> None:
        self._locate = locate
        self._hosts = frozenset(host.casefold() for host in hosts)
        self._file_bytes_max = file_bytes_max
        self._total_bytes_max = total_bytes_max
        self._timeout = timeout
        self._transcriber = transcriber
        self._outgoing = Outgoing()

    async def fetched(self, attachments: Sequence[Attachment]) -> list[File | str]:
        """For each, in order: the file, or a line of text in its place.

        The line says what was spoken, where somebody transcribes that; else why the file is not there. So a turn runs
        whatever becomes of its attachments.
        """
        found: list[File | str] = []
        left = self._total_bytes_max
        for attachment in attachments:
            one = await self._one(attachment, left)
            if isinstance(one, File):
                left -= len(one.data)
                one = await self._heard(one)
            found.append(one)
        return found

    async def close(self) -> None:
        await self._outgoing.close()
        if self._transcriber is not None:
            await self._transcriber.close()

    async def _one(self, attachment: Attachment, left: int) -> File | str:
        most = min(self._file_bytes_max, left)
        try:
            if most <= 0 or (attachment.size or 0) > most:
                raise _LeftOut(_too_big(most))
            media_type, data = await self._bytes(attachment.url, most)
        except _LeftOut as why:
            return File(_name(attachment), _type(attachment, ""), b"").left_out(str(why))
        return File(_name(attachment), _type(attachment, media_type), data)

    async def _bytes(self, url: str, most: int) -> tuple[str, bytes]:
        """What it says to be, and what it is."""
        if url[:5].casefold() == "data:":
            media_type, data = _of_data_url(url)
            if len(data) > most:
                raise _LeftOut(_too_big(most))
            return media_type, data
        if located := await self._located(url):
            return await self._fetched(*located, None, most)
        try:
            async with asyncio.timeout(self._timeout):
                address = await self._address(url)
        except ValueError:
            raise _LeftOut("its address cannot be read") from None
        except TimeoutError:
            raise _LeftOut("its host cannot be found") from None
        return await self._fetched(url, {}, address, most)

    async def _fetched(self, url: str, headers: Mapping[str, str], at: str | None, most: int) -> tuple[str, bytes]:
        match await self._outgoing.get(url, headers=headers, timeout=self._timeout, at=at, bytes_max=most):
            case Answer(ok=True, complete=True) as answer:
                return answer.headers.get("content-type", ""), answer.body
            case Answer(ok=True) as answer:
                raise _LeftOut(_too_big(most) if len(answer.body) >= most else "its transfer was cut")
            case Answer(status=status):
                raise _LeftOut(f"its server answered {status}")
            case NotReached() | Lost():
                raise _LeftOut("its server did not answer")

    async def _located(self, url: str) -> tuple[str, Mapping[str, str]] | None:
        """A file of a platform that we are connected to is asked for as the platform wants it, wherever that is."""
        if self._locate is None:
            return None
        try:
            async with asyncio.timeout(self._timeout):
                return await self._locate(url)
        except (ConnectionError, TimeoutError):
            raise _LeftOut("its platform did not answer") from None

    async def _address(self, url: str) -> str:
        """Where to connect to. _LeftOut unless the operator named the host, and what it stands for may be asked."""
        parts = urlsplit(url)
        host = (parts.hostname or "").casefold()
        if parts.scheme not in _PORTS or not host:
            raise _LeftOut("only http, https and data addresses are fetched")
        port = parts.port or _PORTS[parts.scheme]
        may_be_inside = f"{f'[{host}]' if ':' in host else host}:{port}" in self._hosts
        if not may_be_inside and (port != _PORTS[parts.scheme] or not self._is_named(host)):
            raise _LeftOut("its host is not among those that files are fetched from")
        addresses = await _resolved(host, port)
        if not may_be_inside and any(_is_inside(address) for address in addresses):
            raise _LeftOut("its host is inside the network")
        return addresses[0]

    def _is_named(self, host: str) -> bool:
        names = host.split(".")
        return host in self._hosts or any(f"*.{'.'.join(names[n:])}" in self._hosts for n in range(1, len(names)))

    async def _heard(self, file: File) -> File | str:
        if self._transcriber is None or not file.media_type.startswith("audio/"):
            return file
        try:
            text = await self._transcriber.transcribed(file.name, file.media_type, file.data)
        except AgentFailed:
            return file.left_out("a voice message that could not be transcribed")
        return f"[voice message {file.name}] {text}"


class _LeftOut(Exception):
    """Why a file is not there, in words for whoever reads the turn."""


def _too_big(most: int) -> str:
    return f"too big; {max(most, 0)} bytes are the most"


def _name(attachment: Attachment) -> str:
    path = "" if attachment.url[:5].casefold() == "data:" else unquote(attachment.url.partition("?")[0])
    name = PurePosixPath((attachment.name or path).replace("\\", "/")).name
    return "".join(each for each in name if each.isprintable())[:NAME_CHARACTERS_MAX] or "file"


def _type(attachment: Attachment, answered: str) -> str:
    """What the platform says, else its server, else the name."""
    for said in (attachment.media_type or "", answered, mimetypes.guess_type(_name(attachment))[0] or ""):
        kind = said.partition(";")[0].strip().casefold()
        if "/" in kind and kind.isascii() and kind.isprintable() and kind != UNKNOWN_TYPE:
            return kind
    return UNKNOWN_TYPE


def _of_data_url(url: str) -> tuple[str, bytes]:
    head, _, body = url[5:].partition(",")
    data = unquote_to_bytes(body)
    if head.casefold().endswith(";base64"):
        try:
            data = base64.b64decode(data, validate=True)
        except binascii.Error:
            raise _LeftOut("its data cannot be read") from None
    return head.partition(";")[0], data


async def _resolved(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise _LeftOut("its host cannot be found") from None
    return [str(address[0]) for _, _, _, _, address in found]


def _is_inside(text: str) -> bool:
    address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return not address.is_global or address.is_multicast or any(address in network for network in _CARRIES_OTHERS)
