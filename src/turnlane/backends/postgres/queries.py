"""The statements of queries.sql, by name."""

from __future__ import annotations

from turnlane.backends.sql.database import load, text_of

SQL = load("turnlane.backends.postgres", "queries.sql")
SCHEMA = text_of("turnlane.backends.postgres", "schema.sql")
