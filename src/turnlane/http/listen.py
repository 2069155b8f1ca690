"""Where the server listens: the address, what it means for access, and the socket."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from ipaddress import ip_address

from turnlane.errors import InvalidSettings
from turnlane.settings import Address

LISTEN_FD = "TURNLANE_LISTEN_FD"
"""The environment variable that hands a bound socket to a child process."""

PROCESS = "TURNLANE_PROCESS"
"""The environment variable that tells a child which of the processes behind one port it is."""

SUPERVISOR_FD = "TURNLANE_SUPERVISOR_FD"
"""The one that names a child's end of a pipe, which ends when whoever supervises the child is gone."""

BACKLOG = 2048


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach `host`."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def bind(listen: str) -> socket.socket:
    """A bound socket for the address. Raises InvalidSettings with the next step if it cannot be had."""
    try:
        address = Address.parse(listen)
        return _bound(address.host, address.port)
    except ValueError as error:
        raise InvalidSettings(f"cannot listen on {listen!r}; write HOST:PORT, such as 127.0.0.1:8484") from error
    except OSError as error:
        raise InvalidSettings(
            f"cannot listen on {listen}: {error.strerror}; stop what uses it, or choose another with --listen"
        ) from error


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        # A restart must not wait for connections of the process before it to be forgotten.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


def inherited_socket(environ: Mapping[str, str]) -> socket.socket | None:
    """The listening socket that a supervisor handed to this process, or None if there is no supervisor."""
    number = environ.get(LISTEN_FD)
    if number is None:
        return None
    try:
        inherited = socket.socket(fileno=int(number))
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"{LISTEN_FD}={number!r} is no open socket; unset it") from error
    # Programs that this process starts have no business with the port.
    inherited.set_inheritable(False)
    inherited.setblocking(False)
    return inherited
