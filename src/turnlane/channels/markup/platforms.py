"""How Slack and WhatsApp write what Markdown means, and what is left of it where nothing can be shown."""

from __future__ import annotations

import re
from collections.abc import Callable

from turnlane.channels.markup.blocks import render
from turnlane.channels.markup.characters import units
from turnlane.channels.markup.inline import PLAIN, Flavour, as_it_is, text_and_url
from turnlane.channels.markup.splitting import Fits

MARKUP_SHRINKS_MAX = 4
"""A piece so many times as long as the limit is refused unread: markup is seldom so much longer than what is shown."""

_LINKABLE = re.compile(r"(?:https?://|mailto:|tel:)[^\s|<>]++", re.IGNORECASE)


def slack_mrkdwn(text: str) -> str:
    """For `text` of Slack. No text of an agent mentions anybody, whoever made it say so."""
    return render(text, _SLACK)


def whatsapp(text: str) -> str:
    return render(text, _WHATSAPP)


def plain(text: str) -> str:
    """For a platform that shows text and nothing else."""
    return render(text, PLAIN)


def fitting(limit: int, show: Callable[[str], str]) -> Fits:
    """For `split`: whether what is shown of a piece is at most so long, counted in UTF-16.

    Platforms say "characters" and mean different things; nobody counts more than UTF-16 has.
    """
    return lambda piece: len(piece) <= limit * MARKUP_SHRINKS_MAX and units(show(piece)) <= limit


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _slack_link(text: str, url: str) -> str:
    if not _LINKABLE.fullmatch(url):
        return _escaped(text_and_url(text, url))  # `!channel` and `@U1` between < and > would ring bells
    return f"<{_escaped(url)}>" if text in {"", url} else f"<{_escaped(url)}|{_escaped(text)}>"


_SLACK = Flavour("*", "_", "~", "`", "```", "• ", _escaped, _slack_link, letter_joint="\u200b")
_WHATSAPP = Flavour("*", "_", "~", "`", "```", "- ", as_it_is, text_and_url)
