-- Every statement that touches rows, as in SQLite's queries.sql: the same names, parameters and columns.

-- name: lanes_by_key
-- The lanes that a group of calls is about, held until its end; always in the same order, so that nobody waits in a circle.
SELECT *, xmin FROM lane WHERE kind = $1 AND key = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)) COLLATE "C")
ORDER BY id FOR UPDATE

-- name: peek_lanes
-- The same for whoever holds none of them, and finds out at last whether they are still as they were.
SELECT *, xmin FROM lane WHERE kind = $1 AND key = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)) COLLATE "C")

-- name: next_queue
-- Each queue in which lanes are due after $2, and when first: one probe a queue, however long it is. Served by lane_due.
WITH RECURSIVE found AS (
    (SELECT queue FROM lane WHERE kind = $1 AND due_at IS NOT NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT following.queue FROM found CROSS JOIN LATERAL (
        SELECT queue FROM lane WHERE kind = $1 AND due_at IS NOT NULL AND queue > found.queue
        ORDER BY queue LIMIT 1) AS following)
SELECT found.queue, first.due_at FROM found CROSS JOIN LATERAL (
    SELECT due_at FROM lane WHERE kind = $1 AND queue = found.queue AND due_at IS NOT NULL AND due_at > $2
    ORDER BY due_at LIMIT 1) AS first

-- name: due_lanes
-- The next page of a queue's due lanes, longest due first; those that somebody else holds just now are his. Served by lane_due.
SELECT *, xmin FROM lane
WHERE kind = $1 AND queue = $2 AND due_at IS NOT NULL AND due_at <= $3 AND (due_at, id) > ($4, $5)
ORDER BY due_at, id LIMIT $6 FOR UPDATE SKIP LOCKED

-- name: peek_due_lanes
SELECT *, xmin FROM lane
WHERE kind = $1 AND queue = $2 AND due_at IS NOT NULL AND due_at <= $3 AND (due_at, id) > ($4, $5)
ORDER BY due_at, id LIMIT $6

-- name: running
-- Whose lanes are held now: as many rows as there are slots at work. Served by lane_owner.
SELECT id, policy, more FROM lane WHERE owner IS NOT NULL AND kind = $1

-- name: served
SELECT tenant, served FROM tenant WHERE kind = $1

-- name: holds
SELECT account, until FROM hold

-- name: save_hold
INSERT INTO hold (account, until) VALUES ($1, $2)
ON CONFLICT (account) DO UPDATE SET until = greatest(hold.until, excluded.until)

-- name: lanes_of
-- Served by lane_owner.
SELECT *, xmin FROM lane WHERE owner = $1 ORDER BY id FOR UPDATE

-- name: peek_lanes_of
SELECT *, xmin FROM lane WHERE owner = $1

-- name: lanes_of_the_dead
-- Lanes whose owner is dead or unknown. Served by lane_owner.
SELECT l.*, l.xmin FROM lane AS l WHERE l.owner IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM worker AS w WHERE w.id = l.owner AND w.live) ORDER BY l.id FOR UPDATE

-- name: peek_lanes_of_the_dead
SELECT l.*, l.xmin FROM lane AS l WHERE l.owner IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM worker AS w WHERE w.id = l.owner AND w.live)

-- name: policies
SELECT id, text FROM policy WHERE id > $1

-- name: insert_policy
INSERT INTO policy (text) VALUES ($1) ON CONFLICT (text) DO UPDATE SET text = excluded.text RETURNING id

-- name: next_lane_block
SELECT nextval('lane_block')

-- name: origins
-- Which of these ids came before, for one channel.
SELECT o.origin_id, o.seq FROM origin AS o
WHERE o.channel = $1 AND o.origin_id = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)) COLLATE "C")

-- name: move_message
UPDATE message SET seq = $3 WHERE lane = $1 AND seq = $2

-- name: move_origin
-- Unless the id was forgotten, and has come again since.
UPDATE origin SET seq = $5 WHERE channel = $1 AND origin_id = $2 AND lane = $3 AND seq = $4

-- name: settle_messages
UPDATE message SET outcome = $1 WHERE lane = $2 AND seq BETWEEN $3 AND $4 AND outcome IS NULL

-- name: message_outcome
SELECT outcome FROM message WHERE lane = $1 AND seq = $2

-- name: messages_of_batches
-- The batches of many lanes at once; each range is [lane, first, last].
SELECT m.lane, m.seq, m.accepted_at, m.origin_id, m.sender, m.sent_at, m.text, m.attachments, m.role
FROM jsonb_array_elements($1::jsonb) AS batch
JOIN message AS m ON m.lane = (batch ->> 0)::bigint
    AND m.seq BETWEEN (batch ->> 1)::bigint AND (batch ->> 2)::bigint

-- name: sessions_of_lanes
SELECT * FROM session WHERE lane = ANY (ARRAY(SELECT jsonb_array_elements_text($1::jsonb)::bigint))

-- name: new_session
INSERT INTO session VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (lane, agent) DO UPDATE SET
    handle = excluded.handle, turns = excluded.turns, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, cached_tokens = excluded.cached_tokens,
    reasoning_tokens = excluded.reasoning_tokens, updated_at = excluded.updated_at, shared = excluded.shared,
    machine = excluded.machine, cost = excluded.cost

-- name: know_handle
INSERT INTO handle VALUES ($1, $2) ON CONFLICT DO NOTHING

-- name: drop_sessions
DELETE FROM session WHERE lane = $1

-- name: twins
-- Lanes to which the same agent gave the same handle. Served by session_twins.
SELECT l.*, l.xmin FROM session AS s JOIN lane AS l ON l.id = s.lane
WHERE s.agent = $1 AND s.handle = $2 AND s.lane != $3 ORDER BY l.id FOR UPDATE OF l

-- name: mark_shared
UPDATE session SET shared = true WHERE agent = $1 AND handle = $2

-- name: insert_question
INSERT INTO question VALUES ($1, $2, $3, $4, $5, $6, $7, NULL, NULL, NULL)

-- name: question
SELECT * FROM question WHERE lane = $1 AND turn = $2 AND number = $3

-- name: answer_question
UPDATE question SET answer = $1, answered_by = $2, answered_at = $3 WHERE lane = $4 AND turn = $5 AND number = $6

-- name: delivery
SELECT * FROM delivery WHERE lane = $1 AND seq = $2

-- name: move_delivery
UPDATE delivery SET
    seq = $3, queued_at = $4, state = 'queued', settled_at = NULL, attempt = 0, epoch = 0, receipt = NULL, cause = NULL
WHERE lane = $1 AND seq = $2

-- name: close_delivery
UPDATE delivery SET state = $3, settled_at = $4, cause = $5 WHERE lane = $1 AND seq = $2

-- name: deliveries_of_batches
SELECT d.* FROM jsonb_array_elements($1::jsonb) AS batch
JOIN delivery AS d ON d.lane = (batch ->> 0)::bigint AND d.seq = (batch ->> 1)::bigint

-- name: settled_delivery
SELECT state, epoch FROM delivery WHERE lane = $1 AND seq = $2 AND state != 'queued'

-- name: turn
SELECT * FROM turn WHERE lane = $1 AND number = $2

-- name: amend_turn
UPDATE turn SET outcome = $3 WHERE lane = $1 AND number = $2

-- name: attempt
SELECT * FROM attempt WHERE lane = $1 AND epoch = $2

-- name: worker
SELECT id, live, alive_until, machine FROM worker WHERE id = $1

-- name: save_worker
INSERT INTO worker VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET live = excluded.live, alive_until = excluded.alive_until

-- name: lapsed_workers
SELECT id, live, alive_until, machine FROM worker WHERE live AND alive_until < $1 FOR UPDATE SKIP LOCKED

-- name: peek_lapsed_workers
SELECT id, live, alive_until, machine FROM worker WHERE live AND alive_until < $1

-- name: machine_is_live
SELECT 1 FROM worker WHERE live AND machine = $1 AND alive_until > $2 LIMIT 1

-- name: setting
SELECT value FROM setting WHERE name = $1

-- name: save_setting
INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: drop_setting
DELETE FROM setting WHERE name = $1

-- name: old_messages
-- Settled messages older than the given time that no dead letter needs, a page at a time.
SELECT m.lane, m.seq FROM message AS m JOIN lane AS l ON l.id = m.lane
WHERE (m.lane, m.seq) > ($2, $3) AND m.accepted_at < $1 AND m.seq <= l.done_seq
  AND NOT EXISTS (SELECT 1 FROM turn AS t WHERE t.lane = m.lane AND t.outcome = 'dead_letter'
                  AND m.seq BETWEEN t.first AND t.last)
ORDER BY m.lane, m.seq LIMIT $4

-- name: forget_message
DELETE FROM message WHERE lane = $1 AND seq = $2

-- name: old_turns
SELECT lane, number FROM turn
WHERE (lane, number) > ($2, $3) AND ended_at < $1 AND outcome != 'dead_letter'
ORDER BY lane, number LIMIT $4

-- name: forget_turn
DELETE FROM turn WHERE lane = $1 AND number = $2

-- name: old_attempts
SELECT lane, epoch FROM attempt WHERE (lane, epoch) > ($2, $3) AND at < $1 ORDER BY lane, epoch LIMIT $4

-- name: forget_attempt
DELETE FROM attempt WHERE lane = $1 AND epoch = $2

-- name: old_deliveries
SELECT lane, seq FROM delivery
WHERE (lane, seq) > ($2, $3) AND settled_at < $1 AND state IN ('sent', 'dropped')
ORDER BY lane, seq LIMIT $4

-- name: forget_delivery
DELETE FROM delivery WHERE lane = $1 AND seq = $2

-- name: old_questions
-- Of turns that are over; told by their turn, as all of one turn go together.
SELECT q.lane, q.turn FROM question AS q JOIN lane AS l ON l.id = q.lane
WHERE (q.lane, q.turn) > ($2, $3) AND q.asked_at < $1 AND (q.turn < l.number OR l.claim_seq = l.done_seq)
GROUP BY q.lane, q.turn ORDER BY q.lane, q.turn LIMIT $4

-- name: forget_question
DELETE FROM question WHERE lane = $1 AND turn = $2

-- name: old_origins
SELECT channel, origin_id FROM origin
WHERE (channel, origin_id) > ($2, $3) AND at < $1
ORDER BY channel, origin_id LIMIT $4

-- name: forget_origin
DELETE FROM origin WHERE channel = $1 AND origin_id = $2

-- name: old_events
SELECT id, at FROM journal
WHERE id > $2 AND $3::bigint IS NOT NULL AND id < (SELECT id FROM journal WHERE at >= $1 ORDER BY id LIMIT 1)
ORDER BY id LIMIT $4

-- name: forget_event
DELETE FROM journal WHERE id = $1 AND at = $2

-- name: old_workers
-- Dead workers that own nothing any more.
SELECT w.id, w.alive_until FROM worker AS w
WHERE (w.id, w.alive_until) > ($2, $3) AND NOT w.live AND w.alive_until < $1
  AND NOT EXISTS (SELECT 1 FROM lane AS l WHERE l.owner = w.id)
ORDER BY w.id LIMIT $4

-- name: forget_worker
DELETE FROM worker WHERE id = $1 AND alive_until = $2

-- name: view_version
-- Another one once anybody has written.
SELECT coalesce(max(id), 0) FROM journal

-- name: view_lanes
-- A channel's conversations start with its name and a slash; the character after the slash is a zero.
SELECT * FROM lane
WHERE kind = $1 AND ($2::text IS NULL OR (key >= $2::text || '/' AND key < $2::text || '0'))
ORDER BY id LIMIT $3 OFFSET $4

-- name: view_board
-- Sorted in the store: most conversations are idle, and few of them are looked at.
SELECT * FROM lane WHERE kind = $1
ORDER BY (next_seq > done_seq OR owner IS NOT NULL OR paused OR parked) DESC, id DESC LIMIT $2

-- name: view_lanes_by_key
SELECT * FROM lane WHERE kind = $1 AND key = ANY (ARRAY(SELECT jsonb_array_elements_text($2::jsonb)) COLLATE "C")

-- name: view_lanes_of
SELECT * FROM lane WHERE kind IN (0, 1, 2) AND key = $1 ORDER BY kind

-- name: view_messages
SELECT lane, seq, accepted_at, origin_id, sender, sent_at, text, attachments, role
FROM message WHERE lane = $1 ORDER BY seq DESC LIMIT $2

-- name: view_messages_of_turn
SELECT lane, seq, accepted_at, origin_id, sender, sent_at, text, attachments, role
FROM message WHERE lane = $1 AND seq BETWEEN $2 AND $3 AND outcome IS NULL ORDER BY seq

-- name: view_outcomes
SELECT seq, outcome FROM message WHERE lane = $1 AND outcome IS NOT NULL ORDER BY seq DESC LIMIT $2

-- name: view_turns
SELECT * FROM turn WHERE lane = $1 ORDER BY number DESC LIMIT $2

-- name: view_attempts
SELECT * FROM attempt WHERE lane = $1 ORDER BY epoch DESC LIMIT $2

-- name: view_questions
SELECT * FROM question WHERE lane = $1 ORDER BY turn DESC, number DESC LIMIT $2

-- name: view_sessions
SELECT * FROM session WHERE lane = $1

-- name: view_last_deliveries
SELECT d.*, $2::text FROM delivery AS d WHERE d.lane = $1 ORDER BY d.seq DESC LIMIT $3

-- name: view_place
SELECT l.key, o.seq FROM origin AS o JOIN lane AS l ON l.id = o.lane WHERE o.channel = $1 AND o.origin_id = $2

-- name: view_deliveries
SELECT d.*, l.key FROM lane AS l JOIN delivery AS d ON d.lane = l.id
WHERE l.kind = 1 AND l.key = $1 AND d.seq > $2 ORDER BY d.seq LIMIT $3

-- name: view_outbox_queued
SELECT d.*, l.key FROM lane AS l JOIN delivery AS d ON d.lane = l.id AND d.seq > l.done_seq
WHERE l.kind = 1 AND l.next_seq > l.done_seq AND d.state = $1 ORDER BY d.queued_at LIMIT $2

-- name: view_outbox_failed
-- Served by delivery_failed.
SELECT d.*, l.key FROM delivery AS d JOIN lane AS l ON l.id = d.lane
WHERE d.state = 'failed' AND d.state = $1 ORDER BY d.settled_at DESC LIMIT $2

-- name: view_delivery_failed
SELECT d.*, l.key FROM delivery AS d JOIN lane AS l ON l.id = d.lane
WHERE d.state = 'failed' AND d.id = $1

-- name: view_delivery_queued
SELECT d.*, l.key FROM lane AS l JOIN delivery AS d ON d.lane = l.id AND d.seq > l.done_seq
WHERE l.kind = 1 AND l.next_seq > l.done_seq AND d.id = $1

-- name: view_delivery
-- The ids have no index, which every delivery would pay for: an operator asks seldom.
SELECT d.*, l.key FROM delivery AS d JOIN lane AS l ON l.id = d.lane WHERE d.id = $1

-- name: view_outbox_dropped
SELECT d.*, l.key FROM delivery AS d JOIN lane AS l ON l.id = d.lane
WHERE d.state = $1 ORDER BY d.settled_at DESC LIMIT $2

-- name: view_outbox_sent
SELECT d.*, l.key FROM delivery AS d JOIN lane AS l ON l.id = d.lane
WHERE d.state = $1 ORDER BY d.settled_at DESC LIMIT $2

-- name: view_dead_letters
-- Served by turn_dead_letters.
SELECT t.*, l.key FROM turn AS t JOIN lane AS l ON l.id = t.lane
WHERE t.outcome = 'dead_letter' AND ($1::text IS NULL OR l.key = $1::text) ORDER BY t.ended_at DESC LIMIT $2

-- name: view_locks
-- Served by lane_owner.
SELECT l.key, l.kind, l.owner, l.epoch, l.claimed_at, w.alive_until
FROM lane AS l LEFT JOIN worker AS w ON w.id = l.owner WHERE l.owner IS NOT NULL ORDER BY l.claimed_at

-- name: view_busy
-- Served by lane_owner.
SELECT key, epoch, next_seq, claim_seq, done_seq, policy, paused, more FROM lane WHERE owner = $1 AND kind = 0

-- name: view_workers
SELECT w.id, w.live, w.alive_until, (SELECT count(*) FROM lane AS l WHERE l.owner = w.id), w.machine
FROM worker AS w ORDER BY w.alive_until DESC

-- name: view_lane_counts
-- The seven states, as model/lane.py decides them.
SELECT CASE
        WHEN owner IS NOT NULL THEN 'running'
        WHEN parked THEN 'parked'
        WHEN paused AND coalesce((more::jsonb -> 6 ->> 'paused_until')::bigint, $1::bigint + 1) > $1::bigint THEN 'paused'
        WHEN next_seq = done_seq THEN 'idle'
        WHEN claim_seq > done_seq THEN CASE WHEN retry_at <= $1::bigint THEN 'ready' ELSE 'waiting' END
        WHEN ready_at <= $1::bigint THEN 'ready'
        ELSE 'gathering' END AS state,
    count(*) FROM lane WHERE kind = 0 GROUP BY state

-- name: view_pending
-- Without what has an outcome of its own though something before it waits.
SELECT kind, coalesce(sum(next_seq - done_seq - CASE WHEN next_seq = done_seq THEN 0 ELSE (
        SELECT coalesce(sum((place ->> 1)::bigint - (place ->> 0)::bigint + 1), 0)
        FROM jsonb_array_elements(more::jsonb -> 0) AS place) END), 0)::bigint,
    count(owner), min(due_at)
FROM lane GROUP BY kind

-- name: view_totals
SELECT (SELECT count(*) FROM delivery WHERE state = 'failed'),
       (SELECT count(*) FROM turn WHERE outcome = 'dead_letter'),
       (SELECT count(*) FROM worker WHERE live)

-- name: person
SELECT * FROM person WHERE channel = $1 AND for_user = $2

-- name: save_person
INSERT INTO person VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (channel, for_user) DO UPDATE SET
    name = excluded.name, user_name = excluded.user_name, labels = excluded.labels, chat_id = excluded.chat_id,
    enriched_at = excluded.enriched_at, version = excluded.version, changed_at = excluded.changed_at

-- name: newest_person
SELECT coalesce(max(changed_at), 0) FROM person

-- name: view_people
-- Served by person_changed.
SELECT * FROM person WHERE changed_at > $1 ORDER BY changed_at

-- name: view_all_sessions
SELECT s.*, l.key FROM session AS s JOIN lane AS l ON l.id = s.lane WHERE $1::text IS NULL OR s.agent = $1
ORDER BY s.updated_at DESC, l.key, s.agent LIMIT $2

-- name: view_spent
SELECT * FROM spent
WHERE day BETWEEN $1::bigint AND $2::bigint
    AND ($3::text IS NULL OR channel = $3) AND ($4::text IS NULL OR for_user = $4)
ORDER BY day, channel, for_user, agent, model

-- name: view_settings
SELECT name, value FROM setting ORDER BY name

-- name: view_journal
-- Not past a transaction that is still open: what it wrote would be passed by.
SELECT id, at, facts FROM journal
WHERE id >= $1 AND id < (SELECT journal_offset FROM meta) + pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY id LIMIT $2

-- name: view_last_journal
SELECT id, at, facts FROM journal
WHERE id < (SELECT journal_offset FROM meta) + pg_snapshot_xmin(pg_current_snapshot())::text::bigint
ORDER BY id DESC LIMIT 1

-- name: lock
-- Held until the end of the transaction, by all who ask for the same name.
SELECT pg_advisory_xact_lock(hashtextextended(coalesce(current_schema(), '') || '/' || $1, 0))

-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: try_lock
-- As `lock`, for whoever would rather know than wait.
SELECT pg_try_advisory_xact_lock(hashtextextended(coalesce(current_schema(), '') || '/' || $1, 0))

-- name: learn_handles
INSERT INTO handle SELECT DISTINCT agent, handle FROM session ON CONFLICT DO NOTHING

-- name: skip_lane_blocks
-- A block has $1 numbers, and begins with $1 times its own.
SELECT setval('lane_block', (SELECT coalesce(max(id), 0) / $1::bigint + 1 FROM lane), false)

-- Parts of the one statement that writes what a group of calls decided. Their parameters are columns of many rows.

-- name: move_lane
-- Only a lane that nobody has changed since it was read: its version is the transaction that wrote it last.
UPDATE lane AS l SET
    next_seq = m.next_seq, done_seq = m.done_seq, claim_seq = m.claim_seq, number = m.number, attempt = m.attempt,
    first_at = m.first_at, ready_at = m.ready_at, due_at = m.due_at, owner = m.owner, epoch = m.epoch,
    claimed_at = m.claimed_at
FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::xid[])
    AS m (next_seq, done_seq, claim_seq, number, attempt, first_at, ready_at, due_at, owner, epoch, claimed_at, id, version)
WHERE l.id = m.id AND l.xmin = coalesce(m.version, $last) RETURNING 1

-- name: set_lane
-- The same with what seldom changes.
UPDATE lane AS l SET
    next_seq = m.next_seq, done_seq = m.done_seq, claim_seq = m.claim_seq, number = m.number, attempt = m.attempt,
    first_at = m.first_at, ready_at = m.ready_at, due_at = m.due_at, owner = m.owner, epoch = m.epoch,
    claimed_at = m.claimed_at, policy = m.policy, failures = m.failures, retry_at = m.retry_at, paused = m.paused,
    parked = m.parked, queue = m.queue, more = m.more
FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[],
    $10::bigint[], $11::bigint[], $12::bigint[], $13::xid[], $14::bigint[], $15::bigint[], $16::bigint[], $17::boolean[],
    $18::boolean[], $19::text[], $20::text[])
    AS m (
        next_seq, done_seq, claim_seq, number, attempt, first_at, ready_at, due_at, owner, epoch, claimed_at, id, version,
        policy, failures, retry_at, paused, parked, queue, more)
WHERE l.id = m.id AND l.xmin = coalesce(m.version, $last) RETURNING 1

-- name: check_lane
-- A lane that was only read: as it was then, and so until the end.
SELECT 1 FROM lane AS l JOIN unnest($1::bigint[], $2::xid[]) AS m (id, version) ON l.id = m.id AND l.xmin = coalesce(m.version, $last)
ORDER BY l.id FOR UPDATE OF l

-- name: check_worker
-- One that was thought to be alive.
SELECT 1 FROM worker WHERE id = ANY ($1::text[]) AND live

-- name: check_holds
-- Each hold only grows: if their sum is the same, they are.
SELECT 1 WHERE (SELECT coalesce(sum(until), 0) FROM hold) = ($1::bigint[])[1]

-- name: check_journal
-- Nobody else has written since, as far as can be told.
SELECT 1 WHERE (SELECT coalesce(max(id), 0) FROM journal) = $newest

-- name: insert_lane
INSERT INTO lane
SELECT * FROM unnest(
    $1::bigint[], $2::int[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
    $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[],
    $18::boolean[], $19::boolean[], $20::text[], $21::text[])

-- name: insert_origin
INSERT INTO origin (lane, seq, at, channel, origin_id)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[])

-- name: insert_message
INSERT INTO message (lane, seq, accepted_at, origin_id, sender, sent_at, text, attachments)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[])

-- name: insert_message_by
-- Somebody else than the person: seldom, so that the others carry one value less.
INSERT INTO message (lane, seq, accepted_at, origin_id, sender, sent_at, text, attachments, role)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[], $9::text[])

-- name: insert_turn
INSERT INTO turn
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::text[],
    $10::bigint[], $11::bigint[], $12::text[], $13::text[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[],
    $18::bigint[])

-- name: insert_attempt
INSERT INTO attempt
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::text[])

-- name: insert_delivery
INSERT INTO delivery
SELECT d.*, 'queued', NULL::bigint, 0, 0, NULL, NULL, NULL FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[],
    $10::bigint[]) AS d

-- name: insert_delivery_with_options
INSERT INTO delivery
SELECT d.lane, d.seq, d.id, d.kind, d.turn, d.part, d.parts, d.text, d.in_reply_to, d.queued_at,
    'queued', NULL::bigint, 0, 0, NULL, NULL, d.options
FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[], $9::text[],
    $10::bigint[], $11::text[]) AS d (lane, seq, id, kind, turn, part, parts, text, in_reply_to, queued_at, options)

-- name: settle_delivery
UPDATE delivery AS d SET
    state = s.state, settled_at = s.settled_at, attempt = s.attempt, epoch = s.epoch, receipt = s.receipt, cause = s.cause
FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[])
    AS s (lane, seq, state, settled_at, attempt, epoch, receipt, cause)
WHERE d.lane = s.lane AND d.seq = s.seq

-- name: continue_session
-- The handle stays, and with it the index on it.
UPDATE session AS s SET
    turns = c.turns, input_tokens = c.input_tokens, output_tokens = c.output_tokens, cached_tokens = c.cached_tokens,
    reasoning_tokens = c.reasoning_tokens, cost = c.cost, updated_at = c.updated_at
FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::text[])
    AS c (turns, input_tokens, output_tokens, cached_tokens, reasoning_tokens, cost, updated_at, lane, agent)
WHERE s.lane = c.lane AND s.agent = c.agent

-- name: begin_session
-- With a handle that nobody has had: else its name, below, is refused.
INSERT INTO session
SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
    $10::boolean[], $11::text[], $12::bigint[])
ON CONFLICT (lane, agent) DO UPDATE SET
    handle = excluded.handle, turns = excluded.turns, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, cached_tokens = excluded.cached_tokens,
    reasoning_tokens = excluded.reasoning_tokens, updated_at = excluded.updated_at, shared = excluded.shared,
    machine = excluded.machine, cost = excluded.cost

-- name: spend
INSERT INTO spent
SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
    $10::bigint[], $11::bigint[])
ON CONFLICT (day, channel, for_user, agent, model) DO UPDATE SET
    turns = spent.turns + excluded.turns, input_tokens = spent.input_tokens + excluded.input_tokens,
    output_tokens = spent.output_tokens + excluded.output_tokens,
    cached_tokens = spent.cached_tokens + excluded.cached_tokens,
    reasoning_tokens = spent.reasoning_tokens + excluded.reasoning_tokens, cost = spent.cost + excluded.cost

-- name: name_session
INSERT INTO handle SELECT * FROM unnest($1::text[], $2::text[])

-- name: save_served
INSERT INTO tenant SELECT * FROM unnest($1::int[], $2::text[], $3::bigint[])
ON CONFLICT (kind, tenant) DO UPDATE SET served = excluded.served

-- name: renew_worker
-- Only one that nobody has given up.
UPDATE worker AS w SET alive_until = r.alive_until FROM unnest($1::text[], $2::bigint[]) AS r (id, alive_until)
WHERE w.id = r.id AND w.live RETURNING 1

-- name: insert_journal
INSERT INTO journal (id, at, facts)
SELECT (SELECT journal_offset FROM meta) + pg_current_xact_id()::text::bigint, * FROM unnest($1::bigint[], $2::text[])
RETURNING id

-- name: notify
SELECT pg_notify(channel, who) FROM unnest($1::text[], $2::text[]) AS n (channel, who)
