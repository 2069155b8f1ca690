"""Break your own bot on purpose: people write, a seed decides the faults, and a report says whose promise was broken.

`await chaos(bot, seed=7)` inside a test; `await torture(name, plan)` with real processes, as `turnlane simulate --bot`.
"""

from turnlane.testing.chaos.fleet import torture
from turnlane.testing.chaos.inside import chaos
from turnlane.testing.chaos.people import Plan
from turnlane.testing.chaos.rehearsal import load_bot
from turnlane.testing.chaos.report import Finding, PromiseBroken, Report
from turnlane.testing.chaos.witness import Witness

__all__ = ["Finding", "Plan", "PromiseBroken", "Report", "Witness", "chaos", "load_bot", "torture"]
