-- Version 1. Times are milliseconds since 1970. A lane is known by its kind and conversation; its id is only for joins.

-- Policies are few and stamped on every lane, so a lane names its policy by number.
CREATE TABLE policy (
    id          INTEGER PRIMARY KEY,
    text        TEXT    NOT NULL UNIQUE        -- JSON
);

CREATE TABLE lane (
    id          INTEGER PRIMARY KEY,           -- even; an out lane has the next number after its turn lane's
    kind        INTEGER NOT NULL,              -- 0 turn, 1 out, 2 tick
    key         TEXT    NOT NULL,              -- the conversation
    next_seq    INTEGER NOT NULL,
    done_seq    INTEGER NOT NULL,
    claim_seq   INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    first_at    INTEGER,
    ready_at    INTEGER,
    due_at      INTEGER,
    owner       TEXT,
    epoch       INTEGER NOT NULL,
    claimed_at  INTEGER,
    -- These seldom change, and have a statement of their own.
    policy      INTEGER NOT NULL,              -- stamped by the last accept
    failures    INTEGER NOT NULL,
    retry_at    INTEGER,
    paused      INTEGER NOT NULL,
    parked      INTEGER NOT NULL,
    UNIQUE (kind, key)
);
CREATE INDEX lane_due   ON lane (kind, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX lane_owner ON lane (owner)        WHERE owner IS NOT NULL;

CREATE TABLE message (
    lane        INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,
    origin_id   TEXT    NOT NULL,              -- the channel is that of the conversation
    sender      TEXT    NOT NULL,
    sent_at     INTEGER,
    text        TEXT    NOT NULL,
    attachments TEXT,                          -- JSON, or null for none
    outcome     TEXT,                          -- null: that of the turn whose range holds it
    PRIMARY KEY (lane, seq)
) WITHOUT ROWID;

-- What was seen before. Outlives the message if it is told to.
CREATE TABLE origin (
    channel     TEXT    NOT NULL,
    origin_id   TEXT    NOT NULL,
    lane        INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (channel, origin_id)
) WITHOUT ROWID;

-- Turns that are over, with their usage. One that was given up on is a dead letter.
CREATE TABLE turn (
    lane             INTEGER NOT NULL,
    number           INTEGER NOT NULL,
    first            INTEGER NOT NULL,
    last             INTEGER NOT NULL,
    outcome          TEXT    NOT NULL,
    attempt          INTEGER NOT NULL,
    epoch            INTEGER NOT NULL,
    worker           TEXT,
    agent            TEXT    NOT NULL,
    started_at       INTEGER NOT NULL,
    ended_at         INTEGER NOT NULL,
    cause            TEXT,
    session          TEXT,
    input_tokens     INTEGER NOT NULL,
    output_tokens    INTEGER NOT NULL,
    cached_tokens    INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    PRIMARY KEY (lane, number)
) WITHOUT ROWID;
CREATE INDEX turn_dead_letters ON turn (ended_at) WHERE outcome = 'dead_letter';

-- Runs that ended without an outcome: failed, given back, or lost with their worker.
CREATE TABLE attempt (
    lane        INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    worker      TEXT,
    result      TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    cause       TEXT,
    PRIMARY KEY (lane, epoch)
) WITHOUT ROWID;

CREATE TABLE delivery (
    lane        INTEGER NOT NULL,
    seq         INTEGER NOT NULL,
    id          TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    turn        INTEGER,
    part        INTEGER NOT NULL,
    parts       INTEGER NOT NULL,
    text        TEXT    NOT NULL,
    in_reply_to TEXT    NOT NULL,              -- JSON
    queued_at   INTEGER NOT NULL,
    state       TEXT    NOT NULL,
    settled_at  INTEGER,
    attempt     INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    receipt     TEXT,
    cause       TEXT,
    PRIMARY KEY (lane, seq)
) WITHOUT ROWID;
CREATE INDEX delivery_failed ON delivery (settled_at) WHERE state = 'failed';

CREATE TABLE session (
    lane             INTEGER NOT NULL,
    agent            TEXT    NOT NULL,
    handle           TEXT    NOT NULL,
    turns            INTEGER NOT NULL,
    input_tokens     INTEGER NOT NULL,
    output_tokens    INTEGER NOT NULL,
    cached_tokens    INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    shared           INTEGER NOT NULL,         -- another lane has, or had, the same handle
    PRIMARY KEY (lane, agent)
) WITHOUT ROWID;
CREATE INDEX session_twins ON session (agent, handle);

CREATE TABLE worker (
    id          TEXT    PRIMARY KEY,
    live        INTEGER NOT NULL,
    alive_until INTEGER NOT NULL
) WITHOUT ROWID;

-- The facts of one transaction in one row: a cursor is its id and a place in it. Rows go oldest first and never the last,
-- so that ids grow for ever without a counter of their own.
CREATE TABLE journal (
    id          INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,
    facts       TEXT    NOT NULL               -- JSON: for each event its name, conversation, and facts as EVENTS orders them
);
