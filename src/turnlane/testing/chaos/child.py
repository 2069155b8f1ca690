"""One process of a bot that is tortured: `python -m turnlane.testing.chaos.child NAME FOLDER PLACE SEED LEASE`."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from random import Random

from turnlane.testing.chaos.rehearsal import load_bot, rehearsed, seen_in
from turnlane.testing.chaos.witness import Log

LOOK_SECONDS = 1.0


def main(name: str, folder: str, place: str, seed: str, lease: str) -> None:
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    log = Log(seen_in(Path(folder)), by=int(place))
    chance = Random(f"{seed}/{place}/{os.getpid()}")
    rehearsed(load_bot(name), Path(folder), log, lease=float(lease), chance=chance).run(serve=False)


def _follow(parent: int) -> None:
    """Outlive nobody: if whoever tortures is killed, there is nothing left to find out."""
    while os.getppid() == parent:
        # waits: for the parent to end, which nothing tells
        time.sleep(LOOK_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
