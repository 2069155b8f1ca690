"""What a message of Meta's says, in words for an agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from turnlane.channels.loose import Loose
from turnlane.channels.whatsapp import (
    CHANGED,
    NOTICE,
    Content,
    Named,
    chosen,
    location,
    media,
    noted,
    order,
    reaction,
)

Read = Callable[[Loose], Content | None]
FILES = ("image", "video", "document", "audio", "voice", "sticker")
IGNORED: Mapping[str, str] = {
    "edit": CHANGED,
    "revoke": CHANGED,
    "system": NOTICE,
    "request_welcome": NOTICE,
    "ephemeral": NOTICE,
}


def content_of(message: Loose, named: Named) -> Content | str | None:
    """What it says, or why it says nothing to us. None: nobody here knows. `named` makes an address of a file's id."""
    kind = message.text("type")
    if kind in IGNORED:
        return IGNORED[kind]
    if kind == "reaction":
        return reaction(message.inner("reaction"))
    content = _files(kind, message, named) if kind in FILES else _READERS.get(kind, _unknown)(message)
    return content if content is None or content.answers else _with_origin(content, message)


def _files(kind: str, message: Loose, named: Named) -> Content | None:
    file = message.inner(kind)
    if not file.text("id"):
        return None
    shown = "voice message" if file.flag("voice") or kind == "voice" else kind
    return media(shown, file, named(file.text("id")))


def _text(message: Loose) -> Content | None:
    body = message.inner("text").text("body")
    return Content(body) if body else None


def _contacts(message: Loose) -> Content | None:
    people = [noted("contact", *_person(person)) for person in message.each("contacts")]
    return Content("\n".join(people)) if people else None


def _person(person: Loose) -> list[str]:
    reached = [each.text("phone", "wa_id") for each in person.each("phones")]
    return [person.inner("name").text("formatted_name", "first_name"), *reached]


def _interactive(message: Loose) -> Content | None:
    reply = message.inner("interactive")
    if button := reply.inner("button_reply", "list_reply"):
        return chosen(button)
    form = reply.inner("nfm_reply")
    return Content(noted("form", form.text("response_json", "body"))) if form else None


def _template_button(message: Loose) -> Content | None:
    button = message.inner("button")
    return Content(button.text("text", "payload")) if button else None


def _not_handed_on(message: Loose) -> Content:
    return Content(noted("a message that WhatsApp does not hand on", message.inner("unsupported").text("type")))


def _unknown(message: Loose) -> None:
    return None


def _inner(name: str, reader: Callable[[Loose], Content], message: Loose) -> Content | None:
    found = message.inner(name)
    return reader(found) if found else None


_READERS: Mapping[str, Read] = {
    "text": _text,
    "location": partial(_inner, "location", location),
    "order": partial(_inner, "order", order),
    "contacts": _contacts,
    "interactive": _interactive,
    "button": _template_button,
    "unsupported": _not_handed_on,
}


def _with_origin(content: Content, message: Loose) -> Content:
    """Where it came from, where that says something: an advertisement, a product, somebody else's words."""
    context, ad = message.inner("context"), message.inner("referral")
    product = context.inner("referred_product")
    notes = [
        noted("forwarded") if context.flag("forwarded") or context.flag("frequently_forwarded") else "",
        noted("about product", product.text("product_retailer_id")) if product else "",
        noted("came from", ad.text("source_type"), ad.text("headline"), ad.text("source_url")) if ad else "",
    ]
    return replace(content, text="\n".join(filter(None, [*notes, content.text])))
