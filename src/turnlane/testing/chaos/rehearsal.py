"""The same bot with witnesses at its edges and a throwaway store: what it does can be seen, and reaches nobody."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NoReturn
from unittest.mock import patch

from msgspec.structs import replace

from turnlane.app import Bot
from turnlane.errors import InvalidInput, TurnlaneError
from turnlane.settings import Backoff, Duration, Lanes, Settings, load
from turnlane.settings.tables import ActivityTable, AlertsTable, ChannelSettings, PacedChannel
from turnlane.testing.chaos.witness import Log, WatchedAgent, WatchedChannel, Witness

TAKEOVERS = 1_000_000
"""Workers are lost on purpose, and often: that must not use up a turn's takeovers."""


def rehearsed(bot: Bot, folder: Path, log: Log, *, lease: float, chance: Random, witness: Witness | None = None) -> Bot:
    """A bot of the same agents and settings on the store of this folder, in a hurry and under a lease of its own."""
    outside = witness or Witness()
    outside.attend(log, chance)
    stand_in = outside if witness is None else None
    channels = [WatchedChannel(channel, log, stand_in) for channel in bot.channels.values()]
    agents = {name: WatchedAgent(agent, log) for name, agent in bot.agents.items()}
    return Bot(*channels, agents=agents, settings=_hurried(bot.settings, folder, lease))


def store_in(folder: Path) -> Path:
    return folder / "store.db"


def seen_in(folder: Path) -> Path:
    return folder / "seen.jsonl"


def _hurried(settings: Settings, folder: Path, lease: float) -> Settings:
    """Windows and pauses are short, so that much happens in little time. What decides anything stays as it is."""
    return replace(
        settings,
        # What losing power would lose is not what is tried here, so nothing waits for the disk.
        backend=f"sqlite:///{store_in(folder)}?synchronous=off",
        # Nor does anybody hear of made-up people, or is got out of bed.
        activity=ActivityTable(),
        alerts=AlertsTable(),
        paused=False,
        channels={name: _unhindered(channel) for name, channel in settings.channels.items()},
        agents={name: replace(agent, paused=False) for name, agent in settings.agents.items()},
        lanes=_in_a_hurry(settings.lanes, lease),
        routes=tuple(replace(route, lanes=_in_a_hurry(route.lanes, lease)) for route in settings.routes),
        log_format="json",
    )


def _unhindered(channel: ChannelSettings) -> ChannelSettings:
    """No account sends anything here, so none has to be spared."""
    if isinstance(channel, PacedChannel):
        channel = replace(channel, rate=None, pause=Duration(0))
    return replace(channel, paused=False)


def _in_a_hurry(lanes: Lanes, lease: float) -> Lanes:
    return replace(
        lanes,
        debounce=min(lanes.debounce, Duration.parse("50ms")),
        max_wait=min(lanes.max_wait, Duration.parse("500ms")),
        backoff=Backoff(first=Duration.parse("50ms"), most=Duration.parse("500ms")),
        lease=Duration(round(lease * 1_000)),
        takeovers=TAKEOVERS,
    )


# Finding the bot


def load_bot(name: str) -> Bot:
    """The bot that `module:attribute` names, or that a settings file describes. It is not started.

    Raises InvalidInput, with the next step, for whatever is no bot that can answer.
    """
    bot = _from_file(Path(name)) if name.endswith(".toml") else _from_module(name)
    check_whole(bot, name)
    return bot


def check_whole(bot: Bot, name: str = "the bot") -> None:
    """InvalidInput, with the next step, if nobody could write to it or it could not answer."""
    if not bot.agents:
        raise InvalidInput(f"{name} has nothing to answer with; decorate a function with @bot.reply")
    if not bot.channels:
        raise InvalidInput(f"{name} has no channel to write to it; give it one, such as Bot(Terminal())")


def _from_file(path: Path) -> Bot:
    return Bot.from_settings(load(path, os.environ))


def _from_module(name: str) -> Bot:
    path, colon, attribute = name.partition(":")
    if not path or not colon or not attribute:
        raise InvalidInput(f"{name!r} names no bot; write module:attribute, such as shop.bot:bot, or a settings file")
    if path.endswith(".py"):
        module_name = ".".join(Path(path).with_suffix("").parts)
        raise InvalidInput(f"{path} is a file; name its module: {module_name}:{attribute}")
    module = _imported(path)
    found: object = getattr(module, attribute, None)
    if isinstance(found, Bot):
        return found
    if found is not None:
        raise InvalidInput(f"{name} is no Bot but {type(found).__name__}; name the Bot itself")
    bots = [each for each, value in vars(module).items() if isinstance(value, Bot)]
    close = get_close_matches(attribute, bots, n=1) or bots
    hint = f"did you mean {path}:{close[0]}?" if close else "it has no Bot at all; name the module that makes it"
    raise InvalidInput(f"{path} has no {attribute!r}; {hint}")


def _imported(path: str) -> ModuleType:
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        with _nothing_starts(path):
            return import_module(path)
    except TurnlaneError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (path == error.name or path.startswith(f"{error.name}.")):
            raise InvalidInput(
                f"there is no module {path!r} to import; run this in the folder that holds it, or set PYTHONPATH"
            ) from error
        raise InvalidInput(f"{path} cannot be imported: {error}; install what it needs") from error
    # Whatever somebody else's module raises while it is imported, it cannot be tried.
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"{path} cannot be imported: {type(error).__name__}: {error}") from error


@contextmanager
def _nothing_starts(path: str) -> Iterator[None]:
    """A module that runs its bot when it is imported would run it for real: on its own store, to real people."""

    def refused(*args: object, **options: object) -> NoReturn:
        raise InvalidInput(f'{path} runs its bot when it is imported; put bot.run() under if __name__ == "__main__":')

    with patch.object(Bot, "run", refused):
        yield
