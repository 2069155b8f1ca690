CREATE TABLE transcript_file (
    path TEXT NOT NULL PRIMARY KEY,
    read_to INTEGER NOT NULL,
    mark TEXT NOT NULL,
    at INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    bad INTEGER NOT NULL,
    unknown INTEGER NOT NULL,
    too_long INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE transcript_session (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    project TEXT,
    branch TEXT,
    version TEXT,
    began_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    entries INTEGER NOT NULL,
    prompt TEXT
);
CREATE INDEX transcript_sessions ON transcript_session (ended_at);

-- What an entry shares with its session (folder, branch, version) is NULL.
CREATE TABLE transcript_entry (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    uuid TEXT NOT NULL,
    block INTEGER NOT NULL,
    parent TEXT,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    tool TEXT,
    tool_id TEXT,
    message_id TEXT,
    model TEXT,
    agent TEXT,
    is_error INTEGER NOT NULL,
    prompt_id TEXT,
    cwd TEXT,
    branch TEXT,
    version TEXT,
    UNIQUE (session, uuid, block)
);
CREATE INDEX transcript_entries ON transcript_entry (session, at);
CREATE INDEX transcript_newest ON transcript_entry (at);
CREATE INDEX transcript_tool_uses ON transcript_entry (session, tool_id) WHERE kind = 'tool_use';

CREATE VIRTUAL TABLE transcript_text USING fts5(
    text, content = 'transcript_entry', content_rowid = 'id', tokenize = 'unicode61 remove_diacritics 2'
);

CREATE TABLE transcript_usage (
    message_id TEXT NOT NULL PRIMARY KEY,
    session INTEGER NOT NULL,
    at INTEGER NOT NULL,
    model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    reasoning_tokens INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX transcript_session_usages ON transcript_usage (session);

CREATE TABLE transcript_prompt (
    session INTEGER NOT NULL,
    prompt_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    text TEXT,
    PRIMARY KEY (session, prompt_id)
) WITHOUT ROWID;
