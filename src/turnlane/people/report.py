"""Where reports of activity go: a web hook of the operator's own."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

import msgspec

from turnlane.outgoing import Answer, Outgoing, checked_url
from turnlane.people.activity import Report

ANSWER_SECONDS_MAX = 10.0


class ReportHook:
    """Posts each report once, with the secret as a Bearer token if there is one."""

    def __init__(self, url: str, *, secret: str | None) -> None:
        self._url = checked_url(url, setting="activity.url")
        self._headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
        self._outgoing = Outgoing()

    async def send(self, report: Report) -> str | None:
        body = _written(report)
        # The same report has the same key: what is sent again after no answer came can be known again.
        headers = {"idempotency-key": str(uuid5(NAMESPACE_URL, body.decode())), **self._headers}
        answer = await self._outgoing.post(self._url, body=body, headers=headers, timeout=ANSWER_SECONDS_MAX)
        if isinstance(answer, Answer):
            return None if answer.ok else f"the web hook answered {answer}"
        return f"the web hook gave no answer: {answer.cause}"

    async def close(self) -> None:
        await self._outgoing.close()


def _written(report: Report) -> bytes:
    usage = report.usage
    moment = datetime.fromtimestamp(report.last_active_at / 1000, UTC)
    return msgspec.json.encode(
        {
            "channel": report.channel,
            "user": report.user,
            "conversation": report.conversation,
            "turns": report.turns,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cost": usage.cost / 1_000_000,
            "last_active_at": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
    )
