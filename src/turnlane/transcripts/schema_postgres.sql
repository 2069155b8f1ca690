CREATE TABLE transcript_meta (version bigint NOT NULL);

CREATE TABLE transcript_file (
    path text COLLATE "C" NOT NULL PRIMARY KEY,
    read_to bigint NOT NULL,
    mark text NOT NULL,
    at bigint NOT NULL,
    lines bigint NOT NULL,
    bad bigint NOT NULL,
    unknown bigint NOT NULL,
    too_long bigint NOT NULL,
    bytes bigint NOT NULL
);

CREATE TABLE transcript_session (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    project text COLLATE "C",
    branch text,
    version text,
    began_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    entries bigint NOT NULL,
    prompt text
);
CREATE INDEX transcript_sessions ON transcript_session (ended_at);

-- What an entry shares with its session (folder, branch, version) is NULL.
CREATE TABLE transcript_entry (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session bigint NOT NULL,
    uuid text COLLATE "C" NOT NULL,
    block bigint NOT NULL,
    parent text COLLATE "C",
    at bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    text text NOT NULL,
    tool text COLLATE "C",
    tool_id text COLLATE "C",
    message_id text COLLATE "C",
    model text,
    agent text,
    is_error boolean NOT NULL,
    prompt_id text COLLATE "C",
    cwd text COLLATE "C",
    branch text,
    version text,
    words tsvector NOT NULL,
    UNIQUE (session, uuid, block)
);
CREATE INDEX transcript_entries ON transcript_entry (session, at, id);
CREATE INDEX transcript_newest ON transcript_entry (at);
CREATE INDEX transcript_tool_uses ON transcript_entry (session, tool_id) WHERE kind = 'tool_use';
CREATE INDEX transcript_words ON transcript_entry USING gin (words);

CREATE TABLE transcript_usage (
    message_id text COLLATE "C" NOT NULL PRIMARY KEY,
    session bigint NOT NULL,
    at bigint NOT NULL,
    model text COLLATE "C" NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL
);
CREATE INDEX transcript_session_usages ON transcript_usage (session);

CREATE TABLE transcript_prompt (
    session bigint NOT NULL,
    prompt_id text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    text text,
    PRIMARY KEY (session, prompt_id)
);
