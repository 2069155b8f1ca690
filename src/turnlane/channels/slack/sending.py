"""What a delivery looks like in Slack, and what Slack's answer to it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnlane.channels.markup import slack_mrkdwn
from turnlane.channels.slack.api import Asked, Said, cause
from turnlane.channels.slack.place import Place
from turnlane.channels.slack.questions import blocks
from turnlane.model.delivery import Delivery, NotSent, Refused, SendResult, Sent, Unknown, in_words
from turnlane.outgoing import Lost, NotReached

DELIVERY = "turnlane_delivery"
PREVIEW = "turnlane_preview"
TEXT_CHARACTERS_MAX = 40_000
"""Slack cuts off what is longer."""

MENDING_SECONDS = 60.0

GONE = frozenset(
    {
        "account_inactive",
        "cannot_dm_bot",
        "channel_not_found",
        "is_archived",
        "not_in_channel",
        "team_not_found",
        "user_disabled",
        "user_is_deactivated",
        "user_not_found",
        "users_not_found",
    }
)
"""Nobody can be reached there, until somebody writes from there again."""

TO_MEND = frozenset(
    {
        "access_denied",
        "accesslimited",
        "ekm_access_denied",
        "enterprise_is_restricted",
        "invalid_auth",
        "missing_scope",
        "no_permission",
        "not_allowed_token_type",
        "not_authed",
        "org_login_required",
        "team_access_not_granted",
        "token_expired",
        "token_revoked",
        "two_factor_setup_required",
    }
)
"""The token's trouble, not the message's: an operator mends it, and then what waited is sent."""

NOT_TAKEN = frozenset(
    {"message_limit_exceeded", "rate_limited", "ratelimited", "request_timeout", "service_unavailable"}
)
"""Turned away at the door."""

MAY_BE_DONE = frozenset({"fatal_error", "internal_error"})
"""Slack documents that something of the call may have been done before it broke."""

NOT_TO_BE_EDITED = frozenset(
    {"cant_update_message", "edit_window_closed", "message_not_found", "msg_too_long", "streaming_state_conflict"}
)


def marks(delivery: Delivery) -> dict[str, Any]:
    """By which it is found again."""
    carried: dict[str, Any] = {
        "delivery": delivery.id,
        "conversation": delivery.conversation,
        "part": delivery.part,
        "kind": delivery.kind,
    }
    if delivery.resent:
        carried["resent"] = True
    return {"event_type": DELIVERY, "event_payload": carried}


def carries(message: Mapping[str, Any], event_type: str, delivery: str) -> bool:
    carried = carried_by(message, event_type)
    return carried is not None and carried.get("delivery") == delivery


def carried_by(message: Mapping[str, Any], event_type: str) -> Mapping[str, Any] | None:
    """What our own mark on a message of Slack's says. None: it has no such mark."""
    metadata = message.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("event_type") != event_type:
        return None
    carried = metadata.get("event_payload")
    return carried if isinstance(carried, dict) else None


def contents(delivery: Delivery) -> dict[str, Any]:
    """What is said, for chat.postMessage or chat.update."""
    said: dict[str, Any] = {"text": slack_mrkdwn(delivery.text), "metadata": marks(delivery)}
    if delivery.options:
        # Shown in notifications, and where no buttons can be.
        said["text"] = slack_mrkdwn(in_words(delivery))
        said["blocks"] = blocks(delivery)
    return {**said, "text": said["text"][:TEXT_CHARACTERS_MAX]}


def addressed(place: Place) -> dict[str, Any]:
    return {"channel": place.room, "thread_ts": place.thread, "unfurl_links": False, "unfurl_media": False}


def judged(asked: Asked, *, now: int, is_in_one_workspace: bool) -> SendResult:
    """What is certain about a sending. What is not proven is unknown, and looked up before anything is sent again."""
    match asked:
        case Said(ok=True):
            return Sent(asked.text("ts"))
        case NotReached():
            return NotSent(cause(asked))
        case Lost():
            return Unknown(cause(asked))
        case Said(is_limit=True):
            return NotSent(cause(asked), asked.retry_after(now))
        case Said(error=error) if error in TO_MEND:
            why = f"{cause(asked)}; mend the token or its scopes (`turnlane doctor`), then it is sent"
            # Where there are other workspaces, their tokens may be well.
            return NotSent(why, MENDING_SECONDS, whole_account=is_in_one_workspace)
        case Said(error=error) if error in NOT_TAKEN:
            return NotSent(cause(asked), asked.retry_after(now))
        case Said(error=error, status=status) if error in MAY_BE_DONE or status >= 500 or not asked.data:
            return Unknown(cause(asked))
        case Said(error=error):
            return Refused(cause(asked), gone=error in GONE)
