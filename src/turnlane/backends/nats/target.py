"""What a `nats://…` URL says."""

from __future__ import annotations

import re
import ssl
from urllib.parse import parse_qsl, urlsplit

from turnlane.errors import InvalidSettings

STREAM = "turnlane"
REPLICAS_MAX = 5
DEDUPE_DAYS = 30
"""How long the server itself recognises a message that comes again, unless the URL says otherwise."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Target:
    """Servers, separated by commas, with user and password where they are needed; and options:

    `stream`: the name of the stream and the first word of its subjects. `replicas`: 1, 3 or 5, for a new stream.
    `dedupe_days`: how long the server remembers the ids of messages. `creds`: a file with credentials. `tls_ca`,
    `tls_cert`, `tls_key`: files; `tls://` asks for TLS by itself.
    """

    def __init__(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        servers, _, query = rest.partition("?")
        options = dict(parse_qsl(query, keep_blank_values=True))
        self.servers = [f"{scheme}://{server}" for server in servers.rstrip("/").split(",") if server]
        self.stream = options.pop("stream", STREAM)
        self.creds = options.pop("creds", None)
        self.tls_ca = options.pop("tls_ca", None)
        self.tls_cert = options.pop("tls_cert", None)
        self.tls_key = options.pop("tls_key", None)
        self._shown = f"{scheme}://{','.join(map(_without_password, self.servers))}"
        self.replicas = self._number("replicas", options.pop("replicas", "1"), REPLICAS_MAX)
        self.dedupe_days = self._number("dedupe_days", options.pop("dedupe_days", str(DEDUPE_DAYS)), 3650)
        if not self.servers:
            raise InvalidSettings(f"{url!r} names no server; write nats://host:4222")
        for server in self.servers:
            _check(server)
        if not _NAME.fullmatch(self.stream):
            raise InvalidSettings(f"{self._shown}: stream={self.stream!r} must be up to 64 letters, digits, '-' or '_'")
        if options:
            raise InvalidSettings(f"{self._shown}: unknown option {sorted(options)[0]!r}; see docs/how-to/nats.md")

    @property
    def name(self) -> str:
        """For people: without the password."""
        return self._shown if self.stream == STREAM else f"{self._shown}, stream {self.stream}"

    def _number(self, name: str, text: str, most: int) -> int:
        if not text.isdigit() or not 1 <= int(text) <= most:
            raise InvalidSettings(f"{self._shown}: {name}={text!r} must be a number from 1 to {most}")
        return int(text)

    def tls(self) -> ssl.SSLContext | None:
        """What the files say, if there are any."""
        if not (self.tls_ca or self.tls_cert):
            return None
        try:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.tls_ca)
            if self.tls_cert:
                context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidSettings(f"{self._shown}: the TLS files cannot be read ({error})") from error
        return context


def _check(server: str) -> None:
    try:
        has_host = urlsplit(server).port != 0 and bool(urlsplit(server).hostname)
    except ValueError:
        has_host = False
    if not has_host:
        raise InvalidSettings(f"{_without_password(server)!r} is no server; write nats://host:4222")


def _without_password(server: str) -> str:
    parts = urlsplit(server)
    return parts.netloc.rpartition("@")[2]
