"""Mutants: the engine with one mistake in it. The simulation must see every one, or it sees too little.

A mutant names a function, a text in it and what stands there instead. It is planted by compiling the changed source and
lending its code to the living function, so that whoever imported that function runs the mistake too.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType

from turnlane.errors import InvalidInput
from turnlane.testing.simulation import Broken, simulate_many, throwaway

LANE = "turnlane.model.lane:Lane"
POLICY = "turnlane.model.policy:Policy"
SCHEDULE = "turnlane.model.schedule:Schedule"
SESSION = "turnlane.model.session:Session"
TRANSACTION = "turnlane.backends.transaction:Transaction"
SERVING = "turnlane.backends.serving:Serving"
PAUSES = "turnlane.model.limits:Pauses.stop"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake, named by what goes wrong in the world."""

    name: str
    where: str
    """`module:Class.function`"""
    before: str
    after: str

    def function(self) -> FunctionType:
        module, _, path = self.where.partition(":")
        owner, _, name = path.partition(".")
        return plain_function(getattr(getattr(import_module(module), owner), name))


STEERING = "turnlane.backends.steering:Steering"

MUTANTS = (
    # Schedules
    Mutant("a schedule fires once and never again", f"{TRANSACTION}._tick", "lane.arm(passed.next_at", "lane.arm(None"),
    Mutant(
        "a due time is fired again by the next tick",
        f"{TRANSACTION}._tick",
        "lane.arm(passed.next_at, self._now)",
        "lane.arm(first, self._now)",
    ),
    Mutant(
        "who holds a tick of a schedule that was changed fires it, too",
        f"{LANE}.arm",
        "self.done_seq = self.claim_seq = self.next_seq",
        "self.claim_seq = self.next_seq = self.next_seq",
    ),
    Mutant(
        "what passed in a pause is fired after it",
        f"{TRANSACTION}._pass_over_the_pause",
        "lane.paused and",
        "False and",
    ),
    Mutant(
        "all that was missed is fired, however much",
        f"{SCHEDULE}.passed",
        "and len(due) < most",
        "and len(due) < 10_000",
    ),
    Mutant("what was to be skipped is fired late", f"{SCHEDULE}.passed", "now - first > LATE_MS", "False"),
    Mutant(
        "the id of a firing is that of the hour, not of its time",
        f"{SCHEDULE}.message",
        "{_written(at)}",
        "{_written(at)[:13]}",
    ),
    Mutant(
        "a prompt is taken for the answer to a question",
        f"{TRANSACTION}._accept_otherwise",
        'if message.role == "schedule":',
        'if message.role == "schedule" and not lane.rare.asking:',
    ),
    Mutant(
        "a schedule that was armed by a wrong clock sleeps on",
        f"{TRANSACTION}.schedule",
        "and lane.ready_at > next_at",
        "and False",
    ),
    Mutant(
        "a tick whose workers die is given up on", f"{LANE}.takeovers_used_up", "if self.kind is TICK:", "if False:"
    ),
    # Sessions
    Mutant(
        "two conversations run one session at once",
        f"{SERVING}._waits_for_its_session",
        "if not self._rows.session_is_busy(lane):",
        "if True:",
    ),
    Mutant(
        "whoever waits for a session is forgotten",
        f"{SERVING}._waits_for_its_session",
        "lane.due_at = self._now + SESSION_LOOK_MS",
        "lane.due_at = None",
    ),
    # Sessions on one machine
    Mutant(
        "a session is run wherever somebody is free",
        f"{SERVING}._at_home",
        "return None if self._waits_for_its_machine(lane, session.machine) else 0",
        "return 0",
    ),
    Mutant(
        "a lane waits for its machine for ever",
        f"{SERVING}._waits_for_its_machine",
        "(until is not None and until <= self._now)",
        "False",
    ),
    Mutant(
        "a lane waits for a machine that is gone",
        f"{SERVING}._waits_for_its_machine",
        "not self._rows.machine_is_live(machine, self._now)",
        "False",
    ),
    Mutant(
        "whoever takes a session over is not told",
        f"{SERVING}._moved_from",
        "if here == session.machine:",
        "if True:",
    ),
    Mutant(
        "a session stays bound to the machine that it has left",
        f"{TRANSACTION}._bound",
        "replace(session, machine=worker.machine)",
        "replace(session, machine=(lease.session and lease.session.machine) or worker.machine)",
    ),
    # Fencing
    Mutant("anybody may write", f"{LANE}.held_by", "self.owner == worker and self.epoch == epoch", "self.owner"),
    Mutant(
        "the next turn starts while the stopped one still runs",
        f"{LANE}.stop",
        "self._rearm(now)",
        "self._let_go(now)",
    ),
    Mutant(
        "whoever was stopped keeps the lane for ever",
        f"{TRANSACTION}._hear_the_end",
        "self._let_go(lane)",
        "pass",
    ),
    Mutant(
        "a dead worker's stopped turn is run again",
        f"{TRANSACTION}._take_back",
        "if lane.is_hollow:",
        "if False:",
    ),
    Mutant("the epoch is not checked", f"{LANE}.held_by", " and self.epoch == epoch", ""),
    Mutant(
        "the owner is not checked, nor the epoch",
        f"{LANE}.held_by",
        "self.owner == worker and self.epoch == epoch",
        "True",
    ),
    Mutant(
        "a lease that went on still settles the last delivery",
        f"{LANE}.held_by",
        "self.done_seq < last <= self.claim_seq",
        "last <= self.claim_seq",
    ),
    Mutant("a claim keeps the epoch", f"{LANE}.claim", "self.epoch += 1", "self.epoch = max(1, self.epoch)"),
    Mutant(
        "losing the owner grows the epoch",
        f"{LANE}.orphan",
        "self.retry_at = self._again_at(now)",
        "self.retry_at = now; self.epoch += 1",
    ),
    Mutant("a lost owner keeps the lane", f"{LANE}.orphan", "self._let_go(now)", "self._rearm(now)"),
    # Wake-ups
    Mutant(
        "what came during the turn is forgotten",
        f"{LANE}.complete",
        "self._let_go(now)",
        "self._let_go(now); self.due_at = None",
    ),
    Mutant(
        "a message wakes a lane that is held",
        f"{LANE}.arrive",
        "self._wake_by(self.runs_at)",
        "self._wake_by(self.runs_at); self.due_at = now if self.owner else self.due_at",
    ),
    Mutant("a message wakes a lane that is paused", f"{LANE}._wake_by", "if self.paused:", "if False:"),
    Mutant(
        "a message wakes a lane that is parked",
        f"{LANE}.arrive",
        "self._wake_by(self.runs_at)",
        "self._wake_by(self.runs_at); self.due_at = now if self.parked else self.due_at",
    ),
    Mutant(
        "a failed turn never comes back", f"{LANE}.retry", "self._let_go(now)", "self._let_go(now); self.due_at = None"
    ),
    Mutant(
        "a released turn never comes back",
        f"{LANE}.release",
        "self._let_go(now)",
        "self._let_go(now); self.due_at = None",
    ),
    Mutant("resume does not wake the lane", f"{LANE}.resume", "self._rearm(now)", "pass"),
    Mutant("unpark does not wake the lane", f"{LANE}.unpark", "self._rearm(now)", "pass"),
    Mutant("pause leaves the lane due", f"{LANE}.pause", "self._rearm(now)", "pass"),
    # Gathering
    Mutant(
        "debounce without max wait",
        f"{POLICY}.ready_at",
        "min(latest + self.debounce_ms, first + self.max_wait_ms)",
        "latest + self.debounce_ms",
    ),
    Mutant(
        "max wait without debounce",
        f"{POLICY}.ready_at",
        "min(latest + self.debounce_ms, first + self.max_wait_ms)",
        "first + self.max_wait_ms",
    ),
    Mutant("a full batch waits on", f"{POLICY}.ready_at", "waiting >= self.batch_max", "False"),
    Mutant("a claim does not wait for quiet", f"{LANE}.is_ready", "runs_at > now", "False"),
    Mutant(
        "a message moves a back-off",
        f"{LANE}.arrive",
        "self._wake_by(self.runs_at)",
        "self.retry_at = self.ready_at; self._wake_by(self.runs_at)",
    ),
    Mutant(
        "one field for quiet window and back-off",
        f"{LANE}.release",
        "self.retry_at = self._again_at(now)",
        "self.retry_at = self.ready_at = now",
    ),
    Mutant(
        "max wait forgets who was left out",
        f"{SERVING}._lease",
        "lane.leave_out(messages[size].accepted_at)",
        "pass",
    ),
    # Batches
    Mutant(
        "a retry takes a new batch",
        f"{LANE}.retry",
        "self.retry_at = at",
        "self.retry_at = at; self.claim_seq = self.next_seq",
    ),
    Mutant(
        "a takeover takes a new batch",
        f"{LANE}.orphan",
        "self.retry_at = self._again_at(now)",
        "self.retry_at = now; self.claim_seq = self.next_seq",
    ),
    Mutant(
        "late messages are swallowed by the answer",
        f"{LANE}.complete",
        "self.done_seq = self.claim_seq",
        "self.done_seq = self.claim_seq = self.next_seq",
    ),
    Mutant("max batch is ignored", f"{LANE}._open_batch", "self.policy.batch_max if", "self.next_seq if"),
    Mutant(
        "every claim opens a turn",
        f"{LANE}.claim",
        "self.attempt += 1",
        "self.attempt += 1; self.number += self.has_open_batch",
    ),
    # Superseding and steering
    Mutant(
        "an interrupted turn takes its messages with it",
        f"{LANE}.dissolve",
        "self.claim_seq = self.done_seq",
        "self.done_seq = self.claim_seq",
    ),
    Mutant("max wait forgets what was interrupted", f"{LANE}.dissolve", "self.first_at = first_at", "pass"),
    Mutant(
        "an interrupted batch passes its failures on", f"{LANE}.dissolve", "self.attempt = self.failures = 0", "pass"
    ),
    Mutant(
        "an interrupt does not wait for quiet",
        f"{LANE}.dissolve",
        "quiet_at = now if self.ready_at is None or not self.waiting else self.ready_at",
        "quiet_at = now",
    ),
    Mutant("what was rolled back runs again", f"{TRANSACTION}._supersede", "if outcome.set_aside:", "if False:"),
    Mutant(
        "a steered message runs again", f"{LANE}.widen", "self.claim_seq = through", "self.claim_seq = self.claim_seq"
    ),
    Mutant("max wait forgets who was not steered", f"{LANE}.widen", "self.first_at = first_at", "pass"),
    # Refusing and dropping
    Mutant("a full mailbox takes more", f"{TRANSACTION}._accept", "lane.pending >= policy.max_pending", "False"),
    Mutant(
        "a full mailbox refuses too soon",
        f"{TRANSACTION}._accept",
        ">= policy.max_pending",
        "+ 1 >= policy.max_pending",
    ),
    Mutant(
        "what was refused runs all the same",
        f"{LANE}.arrive_settled",
        "self._set_aside(self.next_seq, self.next_seq)",
        "pass",
    ),
    Mutant("what was dropped runs all the same", f"{LANE}.drop", "self._set_aside(place, place)", "pass"),
    Mutant("what was handed in is dropped", f"{TRANSACTION}._drop_oldest", "rest and lane.may_have_handed_in", "False"),
    Mutant("what was handed in is dropped once the policy changes", f"{LANE}._follow", "steered=self.epoch", ""),
    Mutant("what nobody runs is in somebody's hands", f"{LANE}.may_have_handed_in", "self.owner is None or ", ""),
    Mutant("max wait remembers what was dropped", f"{LANE}.drop", "self.first_at = first_at", "pass"),
    Mutant(
        "a person is told of each message that is dropped",
        f"{TRANSACTION}._drop_oldest",
        'self._rows.message_outcome(lane, oldest - 1) != "dropped"',
        "True",
    ),
    Mutant(
        "the newest is dropped",
        f"{TRANSACTION}._drop_oldest",
        "oldest, *rest = islice(lane.waiting_places, 2)",
        "*rest, oldest = lane.waiting_places",
    ),
    Mutant("who came late waits", f"{LANE}.note_late", "self.late_seq = self.next_seq", "pass"),
    Mutant("who came in time is refused", f"{LANE}.refuse_late", "if place >= self.late_seq", "if True"),
    Mutant("a prompt is refused for coming late", f"{LANE}.wait_for_the_turn", "self.late_seq = None", "pass"),
    Mutant(
        "who came late stays for a prompt that came later",
        f"{TRANSACTION}._say_on_time",
        "self._refuse_late(turns)",
        "pass",
    ),
    Mutant("a refusal is not said", f"{TRANSACTION}._refuse", "self._say(lane.key, why, last, policy)", "pass"),
    Mutant("every refusal is said", f"{TRANSACTION}._refuse", '!= "refused"', '!= "nothing"'),
    Mutant("what is aside fills a batch", f"{LANE}.waiting", "if self.aside else 0", "if False else 0"),
    Mutant(
        "what is aside stays in the way", f"{LANE}._absorb", "self.done_seq = self.claim_seq = self.aside[0][1]", "pass"
    ),
    Mutant("an interrupt keeps refusing", f"{LANE}.dissolve", "self.late_seq = None", "pass"),
    # Commands
    Mutant(
        "stopping leaves what waits",
        f"{LANE}.stop",
        "self.done_seq = self.claim_seq = self.next_seq",
        "self.done_seq = self.claim_seq",
    ),
    Mutant("a stopped message has no outcome", f"{TRANSACTION}._stop", "if lane.waiting:", "if False:"),
    Mutant("a stopped turn is not recorded", f"{TRANSACTION}._stop", "if lane.has_open_batch:", "if False:"),
    Mutant("a command goes to the agent", f"{TRANSACTION}._accept", "if command is not None:", "if False:"),
    Mutant("a new session is the old one", f"{TRANSACTION}._begin_anew", "self._rows.drop_sessions(lane)", "pass"),
    Mutant("a running turn brings the old session back", f"{LANE}.renew", "self.owner is not None", "False"),
    Mutant(
        "a first session cannot be forgotten before it is there",
        f"{TRANSACTION}.renew_session",
        "not may_leave_one and ",
        "",
    ),
    Mutant("no session is ever kept again", f"{LANE}._let_go", "self.renewed = False", "pass"),
    # Others who answer
    Mutant(
        "an agent answers what was taken over",
        f"{TRANSACTION}._take_over",
        "if lane.has_open_batch:",
        "if False:",
    ),
    Mutant("a turn that was taken over may still write", f"{LANE}.held_by", " <= self.claim_seq", ""),
    Mutant(
        "the next turn starts while the one taken over still runs",
        f"{TRANSACTION}._take_over",
        "still_runs=lane.owner is not None",
        "still_runs=False",
    ),
    Mutant(
        "a word of the business is answered", f"{TRANSACTION}._accept_otherwise", 'message.role != "person"', "False"
    ),
    Mutant("a word of the business is told twice", f"{TRANSACTION}._answer", "if lease.heard:", "if False:"),
    Mutant("a word of the business is forgotten", f"{LANE}.hear", "self._keep_for_the_agent(seq)", "pass"),
    Mutant(
        "what was left to others is forgotten", f"{LANE}.leave_to_others", "self._keep_for_the_agent(*places)", "pass"
    ),
    Mutant("others are heard too early", f"{LANE}.heard_places", "if place < left_out", ""),
    Mutant("max wait remembers what was left to others", f"{LANE}.leave_to_others", "self.first_at = first_at", "pass"),
    Mutant("an answer by hand is given twice", f"{TRANSACTION}.say", "if seen is not None:", "if False:"),
    Mutant(
        "a further word cuts a pause short", f"{TRANSACTION}._take_over", "max(until, lane.rare.paused_until)", "until"
    ),
    Mutant(
        "a further word gives a pause an end",
        f"{TRANSACTION}._take_over",
        "elif lane.rare.paused_until is not None:",
        "elif setattr(lane, 'rare', replace(lane.rare, paused_until=lane.rare.paused_until or 1)) is None:",
    ),
    Mutant("a pause never ends", f"{LANE}._after_the_pause", "None if until is None else max(at, until)", "None"),
    Mutant("a pause ends early", f"{LANE}._after_the_pause", "max(at, until)", "at"),
    Mutant("whoever types is not waited for", f"{LANE}.wait_for_more", "self.ready_at = quiet_at", "pass"),
    Mutant(
        "whoever types is waited for without end",
        f"{LANE}.wait_for_more",
        "self.policy.ready_at(self.first_at, now, self.waiting)",
        "now + self.policy.debounce_ms",
    ),
    # Operators
    Mutant("a retry on demand waits all the same", f"{LANE}.hurry", "self.retry_at = now", "pass"),
    Mutant("a retry on demand makes a turn ask again", f"{LANE}.awaits_answer", "self.rare.asking", "False"),
    Mutant("who is skipped may still write", f"{TRANSACTION}.skip", "self._give_up(", "(lambda *_, **__: None)("),
    Mutant("patience is for one conversation alone", f"{TRANSACTION}._retry", "outcome.holds_account and", "False and"),
    Mutant("a shorter hold replaces a longer one", f"{TRANSACTION}._hold", "if until >", "if True or until >"),
    # Showing an answer before it is whole
    Mutant("what is to be said waits for what is shown", f"{LANE}.arrive", "self.hide(now)", "pass"),
    Mutant("a turn that is over still holds the outbox", f"{TRANSACTION}._hide", "self._let_go(out)", "pass"),
    Mutant(
        "renewing takes the outbox from who shows",
        f"{LANE}.held_under",
        "if self.rare.shows is None else (TURN, self.key, self.rare.shows)",
        "",
    ),
    Mutant("who lost the turn shows on", f"{TRANSACTION}.hold_outbox", "not lane.held_by", "lane.held_by is None and "),
    Mutant("an answer is shown while the account is held", f"{TRANSACTION}._may_be_seen", "<= self._now", "<= 1 << 62"),
    Mutant("an answer is shown to who is gone", f"{TRANSACTION}._may_be_seen", "lane.rare.gone is None", "True"),
    Mutant(
        "retried messages change places",
        f"{TRANSACTION}.retry_dead_letter",
        "enumerate(messages, first)",
        "reversed(list(enumerate(messages, first)))",
    ),
    Mutant(
        "a dead letter is run again and again",
        f"{TRANSACTION}.retry_dead_letter",
        'outcome="retried"',
        'outcome="dead_letter"',
    ),
    Mutant(
        "a dead letter is retried without waking anybody", f"{LANE}.arrive_again", "self._wake_by(self.runs_at)", "pass"
    ),
    Mutant(
        "what was retried is refused with who came late",
        f"{TRANSACTION}.retry_dead_letter",
        "self._refuse_late(lane)",
        "pass",
    ),
    Mutant(
        "anything is dropped as a dead letter", f"{TRANSACTION}._dead_letter", 'turn.outcome == "dead_letter"', "True"
    ),
    Mutant("the route has the last word", f"{LANE}.stamped", "if on_busy is None:", "if True:"),
    Mutant("nobody remembers what the route said", f"{LANE}.behave", "self.rare.on_busy_of_route or ", ""),
    Mutant(
        "a delivery is resent to its old place", f"{TRANSACTION}.resend", "lane.arrive(lane.policy, self._now)", "place"
    ),
    Mutant("what was sent is sent again", f"{TRANSACTION}.resend", 'found.state == "sent"', "False"),
    Mutant(
        "anything that waits in a held outbox lets it go", f"{TRANSACTION}.resend", "place == lane.next_place and ", ""
    ),
    Mutant(
        "a dropped delivery leaves all the same",
        f"{TRANSACTION}.drop",
        "lane.withdraw(place, place, self._now)",
        "pass",
    ),
    Mutant(
        "dropping what is held leaves the rest held", f"{TRANSACTION}.drop", "self.unpark(conversation, OUT)", "pass"
    ),
    Mutant("a dropped delivery stands in the way", f"{LANE}.advance", "self._absorb()", "pass"),
    Mutant("who is gone is asked again", f"{TRANSACTION}._lose_touch", "gone=cause", "gone=None"),
    Mutant(
        "what waits for who is gone leaves",
        f"{TRANSACTION}._fail_what_waits",
        "out.withdraw(places[0], places[-1], self._now)",
        "pass",
    ),
    Mutant("who is gone stays gone", f"{TRANSACTION}._stamped", "gone=None", "gone=lane.rare.gone"),
    Mutant(
        "an operator cannot reach who is gone",
        f"{TRANSACTION}.resend",
        "self._try_again_to_reach(conversation)",
        "pass",
    ),
    # The rate of an account
    Mutant("an account has no rate", f"{SERVING}.count_one", "return again_at", "return 0"),
    Mutant("who competes has no rate", f"{SERVING}._in_turn", " and self._is_free(queue, shares.holds)", ""),
    Mutant(
        "an account saves up without end",
        f"{POLICY}.sends_again_at",
        "max(free_at, now - (self.send_burst - 1) * self.send_every_ms)",
        "free_at",
    ),
    Mutant("an account saves nothing up", f"{POLICY}.sends_again_at", "(self.send_burst - 1)", "0"),
    Mutant("a lease goes on whatever the rate", f"{TRANSACTION}._may_go_on", "policy.send_every_ms or ", ""),
    Mutant("a lease goes on though the account is held", f"{TRANSACTION}._may_go_on", "<= self._now", "<= 1 << 62"),
    # Questions
    Mutant("a question is asked with every run", f"{TRANSACTION}._ask", "if number > asked:", "if True:"),
    Mutant(
        "an answer is a turn of its own", f"{TRANSACTION}._accept_otherwise", "if lane.rare.asking or", "if False and"
    ),
    Mutant(
        "any button answers any question", f"{TRANSACTION}._take_as_answer", "asked = asked and", "asked = asked or"
    ),
    Mutant("an answer comes after its time", f"{TRANSACTION}._take_as_answer", "self._expire_question(lane)", "pass"),
    Mutant(
        "what is said before a question leaves answers it",
        f"{TRANSACTION}._take_as_answer",
        " or not self._question_may_be_known(lane)",
        "",
    ),
    Mutant(
        "what is said while a question leaves is no answer",
        f"{LANE}.may_have_left",
        "self.attempt > self.failures",
        "False",
    ),
    Mutant(
        "a question that may have left cannot be answered",
        f"{LANE}.may_have_left",
        "self.attempt > self.failures",
        "self.owner is not None",
    ),
    Mutant(
        "a question that was tried in vain may be answered",
        f"{LANE}.may_have_left",
        "self.attempt > self.failures",
        "True",
    ),
    Mutant("an answered turn is not woken", f"{LANE}.answer", "self._rearm(now)", "pass"),
    Mutant(
        "whoever asks does not wait", f"{LANE}._again_at", "self.rare.expires_at if self.rare.asking else now", "now"
    ),
    Mutant("waiting for an answer costs an attempt", f"{LANE}.await_answer", "self.attempt -= 1", "pass"),
    Mutant("a lost worker's waiting costs a takeover", f"{LANE}.orphan", "if self.rare.asking:", "if False:"),
    Mutant("the next turn waits for an old answer", f"{LANE}._ask_no_more", "if self.rare.asked:", "if False:"),
    Mutant(
        "nobody is told that a question timed out", f"{SERVING}._answers", "if lane.is_unanswered_by", "if False and"
    ),
    Mutant(
        "a question that reached nobody is waited with", f"{TRANSACTION}._ask_nobody", "unsaid is not None", "False"
    ),
    # Fairness
    Mutant("a big tenant stands in front", f"{SERVING}._in_turn", "shares.running.tenants[tenant], ", "0, "),
    Mutant("nothing is urgent", f"{SERVING}._in_turn", "priority_of(queue), ", "0, "),
    Mutant("who was just served is served again", f"{SERVING}._in_turn", "shares.served[tenant], ", "0, "),
    # Limits
    Mutant(
        "the fleet has no limit", "turnlane.model.limits:Running.leave_room", "_below(self.all, limits.all)", "True"
    ),
    Mutant("a channel has no limit", "turnlane.model.limits:Running.leave_room", "limits.per_channel", "None"),
    Mutant("an agent has no limit", "turnlane.model.limits:Running.leave_room", "limits.per_agent", "None"),
    Mutant("a user has no limit", "turnlane.model.limits:Running.leave_room_for", "limits.per_user", "None"),
    Mutant(
        "who waits for a limit is forgotten",
        f"{SERVING}._waits_for_its_user",
        "(self._now // USER_LOOK_MS + looks) * USER_LOOK_MS",
        "None",
    ),
    # Pauses
    Mutant("all goes on though all is paused", PAUSES, "self.all or ", ""),
    Mutant("a paused channel goes on", PAUSES, "tenant_of(queue) in self.channels", "False"),
    Mutant("a paused agent goes on", PAUSES, "agent_of(queue) in self.agents", "False"),
    Mutant("the replies of a paused agent are held", PAUSES, "kind is TURN and ", ""),
    Mutant(
        "a long answer is sent to its end though its channel is paused",
        f"{TRANSACTION}._may_go_on",
        "pauses is not None",
        "False",
    ),
    # Attempts
    Mutant("attempts are not counted before the run", f"{LANE}.claim", "self.attempt += 1", "pass"),
    Mutant("a release keeps the blame", f"{LANE}.release", "self.attempt -= 1", "pass"),
    Mutant("a failure that does not count is counted", f"{LANE}.retry", "self.attempt -= 1", "self.failures += 1"),
    Mutant("failures never end", f"{POLICY}.failures_used_up", "failures >=", "False and failures >="),
    Mutant("takeovers never end", f"{LANE}.takeovers_used_up", "self.takeovers >", "False and self.takeovers >"),
    Mutant("ack = claim is taken over", f"{LANE}.takeovers_used_up", 'self.policy.ack == "claim"', "False"),
    Mutant("ack = claim is released", f"{TRANSACTION}._release", 'lane.policy.ack == "claim"', "False"),
    Mutant("unpark keeps old failures", f"{LANE}.unpark", "self.attempt = self.failures = 0", "pass"),
    Mutant(
        "the next batch inherits failures",
        f"{LANE}.complete",
        "self.attempt = self.failures = 0",
        "self.attempt = self.failures",
    ),
    # Workers
    Mutant("a dead worker may revive", f"{TRANSACTION}.renew", "row is None or not row.live", "row is None"),
    Mutant("a dead worker claims", f"{SERVING}._standing", "row is None or not row.live", "row is None"),
    Mutant("a lapsed worker claims", f"{SERVING}._standing", "row.alive_until > self._now", "True"),
    Mutant("a lost claim is never given back", f"{TRANSACTION}.renew", "if claimed_long_ago and", "if False and"),
    Mutant("a claim on its way is given back", f"{TRANSACTION}.renew", "if claimed_long_ago and", "if"),
    Mutant("what is named is given back", f"{TRANSACTION}.renew", "not in known", "not in ()"),
    Mutant("whoever leaves keeps its lanes", f"{TRANSACTION}.leave", "self._release(lane)", "pass"),
    Mutant("leaving counts against the turn", f"{TRANSACTION}.leave", "self._release(lane)", "self._take_back(lane)"),
    # Accept and commit
    Mutant("no dedupe", f"{TRANSACTION}._accept", "seen is not None", "False"),
    Mutant(
        "a duplicate still wakes its lane",
        f"{TRANSACTION}._accept",
        "if seen is not None:",
        "if seen is not None and self._lane(TURN, message.conversation, policy).arrive(policy, self._now):",
    ),
    Mutant(
        "a commit cannot be repeated",
        f"{TRANSACTION}._already",
        "None if lane is None else self._earlier_verdict(lane, lease)",
        "None",
    ),
    Mutant("one-part answers are lost", f"{TRANSACTION}._queue_deliveries", "if not parts", "if len(parts) < 2"),
    Mutant(
        "parts leave in the wrong order",
        f"{TRANSACTION}._queue_deliveries",
        "in enumerate(parts, 1)",
        "in reversed(list(enumerate(parts, 1)))",
    ),
    Mutant("a delivery is skipped", f"{LANE}._open_batch", "else 1", "else 2"),
    Mutant(
        "a failed sending lets the next one pass",
        f"{TRANSACTION}._retry",
        "self._used_up(lane, lease, outcome)",
        "lane.kind is OUT",
    ),
    Mutant("take_next ignores pause", f"{TRANSACTION}._may_go_on", "lane.paused or ", ""),
    Mutant(
        "giving up leaves the lane stuck",
        f"{TRANSACTION}._give_up",
        "self._complete(lane, still_runs=still_runs)",
        "lane.park(self._now)",
    ),
    Mutant("usage is lost when a session is reused", f"{SESSION}.after_turn", "self.usage + usage", "usage"),
    Mutant("a new session inherits old tokens", f"{SESSION}.after_turn", "handle != self.handle", "False"),
    Mutant(
        "a session goes to the wrong agent", f"{TRANSACTION}._save_session", "lease.policy.agent", "lane.policy.agent"
    ),
    Mutant("a stale write is not noted", f"{TRANSACTION}._already", "if verdict is None:", "if False:"),
    Mutant("what is begun anew goes on being counted", f"{SESSION}.after_turn", "or anew", "or False"),
    # What is spent
    Mutant("who is put off again and again is told each time", f"{TRANSACTION}._tell_once", "lane.rare.told <", "0 <"),
    Mutant("who was put off waits on in a new session", f"{LANE}.renew", "self.hurry(now)", "pass"),
    Mutant("a turn is paid by whoever spoke last", f"{TRANSACTION}._spend", "lane.runs_for_whom", "lane.user"),
    Mutant("only the dear model is paid for", f"{TRANSACTION}._spend", 'reply.model or ""', '"large"'),
    Mutant("the next agent pays for the last one", f"{TRANSACTION}._spend", "lease.policy.agent", "lane.policy.agent"),
    Mutant("a turn counts for another day", f"{TRANSACTION}._spend", "day_of(self._now)", "day_of(self._now) + 1"),
    Mutant("no rest between two sendings", f"{TRANSACTION}._go_on", "lane.policy.send_pause_ms", "0"),
    Mutant("who is resting goes on", f"{TRANSACTION}._may_go_on", " or policy.send_pause_ms", ""),
    Mutant("a new delivery ends the rest", f"{LANE}.arrive", "if not rests:", "if True:"),
    Mutant("what is shown costs nothing", f"{TRANSACTION}.hold_outbox", "if may_show and", "if not may_show and"),
    Mutant("what the agent spent is not added", f"{TRANSACTION}._answer", "is not NO_USAGE", "is NO_USAGE"),
    Mutant(
        "a platform's word ends a sending that is under way",
        f"{STEERING}._find_it_sent",
        "lane.has_open_batch and lane.owner is None",
        "lane.has_open_batch",
    ),
    Mutant(
        "what came to nothing after all stays sent",
        f"{STEERING}.report",
        'self._rows.close_delivery(lane, place, "failed", cause)',
        "pass",
    ),
    Mutant(
        "a platform tells of what was never sent",
        f"{STEERING}.report",
        'if found.state != "sent" or state == "sent":',
        'if state == "sent":',
    ),
)


def plain_function(attribute: object) -> FunctionType:
    function = attribute.fget if isinstance(attribute, property) else attribute
    assert isinstance(function, FunctionType)
    return function


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """The engine with this mistake in it, for as long as the context is open."""
    function = mutant.function()
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutant.before) != 1:
        raise InvalidInput(
            f"mutant {mutant.name!r} does not apply: {mutant.where} must contain {mutant.before!r} once; "
            "change the mutant with the engine"
        )
    namespace = dict(function.__globals__)
    changed = "from __future__ import annotations\n" + source.replace(mutant.before, mutant.after)
    exec(compile(changed, f"<{mutant.name}>", "exec"), namespace)  # noqa: S102 - our own source, changed by us
    original = function.__code__
    function.__code__ = plain_function(namespace[function.__name__]).__code__
    try:
        yield
    finally:
        function.__code__ = original


async def hunt(mutant: Mutant, seeds: Iterable[int], *, backend: str = "memory://") -> Broken | None:
    """The first history that shows the mistake. None: the mutant survived."""
    with planted(mutant):
        history = await simulate_many(throwaway(backend), seeds, name=backend, broken_max=1)
    return history.broken[0] if history.broken else None
