-- Every statement that touches rows. `-- name:` starts one; the lines below it say what it is for.
-- Where `nullif(?, -1)` stands, codec.py binds -1 for nothing: Python's driver takes as long over a None, a bool or a member
-- of an enum as over a column.

-- name: lanes_by_key
-- The lanes that a group of calls is about, in one probe each.
SELECT l.* FROM json_each(?2) AS wanted CROSS JOIN lane AS l ON l.kind = ?1 AND l.key = wanted.value

-- name: lanes_by_id
-- What due_lanes found, in its order.
SELECT l.* FROM json_each(?1) AS wanted CROSS JOIN lane AS l ON l.id = wanted.value

-- name: next_queue
-- The next queue in which lanes are due at some time, and when first: one probe, however long it is. Served by lane_due.
SELECT queue, due_at FROM lane WHERE kind = ? AND queue > ? AND due_at IS NOT NULL ORDER BY queue, due_at LIMIT 1

-- name: due_lanes
-- The next page of a queue's due lanes, longest due first. Served by lane_due alone: most of them are known.
SELECT id, due_at FROM lane
WHERE kind = ?1 AND queue = ?2 AND due_at <= ?3 AND (due_at, id) > (?4, ?5)
ORDER BY due_at, id LIMIT ?6

-- name: running
-- Whose lanes are held now: as many rows as there are slots at work. Served by lane_owner.
SELECT id, policy, more FROM lane INDEXED BY lane_owner WHERE owner IS NOT NULL AND kind = ?

-- name: served
SELECT tenant, served FROM tenant WHERE kind = ?

-- name: save_served
INSERT INTO tenant VALUES (?, ?, ?) ON CONFLICT (kind, tenant) DO UPDATE SET served = excluded.served

-- name: holds
SELECT account, until FROM hold

-- name: save_hold
INSERT INTO hold (account, until) VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET until = excluded.until

-- name: lanes_of
-- Served by lane_owner.
SELECT * FROM lane WHERE owner = ?

-- name: lanes_of_the_dead
-- Lanes whose owner is dead or unknown. Served by lane_owner.
SELECT l.* FROM lane AS l LEFT JOIN worker AS w ON w.id = l.owner
WHERE l.owner IS NOT NULL AND coalesce(w.live, 0) = 0

-- name: policies
SELECT id, text FROM policy WHERE id > ?

-- name: insert_policy
INSERT INTO policy (text) VALUES (?) ON CONFLICT (text) DO UPDATE SET text = excluded.text RETURNING id

-- name: last_lane_id
SELECT coalesce(max(id), 0) FROM lane

-- name: insert_lane
-- Without failures, and neither paused nor parked.
INSERT INTO lane VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, -1), nullif(?, -1), nullif(?, -1), nullif(?, -1), ?, nullif(?, -1), ?, 0, NULL, 0, 0, ?, ?)

-- name: move_lane
UPDATE lane SET
    next_seq = ?, done_seq = ?, claim_seq = ?, number = ?, attempt = ?, first_at = nullif(?, -1), ready_at = nullif(?, -1),
    due_at = nullif(?, -1), owner = nullif(?, -1), epoch = ?, claimed_at = nullif(?, -1)
WHERE id = ?

-- name: set_lane
UPDATE lane SET policy = ?, failures = ?, retry_at = ?, paused = ?, parked = ?, queue = ?, more = ? WHERE id = ?

-- name: origins
-- Which of these ids came before, for one channel.
SELECT o.origin_id, o.seq FROM json_each(?2) AS wanted
CROSS JOIN origin AS o ON o.channel = ?1 AND o.origin_id = wanted.value

-- name: insert_origin
INSERT INTO origin (lane, seq, at, channel, origin_id) VALUES (?, ?, ?, ?, ?)

-- name: insert_message
INSERT INTO message (lane, seq, accepted_at, origin_id, sender, sent_at, text, attachments)
VALUES (?, ?, ?, ?, ?, nullif(?, -1), ?, nullif(?, -1))

-- name: insert_message_by
-- Somebody else than the person: seldom, so that the others carry one value less.
INSERT INTO message (lane, seq, accepted_at, origin_id, sender, sent_at, text, attachments, role)
VALUES (?, ?, ?, ?, ?, nullif(?, -1), ?, nullif(?, -1), ?)

-- name: move_message
UPDATE message SET seq = ?3 WHERE lane = ?1 AND seq = ?2

-- name: move_origin
-- Unless the id was forgotten, and has come again since.
UPDATE origin SET seq = ?5 WHERE channel = ?1 AND origin_id = ?2 AND lane = ?3 AND seq = ?4

-- name: settle_messages
UPDATE message SET outcome = ? WHERE lane = ? AND seq BETWEEN ? AND ? AND outcome IS NULL

-- name: message_outcome
SELECT outcome FROM message WHERE lane = ? AND seq = ?

-- name: messages_of_batches
-- The batches of many lanes at once; each range is [lane, first, last].
SELECT m.lane, m.seq, m.accepted_at, m.origin_id, m.sender, m.sent_at, m.text, m.attachments, m.role
FROM json_each(?1) AS batch
CROSS JOIN message AS m ON m.lane = batch.value ->> 0 AND m.seq BETWEEN batch.value ->> 1 AND batch.value ->> 2

-- name: sessions_of_lanes
SELECT s.* FROM json_each(?1) AS wanted CROSS JOIN session AS s ON s.lane = wanted.value

-- name: new_session
INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (lane, agent) DO UPDATE SET
    handle = excluded.handle, turns = excluded.turns, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, cached_tokens = excluded.cached_tokens,
    reasoning_tokens = excluded.reasoning_tokens, updated_at = excluded.updated_at, shared = excluded.shared,
    machine = excluded.machine, cost = excluded.cost

-- name: begin_session
-- The same under a handle that nobody else has had.
INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, NULL, ?)
ON CONFLICT (lane, agent) DO UPDATE SET
    handle = excluded.handle, turns = excluded.turns, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, cached_tokens = excluded.cached_tokens,
    reasoning_tokens = excluded.reasoning_tokens, updated_at = excluded.updated_at, shared = excluded.shared,
    machine = excluded.machine, cost = excluded.cost

-- name: handles_had
-- Which of these handles sessions of the agent have begun with. Served by session_twins.
SELECT s.handle FROM json_each(?2) AS wanted CROSS JOIN session AS s ON s.agent = ?1 AND s.handle = wanted.value

-- name: continue_session
-- The handle stays, and with it the index on it.
UPDATE session SET
    turns = ?, input_tokens = ?, output_tokens = ?, cached_tokens = ?, reasoning_tokens = ?, cost = ?, updated_at = ?
WHERE lane = ? AND agent = ?

-- name: drop_sessions
DELETE FROM session WHERE lane = ?

-- name: twins
-- Lanes to which the same agent gave the same handle. Served by session_twins.
SELECT l.* FROM session AS s CROSS JOIN lane AS l ON l.id = s.lane
WHERE s.agent = ?1 AND s.handle = ?2 AND s.lane != ?3

-- name: mark_shared
UPDATE session SET shared = 1 WHERE agent = ?1 AND handle = ?2

-- name: insert_delivery
INSERT INTO delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', NULL, 0, 0, NULL, NULL, NULL)

-- name: insert_delivery_with_options
INSERT INTO delivery VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'queued', NULL, 0, 0, NULL, NULL, ?)

-- name: insert_question
INSERT INTO question VALUES (?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL)

-- name: question
SELECT * FROM question WHERE lane = ? AND turn = ? AND number = ?

-- name: answer_question
UPDATE question SET answer = ?, answered_by = ?, answered_at = ? WHERE lane = ? AND turn = ? AND number = ?

-- name: settle_delivery
UPDATE delivery SET
    state = ?3, settled_at = ?4, attempt = ?5, epoch = ?6, receipt = nullif(?7, -1), cause = nullif(?8, -1)
WHERE lane = ?1 AND seq = ?2

-- name: delivery
SELECT * FROM delivery WHERE lane = ? AND seq = ?

-- name: move_delivery
UPDATE delivery SET
    seq = ?3, queued_at = ?4, state = 'queued', settled_at = NULL, attempt = 0, epoch = 0, receipt = NULL, cause = NULL
WHERE lane = ?1 AND seq = ?2

-- name: close_delivery
UPDATE delivery SET state = ?3, settled_at = ?4, cause = ?5 WHERE lane = ?1 AND seq = ?2

-- name: deliveries_of_batches
SELECT d.* FROM json_each(?1) AS batch
CROSS JOIN delivery AS d ON d.lane = batch.value ->> 0 AND d.seq = batch.value ->> 1

-- name: settled_delivery
SELECT state, epoch FROM delivery WHERE lane = ? AND seq = ? AND state != 'queued'

-- name: insert_turn
INSERT INTO turn VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, -1), nullif(?, -1), ?, ?, ?, ?, ?)

-- name: turn
SELECT * FROM turn WHERE lane = ? AND number = ?

-- name: amend_turn
UPDATE turn SET outcome = ?3 WHERE lane = ?1 AND number = ?2

-- name: insert_attempt
INSERT INTO attempt VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: attempt
SELECT * FROM attempt WHERE lane = ? AND epoch = ?

-- name: worker
SELECT id, live, alive_until, machine FROM worker WHERE id = ?

-- name: save_worker
INSERT INTO worker VALUES (?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET live = excluded.live, alive_until = excluded.alive_until

-- name: lapsed_workers
SELECT id, live, alive_until, machine FROM worker WHERE live = 1 AND alive_until < ?

-- name: machine_is_live
SELECT 1 FROM worker WHERE live = 1 AND machine = ? AND alive_until > ? LIMIT 1

-- name: setting
SELECT value FROM setting WHERE name = ?

-- name: save_setting
INSERT INTO setting (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: drop_setting
DELETE FROM setting WHERE name = ?

-- name: insert_journal
INSERT INTO journal (at, facts, lanes) VALUES (?, ?, ?)

-- name: change_silently
UPDATE silent SET changes = changes + 1 WHERE id = 1 RETURNING changes

-- name: silent_changes
SELECT changes FROM silent WHERE id = 1

-- name: changed_lanes
-- Of the transactions since one: their ids, and the lanes that each changed.
SELECT id, lanes FROM journal WHERE id > ? ORDER BY id LIMIT ?

-- name: last_journal
SELECT coalesce(max(id), 0) FROM journal

-- name: old_messages
-- Settled messages older than the given time that no dead letter needs, a page at a time.
SELECT m.lane, m.seq FROM message AS m JOIN lane AS l ON l.id = m.lane
WHERE (m.lane, m.seq) > (?2, ?3) AND m.accepted_at < ?1 AND m.seq <= l.done_seq
  AND NOT EXISTS (SELECT 1 FROM turn AS t WHERE t.lane = m.lane AND t.outcome = 'dead_letter'
                  AND m.seq BETWEEN t.first AND t.last)
ORDER BY m.lane, m.seq LIMIT ?4

-- name: forget_message
DELETE FROM message WHERE lane = ? AND seq = ?

-- name: old_turns
SELECT lane, number FROM turn
WHERE (lane, number) > (?2, ?3) AND ended_at < ?1 AND outcome != 'dead_letter'
ORDER BY lane, number LIMIT ?4

-- name: forget_turn
DELETE FROM turn WHERE lane = ? AND number = ?

-- name: old_attempts
SELECT lane, epoch FROM attempt WHERE (lane, epoch) > (?2, ?3) AND at < ?1 ORDER BY lane, epoch LIMIT ?4

-- name: forget_attempt
DELETE FROM attempt WHERE lane = ? AND epoch = ?

-- name: old_deliveries
SELECT lane, seq FROM delivery
WHERE (lane, seq) > (?2, ?3) AND settled_at < ?1 AND state IN ('sent', 'dropped')
ORDER BY lane, seq LIMIT ?4

-- name: forget_delivery
DELETE FROM delivery WHERE lane = ? AND seq = ?

-- name: old_questions
-- Of turns that are over; told by their turn, as all of one turn go together.
SELECT q.lane, q.turn FROM question AS q JOIN lane AS l ON l.id = q.lane
WHERE (q.lane, q.turn) > (?2, ?3) AND q.asked_at < ?1 AND (q.turn < l.number OR l.claim_seq = l.done_seq)
GROUP BY q.lane, q.turn ORDER BY q.lane, q.turn LIMIT ?4

-- name: forget_question
DELETE FROM question WHERE lane = ? AND turn = ?

-- name: old_origins
SELECT channel, origin_id FROM origin
WHERE (channel, origin_id) > (?2, ?3) AND at < ?1
ORDER BY channel, origin_id LIMIT ?4

-- name: forget_origin
DELETE FROM origin WHERE channel = ? AND origin_id = ?

-- name: old_events
-- Those before the first one that is young enough; if there is none, nothing goes, so the last one always stays.
SELECT id, at FROM journal
WHERE id > ?2 AND ?3 IS NOT NULL AND id < (SELECT id FROM journal WHERE at >= ?1 ORDER BY id LIMIT 1)
ORDER BY id LIMIT ?4

-- name: forget_event
DELETE FROM journal WHERE id = ? AND at = ?

-- name: old_workers
-- Dead workers that own nothing any more.
SELECT w.id, w.alive_until FROM worker AS w
WHERE (w.id, w.alive_until) > (?2, ?3) AND w.live = 0 AND w.alive_until < ?1
  AND NOT EXISTS (SELECT 1 FROM lane AS l WHERE l.owner = w.id)
ORDER BY w.id LIMIT ?4

-- name: forget_worker
DELETE FROM worker WHERE id = ? AND alive_until = ?

-- name: view_version
-- Another one once any other connection has written.
PRAGMA data_version

-- name: view_lanes
-- A channel's conversations start with its name and a slash; the character after the slash is a zero.
SELECT * FROM lane
WHERE kind = ?1 AND (?2 IS NULL OR (key >= ?2 || '/' AND key < ?2 || '0'))
ORDER BY id LIMIT ?3 OFFSET ?4

-- name: view_board
-- Sorted in the store: most conversations are idle, and few of them are looked at.
SELECT * FROM lane WHERE kind = ?1
ORDER BY (next_seq > done_seq OR owner IS NOT NULL OR paused OR parked) DESC, id DESC LIMIT ?2

-- name: view_lanes_by_key
SELECT l.* FROM json_each(?2) AS wanted CROSS JOIN lane AS l ON l.kind = ?1 AND l.key = wanted.value

-- name: view_lanes_of
SELECT * FROM lane WHERE kind IN (0, 1, 2) AND key = ? ORDER BY kind

-- name: view_messages
SELECT lane, seq, accepted_at, origin_id, sender, sent_at, text, attachments, role
FROM message WHERE lane = ? ORDER BY seq DESC LIMIT ?

-- name: view_messages_of_turn
SELECT lane, seq, accepted_at, origin_id, sender, sent_at, text, attachments, role
FROM message WHERE lane = ? AND seq BETWEEN ? AND ? AND outcome IS NULL ORDER BY seq

-- name: view_outcomes
SELECT seq, outcome FROM message WHERE lane = ? AND outcome IS NOT NULL ORDER BY seq DESC LIMIT ?

-- name: view_turns
SELECT * FROM turn WHERE lane = ? ORDER BY number DESC LIMIT ?

-- name: view_attempts
SELECT * FROM attempt WHERE lane = ? ORDER BY epoch DESC LIMIT ?

-- name: view_questions
SELECT * FROM question WHERE lane = ? ORDER BY turn DESC, number DESC LIMIT ?

-- name: view_sessions
SELECT * FROM session WHERE lane = ?

-- name: view_last_deliveries
SELECT d.*, ?2 FROM delivery AS d WHERE d.lane = ?1 ORDER BY d.seq DESC LIMIT ?3

-- name: view_place
SELECT l.key, o.seq FROM origin AS o JOIN lane AS l ON l.id = o.lane WHERE o.channel = ? AND o.origin_id = ?

-- name: view_deliveries
SELECT d.*, l.key FROM lane AS l JOIN delivery AS d ON d.lane = l.id
WHERE l.kind = 1 AND l.key = ? AND d.seq > ? ORDER BY d.seq LIMIT ?

-- name: view_outbox_queued
SELECT d.*, l.key FROM lane AS l JOIN delivery AS d ON d.lane = l.id AND d.seq > l.done_seq
WHERE l.kind = 1 AND l.next_seq > l.done_seq AND d.state = ?1 ORDER BY d.queued_at LIMIT ?2

-- name: view_outbox_failed
-- Served by delivery_failed.
SELECT d.*, l.key FROM delivery AS d JOIN lane AS l ON l.id = d.lane
WHERE d.state = 'failed' AND d.state = ?1 ORDER BY d.settled_at DESC LIMIT ?2

-- name: view_delivery_failed
SELECT d.*, l.key FROM delivery AS d INDEXED BY delivery_failed JOIN lane AS l ON l.id = d.lane
WHERE d.state = 'failed' AND d.id = ?

-- name: view_delivery_queued
SELECT d.*, l.key FROM lane AS l JOIN delivery AS d ON d.lane = l.id AND d.seq > l.done_seq
WHERE l.kind = 1 AND l.next_seq > l.done_seq AND d.id = ?

-- name: view_delivery
-- The ids have no index, which every delivery would pay for: an operator asks seldom.
SELECT d.*, l.key FROM delivery AS d JOIN lane AS l ON l.id = d.lane WHERE d.id = ?

-- name: view_outbox_dropped
SELECT d.*, l.key FROM delivery AS d JOIN lane AS l ON l.id = d.lane
WHERE d.state = ?1 ORDER BY d.settled_at DESC LIMIT ?2

-- name: view_outbox_sent
SELECT d.*, l.key FROM delivery AS d JOIN lane AS l ON l.id = d.lane
WHERE d.state = ?1 ORDER BY d.settled_at DESC LIMIT ?2

-- name: view_dead_letters
-- Served by turn_dead_letters.
SELECT t.*, l.key FROM turn AS t JOIN lane AS l ON l.id = t.lane
WHERE t.outcome = 'dead_letter' AND (?1 IS NULL OR l.key = ?1) ORDER BY t.ended_at DESC LIMIT ?2

-- name: view_locks
-- Served by lane_owner.
SELECT l.key, l.kind, l.owner, l.epoch, l.claimed_at, w.alive_until
FROM lane AS l LEFT JOIN worker AS w ON w.id = l.owner WHERE l.owner IS NOT NULL ORDER BY l.claimed_at

-- name: view_busy
-- Served by lane_owner.
SELECT key, epoch, next_seq, claim_seq, done_seq, policy, paused, more FROM lane WHERE owner = ? AND kind = 0

-- name: view_workers
SELECT w.id, w.live, w.alive_until, (SELECT count(*) FROM lane AS l WHERE l.owner = w.id), w.machine
FROM worker AS w ORDER BY w.alive_until DESC

-- name: view_lane_counts
-- The seven states, as model/lane.py decides them.
SELECT CASE
        WHEN owner IS NOT NULL THEN 'running'
        WHEN parked THEN 'parked'
        WHEN paused AND coalesce(more ->> '$[6].paused_until', ?1 + 1) > ?1 THEN 'paused'
        WHEN next_seq = done_seq THEN 'idle'
        WHEN claim_seq > done_seq THEN iif(retry_at <= ?1, 'ready', 'waiting')
        ELSE iif(ready_at <= ?1, 'ready', 'gathering') END AS state,
    count(*) FROM lane WHERE kind = 0 GROUP BY state

-- name: view_pending
-- Without what has an outcome of its own though something before it waits.
SELECT kind, coalesce(sum(next_seq - done_seq - iif(next_seq = done_seq, 0, (
        SELECT coalesce(sum((value ->> 1) - (value ->> 0) + 1), 0) FROM json_each(lane.more, '$[0]')))), 0),
    count(owner), min(due_at)
FROM lane GROUP BY kind

-- name: view_totals
SELECT (SELECT count(*) FROM delivery WHERE state = 'failed'),
       (SELECT count(*) FROM turn WHERE outcome = 'dead_letter'),
       (SELECT count(*) FROM worker WHERE live = 1)

-- name: spend
INSERT INTO spent VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (day, channel, for_user, agent, model) DO UPDATE SET
    turns = turns + excluded.turns, input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens, cached_tokens = cached_tokens + excluded.cached_tokens,
    reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens, cost = cost + excluded.cost

-- name: person
SELECT * FROM person WHERE channel = ? AND for_user = ?

-- name: save_person
INSERT INTO person VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (channel, for_user) DO UPDATE SET
    name = excluded.name, user_name = excluded.user_name, labels = excluded.labels, chat_id = excluded.chat_id,
    enriched_at = excluded.enriched_at, version = excluded.version, changed_at = excluded.changed_at

-- name: newest_person
SELECT coalesce(max(changed_at), 0) FROM person

-- name: view_people
-- Served by person_changed.
SELECT * FROM person WHERE changed_at > ? ORDER BY changed_at

-- name: view_all_sessions
SELECT s.*, l.key FROM session AS s JOIN lane AS l ON l.id = s.lane WHERE ?1 IS NULL OR s.agent = ?1
ORDER BY s.updated_at DESC, l.key, s.agent LIMIT ?2

-- name: view_spent
SELECT * FROM spent WHERE day BETWEEN ?1 AND ?2 AND (?3 IS NULL OR channel = ?3) AND (?4 IS NULL OR for_user = ?4)
ORDER BY day, channel, for_user, agent, model

-- name: view_settings
SELECT name, value FROM setting ORDER BY name

-- name: view_journal
SELECT id, at, facts FROM journal WHERE id >= ? ORDER BY id LIMIT ?

-- name: view_last_journal
SELECT id, at, facts FROM journal ORDER BY id DESC LIMIT 1
