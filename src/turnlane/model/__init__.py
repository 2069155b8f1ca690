"""Nouns: values and the decisions on them. Standard library only; no clock, no I/O, no asyncio."""
