-- Every query of the engine, by name (store/queries.py). Written in the SQL that SQLite and PostgreSQL share; a query
-- that must differ is replaced by one of the same name.

-- fragment: lease_from
FROM leases l LEFT JOIN servers s ON s.server_id = l.server_id

-- fragment: lease_row
{lease}, s.pulsed_at_ms AS server_pulsed_at_ms

-- Not live any more, as core/deadline.py judges it; a test holds the two together.
-- fragment: lease_due
(l.recover_at_ms <= :now_ms AND NOT (
    s.pulsed_at_ms IS NOT NULL AND :now_ms - s.pulsed_at_ms > 15000 AND l.recover_at_ms > s.pulsed_at_ms
    AND :now_ms < l.recover_at_ms + l.hung_after_ms AND (l.death_at_ms IS NULL OR l.death_at_ms > :now_ms)))

-- fragment: deaf_ms
(:now_ms - CASE WHEN seen_at_ms > :pulsed_at_ms THEN seen_at_ms ELSE :pulsed_at_ms END)

-- A task as a card shows it, without what may be long.
-- fragment: card
t.key, t.project_id, t.task_id, t.title, t.kind, t.status, t.priority, t.complexity, t.assigned_to, t.owner,
t.progress, t.attempts, t.max_attempts, t.unmet, t.slots, t.open_slots, t.waiting, t.not_before_ms, t.retry_at_ms,
t.rank_ms, t.requires, t.blocked_reason, t.outcome, t.created_at_ms, t.updated_at_ms, t.done_at_ms, t.version

-- == clock and boots ==

-- name: clock
SELECT boot_id, wall0_ms, mono0_ms FROM clock WHERE id = 1

-- name: set_clock
INSERT INTO clock (id, boot_id, wall0_ms, mono0_ms) VALUES (1, :boot_id, :wall0_ms, :mono0_ms)
ON CONFLICT (id) DO UPDATE SET boot_id = excluded.boot_id, wall0_ms = excluded.wall0_ms, mono0_ms = excluded.mono0_ms

-- name: boot
SELECT replaced_at_ms FROM boots WHERE boot_id = :boot_id

-- name: know_boot
INSERT INTO boots (boot_id, replaced_at_ms) VALUES (:boot_id, NULL) ON CONFLICT (boot_id) DO NOTHING

-- name: replace_boot
UPDATE boots SET replaced_at_ms = :now_ms WHERE boot_id = :old_boot_id AND boot_id <> :boot_id

-- name: forget_boot
DELETE FROM boots WHERE boot_id = :boot_id

-- Re-anchoring moves everything that is measured from now. What people set by the wall clock (not_before) stays.

-- name: shift_leases
UPDATE leases SET
    granted_at_ms = granted_at_ms + :by_ms, accepted_at_ms = accepted_at_ms + :by_ms,
    expires_at_ms = expires_at_ms + :by_ms, seen_at_ms = seen_at_ms + :by_ms, pulsed_at_ms = pulsed_at_ms + :by_ms,
    silent_until_ms = silent_until_ms + :by_ms, death_at_ms = death_at_ms + :by_ms,
    recover_at_ms = recover_at_ms + :by_ms, wake_at_ms = wake_at_ms + :by_ms, marked_at_ms = marked_at_ms + :by_ms
WHERE state IN ('offered', 'active')

-- name: shift_lease_timers
UPDATE timers SET wake_at_ms = wake_at_ms + :by_ms WHERE kind = 'lease'

-- name: shift_retries
UPDATE tasks SET retry_at_ms = retry_at_ms + :by_ms WHERE retry_at_ms > 0

-- name: shift_task_timers
UPDATE timers SET wake_at_ms = :now_ms WHERE kind = 'task'

-- name: shift_links
UPDATE links SET pulsed_at_ms = pulsed_at_ms + :by_ms WHERE state = 'up'

-- name: shift_servers
UPDATE servers SET pulsed_at_ms = pulsed_at_ms + :by_ms

-- name: shift_handoffs
UPDATE handoffs SET recovery_expires_at_ms = recovery_expires_at_ms + :by_ms WHERE state = 'open'

-- name: shift_idempotency
UPDATE idempotency SET at_ms = at_ms + :by_ms

-- name: shift_gates
UPDATE gates SET heard_at_ms = heard_at_ms + :by_ms WHERE heard_at_ms > 0

-- name: shift_agents
UPDATE agents SET seen_at_ms = seen_at_ms + :by_ms, lost_at_ms = lost_at_ms + :by_ms

-- A new boot: one fresh term for every unrecovered lease whose holder was not seen to die.

-- name: reboot_leases
UPDATE leases SET
    expires_at_ms = :now_ms + term_ms, seen_at_ms = :now_ms, pulsed_at_ms = NULL, silent_until_ms = NULL, warned = 0,
    marked_at_ms = CASE WHEN marked_at_ms IS NULL THEN NULL ELSE :now_ms END,
    death_at_ms = CASE WHEN death_at_ms IS NULL THEN NULL ELSE :now_ms END,
    recover_at_ms = CASE
        WHEN death_at_ms IS NOT NULL THEN :now_ms
        WHEN fixed = 1 OR state = 'offered' THEN :now_ms + term_ms
        WHEN term_ms + grace_ms > cadence_ms THEN :now_ms + term_ms + grace_ms
        ELSE :now_ms + cadence_ms END,
    wake_at_ms = :now_ms
WHERE state IN ('offered', 'active')

-- name: reboot_timers
UPDATE timers SET wake_at_ms = :now_ms

-- name: reboot_retries
UPDATE tasks SET retry_at_ms = :now_ms WHERE retry_at_ms > :now_ms

-- name: reboot_links
UPDATE links SET state = CASE weak WHEN 1 THEN 'down' ELSE 'dead' END WHERE state = 'up'

-- name: reboot_servers
UPDATE servers SET pulsed_at_ms = :now_ms

-- == settings ==

-- name: meta
SELECT value FROM meta WHERE key = :key

-- name: set_meta
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: settings_of
SELECT (SELECT value FROM meta WHERE key = 'settings') AS store, settings AS project
FROM projects WHERE project_id = :project_id

-- name: project
SELECT project_id, name, settings, created_at_ms FROM projects WHERE project_id = :project_id

-- name: projects
SELECT project_id, name, settings, created_at_ms FROM projects ORDER BY project_id

-- name: add_project
INSERT INTO projects (project_id, name, settings, created_at_ms)
VALUES (:project_id, :name, :settings, :created_at_ms)

-- name: set_project_settings
UPDATE projects SET settings = :settings WHERE project_id = :project_id

-- == tasks ==

-- name: tasks_named
SELECT {task} FROM tasks t
WHERE t.task_id = :task_id AND (CAST(:project_id AS TEXT) IS NULL OR t.project_id = :project_id)
ORDER BY t.project_id LIMIT 10

-- name: task_by_key
SELECT {task} FROM tasks t WHERE t.key = :key

-- name: task_by_dedupe_key
SELECT {task} FROM tasks t WHERE t.project_id = :project_id AND t.dedupe_key = :dedupe_key

-- name: add_task
INSERT INTO tasks ({task_names}) VALUES ({task_values}) RETURNING key

-- name: save_task
UPDATE tasks SET
    status = :status, assigned_to = :assigned_to, owner = :owner, progress = :progress, attempts = :attempts,
    silent_recoveries = :silent_recoveries, evidence = :evidence, open_slots = :open_slots, waiting = :waiting,
    not_before_ms = :not_before_ms, retry_at_ms = :retry_at_ms, last_token = :last_token,
    blocked_reason = :blocked_reason, outcome = :outcome, obligation = :obligation,
    obligation_token = :obligation_token, receipt_count = :receipt_count,
    receipt_hash = :receipt_hash, updated_at_ms = :updated_at_ms, done_at_ms = :done_at_ms, version = :version
WHERE key = :key

-- name: reserve_task
UPDATE tasks SET open_slots = :open_slots, last_token = :last_token, updated_at_ms = :updated_at_ms, version = :version
WHERE key = :key

-- name: save_progress
UPDATE tasks SET
    progress = :progress, receipt_count = :receipt_count, receipt_hash = :receipt_hash,
    artifact_count = :artifact_count, updated_at_ms = :updated_at_ms, version = :version
WHERE key = :key

-- name: edit_task
UPDATE tasks SET
    title = :title, body = :body, kind = :kind, priority = :priority, complexity = :complexity,
    estimated_hours = :estimated_hours, rank_ms = :rank_ms, requires = :requires,
    lease_duration_s = :lease_duration_s, max_attempts = :max_attempts, principal_ai = :principal_ai,
    payload_pointer = :payload_pointer, inputs = :inputs, expected_outcome_kind = :expected_outcome_kind,
    expected_artifact_mime = :expected_artifact_mime
WHERE key = :key

-- name: delete_task
DELETE FROM tasks WHERE key = :key

-- name: bury
INSERT INTO graves (task_key, project_id, task_id, last_token, receipt_count, receipt_hash, deleted_at_ms)
VALUES (:key, :project_id, :task_id, :last_token, :receipt_count, :receipt_hash, :now_ms)

-- name: grave
SELECT max(last_token) AS last_token FROM graves WHERE task_id = :task_id AND project_id = :project_id

-- name: promote
UPDATE tasks SET waiting = 0 WHERE key = :key AND not_before_ms <= :now_ms AND retry_at_ms <= :now_ms

-- name: uncount_recovery
UPDATE tasks SET
    attempts = CASE WHEN attempts > 0 THEN attempts - 1 ELSE 0 END,
    silent_recoveries = CASE WHEN silent_recoveries > 0 THEN silent_recoveries - 1 ELSE 0 END
WHERE key = :task_key

-- name: list_tasks
SELECT {task} FROM tasks t
WHERE t.key > :after
    AND (CAST(:project_id AS TEXT) IS NULL OR t.project_id = :project_id)
    AND (CAST(:kind AS TEXT) IS NULL OR t.kind = :kind)
    AND (CAST(:assigned_to AS TEXT) IS NULL OR t.assigned_to = :assigned_to)
    AND (CAST(:text AS TEXT) IS NULL OR t.title LIKE :text ESCAPE '\' OR t.task_id LIKE :text ESCAPE '\')
    AND (CAST(:status AS TEXT) IS NULL OR t.status = :status
        OR (:status = 'todo' AND t.status = 'in_progress' AND t.owner = 'agent' AND NOT EXISTS (
            SELECT 1 FROM leases l
            WHERE l.task_key = t.key AND l.state = 'active' AND l.recover_at_ms > :now_ms)))
ORDER BY t.key LIMIT :limit

-- name: count_tasks
SELECT t.status AS status, count(*) AS n FROM tasks t
WHERE (CAST(:project_id AS TEXT) IS NULL OR t.project_id = :project_id) GROUP BY t.status

-- name: count_assignments
SELECT
    (SELECT count(*) FROM tasks t WHERE t.status = 'in_progress'
        AND (CAST(:project_id AS TEXT) IS NULL OR t.project_id = :project_id)) AS shown,
    (SELECT count(DISTINCT l.task_key) {lease_from}
        WHERE l.state IN ('offered', 'active') AND l.state = 'active' AND NOT {lease_due}
        AND (CAST(:project_id AS TEXT) IS NULL OR l.project_id = :project_id)) AS held

-- name: assigned_amiss
SELECT {task} FROM tasks t
WHERE t.project_id = :project_id AND t.status = 'in_progress' AND coalesce(t.owner, '') NOT IN ('internal', 'external')
    AND NOT EXISTS (
        SELECT 1 {lease_from} WHERE l.task_key = t.key AND l.state = 'active' AND NOT {lease_due})
UNION ALL
SELECT {task} FROM leases l JOIN tasks t ON t.key = l.task_key
WHERE l.state IN ('offered', 'active') AND l.state = 'active' AND l.project_id = :project_id AND t.status <> 'in_progress'

-- name: obligations
SELECT {task} FROM tasks t
WHERE t.obligation IN ('open', 'overdue') AND t.key > :after
    AND (CAST(:project_id AS TEXT) IS NULL OR t.project_id = :project_id)
ORDER BY t.key LIMIT :limit

-- == the ready index ==

-- name: requirement_set
SELECT requires FROM requirement_sets WHERE project_id = :project_id AND requires = :requires

-- name: requirement_sets
SELECT requires FROM requirement_sets WHERE project_id = :project_id

-- name: count_requirement_sets
SELECT count(*) AS n FROM requirement_sets WHERE project_id = :project_id AND requires <> ''

-- name: forget_requirement_sets
DELETE FROM requirement_sets WHERE project_id = :project_id AND NOT EXISTS (
    SELECT 1 FROM tasks t WHERE t.project_id = :project_id AND t.requires = requirement_sets.requires)

-- name: add_requirement_set
INSERT INTO requirement_sets (project_id, requires) VALUES (:project_id, :requires)

-- name: kept_for
SELECT {task} FROM tasks t
WHERE t.assigned_to = :agent_id AND t.project_id = :project_id
    AND t.status = 'todo' AND t.owner = 'agent' AND t.unmet = 0 AND t.waiting = 0
    AND t.requires IN (SELECT value FROM json_each(:sets))
    AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.task_key = t.key AND l.state IN ('offered', 'active'))
ORDER BY t.rank_ms LIMIT 1

-- Work kept for this agent, else any: the two queries around this one in one statement.

-- name: best
SELECT {task} FROM tasks t
WHERE t.key = coalesce((
    SELECT k.key FROM tasks k
    WHERE k.assigned_to = :agent_id AND k.project_id = :project_id
        AND k.status = 'todo' AND k.owner = 'agent' AND k.unmet = 0 AND k.waiting = 0
        AND k.requires IN (SELECT value FROM json_each(:sets))
        AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.task_key = k.key AND l.state IN ('offered', 'active'))
    ORDER BY k.rank_ms LIMIT 1), (
    SELECT b.key FROM json_each(:sets) wanted CROSS JOIN tasks b
    WHERE b.key = (
        SELECT r.key FROM tasks r
        WHERE r.project_id = :project_id AND r.requires = wanted.value
            AND r.open_slots > 0 AND r.unmet = 0 AND r.waiting = 0
            AND (r.slots = 1 OR NOT EXISTS (
                SELECT 1 FROM leases l
                WHERE l.task_key = r.key AND l.agent_id = :agent_id AND l.state IN ('offered', 'active')))
        ORDER BY r.rank_ms, r.key LIMIT 1)
    ORDER BY b.rank_ms, b.key LIMIT 1))

-- One seek per capability set, then the best of those. An agent is not given a second slot of a task it already holds.

-- name: ready
SELECT {task} FROM json_each(:sets) wanted CROSS JOIN tasks t
WHERE t.key = (
    SELECT r.key FROM tasks r
    WHERE r.project_id = :project_id AND r.requires = wanted.value
        AND r.open_slots > 0 AND r.unmet = 0 AND r.waiting = 0
        AND (r.slots = 1 OR NOT EXISTS (
            SELECT 1 FROM leases l
            WHERE l.task_key = r.key AND l.agent_id = :agent_id AND l.state IN ('offered', 'active')))
    ORDER BY r.rank_ms, r.key LIMIT 1)
ORDER BY t.rank_ms, t.key LIMIT 1

-- Several of them at once, of one capability set.

-- name: ready_ahead
SELECT {task} FROM tasks t
WHERE t.project_id = :project_id AND t.requires = :requires AND t.open_slots > 0 AND t.unmet = 0 AND t.waiting = 0
ORDER BY t.rank_ms, t.key LIMIT :limit

-- name: ready_of_kind
SELECT {task} FROM json_each(:sets) wanted CROSS JOIN tasks t
WHERE t.key = (
    SELECT r.key FROM tasks r
    WHERE r.project_id = :project_id AND r.kind = :kind AND r.requires = wanted.value
        AND r.open_slots > 0 AND r.unmet = 0 AND r.waiting = 0
        AND (r.slots = 1 OR NOT EXISTS (
            SELECT 1 FROM leases l
            WHERE l.task_key = r.key AND l.agent_id = :agent_id AND l.state IN ('offered', 'active')))
    ORDER BY r.rank_ms, r.key LIMIT 1)
ORDER BY t.rank_ms, t.key LIMIT 1

-- For polls that wait: how many tasks there are for them, and whether any is kept for someone.

-- name: count_ready
SELECT count(*) AS n FROM (
    SELECT 1 FROM json_each(:sets) wanted CROSS JOIN tasks r
    WHERE r.project_id = :project_id AND r.requires = wanted.value
        AND r.open_slots > 0 AND r.unmet = 0 AND r.waiting = 0
    LIMIT :limit) found

-- With a condition on who it is kept for, so that the index of what is kept is sought, and not that of all there is to do.

-- name: any_kept
SELECT 1 AS yes FROM tasks t
WHERE t.project_id = :project_id AND t.assigned_to >= '' AND t.status = 'todo' AND t.owner = 'agent' AND t.unmet = 0
    AND t.waiting = 0
LIMIT 1

-- name: kept_for_agents
SELECT wanted.value AS agent_id FROM json_each(:agent_ids) wanted
WHERE EXISTS (
    SELECT 1 FROM tasks t
    WHERE t.assigned_to = wanted.value AND t.project_id = :project_id
        AND t.status = 'todo' AND t.owner = 'agent' AND t.unmet = 0 AND t.waiting = 0
        AND NOT EXISTS (SELECT 1 FROM leases l WHERE l.task_key = t.key AND l.state IN ('offered', 'active')))

-- name: ready_list
SELECT {task} FROM json_each((
    SELECT json_group_array(q.requires) FROM requirement_sets q WHERE q.project_id = :project_id)) wanted
CROSS JOIN tasks t
WHERE t.key IN (
    SELECT r.key FROM tasks r
    WHERE r.project_id = :project_id AND r.requires = wanted.value
        AND r.open_slots > 0 AND r.unmet = 0 AND r.waiting = 0
    ORDER BY r.rank_ms, r.key LIMIT :limit)
ORDER BY t.rank_ms, t.key LIMIT :limit

-- name: overdue_waits
SELECT {task} FROM timers w JOIN tasks t ON t.key = CAST(w.ref AS INTEGER)
WHERE +w.kind = 'task' AND w.wake_at_ms <= :now_ms AND t.project_id = :project_id
    AND t.open_slots > 0 AND t.unmet = 0 AND t.not_before_ms <= :now_ms AND t.retry_at_ms <= :now_ms
ORDER BY w.wake_at_ms LIMIT :limit

-- == dependencies ==

-- name: upstream
SELECT key, status FROM tasks WHERE task_id = :task_id AND project_id = :project_id

-- name: add_edge
INSERT INTO dependencies (task_key, needs_id, needs_key) VALUES (:task_key, :needs_id, :needs_key)
ON CONFLICT (task_key, needs_id) DO NOTHING

-- name: remove_edge
DELETE FROM dependencies WHERE task_key = :task_key AND needs_id = :needs_id

-- name: edge
SELECT d.needs_key, t.status FROM dependencies d LEFT JOIN tasks t ON t.key = d.needs_key
WHERE d.task_key = :task_key AND d.needs_id = :needs_id

-- name: resolve_missing
UPDATE dependencies SET needs_key = :key
WHERE needs_key IS NULL AND needs_id = :task_id
    AND EXISTS (SELECT 1 FROM tasks t WHERE t.key = dependencies.task_key AND t.project_id = :project_id)

-- name: count_unmet
UPDATE tasks SET unmet = unmet + :by WHERE key = :task_key

-- name: unlock_dependants
UPDATE tasks SET unmet = unmet - 1 WHERE key IN (SELECT d.task_key FROM dependencies d WHERE d.needs_key = :task_key)
RETURNING task_id, unmet, open_slots, waiting

-- name: lock_dependants
UPDATE tasks SET unmet = unmet + 1 WHERE key IN (SELECT d.task_key FROM dependencies d WHERE d.needs_key = :task_key)

-- name: unmet_of
SELECT d.needs_id FROM dependencies d LEFT JOIN tasks t ON t.key = d.needs_key
WHERE d.task_key = :task_key AND (t.status IS NULL OR t.status <> 'done') ORDER BY d.needs_id

-- name: needs_of
SELECT d.needs_id, d.needs_key, t.status, t.title FROM dependencies d LEFT JOIN tasks t ON t.key = d.needs_key
WHERE d.task_key = :task_key ORDER BY d.needs_id

-- name: dependants_of
SELECT t.task_id, t.title, t.status FROM dependencies d JOIN tasks t ON t.key = d.task_key
WHERE d.needs_key = :task_key ORDER BY t.task_id

-- name: needs_itself
WITH RECURSIVE upstream (key) AS (
    SELECT needs_key FROM dependencies WHERE task_key = :task_key AND needs_key IS NOT NULL
    UNION
    SELECT d.needs_key FROM dependencies d JOIN upstream u ON d.task_key = u.key WHERE d.needs_key IS NOT NULL)
SELECT 1 AS yes FROM upstream WHERE key = :task_key LIMIT 1

-- name: edges
SELECT t.task_id, d.needs_id, d.needs_key FROM dependencies d JOIN tasks t ON t.key = d.task_key
WHERE t.project_id = :project_id ORDER BY t.key, d.needs_id

-- name: unfinished
SELECT {task} FROM tasks t WHERE t.project_id = :project_id AND t.status <> 'done' ORDER BY t.key

-- name: unfinished_edges
SELECT d.task_key, d.needs_id FROM dependencies d JOIN tasks t ON t.key = d.task_key
LEFT JOIN tasks n ON n.key = d.needs_key
WHERE t.project_id = :project_id AND t.status <> 'done' AND (n.status IS NULL OR n.status <> 'done')
ORDER BY d.task_key, d.needs_id

-- == prospects ==

-- What an agent is told when nothing is ready. Every look is bounded; `seen` is how much of an index it may pass over.

-- name: statuses_of
SELECT s.status FROM (
    SELECT 'todo' AS status UNION ALL SELECT 'in_progress' UNION ALL SELECT 'blocked' UNION ALL SELECT 'done'
    UNION ALL SELECT 'dead') s
WHERE EXISTS (SELECT 1 FROM tasks t WHERE t.project_id = :project_id AND t.status = s.status)

-- name: first_of_status
SELECT {task} FROM tasks t WHERE t.project_id = :project_id AND t.status = :status ORDER BY t.rank_ms, t.key LIMIT :limit

-- name: unlocked_todos
SELECT {task} FROM (
    SELECT r.key FROM tasks r WHERE r.project_id = :project_id AND r.status = 'todo'
    ORDER BY r.rank_ms, r.key LIMIT :seen) w
JOIN tasks t ON t.key = w.key
WHERE t.unmet = 0 AND t.waiting = 0 ORDER BY t.rank_ms, t.key LIMIT :limit

-- name: near_offers
SELECT {lease_row} FROM (SELECT kind, ref FROM timers ORDER BY wake_at_ms LIMIT :seen) w
JOIN leases l ON l.lease_id = w.ref LEFT JOIN servers s ON s.server_id = l.server_id
WHERE w.kind = 'lease' AND l.project_id = :project_id AND l.state = 'offered' ORDER BY l.recover_at_ms

-- name: near_waits
SELECT {task} FROM (
    SELECT CASE WHEN kind = 'task' THEN CAST(ref AS INTEGER) END AS key, wake_at_ms FROM timers
    ORDER BY wake_at_ms LIMIT :seen) w
JOIN tasks t ON t.key = w.key
WHERE t.project_id = :project_id AND t.status = 'todo' AND t.waiting = 1 AND t.unmet = 0
    AND (t.open_slots > 0 OR (t.owner = 'agent' AND t.assigned_to = :agent_id))
ORDER BY w.wake_at_ms

-- name: locked_by
SELECT t.task_id, t.unmet, t.requires, t.assigned_to, d.needs_key FROM dependencies d JOIN tasks t ON t.key = d.task_key
WHERE d.needs_key IN (SELECT value FROM json_each(:keys)) AND t.status = 'todo' ORDER BY t.key LIMIT :limit

-- name: count_unfinished
SELECT count(*) AS n FROM (
    SELECT 1 FROM tasks t WHERE t.project_id = :project_id AND t.status IN ('todo', 'in_progress', 'blocked', 'dead')
    LIMIT :limit) found

-- == design ==

-- name: next_internal
SELECT t.key, t.retry_at_ms, t.updated_at_ms FROM tasks t
WHERE t.owner = 'internal' AND t.status = 'in_progress' AND t.unmet = 0 ORDER BY t.retry_at_ms, t.key LIMIT 1

-- name: pulse_internal
UPDATE tasks SET retry_at_ms = :retry_at_ms
WHERE key = :key AND owner = 'internal' AND status = 'in_progress' AND last_token = :token

-- name: failing_internal
SELECT t.task_id, t.project_id, t.updated_at_ms, t.blocked_reason FROM tasks t
WHERE t.owner = 'internal' AND t.status = 'in_progress' AND t.unmet = 0 AND t.blocked_reason <> ''
ORDER BY t.retry_at_ms, t.key LIMIT :limit

-- name: server_since
SELECT 1 AS yes FROM servers WHERE pulsed_at_ms > :since_ms LIMIT 1

-- name: recent_of_kind
SELECT e.at_ms, e.project_id, e.task_id, e.data FROM (
    SELECT r.seq, r.at_ms, r.kind, r.project_id, r.task_id, r.data FROM events r ORDER BY r.seq DESC LIMIT :seen) e
WHERE e.kind = :kind AND e.at_ms > :since_ms ORDER BY e.seq DESC

-- name: downstream
WITH RECURSIVE below (key) AS (
    SELECT d.task_key FROM dependencies d WHERE d.needs_key = :task_key
    UNION
    SELECT d.task_key FROM dependencies d JOIN below b ON d.needs_key = b.key)
SELECT {task} FROM below b JOIN tasks t ON t.key = b.key WHERE t.key <> :task_key ORDER BY t.key LIMIT :limit

-- name: open_besides
SELECT {task} FROM tasks t
WHERE t.project_id = :project_id AND t.status IN ('todo', 'in_progress', 'blocked') AND t.key <> :task_key
ORDER BY t.key LIMIT :limit

-- name: edges_among
SELECT t.task_id, d.needs_id FROM dependencies d JOIN tasks t ON t.key = d.task_key
WHERE d.task_key IN (SELECT value FROM json_each(:keys)) AND d.needs_key IN (SELECT value FROM json_each(:keys))
ORDER BY t.key, d.needs_id

-- == agents, links, servers ==

-- name: agent_named
SELECT {agent} FROM agents a WHERE a.agent_id = :agent_id

-- name: agents
SELECT {agent} FROM agents a
WHERE a.agent_id > :after AND (CAST(:project_id AS TEXT) IS NULL OR a.project_id = :project_id)
ORDER BY a.agent_id LIMIT :limit

-- name: agents_in
SELECT {agent} FROM agents a WHERE a.worktree = :worktree AND a.worktree <> '' AND a.state = 'present' ORDER BY a.agent_id

-- name: count_agents
SELECT count(*) AS n FROM agents a
WHERE a.state = 'present' AND (CAST(:project_id AS TEXT) IS NULL OR a.project_id = :project_id)

-- name: save_agent
INSERT INTO agents ({agent_names}) VALUES ({agent_values})
ON CONFLICT (agent_id) DO UPDATE SET
    name = excluded.name, role = excluded.role, skills = excluded.skills, project_id = excluded.project_id,
    profile = excluded.profile, incarnation = excluded.incarnation, state = excluded.state,
    worktree = excluded.worktree, host = excluded.host, branch = excluded.branch, seen_at_ms = excluded.seen_at_ms

-- name: see_agent
UPDATE agents SET seen_at_ms = :now_ms, state = 'present' WHERE agent_id = :agent_id

-- name: lose_lease
UPDATE agents SET lost_lease_id = :lease_id, lost_at_ms = :now_ms WHERE agent_id = :agent_id

-- name: told_lost
UPDATE agents SET lost_lease_id = NULL WHERE agent_id = :agent_id

-- name: add_link
INSERT INTO links ({link_names}) VALUES ({link_values})

-- name: link_by_id
SELECT {link} FROM links k WHERE k.link_id = :link_id

-- name: links_of
SELECT {link} FROM links k WHERE k.agent_id = :agent_id AND k.state = 'up' ORDER BY k.linked_at_ms

-- name: pulse_link
UPDATE links SET pulsed_at_ms = :now_ms WHERE link_id = :link_id AND state = 'up'

-- name: end_link
UPDATE links SET state = :state WHERE link_id = :link_id AND state = 'up'

-- name: links_watched
SELECT {link} FROM links k
WHERE k.boot_id = :boot_id AND k.pid_ns = :pid_ns AND k.state = 'up' AND k.pid > 0 ORDER BY k.linked_at_ms LIMIT :limit

-- name: say_last_words
UPDATE links SET exited = :exited, output_tail = :output_tail WHERE link_id = :link_id

-- The words of a run that was no older than the lease, and had begun before the lease's death.
-- name: last_words
SELECT k.exited, k.output_tail FROM links k
WHERE k.agent_id = :agent_id AND k.exited <> '' AND k.incarnation >= :incarnation AND k.linked_at_ms <= :until_ms
ORDER BY k.linked_at_ms DESC LIMIT 1

-- name: late_words
UPDATE handoffs SET exited = :exited, output_tail = :output_tail
WHERE task_key = :task_key AND token = :token AND exited = ''

-- name: end_links
UPDATE links SET state = :state WHERE agent_id = :agent_id AND state = 'up'

-- name: server
SELECT server_id, started_at_ms, pulsed_at_ms FROM servers WHERE server_id = :server_id

-- name: start_server
INSERT INTO servers (server_id, started_at_ms, pulsed_at_ms) VALUES (:server_id, :now_ms, :now_ms)
ON CONFLICT (server_id) DO UPDATE SET started_at_ms = excluded.started_at_ms, pulsed_at_ms = excluded.pulsed_at_ms

-- name: pulse_server
INSERT INTO servers (server_id, started_at_ms, pulsed_at_ms) VALUES (:server_id, :now_ms, :now_ms)
ON CONFLICT (server_id) DO UPDATE SET pulsed_at_ms = excluded.pulsed_at_ms

-- From the later of the server's last pulse and the holder's last call: only that time was lost. Leases that count as
-- dead although nobody could hear (hung_after past their deadline) stay so.
-- name: lift_leases
UPDATE leases SET
    expires_at_ms = expires_at_ms + {deaf_ms}, seen_at_ms = seen_at_ms + {deaf_ms},
    pulsed_at_ms = pulsed_at_ms + {deaf_ms}, silent_until_ms = silent_until_ms + {deaf_ms},
    recover_at_ms = recover_at_ms + {deaf_ms}, marked_at_ms = marked_at_ms + {deaf_ms}
WHERE server_id = :server_id AND state IN ('offered', 'active') AND death_at_ms IS NULL
    AND recover_at_ms > :pulsed_at_ms AND recover_at_ms + hung_after_ms > :now_ms

-- == leases ==

-- name: lease_by_id
SELECT {lease_row} {lease_from} WHERE l.lease_id = :lease_id

-- name: unended_of_task
SELECT {lease_row} {lease_from}
WHERE l.task_key = :task_key AND l.state IN ('offered', 'active') ORDER BY l.slot

-- name: unended_of_tasks
SELECT {lease_row} {lease_from}
WHERE l.task_key IN (SELECT value FROM json_each(:keys)) AND l.state IN ('offered', 'active') ORDER BY l.task_key, l.slot

-- name: unended_of_agent
SELECT {lease_row} {lease_from}
WHERE l.agent_id = :agent_id AND l.state IN ('offered', 'active') ORDER BY l.granted_at_ms, l.lease_id

-- name: unended_with_token
SELECT {lease_row} {lease_from}
WHERE l.token = :token AND l.state IN ('offered', 'active') ORDER BY l.granted_at_ms, l.lease_id

-- name: ended_of_task
SELECT {lease_row} {lease_from}
WHERE l.task_key = :task_key AND l.state NOT IN ('offered', 'active') ORDER BY l.token DESC LIMIT :limit

-- name: last_lease_of
SELECT l.lease_id FROM leases l
WHERE l.task_key = :task_key AND (CAST(:agent_id AS TEXT) IS NULL OR l.agent_id = :agent_id)
ORDER BY l.token DESC LIMIT 1

-- name: add_lease
INSERT INTO leases ({lease_names}) VALUES ({lease_values})

-- A touch: nothing here is indexed.
-- name: extend_lease
UPDATE leases SET
    incarnation = :incarnation, term_ms = :term_ms, grace_ms = :grace_ms, cadence_ms = :cadence_ms,
    expires_at_ms = :expires_at_ms, seen_at_ms = :seen_at_ms, pulsed_at_ms = :pulsed_at_ms,
    silent_until_ms = :silent_until_ms, death_at_ms = :death_at_ms, recover_at_ms = :recover_at_ms,
    wake_at_ms = :wake_at_ms, warned = :warned, renewals = :renewals, reports = :reports, touches = :touches,
    progress = :progress, message = :message, mark_gaps = :mark_gaps, marked_at_ms = :marked_at_ms, stuck = :stuck,
    over_max = :over_max, end_reason = :end_reason, signs = :signs
WHERE lease_id = :lease_id AND token = :token

-- name: move_lease
UPDATE leases SET server_id = :server_id WHERE lease_id = :lease_id AND token = :token

-- name: accept_lease
UPDATE leases SET state = 'active', accepted_at_ms = :accepted_at_ms, seen_at_ms = :seen_at_ms,
    incarnation = :incarnation, expires_at_ms = :expires_at_ms, touches = :touches, recover_at_ms = :recover_at_ms,
    wake_at_ms = :wake_at_ms, signs = :signs
WHERE lease_id = :lease_id AND token = :token AND state = 'offered'

-- name: end_lease
UPDATE leases SET state = :state, ended_at_ms = :ended_at_ms, end_reason = :end_reason
WHERE lease_id = :lease_id AND token = :token AND state IN ('offered', 'active')

-- name: rearm_lease
UPDATE leases SET warned = :warned, wake_at_ms = :wake_at_ms WHERE lease_id = :lease_id AND token = :token

-- name: return_lease
UPDATE leases SET returned_at_ms = :now_ms WHERE lease_id = :lease_id

-- name: due_leases
SELECT {lease_row} FROM timers w JOIN leases l ON l.lease_id = w.ref LEFT JOIN servers s ON s.server_id = l.server_id
WHERE +w.kind = 'lease' AND w.wake_at_ms <= :now_ms AND l.project_id = :project_id AND l.recover_at_ms <= :now_ms
    AND l.state IN ('offered', 'active')
ORDER BY w.wake_at_ms LIMIT :limit

-- name: lease_statistics
SELECT
    sum(CASE WHEN l.state = 'active' AND NOT {lease_due} THEN 1 ELSE 0 END) AS active,
    sum(CASE WHEN l.state = 'offered' AND NOT {lease_due} THEN 1 ELSE 0 END) AS offered,
    sum(CASE WHEN l.expires_at_ms > :now_ms AND l.expires_at_ms - :now_ms
        <= CASE WHEN l.warning_ms * :close_part < l.term_ms THEN l.warning_ms ELSE l.term_ms / :close_part END
        THEN 1 ELSE 0 END)
        AS expiring_soon,
    sum(CASE WHEN l.expires_at_ms <= :now_ms THEN 1 ELSE 0 END) AS expired,
    sum(CASE WHEN l.state = 'active' AND {lease_due} THEN 1 ELSE 0 END) AS due,
    count(DISTINCT CASE WHEN l.state = 'active' THEN l.task_key END)
        - count(DISTINCT CASE WHEN l.state = 'active' AND NOT {lease_due} THEN l.task_key END) AS due_tasks,
    sum(l.stuck) AS stuck, sum(l.over_max) AS over_max,
    avg(l.renewals) AS average_renewals, max(l.renewals) AS max_renewals
{lease_from}
WHERE l.state IN ('offered', 'active') AND (CAST(:project_id AS TEXT) IS NULL OR l.project_id = :project_id)

-- == timers ==

-- name: set_timer
INSERT INTO timers (kind, ref, wake_at_ms) VALUES (:kind, :ref, :wake_at_ms)
ON CONFLICT (kind, ref) DO UPDATE SET wake_at_ms = excluded.wake_at_ms

-- name: drop_timer
DELETE FROM timers WHERE kind = :kind AND ref = :ref

-- name: due_timers
SELECT kind, ref, wake_at_ms FROM timers WHERE wake_at_ms <= :now_ms ORDER BY wake_at_ms LIMIT :limit

-- name: next_wake
SELECT wake_at_ms FROM timers ORDER BY wake_at_ms LIMIT 1

-- == handoffs ==

-- name: add_handoff
INSERT INTO handoffs ({handoff_names}) VALUES ({handoff_values})

-- name: open_handoffs
SELECT {handoff} FROM handoffs h
WHERE h.task_key = :task_key AND h.state = 'open' AND h.recovery_expires_at_ms > :now_ms
ORDER BY h.token DESC LIMIT 5

-- name: handoff_of_lease
SELECT {handoff} FROM handoffs h WHERE h.lease_id = :lease_id
    AND h.task_key = (SELECT l.task_key FROM leases l WHERE l.lease_id = :lease_id)

-- name: withdraw_handoff
UPDATE handoffs SET state = 'withdrawn', look = 0 WHERE lease_id = :lease_id
    AND task_key = (SELECT l.task_key FROM leases l WHERE l.lease_id = :lease_id)

-- name: close_handoffs
UPDATE handoffs SET state = 'closed', look = 0 WHERE task_key = :task_key AND state = 'open'

-- name: handoff_by_id
SELECT {handoff} FROM handoffs h WHERE h.handoff_id = :handoff_id

-- name: last_handoff_of
SELECT {handoff} FROM handoffs h WHERE h.recovered_from_agent = :agent_id ORDER BY h.handoff_id DESC LIMIT 1

-- name: handoffs_to_look_at
SELECT {handoff} FROM handoffs h
WHERE h.look = 1 AND h.host IN (:host, '') AND h.looked_at_ms <= :not_since_ms AND h.state = 'open'
ORDER BY h.host, h.handoff_id LIMIT :limit

-- A holder that was refused may have gone on working: what it did since is looked at again.
-- name: look_again
UPDATE handoffs SET look = 1 WHERE lease_id = :lease_id AND worktree <> '' AND state = 'open'
    AND task_key = (SELECT l.task_key FROM leases l WHERE l.lease_id = :lease_id)

-- name: attach_facts
UPDATE handoffs SET git = :git, instructions = :instructions, look = :look, looked_at_ms = :now_ms
WHERE handoff_id = :handoff_id

-- name: set_evidence
UPDATE tasks SET evidence = :evidence, silent_recoveries = 0 WHERE key = :key

-- == idempotency ==

-- name: idempotency
SELECT digest, leases, at_ms FROM idempotency
WHERE project_id = :project_id AND agent_id = :agent_id AND verb = :verb AND key = :key

-- name: remember
INSERT INTO idempotency (project_id, agent_id, verb, key, digest, leases, at_ms)
VALUES (:project_id, :agent_id, :verb, :key, :digest, :leases, :at_ms)
ON CONFLICT (project_id, agent_id, verb, key) DO UPDATE SET
    digest = excluded.digest, leases = excluded.leases, at_ms = excluded.at_ms

-- name: prune_idempotency
DELETE FROM idempotency WHERE (project_id, agent_id, verb, key) IN (
    SELECT i.project_id, i.agent_id, i.verb, i.key FROM idempotency i
    WHERE i.project_id = :project_id AND i.at_ms < :before_ms ORDER BY i.at_ms LIMIT :limit)

-- name: prune_links
DELETE FROM links WHERE link_id IN (SELECT k.link_id FROM links k WHERE k.pulsed_at_ms < :before_ms LIMIT :limit)

-- == messages, decisions, artifacts ==

-- name: add_message
INSERT INTO messages ({message_names}) VALUES ({message_values})

-- name: add_message_returning
INSERT INTO messages ({message_names}) VALUES ({message_values}) RETURNING seq

-- name: thread
SELECT {message} FROM messages m WHERE m.task_key = :task_key AND m.seq > :after ORDER BY m.seq DESC LIMIT :limit

-- name: inbox
SELECT {message} FROM messages m WHERE m.recipient = :agent_id AND m.seq > :after ORDER BY m.seq LIMIT :limit

-- name: read_up_to
SELECT seq FROM reads WHERE agent_id = :agent_id AND task_key = :task_key

-- name: mark_read
INSERT INTO reads (agent_id, task_key, seq) VALUES (:agent_id, :task_key, :seq)
ON CONFLICT (agent_id, task_key) DO UPDATE SET seq = excluded.seq

-- name: add_decision
INSERT INTO decisions (at_ms, task_key, lease_id, agent_id, text)
VALUES (:at_ms, :task_key, :lease_id, :agent_id, :text) RETURNING seq

-- name: decisions_of
SELECT * FROM (
    SELECT seq, at_ms, agent_id, text AS decision FROM decisions WHERE task_key = :task_key
    ORDER BY seq DESC LIMIT :limit) newest
ORDER BY seq

-- name: add_artifact
INSERT INTO artifacts (at_ms, task_key, lease_id, agent_id, filename, artifact_type, description, location, content)
VALUES (:at_ms, :task_key, :lease_id, :agent_id, :filename, :artifact_type, :description, :location, :content)
RETURNING seq

-- name: artifacts_of
SELECT * FROM (
    SELECT seq, at_ms, agent_id, filename, artifact_type, description, location FROM artifacts
    WHERE task_key = :task_key ORDER BY seq DESC LIMIT :limit) newest
ORDER BY seq

-- name: artifacts_with_content
SELECT * FROM (
    SELECT seq, at_ms, agent_id, filename, artifact_type, description, location, content FROM artifacts
    WHERE task_key = :task_key ORDER BY seq DESC LIMIT :limit) newest
ORDER BY seq

-- == events and counters ==

-- name: add_event
INSERT INTO events (at_ms, kind, project_id, task_key, task_id, lease_id, agent_id, data)
VALUES (:at_ms, :kind, :project_id, :task_key, :task_id, :lease_id, :agent_id, :data)

-- name: events
SELECT {event} FROM events e
WHERE e.seq > :after
    AND (CAST(:project_id AS TEXT) IS NULL OR e.project_id = :project_id)
    AND (CAST(:task_id AS TEXT) IS NULL OR e.task_id = :task_id)
    AND (CAST(:agent_id AS TEXT) IS NULL OR e.agent_id = :agent_id)
ORDER BY e.seq LIMIT :limit

-- name: newest_event
SELECT seq FROM events ORDER BY seq DESC LIMIT 1

-- name: events_of_task
SELECT {event} FROM events e WHERE e.task_key = :task_key ORDER BY e.seq DESC LIMIT :limit

-- name: prune_events
DELETE FROM events WHERE at_ms < :before_ms AND seq IN (SELECT e.seq FROM events e ORDER BY e.seq LIMIT :limit)

-- name: count
INSERT INTO counters (name, value) VALUES (:name, :by)
ON CONFLICT (name) DO UPDATE SET value = counters.value + excluded.value

-- name: counters
SELECT name, value FROM counters

-- == receipts ==

-- name: add_receipt
INSERT INTO receipts ({receipt_names}, content_key) VALUES ({receipt_values}, :content_key) RETURNING seq

-- name: record_receipt
INSERT INTO receipts ({receipt_names}, content_key) VALUES ({receipt_values}, :content_key)

-- name: receipt_by_id
SELECT {receipt} FROM receipts r WHERE r.receipt_id = :receipt_id

-- name: receipt_by_dedupe_key
SELECT {receipt} FROM receipts r WHERE r.project_id = :project_id AND r.dedupe_key = :dedupe_key

-- name: receipts
SELECT {receipt} FROM receipts r
WHERE r.seq > :after AND +r.at_ms >= :since_ms AND +r.at_ms < :until_ms
    AND (CAST(:task_id AS TEXT) IS NULL OR r.task_id = :task_id)
    AND (CAST(:project_id AS TEXT) IS NULL OR r.project_id = :project_id)
    AND (CAST(:phase AS TEXT) IS NULL OR r.phase = :phase)
    AND (CAST(:principal AS TEXT) IS NULL OR r.principal = :principal)
ORDER BY r.seq LIMIT :limit

-- name: chain
SELECT {receipt} FROM receipts r WHERE r.task_key = :task_key ORDER BY r.position

-- name: last_receipts
SELECT {receipt} FROM receipts r WHERE r.task_key = :task_key ORDER BY r.position DESC LIMIT :limit

-- name: chain_heads
SELECT key, project_id, task_id, receipt_count, receipt_hash FROM tasks
WHERE receipt_count > 0 AND (CAST(:project_id AS TEXT) IS NULL OR project_id = :project_id)
UNION ALL
SELECT task_key AS key, project_id, task_id, receipt_count, receipt_hash FROM graves
WHERE receipt_count > 0 AND (CAST(:project_id AS TEXT) IS NULL OR project_id = :project_id)
UNION ALL
SELECT -key AS key, project_id, task_id, receipt_count, receipt_hash FROM foreign_tasks
WHERE receipt_count > 0 AND (CAST(:project_id AS TEXT) IS NULL OR project_id = :project_id)
UNION ALL
SELECT r.task_key AS key, min(r.project_id), min(r.task_id), 0, '' FROM receipts r
WHERE (CAST(:project_id AS TEXT) IS NULL OR r.project_id = :project_id)
    AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.key = r.task_key AND t.receipt_count > 0)
    AND NOT EXISTS (SELECT 1 FROM graves g WHERE g.task_key = r.task_key AND g.receipt_count > 0)
    AND NOT EXISTS (SELECT 1 FROM foreign_tasks f WHERE f.key = -r.task_key AND f.receipt_count > 0)
GROUP BY r.task_key

-- name: receipts_between
SELECT {receipt} FROM receipts r WHERE r.seq BETWEEN :first AND :last ORDER BY r.seq

-- name: hashes_from
SELECT seq, hash FROM receipts WHERE seq >= :first ORDER BY seq LIMIT :limit

-- name: count_unsealed
SELECT count(*) AS n FROM receipts WHERE seq > :after

-- name: seals
SELECT seal_id, first_seq, last_seq, prev_hash, hash FROM seals ORDER BY seal_id

-- name: last_seal
SELECT last_seq, hash FROM seals ORDER BY seal_id DESC LIMIT 1

-- name: add_seal
INSERT INTO seals (first_seq, last_seq, at_ms, prev_hash, hash)
VALUES (:first_seq, :last_seq, :at_ms, :prev_hash, :hash)

-- == gates ==

-- name: foreign_task
SELECT key, receipt_count, receipt_hash FROM foreign_tasks WHERE project_id = :project_id AND task_id = :task_id

-- name: add_foreign_task
INSERT INTO foreign_tasks (project_id, task_id) VALUES (:project_id, :task_id)
RETURNING key, receipt_count, receipt_hash

-- name: save_foreign_task
UPDATE foreign_tasks SET receipt_count = :receipt_count, receipt_hash = :receipt_hash WHERE key = :key

-- name: gate
SELECT g.sent_seq, g.read_seq, g.heard_at_ms, g.error FROM gates g WHERE g.project_id = :project_id AND g.gate = :gate

-- name: count_parked
SELECT
    (SELECT count(*) FROM gate_receipts m
     WHERE m.project_id = :project_id AND m.gate = :gate AND m.state = 'parked' AND m.resend_seq IS NULL) AS parked,
    (SELECT count(*) FROM gate_receipts m
     WHERE m.project_id = :project_id AND m.gate = :gate AND m.resend_seq IS NOT NULL) AS resending

-- name: count_unsent
SELECT count(*) AS n FROM (
    SELECT r.project_id, r.receipt_id FROM receipts r WHERE r.seq > :sent_seq ORDER BY r.seq LIMIT :limit) found
WHERE found.project_id = :project_id AND NOT EXISTS (SELECT 1 FROM gate_receipts m
    WHERE m.project_id = found.project_id AND m.gate = :gate AND m.receipt_id = found.receipt_id)

-- name: newest_parked
SELECT m.receipt_id, r.task_id, r.phase, m.detail AS reason, m.at_ms FROM gate_receipts m
JOIN receipts r ON r.receipt_id = m.receipt_id
WHERE m.project_id = :project_id AND m.gate = :gate AND m.state = 'parked' AND m.resend_seq IS NULL
ORDER BY m.at_ms DESC, m.receipt_id DESC LIMIT :limit

-- name: gate_advance
INSERT INTO gates (project_id, gate, sent_seq, read_seq) VALUES (:project_id, :gate, :sent_seq, :read_seq)
ON CONFLICT (project_id, gate) DO UPDATE SET
    sent_seq = CASE WHEN excluded.sent_seq > gates.sent_seq THEN excluded.sent_seq ELSE gates.sent_seq END,
    read_seq = CASE WHEN excluded.read_seq > gates.read_seq THEN excluded.read_seq ELSE gates.read_seq END

-- name: gate_heard
INSERT INTO gates (project_id, gate, heard_at_ms, error) VALUES (:project_id, :gate, :heard_at_ms, :error)
ON CONFLICT (project_id, gate) DO UPDATE SET error = excluded.error,
    heard_at_ms = CASE WHEN excluded.heard_at_ms > gates.heard_at_ms OR gates.heard_at_ms > :now_ms
        THEN excluded.heard_at_ms ELSE gates.heard_at_ms END

-- name: gate_receipt
SELECT state FROM gate_receipts WHERE project_id = :project_id AND gate = :gate AND receipt_id = :receipt_id

-- name: mark_gate_receipt
INSERT INTO gate_receipts (project_id, gate, receipt_id, state, detail, at_ms)
VALUES (:project_id, :gate, :receipt_id, :state, :detail, :now_ms)
ON CONFLICT (project_id, gate, receipt_id) DO NOTHING

-- name: resend_receipt
UPDATE gate_receipts SET resend_seq = :seq
WHERE project_id = :project_id AND gate = :gate AND receipt_id = :receipt_id AND state = 'parked'

-- name: resend_parked
UPDATE gate_receipts
SET resend_seq = (SELECT r.seq FROM receipts r WHERE r.receipt_id = gate_receipts.receipt_id)
WHERE project_id = :project_id AND gate = :gate AND state = 'parked' AND resend_seq IS NULL

-- name: receipts_to_resend
SELECT {receipt} FROM gate_receipts m JOIN receipts r ON r.receipt_id = m.receipt_id
WHERE m.project_id = :project_id AND m.gate = :gate AND m.resend_seq IS NOT NULL ORDER BY m.resend_seq LIMIT :limit

-- name: park_again
UPDATE gate_receipts SET resend_seq = NULL, detail = :detail, at_ms = :now_ms
WHERE project_id = :project_id AND gate = :gate AND receipt_id = :receipt_id AND resend_seq IS NOT NULL

-- name: unpark
DELETE FROM gate_receipts
WHERE project_id = :project_id AND gate = :gate AND receipt_id = :receipt_id AND state = 'parked'

-- == the newest page ==

-- name: recent_events
SELECT {event} FROM events e
WHERE (CAST(:project_id AS TEXT) IS NULL OR e.project_id = :project_id)
    AND (CAST(:task_id AS TEXT) IS NULL OR e.task_id = :task_id)
    AND (CAST(:agent_id AS TEXT) IS NULL OR e.agent_id = :agent_id)
ORDER BY e.seq DESC LIMIT :limit

-- name: recent_receipts
SELECT {receipt} FROM receipts r
WHERE (CAST(:task_id AS TEXT) IS NULL OR r.task_id = :task_id)
    AND (CAST(:project_id AS TEXT) IS NULL OR r.project_id = :project_id)
    AND (CAST(:phase AS TEXT) IS NULL OR r.phase = :phase)
ORDER BY r.seq DESC LIMIT :limit

-- == export and import ==

-- name: export_project
SELECT 1 AS cursor, project_id, name, settings FROM projects
WHERE CAST(:after AS INTEGER) = 0 AND (CAST(:project_id AS TEXT) IS NULL OR project_id = :project_id)
ORDER BY project_id

-- name: export_task
SELECT key AS cursor, project_id, task_id, title, body, kind, status, priority, complexity, estimated_hours, progress,
    assigned_to, owner, attempts, max_attempts, slots, not_before_ms, requires, lease_duration_s, blocked_reason, outcome, principal_ai,
    payload_pointer, inputs, expected_outcome_kind, expected_artifact_mime, dedupe_key, created_at_ms, done_at_ms
FROM tasks
WHERE key > :after AND (CAST(:project_id AS TEXT) IS NULL OR project_id = :project_id) ORDER BY key LIMIT :limit

-- name: export_message
SELECT m.seq AS cursor, m.at_ms, m.project_id, m.task_id, m.sender, m.kind, m.text FROM messages m
WHERE m.seq > :after AND m.task_key IS NOT NULL AND m.kind <> 'handoff'
    AND (CAST(:project_id AS TEXT) IS NULL OR m.project_id = :project_id)
ORDER BY m.seq LIMIT :limit

-- name: export_decision
SELECT d.seq AS cursor, d.at_ms, t.project_id, t.task_id, d.agent_id, d.text AS decision
FROM decisions d JOIN tasks t ON t.key = d.task_key
WHERE d.seq > :after AND (CAST(:project_id AS TEXT) IS NULL OR t.project_id = :project_id)
ORDER BY d.seq LIMIT :limit

-- name: export_artifact
SELECT a.seq AS cursor, a.at_ms, t.project_id, t.task_id, a.agent_id, a.filename, a.artifact_type, a.description,
    a.location, a.content
FROM artifacts a JOIN tasks t ON t.key = a.task_key
WHERE a.seq > :after AND (CAST(:project_id AS TEXT) IS NULL OR t.project_id = :project_id)
ORDER BY a.seq LIMIT :limit

-- name: export_receipt
SELECT r.seq AS cursor, r.body, r.hash FROM receipts r
WHERE r.seq > :after AND (CAST(:project_id AS TEXT) IS NULL OR r.project_id = :project_id)
ORDER BY r.seq LIMIT :limit

-- name: same_message
SELECT 1 AS yes FROM messages WHERE task_key = :task_key AND at_ms = :at_ms AND sender = :sender AND text = :text

-- name: same_decision
SELECT 1 AS yes FROM decisions WHERE task_key = :task_key AND at_ms = :at_ms AND agent_id = :agent_id AND text = :text

-- name: same_artifact
SELECT 1 AS yes FROM artifacts
WHERE task_key = :task_key AND at_ms = :at_ms AND agent_id = :agent_id AND filename = :filename

-- == boards ==

-- name: shift_board_cards
UPDATE board_cards SET busy_until_ms = busy_until_ms + :by_ms, retry_at_ms = retry_at_ms + :by_ms
WHERE busy_until_ms > 0 OR retry_at_ms > 0

-- name: shift_alerts
UPDATE alerts SET raised_at_ms = raised_at_ms + :by_ms

-- name: shift_requests
UPDATE requests SET at_ms = at_ms + :by_ms

-- name: reboot_board_cards
UPDATE board_cards SET busy_until_ms = 0, retry_at_ms = 0 WHERE busy_until_ms > 0 OR retry_at_ms > 0

-- name: board
SELECT {board} FROM boards b WHERE b.project_id = :project_id

-- name: boards
SELECT {board} FROM boards b ORDER BY b.project_id

-- name: add_board
INSERT INTO boards ({board_names}) VALUES ({board_values})

-- name: save_board
UPDATE boards SET url = :url, place = :place, token = :token, webhook_token = :webhook_token, config = :config
WHERE project_id = :project_id

-- name: delete_board
DELETE FROM boards WHERE project_id = :project_id

-- name: board_looked
UPDATE boards SET event_seq = :event_seq WHERE project_id = :project_id AND event_seq < :event_seq

-- name: board_fed
UPDATE boards SET feed = :feed WHERE project_id = :project_id

-- name: board_swept
UPDATE boards SET swept_at_ms = :now_ms WHERE project_id = :project_id

-- name: board_told
UPDATE boards SET error = :error WHERE project_id = :project_id AND error <> :error

-- name: board_changed
UPDATE boards SET changes = changes + 1 WHERE project_id = :project_id RETURNING changes

-- name: board_card
SELECT {board_card} FROM board_cards c WHERE c.key = :key

-- name: board_card_of_task
SELECT {board_card} FROM board_cards c WHERE c.project_id = :project_id AND c.task_key = :task_key

-- name: board_card_named
SELECT {board_card} FROM board_cards c WHERE c.project_id = :project_id AND c.card_id = :card_id AND c.card_id <> ''

-- name: board_cards
SELECT {board_card} FROM board_cards c WHERE c.project_id = :project_id AND c.key > :after ORDER BY c.key LIMIT :limit

-- name: board_assignments
SELECT c.key AS card_key, c.base, c.dirty, t.task_id, t.status, t.assigned_to, t.owner
FROM board_cards c JOIN tasks t ON t.key = c.task_key
WHERE c.project_id = :project_id AND c.key > :after AND c.base IS NOT NULL ORDER BY c.key LIMIT :limit

-- name: board_cards_due
SELECT c.key FROM board_cards c
WHERE c.project_id = :project_id AND c.dirty = 1 AND c.parked = 0
    AND c.retry_at_ms <= :now_ms AND c.busy_until_ms <= :now_ms
ORDER BY c.retry_at_ms, c.key LIMIT :limit

-- name: board_next_retry
SELECT min(CASE WHEN c.busy_until_ms > c.retry_at_ms THEN c.busy_until_ms ELSE c.retry_at_ms END) AS at_ms
FROM board_cards c WHERE c.project_id = :project_id AND c.dirty = 1 AND c.parked = 0

-- name: board_counts
SELECT count(*) AS cards, count(CASE WHEN c.parked = 0 AND c.dirty = 1 THEN 1 END) AS pending,
    count(CASE WHEN c.parked = 1 THEN 1 END) AS parked
FROM board_cards c WHERE c.project_id = :project_id

-- name: board_comment_counts
SELECT count(*) AS comments, count(CASE WHEN m.parked = 1 THEN 1 END) AS parked
FROM board_comments m JOIN board_cards c ON c.key = m.card_key WHERE c.project_id = :project_id

-- name: board_parked
SELECT c.task_id, c.card_id, c.error FROM board_cards c WHERE c.project_id = :project_id AND c.parked = 1
UNION ALL
SELECT c.task_id, c.card_id, m.error FROM board_comments m JOIN board_cards c ON c.key = m.card_key
WHERE c.project_id = :project_id AND m.parked = 1
ORDER BY 1 LIMIT :limit

-- name: board_retry_cards
UPDATE board_cards SET parked = 0, attempts = 0, retry_at_ms = 0, dirty = 1, error = ''
WHERE project_id = :project_id AND (parked = 1 OR (dirty = 1 AND attempts > 0))

-- name: board_retry_comments
UPDATE board_comments SET parked = 0, attempts = 0, error = ''
WHERE parked = 1 AND card_key IN (SELECT c.key FROM board_cards c WHERE c.project_id = :project_id)

-- name: add_board_card
INSERT INTO board_cards ({board_card_names}) VALUES ({board_card_values}) RETURNING key

-- name: delete_board_card
DELETE FROM board_cards WHERE key = :key

-- name: board_card_dirty
UPDATE board_cards SET dirty = 1,
    attempts = CASE WHEN parked = 1 THEN 0 ELSE attempts END,
    retry_at_ms = CASE WHEN parked = 1 THEN 0 ELSE retry_at_ms END, parked = 0
WHERE key = :key

-- name: board_card_busy
UPDATE board_cards SET busy_until_ms = :until_ms WHERE key = :key AND busy_until_ms <= :now_ms

-- name: board_card_made
UPDATE board_cards SET card_id = :card_id, born = :born WHERE key = :key

-- name: board_card_seen
UPDATE board_cards SET base = :base, change_no = :change_no, gone = 0 WHERE key = :key

-- name: board_card_unchanged
UPDATE board_cards SET gone = 0 WHERE key = :key AND gone > 0

-- name: board_card_acked
UPDATE board_cards SET version = :version, dirty = :dirty, attempts = 0, error = '', retry_at_ms = 0, busy_until_ms = 0
WHERE key = :key

-- name: board_card_failed
UPDATE board_cards SET attempts = :attempts, parked = :parked, error = :error, retry_at_ms = :retry_at_ms,
    version = :version, busy_until_ms = 0
WHERE key = :key

-- name: board_card_gone
UPDATE board_cards SET gone = gone + 1 WHERE key = :key RETURNING gone

-- name: board_card_reverted
UPDATE board_cards SET reversions = reversions + 1 WHERE key = :key RETURNING reversions

-- name: board_card_said
UPDATE board_cards SET said_seq = :said_seq WHERE key = :key

-- name: board_tombstones
SELECT {board_card} FROM board_cards c WHERE c.project_id = :project_id AND c.task_key IS NULL AND c.dirty = 0 AND c.version >= 0

-- name: board_untouched_tasks
SELECT t.key FROM tasks t
WHERE t.project_id = :project_id AND t.status <> 'done'
    AND NOT EXISTS (SELECT 1 FROM board_cards c WHERE c.project_id = :project_id AND c.task_key = t.key)
ORDER BY t.key LIMIT :limit

-- name: messages_to_say
SELECT {message} FROM messages m
WHERE m.task_key = :task_key AND m.seq > :after AND m.kind <> 'board' ORDER BY m.seq LIMIT :limit

-- name: last_message_of
SELECT coalesce(max(m.seq), 0) AS seq FROM messages m WHERE m.task_key = :task_key

-- name: add_board_comment
INSERT INTO board_comments (comment_key, card_key, text, attempts, parked, error)
VALUES (:comment_key, :card_key, :text, 0, 0, '') ON CONFLICT (comment_key) DO NOTHING

-- name: board_comments_of
SELECT comment_key, text, attempts FROM board_comments WHERE card_key = :card_key AND parked = 0 ORDER BY comment_key

-- name: delete_board_comment
DELETE FROM board_comments WHERE comment_key = :comment_key

-- name: board_comment_failed
UPDATE board_comments SET attempts = attempts + 1, error = :error,
    parked = CASE WHEN attempts + 1 >= :most THEN 1 ELSE 0 END
WHERE comment_key = :comment_key

-- == alerts ==

-- name: raise_alert
INSERT INTO alerts (project_id, kind, raised_at_ms) VALUES (:project_id, :kind, :now_ms)
ON CONFLICT (project_id, kind) DO UPDATE SET raised_at_ms = excluded.raised_at_ms
WHERE alerts.raised_at_ms <= :before_ms

-- name: note_request
INSERT INTO requests (project_id, agent_id, at_ms) VALUES (:project_id, :agent_id, :now_ms)
ON CONFLICT (project_id, agent_id) DO UPDATE SET at_ms = excluded.at_ms

-- name: requesting_agents
SELECT count(*) AS n FROM (
    SELECT r.agent_id FROM requests r
    WHERE r.at_ms > :since_ms AND (CAST(:project_id AS TEXT) IS NULL OR r.project_id = :project_id)
    UNION
    SELECT l.agent_id FROM leases l
    WHERE l.state IN ('offered', 'active') AND l.granted_at_ms > :since_ms
        AND (CAST(:project_id AS TEXT) IS NULL OR l.project_id = :project_id)) asked

-- == the dashboard: cards, live leases, agents in time ==

-- name: cards_of_status
SELECT {card}
FROM tasks t WHERE t.project_id = :project_id AND t.status = :status ORDER BY t.rank_ms, t.key LIMIT :limit

-- name: newest_cards_of_status
SELECT {card}
FROM tasks t WHERE t.project_id = :project_id AND t.status = :status ORDER BY t.rank_ms DESC, t.key DESC LIMIT :limit

-- name: cards_named
SELECT {card}
FROM tasks t WHERE t.project_id = :project_id AND t.task_id IN (SELECT value FROM json_each(:task_ids))

-- name: needs_of_tasks
SELECT d.task_key, d.needs_id, t.status FROM dependencies d LEFT JOIN tasks t ON t.key = d.needs_key
WHERE d.task_key IN (SELECT value FROM json_each(:keys)) ORDER BY d.task_key, d.needs_id

-- name: open_handoffs_of_tasks
SELECT h.task_key, h.recovered_from_agent, h.recovered_at_ms, h.recovery_reason FROM handoffs h
WHERE h.task_key IN (SELECT value FROM json_each(:keys)) AND h.state = 'open' AND h.recovery_expires_at_ms > :now_ms
ORDER BY h.task_key, h.token

-- name: unended_of_project
SELECT {lease_row} {lease_from}
WHERE l.state IN ('offered', 'active') AND l.project_id = :project_id ORDER BY l.recover_at_ms LIMIT :limit

-- name: kinds
SELECT DISTINCT t.kind FROM tasks t WHERE t.project_id = :project_id AND t.kind <> '' ORDER BY t.kind LIMIT :limit

-- name: past_of_agent
SELECT {lease_row} {lease_from}
WHERE l.agent_id = :agent_id AND l.state NOT IN ('offered', 'active') ORDER BY l.granted_at_ms DESC LIMIT :limit

-- name: handed_over
SELECT h.lease_id, h.recovered_at_ms FROM handoffs h
JOIN leases l ON l.lease_id = h.lease_id AND l.task_key = h.task_key
WHERE h.lease_id IN (SELECT value FROM json_each(:lease_ids))

-- name: told_of_leases
SELECT {event} FROM leases l JOIN events e ON e.task_key = l.task_key AND e.lease_id = l.lease_id
WHERE l.lease_id IN (SELECT value FROM json_each(:lease_ids))
    AND e.kind IN ('recovered', 'returned', 'healed', 'revoked', 'released', 'completed', 'blocked', 'failed', 'late',
        'offer_expired', 'stuck')
ORDER BY e.seq LIMIT :limit

-- name: oldest_event
SELECT seq FROM events ORDER BY seq LIMIT 1

-- name: happenings
SELECT e.at_ms, e.kind FROM (SELECT a.at_ms, a.kind, a.project_id FROM events a ORDER BY a.seq DESC LIMIT :limit) e
WHERE e.at_ms >= :since_ms AND e.project_id = :project_id
    AND e.kind IN ('completed', 'recovered', 'returned', 'granted', 'accepted', 'failed')

-- name: ready_ages
SELECT t.task_id, t.title, t.priority, t.created_at_ms, t.not_before_ms, t.retry_at_ms FROM tasks t
WHERE t.project_id = :project_id AND t.open_slots > 0 AND t.unmet = 0 AND t.waiting = 0
ORDER BY t.requires, t.rank_ms, t.key LIMIT :limit

-- name: count_all_ready
SELECT count(*) AS n FROM (SELECT 1 FROM tasks t
    WHERE t.project_id = :project_id AND t.open_slots > 0 AND t.unmet = 0 AND t.waiting = 0 LIMIT :limit) found

-- name: edges_around
WITH RECURSIVE
    up (key, depth) AS (
        SELECT CAST(:task_key AS INTEGER), 0
        UNION SELECT d.needs_key, u.depth + 1 FROM dependencies d JOIN up u ON d.task_key = u.key
        WHERE d.needs_key IS NOT NULL AND u.depth < :depth),
    down (key, depth) AS (
        SELECT CAST(:task_key AS INTEGER), 0
        UNION SELECT d.task_key, u.depth + 1 FROM dependencies d JOIN down u ON d.needs_key = u.key
        WHERE u.depth < :depth)
SELECT t.task_id, d.needs_id, n.status AS needs_status FROM dependencies d
JOIN tasks t ON t.key = d.task_key LEFT JOIN tasks n ON n.key = d.needs_key
WHERE d.task_key IN (SELECT key FROM up UNION SELECT key FROM down)
    AND (d.needs_key IS NULL OR d.needs_key IN (SELECT key FROM up UNION SELECT key FROM down))
ORDER BY t.key, d.needs_id LIMIT :limit
