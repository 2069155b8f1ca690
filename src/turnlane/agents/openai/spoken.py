"""What people said, in the form that the model is told: by role, with the files that came with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from turnlane.agents.attachments import IMAGES, Attachments, File
from turnlane.model.message import Message
from turnlane.model.turn import Exchange

DOCUMENTS = frozenset(
    {
        "application/pdf",
        "application/msword",
        "application/rtf",
        "application/vnd.ms-excel",
        "application/vnd.ms-powerpoint",
        "application/vnd.oasis.opendocument.text",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    }
)

Speaker = Literal["user", "assistant"]


@dataclass(frozen=True, slots=True)
class Spoken:
    """What one side said until the other spoke. Somebody who answers in the agent's place is on its side."""

    role: Speaker
    parts: tuple[str | File, ...]

    @property
    def text(self) -> str:
        return "\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def files(self) -> Sequence[File]:
        return [part for part in self.parts if isinstance(part, File)]

    def without_files(self) -> Spoken:
        """The same with a line of text for each."""
        return replace(
            self, parts=tuple(p.left_out("the model cannot read it") if isinstance(p, File) else p for p in self.parts)
        )


async def spoken(messages: Sequence[Message], attachments: Attachments) -> list[Spoken]:
    found = iter(await attachments.fetched([each for message in messages for each in message.attachments]))
    said = []
    for message in messages:
        files = [_readable(next(found)) for _ in message.attachments]
        said.append(Spoken(_role(message), (*([message.text] if message.text else []), *files)))
    return merged(said)


def remembered(exchanges: Sequence[Exchange], characters: int) -> list[Spoken]:
    """As many of the latest exchanges as have room; of their files only the names."""
    kept: list[list[Spoken]] = []
    for exchange in reversed(exchanges):
        said = [Spoken(_role(message), tuple(_told(message))) for message in exchange.messages]
        said += [Spoken("assistant", (answer,)) for answer in exchange.answers]
        characters -= sum(len(each.text) for each in said)
        if characters < 0:
            break
        kept.append(said)
    return merged([each for said in reversed(kept) for each in said])


def merged(said: Sequence[Spoken]) -> list[Spoken]:
    """One after the other by turns, as many models insist on that."""
    together: list[Spoken] = []
    for each in said:
        if together and together[-1].role == each.role:
            together[-1] = replace(each, parts=together[-1].parts + each.parts)
        else:
            together.append(each)
    return together


def as_input(said: Spoken) -> dict[str, Any]:
    """An input item of the Responses API."""
    if said.role == "assistant":
        return {"role": said.role, "content": said.text}
    return {"role": said.role, "content": list(_input_parts(said))}


def as_chat(said: Spoken) -> dict[str, Any]:
    """A message of the chat completions API; plain text where there are no files, as not every server knows parts."""
    if said.role == "assistant" or not said.files:
        return {"role": said.role, "content": said.text}
    return {"role": said.role, "content": list(_chat_parts(said))}


def _input_parts(said: Spoken) -> Iterator[dict[str, Any]]:
    if said.text:
        yield {"type": "input_text", "text": said.text}
    for file in said.files:
        if file.media_type in IMAGES:
            yield {"type": "input_image", "image_url": file.data_url, "detail": "auto"}
        else:
            yield {"type": "input_file", "filename": file.name, "file_data": file.data_url}


def _chat_parts(said: Spoken) -> Iterator[dict[str, Any]]:
    if said.text:
        yield {"type": "text", "text": said.text}
    for file in said.files:
        if file.media_type in IMAGES:
            yield {"type": "image_url", "image_url": {"url": file.data_url}}
        else:
            yield {"type": "file", "file": {"filename": file.name, "file_data": file.data_url}}


def _role(message: Message) -> Speaker:
    return "user" if message.role in {"person", "schedule"} else "assistant"


def _told(message: Message) -> Iterator[str]:
    if message.text:
        yield message.text
    for attachment in message.attachments:
        yield f"[attachment {attachment.name or 'file'}]"


def _readable(found: File | str) -> File | str:
    if isinstance(found, str) or found.media_type in IMAGES | DOCUMENTS:
        return found
    return found.text or found.left_out("the model cannot read this kind of file")
