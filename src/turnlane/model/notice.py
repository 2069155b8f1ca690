"""What the runtime itself says to a person, outside any turn."""

from __future__ import annotations

BUSY = "I am still working on your last message. This one was not taken; please send it again when I have answered."
FULL = "There are too many messages waiting. This one was not taken; please send it again later."
