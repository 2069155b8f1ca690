"""What agents write, Markdown, cut to the size that a platform takes and put into what it shows.

A channel says how large its messages may be, and the rest follows:

    def parts(self, text):
        return split(text, fitting(4_000, slack_mrkdwn))

    async def send(self, delivery):
        ... slack_mrkdwn(delivery.text) ...

All of it is pure: the same text gives the same pieces, in whatever process.
"""

from __future__ import annotations

from turnlane.channels.markup.platforms import fitting, plain, slack_mrkdwn, whatsapp
from turnlane.channels.markup.splitting import Fits, split

__all__ = ["Fits", "fitting", "plain", "slack_mrkdwn", "split", "whatsapp"]
