"""Transcripts of Claude Code: read as they grow, stored, found again."""

from turnlane.transcripts.follow import Followed, follow
from turnlane.transcripts.store import Transcripts, open_transcripts

__all__ = ["Followed", "Transcripts", "follow", "open_transcripts"]
