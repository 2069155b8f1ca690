"""How every answer looks: JSON, or a problem (RFC 9457) that names the next step."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from turnlane.errors import (
    BackendUnavailable,
    InvalidBody,
    InvalidInput,
    InvalidMessage,
    NotFound,
    TooLarge,
    TurnlaneError,
    Unauthorized,
    UnsupportedMediaType,
)
from turnlane.http.wire import encode, to_json

RETRY_AFTER_SECONDS = 2

PRIVATE = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

_STATUS: Mapping[type[TurnlaneError], HTTPStatus] = {
    InvalidBody: HTTPStatus.BAD_REQUEST,
    TooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    InvalidMessage: HTTPStatus.UNPROCESSABLE_ENTITY,
    UnsupportedMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    InvalidInput: HTTPStatus.BAD_REQUEST,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    NotFound: HTTPStatus.NOT_FOUND,
    BackendUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}

_UNSAID = {
    404: "nothing is served here; docs/reference/http.md lists what is",
    405: "this path is served, but not with this method; the Allow header lists those it takes",
}
"""What to say where the router itself refused and left no more than the phrase."""


def json_answer(value: object, status: int = 200) -> Response:
    return Response(to_json(value), status, PRIVATE, "application/json")


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return Response(encode(body), status, {**PRIVATE, **(headers or {})}, "application/problem+json")


def status_of(error: Exception) -> int:
    """The status that an error is answered with; 500 for whatever nobody foresaw."""
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, ClientDisconnect):
        return HTTPStatus.BAD_REQUEST
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), HTTPStatus.INTERNAL_SERVER_ERROR)


# Handlers for the application, by the type of what was raised.


async def on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    detail = _UNSAID.get(error.status_code, phrase) if error.detail == phrase else error.detail
    return problem(error.status_code, detail, error.headers)


async def on_turnlane_error(request: Request, error: Exception) -> Response:
    status = status_of(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        raise error
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        # The error's own text may name files and servers; the caller needs only the next step.
        return problem(
            status,
            "the store cannot be reached just now and nothing was stored; send the same request again",
            {"retry-after": str(RETRY_AFTER_SECONDS)},
        )
    challenge = {"www-authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
    return problem(status, str(error), challenge)


async def on_disconnect(request: Request, error: Exception) -> Response:
    """Nobody reads this answer; it ends the request without calling it a failure of ours."""
    return problem(HTTPStatus.BAD_REQUEST, "the connection ended before the request did; send it again")


async def on_anything_else(request: Request, error: Exception) -> Response:
    """No internals for the caller. The server logs the error itself, which is raised on."""
    return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "something broke here, and it was logged; try again later")
