"""What people said, with the files that came with it, as the blocks of one message."""

from __future__ import annotations

import base64

from turnlane.agents.attachments import IMAGES, Attachments, File
from turnlane.agents.claude_code.lines import Block
from turnlane.model.turn import Turn

PDF = "application/pdf"
NOTHING_SAID = "(There is no text in this message.)"


async def content_of(turn: Turn, attachments: Attachments) -> list[Block]:
    """The text first, then the files in the order they came; a line of text for what the model cannot read."""
    files = await attachments.fetched([each for message in turn.messages for each in message.attachments])
    said = [_text(turn.text)] if turn.text.strip() else []
    return [*said, *map(_block, files)] or [_text(NOTHING_SAID)]


def _block(file: File | str) -> Block:
    if isinstance(file, str):
        return _text(file)
    if file.media_type in IMAGES:
        return {"type": "image", "source": _source(file)}
    if file.media_type == PDF:
        return {"type": "document", "source": _source(file), "title": file.name}
    return _text(file.text or file.left_out("the model cannot read this kind of file"))


def _source(file: File) -> Block:
    return {"type": "base64", "media_type": file.media_type, "data": base64.b64encode(file.data).decode()}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}
