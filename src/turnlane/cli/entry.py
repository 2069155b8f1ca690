"""Where the command `turnlane` begins: an event of Claude Code takes the short way, all else the long one."""

from __future__ import annotations

import sys


def main() -> None:
    if _is_an_event(sys.argv[1:]):
        from turnlane.cli.hook import main as keep

        sys.exit(keep())
    from turnlane.cli.main import main as long_way

    long_way()


def _is_an_event(argv: list[str]) -> bool:
    """`turnlane hook`, with nothing behind it but where the spool is."""
    if argv[:1] != ["hook"]:
        return False
    rest = iter(argv[1:])
    return all(word == "--verbose" or (word == "--spool" and next(rest, None) is not None) for word in rest)
