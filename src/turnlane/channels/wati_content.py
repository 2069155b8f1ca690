"""What an event of Wati's says, in words for an agent."""

from __future__ import annotations

from turnlane.channels.loose import Loose
from turnlane.channels.whatsapp import REACTION, Content, Named, chosen, location, media, noted, order

FILES = frozenset({"image", "video", "document", "audio", "voice", "sticker"})
TEXTS = frozenset({"text", "button", "interactive", "template", "catalog", "list"})


def content_of(event: Loose, named: Named) -> Content | str | None:
    """What it says, or why it says nothing to us. None: nobody here knows. `named` makes an address of a file."""
    kind, data = event.text("type") or "text", event.inner("data")
    if kind == "reaction":
        return REACTION
    if reply := event.inner("interactiveButtonReply", "listReply", "buttonReply"):
        return chosen(reply)
    if kind in FILES:
        return _file(kind, event, named)
    if kind in TEXTS:
        return Content(event.text("text"))
    match kind:
        case "location":
            return location(data) if data else Content(event.text("text") or noted("location"))
        case "contacts":
            return Content(event.text("text") or noted("contact", *_names(event)))
        case "order":
            return order(data) if data else Content(event.text("text") or noted("order"))
        case "media_placeholder" | "unsupported":
            return Content(event.text("text") or noted("a message that WhatsApp does not hand on"))
        case _:
            return None


def _file(kind: str, event: Loose, named: Named) -> Content:
    where = event.text("data") or event.inner("data").text("url")
    url = named(where) if where else ""
    caption = Loose({"caption": event.text("text"), "filename": where.rpartition("/")[2] if where else ""})
    return media("voice message" if kind == "voice" else kind, caption, url)


def _names(event: Loose) -> list[str]:
    return [contact.inner("name").text("formatted_name", "formattedName") for contact in event.each("messageContact")]
