"""A storm on a running instance: thousands of customers write in bursts while lanes move, and a judge counts.

`turnlane simulate --live` starts an instance of its own for it; with `--url` it drives one that runs.
"""

from turnlane.testing.live.arrivals import Plan, Said, arrivals
from turnlane.testing.live.instance import Instance
from turnlane.testing.live.report import Report
from turnlane.testing.live.runs import storm_on_its_own, storm_on_yours
from turnlane.testing.live.storm import Storm, Target

__all__ = ["Instance", "Plan", "Report", "Said", "Storm", "Target", "arrivals", "storm_on_its_own", "storm_on_yours"]
