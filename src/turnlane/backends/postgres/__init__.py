"""Everything in a Postgres database, for any number of machines."""

from turnlane.backends.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
