"""What a message of Whapi's says, in words for an agent."""

from __future__ import annotations

import re
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
    is_web,
    location,
    media,
    noted,
    order,
    reaction,
)

Read = Callable[[Loose], Content | None]
QUOTED_CHARACTERS_MAX = 300
FILES = frozenset({"image", "video", "gif", "short", "document", "documentWithCaption", "audio", "voice", "sticker"})
IGNORED: Mapping[str, str] = {"system": NOTICE, "call": NOTICE, "pin": NOTICE, "admin_invite": NOTICE}
ACTIONS: Mapping[str, str] = {
    "edit": CHANGED,
    "edited": CHANGED,
    "delete": CHANGED,
    "ephemeral": NOTICE,
    "pin": NOTICE,
    "unpin": NOTICE,
    "event_response": NOTICE,
}

_PHONE = re.compile(r"^TEL[^:\n]*:([^\r\n]+)", re.MULTILINE)


def content_of(message: Loose, named: Named) -> Content | str | None:
    """What it says, or why it says nothing to us. None: nobody here knows. `named` makes an address of a file's id."""
    kind = message.text("type")
    if kind in IGNORED:
        return IGNORED[kind]
    if kind == "action":
        return _action(message.inner("action"))
    content = _files(kind, message, named) if kind in FILES else _READERS.get(kind, _unknown)(message)
    return content if content is None or kind == "reply" else _with_quote(content, message)


def _action(action: Loose) -> Content | str | None:
    kind = action.text("type")
    if kind == "vote":
        votes = action.raw.get("votes")
        return Content(noted("vote", ", ".join(map(str, votes)) if isinstance(votes, list) else ""))
    if kind == "comment":
        return Content(action.text("comment"))  # without one it is kept aside
    return reaction(action) if kind == "reaction" else ACTIONS.get(kind)


def _files(kind: str, message: Loose, named: Named) -> Content | None:
    file = message.inner(kind, "document" if kind == "documentWithCaption" else kind)
    link, known_as = file.text("link"), file.text("id")
    url = link if is_web(link) else named(known_as) if known_as else ""
    return media("voice message" if kind == "voice" else kind, file, url) if file else None


def _body(kind: str, message: Loose) -> Content | None:
    """Where there are words, these; else only what it is."""
    inner = message.inner(kind)
    if not inner:
        return None
    words = inner.text("body", "text", "title", "name", "label") or inner.inner("body").text("text")
    if kind in {"text", "link_preview"}:
        return Content(words) if words else None
    return Content(words or noted(kind.replace("_", " ")))


def _inner(name: str, reader: Callable[[Loose], Content], message: Loose) -> Content | None:
    found = message.inner(name)
    return reader(found) if found else None


def _contact(card: Loose) -> Content:
    return Content(noted("contact", card.text("name"), *_PHONE.findall(card.text("vcard"))))


def _contacts(contacts: Loose) -> Content:
    return Content("\n".join(_contact(card).text for card in contacts.each("list")) or noted("contacts"))


def _poll(poll: Loose) -> Content:
    options = poll.raw.get("options")
    named = " / ".join(map(str, options)) if isinstance(options, list) else ""
    return Content(noted("poll", f"{poll.text('title')}:", named))


def _product(product: Loose) -> Content:
    return Content(noted("product", product.text("product_id")))


def _reply(reply: Loose) -> Content:
    return chosen(reply.inner("buttons_reply", "list_reply"))


def _not_handed_on(message: Loose) -> Content:
    return Content(noted("a message that WhatsApp does not hand on"))


def _unknown(message: Loose) -> None:
    return None


_READERS: Mapping[str, Read] = {
    "location": partial(_inner, "location", location),
    "live_location": partial(_inner, "live_location", location),
    "contact": partial(_inner, "contact", _contact),
    "contact_list": partial(_inner, "contact_list", _contacts),
    "poll": partial(_inner, "poll", _poll),
    "order": partial(_inner, "order", order),
    "product": partial(_inner, "product", _product),
    "reply": partial(_inner, "reply", _reply),
    "unknown": _not_handed_on,
    **{
        kind: partial(_body, kind)
        for kind in [
            "text",
            "link_preview",
            "interactive",
            "buttons",
            "list",
            "hsm",
            "carousel",
            "event",
            "catalog",
            "group_invite",
            "newsletter_invite",
        ]
    },
}


def _with_quote(content: Content, message: Loose) -> Content:
    """What it is the answer to: in a group, or after a while, nobody knows otherwise."""
    context = message.inner("context")
    quoted = context.inner("quoted_content").text("body", "caption", "text", "title")[:QUOTED_CHARACTERS_MAX]
    notes = [
        noted("forwarded") if context.flag("forwarded") else "",
        noted("in reply to:", " ".join(quoted.split())) if quoted else "",
    ]
    return replace(content, text="\n".join(filter(None, [*notes, content.text])))
