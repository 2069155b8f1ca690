"""One SQLite file, shared by any number of processes on one machine."""

from turnlane.backends.sqlite.backend import SqliteBackend

__all__ = ["SqliteBackend"]
