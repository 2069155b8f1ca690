"""Where everything is stored, chosen by URL."""

from turnlane.backends.base import Backend, open_backend

__all__ = ["Backend", "open_backend"]
