-- Every statement on transcripts, for both stores. `-- name:` starts one. Parameters are $1, $2 …; texts($1) and
-- numbers($1) are the members of a JSON list, and names in braces are filled in by sql.py.

-- name: states
SELECT path, read_to, mark, at, lines, bad, unknown, too_long, bytes FROM transcript_file WHERE path IN (texts($1))

-- name: save_state
INSERT INTO transcript_file (path, read_to, mark, at, lines, bad, unknown, too_long, bytes)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (path) DO UPDATE SET read_to = excluded.read_to, mark = excluded.mark, at = excluded.at,
    lines = excluded.lines, bad = excluded.bad, unknown = excluded.unknown, too_long = excluded.too_long,
    bytes = excluded.bytes

-- name: save_session
-- What is known of it already stays; only its times grow apart. 0 is no time.
INSERT INTO transcript_session (id, project, branch, version, began_at, ended_at, entries, prompt)
VALUES ($1, $2, $3, $4, $5, $6, 0, $7)
ON CONFLICT (id) DO UPDATE SET
    project = coalesce(transcript_session.project, excluded.project),
    branch = coalesce(transcript_session.branch, excluded.branch),
    version = coalesce(transcript_session.version, excluded.version),
    began_at = CASE WHEN transcript_session.began_at = 0 OR excluded.began_at BETWEEN 1 AND transcript_session.began_at
        THEN excluded.began_at ELSE transcript_session.began_at END,
    ended_at = CASE WHEN excluded.ended_at > transcript_session.ended_at
        THEN excluded.ended_at ELSE transcript_session.ended_at END,
    prompt = coalesce(transcript_session.prompt, excluded.prompt)
RETURNING number, project, branch, version

-- name: count_entries
UPDATE transcript_session SET entries = entries + $2 WHERE number = $1

-- name: known_entries
SELECT uuid, block FROM transcript_entry WHERE session = $1 AND uuid IN (texts($2))

-- name: tools
-- Of uses whose results come later. Served by transcript_tool_uses.
SELECT tool_id, tool FROM transcript_entry WHERE session = $1 AND kind = 'tool_use' AND tool_id IN (texts($2))

-- name: usages
SELECT message_id, input_tokens, output_tokens, cached_tokens, reasoning_tokens FROM transcript_usage
WHERE message_id IN (texts($1))

-- name: save_usage
INSERT INTO transcript_usage
    (message_id, session, at, model, input_tokens, output_tokens, cached_tokens, reasoning_tokens)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (message_id) DO UPDATE SET input_tokens = excluded.input_tokens, output_tokens = excluded.output_tokens,
    cached_tokens = excluded.cached_tokens, reasoning_tokens = excluded.reasoning_tokens

-- name: sessions
SELECT number, id, project, branch, version, began_at, ended_at, entries, prompt FROM transcript_session AS s
WHERE {project}
    AND (CAST($4 AS bigint) IS NULL OR ended_at >= $4)
    AND (CAST($5 AS bigint) IS NULL OR began_at < $5)
ORDER BY ended_at DESC, number DESC LIMIT $6

-- name: sessions_beginning
SELECT number, id, project, branch, version, began_at, ended_at, entries, prompt FROM transcript_session
WHERE substr(id, 1, length(CAST($1 AS text))) = $1 ORDER BY id LIMIT 10

-- name: session_usages
SELECT session, model, sum(input_tokens), sum(output_tokens), sum(cached_tokens), sum(reasoning_tokens)
FROM transcript_usage WHERE session IN (numbers($1)) GROUP BY session, model ORDER BY session, model

-- name: entries
-- Served by transcript_entries.
SELECT e.id, s.id, e.uuid, e.block, e.parent, e.at, e.kind, e.text, e.tool, e.tool_id, e.message_id, e.model, e.agent,
    e.is_error, e.prompt_id, coalesce(e.cwd, s.project), coalesce(e.branch, s.branch), coalesce(e.version, s.version)
FROM transcript_session AS s JOIN transcript_entry AS e ON e.session = s.number
WHERE s.id = $1 AND (e.at, e.id) > ($2, $3) ORDER BY e.at, e.id LIMIT $4

-- name: search
SELECT s.id, coalesce(e.cwd, s.project), e.uuid, e.block, e.at, e.kind, e.tool, e.agent, e.text
FROM {source} JOIN transcript_session AS s ON s.number = e.session
WHERE {matches} AND {project}
    AND (CAST($4 AS bigint) IS NULL OR e.at >= $4)
    AND (CAST($5 AS bigint) IS NULL OR e.at < $5)
    AND (CAST($6 AS text) IS NULL OR e.tool = $6)
    AND (CAST($7 AS text) IS NULL OR e.kind = $7)
    AND (CAST($8 AS text) IS NULL OR s.id = $8)
ORDER BY {best} LIMIT $9

-- name: totals
SELECT {name}, count(DISTINCT u.session), count(*), 0
FROM transcript_usage AS u JOIN transcript_session AS s ON s.number = u.session
WHERE (CAST($1 AS bigint) IS NULL OR u.at >= $1) AND (CAST($2 AS bigint) IS NULL OR u.at < $2)
GROUP BY 1 ORDER BY 1

-- name: total_usages
SELECT {name}, u.model, sum(u.input_tokens), sum(u.output_tokens), sum(u.cached_tokens), sum(u.reasoning_tokens)
FROM transcript_usage AS u JOIN transcript_session AS s ON s.number = u.session
WHERE (CAST($1 AS bigint) IS NULL OR u.at >= $1) AND (CAST($2 AS bigint) IS NULL OR u.at < $2)
GROUP BY 1, 2 ORDER BY 1, 2

-- name: tool_totals
SELECT tool, count(DISTINCT session), sum(CASE WHEN kind = 'tool_use' THEN 1 ELSE 0 END),
    sum(CASE WHEN is_error THEN 1 ELSE 0 END)
FROM transcript_entry
WHERE tool IS NOT NULL
    AND (CAST($1 AS bigint) IS NULL OR at >= $1) AND (CAST($2 AS bigint) IS NULL OR at < $2)
GROUP BY 1 ORDER BY 1

-- name: save_prompt
INSERT INTO transcript_prompt (session, prompt_id, at, text) VALUES ($1, $2, $3, $4)
ON CONFLICT (session, prompt_id) DO UPDATE SET text = coalesce(transcript_prompt.text, excluded.text)

-- name: prompts
SELECT p.prompt_id, p.at, p.text FROM transcript_prompt AS p JOIN transcript_session AS s ON s.number = p.session
WHERE s.id = $1 ORDER BY p.at, p.prompt_id

-- name: empty_prompts
SELECT s.number, p.prompt_id, p.at FROM transcript_prompt AS p JOIN transcript_session AS s ON s.number = p.session
WHERE s.id = $1 AND p.text IS NULL

-- name: fill_prompt
UPDATE transcript_prompt SET text = $3 WHERE session = $1 AND prompt_id = $2

-- name: said_under
-- What the person said under this prompt's id.
SELECT text FROM transcript_entry
WHERE session = $1 AND kind = 'user' AND agent IS NULL AND prompt_id = $2 ORDER BY at, id LIMIT 1

-- name: said_before
-- The latest that the person said, among what has no prompt's id of its own unless `$3`.
SELECT text FROM transcript_entry
WHERE session = $1 AND kind = 'user' AND agent IS NULL AND at <= $2 AND (prompt_id IS NULL OR CAST($3 AS bigint) = 1)
ORDER BY at DESC, id DESC LIMIT 1
