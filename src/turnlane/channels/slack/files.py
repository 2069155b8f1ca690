"""Files of Slack's: to fetch one takes the token of its workspace, which is shown for nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs, urlencode, urlsplit

from turnlane.channels.base import FileAt
from turnlane.channels.mark import marked, unmarked
from turnlane.channels.slack.api import Api, Said, cause

HOSTS = frozenset({"files.slack.com", "slack-files.com"})


class Files:
    """Marks the address of a file that Slack itself has named. The mark also tells whose token to show."""

    def __init__(self, tokens: Mapping[str, str], base_url: str) -> None:
        self._tokens = tokens
        self._asking = f"{base_url.rstrip('/')}/files.info"
        self._address = urlsplit(base_url)[:2]

    def named(self, team: str, url: str) -> str:
        """The address, marked if it is Slack's; a file of another service is only linked to."""
        return marked(url, self._token(team)) if self._is_slacks(url) else url

    def known_by(self, team: str, file: str) -> str:
        """Of a file from elsewhere only the id is told. It is asked about when it is fetched, not on the way in."""
        url = f"{self._asking}?{urlencode({'file': file})}"
        return marked(url, self._token(team))

    async def at(self, url: str, api: Api) -> FileAt | None:
        """How to fetch it. None: it is none of ours. Raises ConnectionError."""
        address = url.rpartition("#")[0]
        team = next((team for team, token in self._tokens.items() if unmarked(url, token) is not None), None)
        if team is not None and address.startswith(self._asking):
            address = await self._asked(address, team, api)
        if team is None or not self._is_slacks(address):
            return None
        return FileAt(address, {"authorization": f"Bearer {self._tokens[team]}"})

    async def _asked(self, url: str, team: str, api: Api) -> str:
        file = parse_qs(urlsplit(url).query).get("file", [""])[0]
        asked = await api.read(team, "files.info", file=file)
        if not isinstance(asked, Said) or not asked.ok:
            raise ConnectionError(cause(asked))
        return asked.inner("file").text("url_private_download", "url_private")

    def _is_slacks(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
        except ValueError:
            return False
        is_beside_the_api = parts[:2] == self._address and parts.path.startswith("/files-")
        return is_beside_the_api or (parts.scheme == "https" and parts.hostname in HOSTS)

    def _token(self, team: str) -> str:
        return self._tokens.get(team) or next(iter(self._tokens.values()))
