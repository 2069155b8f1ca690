"""Verbs, in the order a message meets them: receive, run a turn, deliver; and the worker that keeps them going."""
