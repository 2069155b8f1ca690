"""Voice becomes text: by a program of the operator's, or by an OpenAI-compatible service."""

from __future__ import annotations

import mimetypes
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import msgspec

from turnlane.agents.command import Command
from turnlane.errors import AgentFailed
from turnlane.outgoing import Answer, Outgoing, checked_url

TRANSCRIBE_SECONDS_MAX = 120.0
FILE = "{file}"
"""Stands in the command where the path of the voice message belongs."""


class Transcriber(Protocol):
    async def transcribed(self, name: str, media_type: str, data: bytes) -> str:
        """What is said in it. AgentFailed: nobody could tell."""

    async def close(self) -> None: ...


class ByCommand:
    """Runs a program for each: the voice message is its standard input, and a file if an argument says `{file}`."""

    def __init__(self, argv: Sequence[str], *, timeout: float = TRANSCRIBE_SECONDS_MAX) -> None:
        self._argv = tuple(argv)
        self._timeout = timeout

    async def transcribed(self, name: str, media_type: str, data: bytes) -> str:
        with _on_disk(media_type, data) as path:
            argv = [argument.replace(FILE, path) for argument in self._argv]
            output, _ = await Command(argv, timeout=self._timeout).run(data, lambda heard: None)
        return output.decode(errors="replace").strip()

    async def close(self) -> None:
        """Nothing is held between calls."""


class ByService:
    """Posts each to an OpenAI-compatible `…/audio/transcriptions`."""

    def __init__(
        self, url: str, *, model: str, api_key: str | None = None, timeout: float = TRANSCRIBE_SECONDS_MAX
    ) -> None:
        self._url = checked_url(url, setting="the url of transcribe")
        self._model = model
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout
        self._outgoing = Outgoing()

    async def transcribed(self, name: str, media_type: str, data: bytes) -> str:
        boundary = sha256(data).hexdigest()
        headers = {"content-type": f"multipart/form-data; boundary={boundary}", **self._headers}
        body = _form(boundary, self._model, f"voice{_extension(media_type)}", media_type, data)
        answer = await self._outgoing.post(self._url, body=body, headers=headers, timeout=self._timeout)
        if not isinstance(answer, Answer) or not answer.ok or not answer.complete:
            raise AgentFailed(f"the voice message was not transcribed: {answer}")
        try:
            return msgspec.json.decode(answer.body, type=_Transcript).text.strip()
        except msgspec.DecodeError as error:
            raise AgentFailed(f"the transcript cannot be read: {error}") from None

    async def close(self) -> None:
        await self._outgoing.close()


class _Transcript(msgspec.Struct):
    text: str


@contextmanager
def _on_disk(media_type: str, data: bytes) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="turnlane-voice-") as folder:
        path = Path(folder, f"voice{_extension(media_type)}")
        path.write_bytes(data)
        yield str(path)


def _extension(media_type: str) -> str:
    return mimetypes.guess_extension(media_type) or ".audio"


def _form(boundary: str, model: str, name: str, media_type: str, data: bytes) -> bytes:
    field = f'--{boundary}\r\ncontent-disposition: form-data; name="'
    head = f'{field}model"\r\n\r\n{model}\r\n{field}file"; filename="{name}"\r\ncontent-type: {media_type}\r\n\r\n'
    return head.encode() + data + f"\r\n--{boundary}--\r\n".encode()
