"""Everything in one stream of NATS JetStream, for any number of machines and without another database."""

from turnlane.backends.nats.backend import NatsBackend

__all__ = ["NatsBackend"]
