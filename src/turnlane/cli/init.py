"""`turnlane init`: writes a settings file that explains itself."""

from __future__ import annotations

from pathlib import Path

import click

from turnlane.cli.common import DEFAULT_FILE
from turnlane.errors import InvalidSettings

# A line that begins with `#` and no blank is a setting that can be switched on as it stands; a test switches on all.
TEMPLATE = """\
# Settings of Turnlane. Every key with its meaning: docs/reference/settings.md. Check them with `turnlane doctor`.
# Any value may be { env = "NAME" }, which takes it from the environment. Durations have units: "250ms", "3s", "1m30s".

backend = "sqlite:///turnlane.db"   # where everything is stored; three slashes: relative to the current folder
listen = "127.0.0.1:8484"           # anything but loopback needs an operator_token
turns_at_once = 5                   # agent runs at the same time, in each process

#sends_at_once = 20
#drain = "30s"                      # how long a graceful stop waits for what is running
#operator_token = { env = "OPERATOR_TOKEN" }
#viewer_token = { env = "VIEWER_TOKEN" }  # sees everything, changes nothing
#log_format = "human"               # or "json"

[lanes]
debounce = "3s"                     # a turn starts once the person has been quiet for this long,
max_wait = "15s"                    # or this long after the first message,
max_batch = 50                      # or when so many messages wait
on_busy = "collect"                 # what comes during a turn: "collect" = one next turn, "queue" = a turn each
turn_deadline = "10m"
attempts = 3                        # failed runs before a turn becomes a dead letter

#lease = "30s"                      # how soon another worker takes over from one that died
#takeovers = 10
#ack = "commit"                     # "claim": after a crash a turn is lost rather than run again
#backoff = { first = "1s", factor = 2, most = "5m" }
#deliver_for = "24h"                # how long a reply is tried
#on_unknown = "resend"              # a reply that may have arrived: "hold" = it waits for you
#idle_after = "60s"
#max_pending = 100
#on_full = "store"

[retention]
messages = "90d"
events = "7d"
dedupe_for = "30d"                  # how long a message that comes again is recognised

#[logs]
#level = "info"                     # "debug" shows each step of every message
#texts = false                      # true: what people said may stand in the log

# Channels: where people write. Without any there is one chat page, named "web", at http://127.0.0.1:8484/.

#[channels.web]
#kind = "web"
#public = true                      # others may chat, too
#sites = ["https://www.example.com"]    # on whose pages, by <script src=".../embed.js" async></script>

#[channels.site]
#kind = "webhook"                   # others post to /channels/site
#secret = { env = "SITE_SECRET" }
#reply_url = "http://127.0.0.1:9000/replies"
#lookup_url = "http://127.0.0.1:9000/replies"    # asked what became of a reply that may have arrived
#rate = "20/m"                                     # of all processes together; what is too soon waits its turn

#[channels.slack]
#kind = "slack"                     # docs/how-to/slack.md
#token = { env = "SLACK_BOT_TOKEN" }
#app_token = { env = "SLACK_APP_TOKEN" }           # Socket Mode; or signing_secret, if Slack posts to /channels/slack

#[channels.wa]
#kind = "whatsapp_meta"             # or "whapi", "wati": docs/how-to/whatsapp.md
#token = { env = "WA_TOKEN" }
#app_secret = { env = "WA_APP_SECRET" }
#verify_token = { env = "WA_VERIFY" }

# Agents: who answers. Without any it is an echo.

#[agents.support]
#kind = "http"
#url = "http://127.0.0.1:9000/turns"

#[agents.script]
#kind = "command"                   # the turn as JSON on standard input, the answer as JSON on standard output
#command = ["python3", "agent.py"]

#[agents.claude]
#kind = "claude_code"               # the program `claude`, with a session of its own for each conversation
#append_system_prompt = "You answer the customers of a flower shop."

#[agents.gpt]
#kind = "openai"                    # or any server that speaks like it, with base_url
#model = "gpt-5"
#api_key = { env = "OPENAI_API_KEY" }

# Routes: which agent answers a channel. A single agent answers everybody.

#[[routes]]
#channel = "site"
#agent = "support"
#debounce = "1s"                    # any key of [lanes] but lease

#[[routes]]
#channel = "web"
#agent = "script"

#[[routes]]
#channel = "slack"
#agent = "gpt"

#[[routes]]
#channel = "wa"
#agent = "support"

# Money: what a million tokens cost, and how much may be spent. Past that a message waits; `turnlane usage` shows it.

#[prices."gpt-5"]
#input = 1.25
#output = 10.0
#cached = 0.125

#[budgets.user]                     # of one user on one day; also [budgets.session], [budgets.channel], [budgets.day]
#tokens = 200_000

# Schedules: what the agent is told by the clock.

#[[schedules]]
#name = "morning"
#conversation = "site/alice"
#prompt = "Summarise what happened since yesterday."
#cron = "0 9 * * mon-fri"           # or every = "15m"
#zone = "Europe/Berlin"
"""


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    default=DEFAULT_FILE,
    show_default=True,
    metavar="FILE",
    help="The file to write.",
)
@click.option("--force", is_flag=True, help="Overwrite the file if it is there.")
def command(config: Path, force: bool) -> None:
    """Write a commented turnlane.toml."""
    try:
        with config.open("w" if force else "x", encoding="utf-8") as file:
            file.write(TEMPLATE)
    except FileExistsError:
        raise InvalidSettings(f"{config} is already there; overwrite it with --force") from None
    except OSError as error:
        raise InvalidSettings(f"{config} cannot be written: {error.strerror}; choose another with --config") from None
    click.echo(f"wrote {config}; next: `turnlane doctor`, then `turnlane run`")
