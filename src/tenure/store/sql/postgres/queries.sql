-- Replacements for the queries of ../queries.sql that PostgreSQL must be asked differently, under the same names.
-- Written like those, with :name for parameters. Rows are locked in one order: task, lease, dependants by key.

-- A lease with its server's pulse, as {lease_row} is, for a select of leases alone: a join would carry the whole row one
-- step further.

-- fragment: lease_alone
{lease}, (SELECT s.pulsed_at_ms FROM servers s WHERE s.server_id = l.server_id) AS server_pulsed_at_ms

-- Of one capability set: the work that is kept for an agent, and all that is ready.

-- fragment: kept_of_one
SELECT k.key FROM tasks k
        WHERE k.assigned_to = :agent_id AND k.project_id = :project_id
            AND k.status = 'todo' AND k.owner = 'agent' AND k.unmet = 0 AND k.waiting = 0 AND k.requires = :requires
            AND (SELECT 1 FROM leases l WHERE l.task_key = k.key AND l.state IN ('offered', 'active') LIMIT 1) IS NULL
        ORDER BY k.rank_ms LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED

-- fragment: ready_of_one
SELECT r.key FROM tasks r
        WHERE r.project_id = :project_id AND r.requires = :requires
            AND r.open_slots > 0 AND r.unmet = 0 AND r.waiting = 0
            AND (r.slots = 1 OR NOT EXISTS (
                SELECT 1 FROM leases l
                WHERE l.task_key = r.key AND l.agent_id = :agent_id AND l.state IN ('offered', 'active')))
        ORDER BY r.rank_ms, r.key

-- Of many sets: they are tried in the order of their best task for this agent, and the first row that nobody else is
-- taking is locked. Only one row is: the limit ends the loop over the sets.

-- fragment: ready_of_sets
SELECT r.key FROM (
            SELECT wanted.value FROM json_each(:sets) wanted CROSS JOIN LATERAL (
                SELECT f.rank_ms, f.key FROM tasks f
                WHERE f.project_id = :project_id AND f.requires = wanted.value
                    AND f.open_slots > 0 AND f.unmet = 0 AND f.waiting = 0
                    AND (f.slots = 1 OR NOT EXISTS (
                        SELECT 1 FROM leases l
                        WHERE l.task_key = f.key AND l.agent_id = :agent_id AND l.state IN ('offered', 'active')))
                ORDER BY f.rank_ms, f.key LIMIT 1) head
            ORDER BY head.rank_ms, head.key) fitting
        CROSS JOIN LATERAL (
            SELECT t.key FROM tasks t
            WHERE t.project_id = :project_id AND t.requires = fitting.value
                AND t.open_slots > 0 AND t.unmet = 0 AND t.waiting = 0
                AND (t.slots = 1 OR NOT EXISTS (
                    SELECT 1 FROM leases l
                    WHERE l.task_key = t.key AND l.agent_id = :agent_id AND l.state IN ('offered', 'active')))
            ORDER BY t.rank_ms, t.key LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) r

-- == claim-next ==

-- A task is sought and locked by its key alone, and its row is read once around that: a row of that many columns is dear
-- in every step of a plan that carries it. The row is locked there too, although it is by then. Without that it would be
-- shown as the statement's snapshot has it, which is older than the lock: what somebody wrote in between would be
-- missing in it, and undone by whoever writes the row whole.

-- name: ready
SELECT {task} FROM tasks t WHERE t.key = ({ready_of_sets} LIMIT 1) FOR NO KEY UPDATE OF t

-- One sub-select, and not two in a coalesce(): where PostgreSQL looks at a changed row again, it has evaluated every
-- sub-select before, and would lock a ready task beside the one that is kept.
-- The hint saves a look into a thread that is empty (postgres_transaction.py, HINTS).
-- name: best
SELECT {task}, EXISTS (SELECT 1 FROM messages m WHERE m.task_key = t.key) AS has_thread FROM tasks t
WHERE t.key = (SELECT b.key FROM (
    SELECT kept.key FROM (
        SELECT k.key FROM tasks k
        WHERE k.assigned_to = :agent_id AND k.project_id = :project_id
            AND k.status = 'todo' AND k.owner = 'agent' AND k.unmet = 0 AND k.waiting = 0
            AND k.requires IN (SELECT value FROM json_each(:sets))
            AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.task_key = k.key AND l.state IN ('offered', 'active'))
        ORDER BY k.rank_ms LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) kept
    UNION ALL
    {ready_of_sets}) b LIMIT 1)
FOR NO KEY UPDATE OF t

-- The same for a claimant that fits one set, as most do: no loop over the sets. It is past the first so many that are
-- ready, which are locked as well. Their number is written into the text, and is 0 in `best_of_one` (postgres_scout.py,
-- best_after).
-- name: best_after
SELECT {task}, EXISTS (SELECT 1 FROM messages m WHERE m.task_key = t.key) AS has_thread FROM tasks t
WHERE t.key = (SELECT b.key FROM (
    SELECT kept.key FROM (
        {kept_of_one}) kept
    UNION ALL
    SELECT ready.key FROM (
        {ready_of_one} LIMIT 1 OFFSET :skipped FOR NO KEY UPDATE SKIP LOCKED) ready) b LIMIT 1)
FOR NO KEY UPDATE OF t

-- So many of them for one claimant: what is kept for it, which is given one by one, or else what is ready. The number is
-- written into the text, too.
-- name: best_of_some
WITH held AS MATERIALIZED (
    {kept_of_one})
SELECT {task}, EXISTS (SELECT 1 FROM messages m WHERE m.task_key = t.key) AS has_thread FROM (
    SELECT held.key FROM held
    UNION ALL
    SELECT ready.key FROM (
        {ready_of_one} LIMIT :wanted FOR NO KEY UPDATE SKIP LOCKED) ready
    WHERE NOT EXISTS (SELECT 1 FROM held)) b
JOIN tasks t ON t.key = b.key
ORDER BY t.rank_ms, t.key
FOR NO KEY UPDATE OF t

-- name: ready_of_kind
SELECT {task} FROM tasks t WHERE t.key = (
    SELECT r.key FROM (
        SELECT wanted.value FROM json_each(:sets) wanted CROSS JOIN LATERAL (
            SELECT f.rank_ms, f.key FROM tasks f
            WHERE f.project_id = :project_id AND f.kind = :kind AND f.requires = wanted.value
                AND f.open_slots > 0 AND f.unmet = 0 AND f.waiting = 0
                AND (f.slots = 1 OR NOT EXISTS (
                    SELECT 1 FROM leases l
                    WHERE l.task_key = f.key AND l.agent_id = :agent_id AND l.state IN ('offered', 'active')))
            ORDER BY f.rank_ms, f.key LIMIT 1) head
        ORDER BY head.rank_ms, head.key) fitting
    CROSS JOIN LATERAL (
        SELECT t.key FROM tasks t
        WHERE t.project_id = :project_id AND t.kind = :kind AND t.requires = fitting.value
            AND t.open_slots > 0 AND t.unmet = 0 AND t.waiting = 0
            AND (t.slots = 1 OR NOT EXISTS (
                SELECT 1 FROM leases l
                WHERE l.task_key = t.key AND l.agent_id = :agent_id AND l.state IN ('offered', 'active')))
        ORDER BY t.rank_ms, t.key LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) r
    LIMIT 1)
FOR NO KEY UPDATE OF t

-- name: ready_list
SELECT {task} FROM requirement_sets q CROSS JOIN LATERAL (
    SELECT r.* FROM tasks r
    WHERE r.project_id = :project_id AND r.requires = q.requires
        AND r.open_slots > 0 AND r.unmet = 0 AND r.waiting = 0
    ORDER BY r.rank_ms, r.key LIMIT :limit) t
WHERE q.project_id = :project_id
ORDER BY t.rank_ms, t.key LIMIT :limit

-- == timers ==

-- Whoever fires a timer holds its task, and passes over those that others are at: each is fired by one.
-- name: due_timers
SELECT w.kind, w.ref, w.wake_at_ms FROM timers w LEFT JOIN leases l ON w.kind = 'lease' AND l.lease_id = w.ref
JOIN tasks t ON t.key = CASE w.kind WHEN 'task' THEN CAST(w.ref AS BIGINT) ELSE l.task_key END
WHERE w.wake_at_ms <= :now_ms ORDER BY w.wake_at_ms LIMIT :limit FOR NO KEY UPDATE OF t SKIP LOCKED

-- == dependencies ==

-- name: unlock_dependants
WITH waiting AS (
    SELECT t.key FROM tasks t WHERE t.key IN (SELECT d.task_key FROM dependencies d WHERE d.needs_key = :task_key)
    ORDER BY t.key FOR NO KEY UPDATE)
UPDATE tasks SET unmet = unmet - 1 FROM waiting WHERE tasks.key = waiting.key
RETURNING tasks.task_id, tasks.unmet, tasks.open_slots, tasks.waiting

-- name: lock_dependants
WITH waiting AS (
    SELECT t.key FROM tasks t WHERE t.key IN (SELECT d.task_key FROM dependencies d WHERE d.needs_key = :task_key)
    ORDER BY t.key FOR NO KEY UPDATE)
UPDATE tasks SET unmet = unmet + 1 FROM waiting WHERE tasks.key = waiting.key

-- == counters ==

-- Many recoveries at once would wait for each other at one row; each connection counts in one of 64.
-- name: count
INSERT INTO counters (name, value) VALUES (CAST(:name AS TEXT) || '#' || pg_backend_pid() % 64, :by)
ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value

-- name: counters
SELECT split_part(name, '#', 1) AS name, CAST(sum(value) AS BIGINT) AS value FROM counters GROUP BY 1

-- == agents ==

-- Two runs may write one agent at once; an incarnation never goes back.
-- name: save_agent
INSERT INTO agents ({agent_names}) VALUES ({agent_values})
ON CONFLICT (agent_id) DO UPDATE SET
    name = excluded.name, role = excluded.role, skills = excluded.skills, project_id = excluded.project_id,
    profile = excluded.profile, incarnation = greatest(agents.incarnation, excluded.incarnation),
    state = excluded.state, worktree = excluded.worktree, host = excluded.host, branch = excluded.branch,
    seen_at_ms = excluded.seen_at_ms

-- == what is read on from a cursor: only what is older than every open transaction ==

-- name: events
SELECT {event} FROM events e
WHERE e.seq > :after AND e.seq < tenure_horizon()
    AND (CAST(:project_id AS TEXT) IS NULL OR e.project_id = :project_id)
    AND (CAST(:task_id AS TEXT) IS NULL OR e.task_id = :task_id)
    AND (CAST(:agent_id AS TEXT) IS NULL OR e.agent_id = :agent_id)
ORDER BY e.seq LIMIT :limit

-- name: newest_event
SELECT seq FROM events WHERE seq < tenure_horizon() ORDER BY seq DESC LIMIT 1

-- name: receipts
SELECT {receipt} FROM receipts r
WHERE r.seq > :after AND r.seq < tenure_horizon() AND r.at_ms >= :since_ms AND r.at_ms < :until_ms
    AND (CAST(:task_id AS TEXT) IS NULL OR r.task_id = :task_id)
    AND (CAST(:project_id AS TEXT) IS NULL OR r.project_id = :project_id)
    AND (CAST(:phase AS TEXT) IS NULL OR r.phase = :phase)
    AND (CAST(:principal AS TEXT) IS NULL OR r.principal = :principal)
ORDER BY r.seq LIMIT :limit

-- name: messages_to_say
SELECT {message} FROM messages m
WHERE m.task_key = :task_key AND m.seq > :after AND m.seq < tenure_horizon() AND m.kind <> 'board'
ORDER BY m.seq LIMIT :limit

-- name: last_message_of
SELECT coalesce(max(m.seq), 0) AS seq FROM messages m WHERE m.task_key = :task_key AND m.seq < tenure_horizon()

-- name: hashes_from
SELECT seq, hash FROM receipts WHERE seq >= :first AND seq < tenure_horizon() ORDER BY seq LIMIT :limit

-- == locks that a single writer has anyway ==

-- Edges of one project are added one after the other. A task that has none is added beside others, but not beside edges,
-- one of which may wait for its name.
-- name: lock_edges
SELECT pg_advisory_xact_lock(hashtextextended('edges ' || CAST(:project_id AS TEXT), 0))

-- name: lock_names
SELECT pg_advisory_xact_lock_shared(hashtextextended('edges ' || CAST(:project_id AS TEXT), 0))

-- name: lock_edges_of
SELECT pg_advisory_xact_lock(hashtextextended('edges ' || t.project_id, 0)) FROM tasks t
WHERE t.task_id = :task_id AND (CAST(:project_id AS TEXT) IS NULL OR t.project_id = :project_id)

-- name: lock_upstream
SELECT n.key FROM tasks n
WHERE n.task_id = :needs AND n.project_id IN (
    SELECT t.project_id FROM tasks t
    WHERE t.task_id = :task_id AND (CAST(:project_id AS TEXT) IS NULL OR t.project_id = :project_id))
ORDER BY n.key FOR SHARE

-- A request and its retry: the second finds what the first made.
-- name: lock_request
SELECT pg_advisory_xact_lock(hashtextextended(
    'request ' || CAST(:project_id AS TEXT) || ' ' || :agent_id || ' ' || :verb || ' ' || :key, 0))

-- name: lock_agent
SELECT pg_advisory_xact_lock(hashtextextended('agent ' || CAST(:agent_id AS TEXT), 0))

-- Messages to one recipient are numbered in the order in which they can be read.
-- name: lock_inbox
SELECT pg_advisory_xact_lock(hashtextextended('inbox ' || CAST(:recipient AS TEXT), 0))

-- Steps about the cards of one project's board.
-- name: lock_board
SELECT pg_advisory_xact_lock(hashtextextended('board ' || CAST(:project_id AS TEXT), 0))

-- name: lock_board_of
SELECT pg_advisory_xact_lock(hashtextextended('board ' || c.project_id, 0)) FROM board_cards c WHERE c.key = :key

-- name: lock_seals
SELECT pg_advisory_xact_lock(hashtextextended('seals', 0))

-- name: lock_settings
SELECT pg_advisory_xact_lock(hashtextextended('settings', 0))

-- == written at once by two, kept once ==

-- name: add_requirement_set
INSERT INTO requirement_sets (project_id, requires) VALUES (:project_id, :requires)
ON CONFLICT (project_id, requires) DO NOTHING

-- == as a write transaction reads: with the locks that a decision needs ==

-- The task first, then the lease. IS NOT DISTINCT FROM, so that the lease is looked up by its id (see about_new_task).
-- name: lease_by_id_locked
WITH held AS MATERIALIZED (
    SELECT t.key FROM tasks t WHERE t.key = (SELECT x.task_key FROM leases x WHERE x.lease_id = :lease_id)
    FOR NO KEY UPDATE)
SELECT {lease_alone} FROM leases l
WHERE l.lease_id = :lease_id AND l.task_key IS NOT DISTINCT FROM (SELECT held.key FROM held) FOR NO KEY UPDATE OF l

-- name: unended_of_task
SELECT {lease_alone} FROM leases l
WHERE l.task_key = :task_key AND l.state IN ('offered', 'active') ORDER BY l.slot

-- name: unended_of_agent
SELECT {lease_alone} FROM leases l
WHERE l.agent_id = :agent_id AND l.state IN ('offered', 'active') ORDER BY l.granted_at_ms, l.lease_id

-- == a lease that is asked for by its id, and what travels with it ==

-- Locked in this order (postgres_schema.py, LOCKING). What the hints say is looked up after the task is locked.
-- name: task_of_lease
SELECT {task} FROM tasks t WHERE t.key = (SELECT x.task_key FROM leases x WHERE x.lease_id = :lease_id)

-- name: lease_with_hints
SELECT {lease_alone},
    EXISTS (SELECT 1 FROM messages m WHERE m.task_key = l.task_key) AS has_thread,
    EXISTS (SELECT 1 FROM handoffs h WHERE h.task_key = l.task_key AND h.state = 'open') AS has_handoffs,
    EXISTS (SELECT 1 FROM dependencies d WHERE d.needs_key = l.task_key) AS has_dependants
FROM leases l WHERE l.lease_id = :lease_id

-- name: agent_of_lease
SELECT {agent} FROM agents a WHERE a.agent_id = (SELECT x.agent_id FROM leases x WHERE x.lease_id = :lease_id)

-- name: settings_of_lease
SELECT p.project_id, (SELECT value FROM meta WHERE key = 'settings') AS store, p.settings AS project
FROM projects p WHERE p.project_id = (SELECT x.project_id FROM leases x WHERE x.lease_id = :lease_id)

-- == a new task, in two round trips: its key is read with everything else that is asked about it ==

-- Read under the lock that keeps out edges, one of which may wait for the name (lock_names). IS NOT DISTINCT FROM is =
-- for what is not null, and is not looked up in an index: without statistics PostgreSQL takes the list of a project's
-- tasks for as good a way to one name as the index of names, and keeps to that plan while the list grows.
-- name: about_new_task
SELECT
    nextval('tasks_key_seq') AS key,
    EXISTS (SELECT 1 FROM tasks t
        WHERE t.task_id = :task_id AND t.project_id IS NOT DISTINCT FROM :project_id) AS named,
    (SELECT max(g.last_token) FROM graves g WHERE g.task_id = :task_id AND g.project_id = :project_id) AS last_token,
    EXISTS (SELECT 1 FROM dependencies d WHERE d.needs_key IS NULL AND d.needs_id = :task_id) AS waited_for,
    EXISTS (SELECT 1 FROM requirement_sets q WHERE q.project_id = :project_id AND q.requires = :requires) AS known_set

-- name: add_task_keyed
INSERT INTO tasks (key, {task_names}) VALUES (:key, {task_values})
