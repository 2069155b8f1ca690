-- Version 3, as the version of SQLite's file with the same tables. Times are milliseconds since 1970. A lane is known by its
-- kind and conversation; its id is only for joins.

CREATE TABLE meta (
    version        int    NOT NULL,
    journal_offset bigint NOT NULL DEFAULT 0     -- of journal ids over transaction ids, which begin anew in a restored server
);

-- Policies are few and stamped on every lane, so a lane names its policy by number.
CREATE TABLE policy (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    text        text   NOT NULL UNIQUE           -- JSON
);

-- A process takes the numbers of a thousand conversations at once.
CREATE SEQUENCE lane_block;

CREATE TABLE lane (
    id          bigint  PRIMARY KEY,             -- even; an out lane has the next number after its turn lane's
    kind        int     NOT NULL,                -- 0 turn, 1 out, 2 tick
    key         text    COLLATE "C" NOT NULL,    -- the conversation
    next_seq    bigint  NOT NULL,
    done_seq    bigint  NOT NULL,
    claim_seq   bigint  NOT NULL,
    number      bigint  NOT NULL,
    attempt     bigint  NOT NULL,
    first_at    bigint,
    ready_at    bigint,
    due_at      bigint,
    owner       text,
    epoch       bigint  NOT NULL,
    claimed_at  bigint,
    -- These seldom change, and have a statement of their own.
    policy      bigint  NOT NULL,                -- stamped by the last accept
    failures    bigint  NOT NULL,
    retry_at    bigint,
    paused      boolean NOT NULL,
    parked      boolean NOT NULL,
    queue       text    COLLATE "C" NOT NULL,
    more        text    NOT NULL,                -- JSON: what seldom is anything but the default
    UNIQUE (kind, key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX lane_due   ON lane (kind, queue, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX lane_owner ON lane (owner) WHERE owner IS NOT NULL;

CREATE TABLE message (
    lane        bigint NOT NULL,
    seq         bigint NOT NULL,
    accepted_at bigint NOT NULL,
    origin_id   text   NOT NULL,                 -- the channel is that of the conversation
    sender      text   NOT NULL,
    sent_at     bigint,
    text        text   NOT NULL,
    attachments text,                            -- JSON, or null for none
    outcome     text,                            -- null: that of the turn whose range holds it
    role        text,
    PRIMARY KEY (lane, seq)
);

-- What was seen before. Outlives the message if it is told to.
CREATE TABLE origin (
    channel     text   COLLATE "C" NOT NULL,
    origin_id   text   COLLATE "C" NOT NULL,
    lane        bigint NOT NULL,
    seq         bigint NOT NULL,
    at          bigint NOT NULL,
    PRIMARY KEY (channel, origin_id)
);

-- Turns that are over, with their usage. One that was given up on is a dead letter.
CREATE TABLE turn (
    lane             bigint NOT NULL,
    number           bigint NOT NULL,
    first            bigint NOT NULL,
    last             bigint NOT NULL,
    outcome          text   NOT NULL,
    attempt          bigint NOT NULL,
    epoch            bigint NOT NULL,
    worker           text,
    agent            text   NOT NULL,
    started_at       bigint NOT NULL,
    ended_at         bigint NOT NULL,
    cause            text,
    session          text,
    input_tokens     bigint NOT NULL,
    output_tokens    bigint NOT NULL,
    cached_tokens    bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    PRIMARY KEY (lane, number)
);
CREATE INDEX turn_dead_letters ON turn (ended_at) WHERE outcome = 'dead_letter';

-- Runs that ended without an outcome: failed, given back, or lost with their worker.
CREATE TABLE attempt (
    lane        bigint NOT NULL,
    epoch       bigint NOT NULL,
    number      bigint NOT NULL,
    attempt     bigint NOT NULL,
    worker      text,
    result      text   NOT NULL,
    at          bigint NOT NULL,
    cause       text,
    PRIMARY KEY (lane, epoch)
);

CREATE TABLE delivery (
    lane        bigint NOT NULL,
    seq         bigint NOT NULL,
    id          text   NOT NULL,
    kind        text   NOT NULL,
    turn        bigint,
    part        bigint NOT NULL,
    parts       bigint NOT NULL,
    text        text   NOT NULL,
    in_reply_to text   NOT NULL,                 -- JSON
    queued_at   bigint NOT NULL,
    state       text   NOT NULL,
    settled_at  bigint,
    attempt     bigint NOT NULL,
    epoch       bigint NOT NULL,
    receipt     text,
    cause       text,
    options     text,
    PRIMARY KEY (lane, seq)
) WITH (fillfactor = 80);
CREATE INDEX delivery_failed ON delivery (settled_at) WHERE state = 'failed';

CREATE TABLE question (
    lane        bigint NOT NULL,
    turn        bigint NOT NULL,
    number      bigint NOT NULL,
    text        text   NOT NULL,
    options     text   NOT NULL,
    asked_at    bigint NOT NULL,
    expires_at  bigint,
    answer      text,
    answered_by text,
    answered_at bigint,
    PRIMARY KEY (lane, turn, number)
);

CREATE TABLE session (
    lane             bigint  NOT NULL,
    agent            text    NOT NULL,
    handle           text    NOT NULL,
    turns            bigint  NOT NULL,
    input_tokens     bigint  NOT NULL,
    output_tokens    bigint  NOT NULL,
    cached_tokens    bigint  NOT NULL,
    reasoning_tokens bigint  NOT NULL,
    updated_at       bigint  NOT NULL,
    shared           boolean NOT NULL,           -- another lane has, or had, the same handle
    machine          text,                       -- the only one that holds what the handle stands for
    PRIMARY KEY (lane, agent)
) WITH (fillfactor = 70);
CREATE INDEX session_twins ON session (agent, handle);

-- Every handle with which a session ever began: two who begin with the same one at once cannot both be the first.
CREATE TABLE handle (
    agent       text NOT NULL,
    handle      text NOT NULL,
    PRIMARY KEY (agent, handle)
);

CREATE TABLE worker (
    id          text    PRIMARY KEY,
    live        boolean NOT NULL,
    alive_until bigint  NOT NULL,
    machine     text    NOT NULL
);

CREATE TABLE tenant (
    kind        int    NOT NULL,
    tenant      text   NOT NULL,
    served      bigint NOT NULL,
    PRIMARY KEY (kind, tenant)
);

CREATE TABLE hold (
    account     text   PRIMARY KEY,
    until       bigint NOT NULL
);

-- What was set at run time, for all processes.
CREATE TABLE setting (
    name        text   COLLATE "C" PRIMARY KEY,
    value       text   NOT NULL
);

-- The facts of one transaction in one row. Its id is the transaction's: a reader knows which transactions are still open, and
-- so never passes by one that will be seen later.
CREATE TABLE journal (
    id          bigint PRIMARY KEY,
    at          bigint NOT NULL,
    facts       text   NOT NULL                  -- JSON: for each event its name, conversation, and facts as EVENTS orders them
);
