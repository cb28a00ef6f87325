-- Times are integer milliseconds of the store's clock. Every time that must move when that clock is re-anchored is
-- listed in the shift_* queries of queries.sql.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- The store's clock: now = wall0 + (monotonic - mono0), for every process of this boot.
CREATE TABLE clock (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    boot_id  TEXT NOT NULL,
    wall0_ms BIGINT NOT NULL,
    mono0_ms BIGINT NOT NULL
);

-- Every boot that ever wrote here. One that was replaced and comes back means two kernels share the file.
CREATE TABLE boots (
    boot_id        TEXT PRIMARY KEY,
    replaced_at_ms BIGINT
);

CREATE TABLE projects (
    project_id    TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    settings      TEXT NOT NULL DEFAULT '{}',
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE tasks (
    key                    INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id             TEXT NOT NULL REFERENCES projects (project_id),
    task_id                TEXT NOT NULL,
    title                  TEXT NOT NULL,
    body                   TEXT NOT NULL DEFAULT '',
    kind                   TEXT NOT NULL DEFAULT '',
    status                 TEXT NOT NULL CHECK (status IN ('todo', 'in_progress', 'blocked', 'done', 'dead')),
    priority               TEXT NOT NULL CHECK (priority IN ('critical', 'high', 'medium', 'low')),
    complexity             TEXT NOT NULL CHECK (complexity IN ('none', 'simple', 'complex', 'research', 'epic')),
    estimated_hours        DOUBLE PRECISION NOT NULL,
    assigned_to            TEXT,
    owner                  TEXT CHECK (owner IN ('agent', 'internal', 'external')),
    progress               INTEGER NOT NULL CHECK (progress BETWEEN 0 AND 100),
    attempts               INTEGER NOT NULL,
    max_attempts           INTEGER,
    silent_recoveries      INTEGER NOT NULL,
    evidence               TEXT NOT NULL,
    unmet                  INTEGER NOT NULL CHECK (unmet >= 0),
    slots                  INTEGER NOT NULL CHECK (slots >= 1),
    open_slots             INTEGER NOT NULL CHECK (open_slots >= 0),
    waiting                INTEGER NOT NULL,
    not_before_ms          BIGINT NOT NULL,
    retry_at_ms            BIGINT NOT NULL,
    rank_ms                BIGINT NOT NULL,
    requires               TEXT NOT NULL DEFAULT '',
    lease_duration_s       INTEGER,
    last_token             BIGINT NOT NULL DEFAULT 0,
    blocked_reason         TEXT NOT NULL DEFAULT '',
    outcome                TEXT NOT NULL DEFAULT '',
    principal_ai           TEXT NOT NULL DEFAULT '',
    payload_pointer        TEXT NOT NULL DEFAULT '',
    inputs                 TEXT NOT NULL DEFAULT '',
    expected_outcome_kind  TEXT NOT NULL DEFAULT '',
    expected_artifact_mime TEXT NOT NULL DEFAULT '',
    dedupe_key             TEXT,
    obligation             TEXT NOT NULL DEFAULT 'none' CHECK (obligation IN ('none', 'open', 'overdue', 'closed')),
    obligation_token       BIGINT NOT NULL DEFAULT 0,
    receipt_count          INTEGER NOT NULL DEFAULT 0,
    receipt_hash           TEXT NOT NULL DEFAULT '',
    artifact_count         INTEGER NOT NULL DEFAULT 0,
    created_at_ms          BIGINT NOT NULL,
    updated_at_ms          BIGINT NOT NULL,
    done_at_ms             BIGINT,
    version                INTEGER NOT NULL DEFAULT 1,
    UNIQUE (task_id, project_id)
);

-- The ready index holds only what can be offered now; its predicate is the definition of ready. Claim-next seeks it
-- once per capability set (and once per preferred kind), whatever the number of tasks.
CREATE INDEX tasks_ready ON tasks (project_id, requires, rank_ms, key)
    WHERE open_slots > 0 AND unmet = 0 AND waiting = 0;
CREATE INDEX tasks_ready_kind ON tasks (project_id, kind, requires, rank_ms, key)
    WHERE open_slots > 0 AND unmet = 0 AND waiting = 0;
-- Work kept for one agent.
CREATE INDEX tasks_kept ON tasks (assigned_to, project_id, rank_ms)
    WHERE status = 'todo' AND owner = 'agent' AND unmet = 0 AND waiting = 0;
CREATE INDEX tasks_listed ON tasks (project_id, status, rank_ms, key);
CREATE UNIQUE INDEX tasks_dedupe ON tasks (project_id, dedupe_key) WHERE dedupe_key IS NOT NULL;

-- The capability sets a project's tasks have ever required: what claim-next seeks, one by one.
CREATE TABLE requirement_sets (
    project_id TEXT NOT NULL,
    requires   TEXT NOT NULL,
    PRIMARY KEY (project_id, requires)
);

-- An edge to a task that does not exist (deleted, or not yet imported) keeps its name and has no key.
CREATE TABLE dependencies (
    task_key   INTEGER NOT NULL REFERENCES tasks (key) ON DELETE CASCADE,
    needs_id   TEXT NOT NULL,
    needs_key  INTEGER REFERENCES tasks (key) ON DELETE SET NULL,
    PRIMARY KEY (task_key, needs_id)
);
CREATE INDEX dependencies_needs ON dependencies (needs_key);
CREATE INDEX dependencies_missing ON dependencies (needs_id) WHERE needs_key IS NULL;

CREATE TABLE agents (
    agent_id         TEXT PRIMARY KEY,
    name             TEXT NOT NULL,
    role             TEXT NOT NULL DEFAULT '',
    skills           TEXT NOT NULL DEFAULT '',
    project_id       TEXT NOT NULL,
    profile          TEXT NOT NULL,
    incarnation      INTEGER NOT NULL,
    state            TEXT NOT NULL CHECK (state IN ('present', 'departed')),
    worktree         TEXT NOT NULL DEFAULT '',
    branch           TEXT NOT NULL DEFAULT '',
    registered_at_ms BIGINT NOT NULL,
    seen_at_ms       BIGINT NOT NULL,
    lost_lease_id    TEXT,
    lost_at_ms       BIGINT
);

-- Who works in a folder: how a command without a name finds out whose it is.
CREATE INDEX agents_in_worktree ON agents (worktree) WHERE worktree <> '';

CREATE TABLE links (
    link_id      TEXT PRIMARY KEY,
    agent_id     TEXT NOT NULL REFERENCES agents (agent_id) ON DELETE CASCADE,
    incarnation  INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    weak         INTEGER NOT NULL,
    boot_id      TEXT NOT NULL DEFAULT '',
    pid_ns       TEXT NOT NULL DEFAULT '',
    pid          INTEGER NOT NULL DEFAULT 0,
    start_ticks  BIGINT NOT NULL DEFAULT 0,
    state        TEXT NOT NULL CHECK (state IN ('up', 'down', 'dead')),
    linked_at_ms BIGINT NOT NULL,
    pulsed_at_ms BIGINT NOT NULL
);
CREATE INDEX links_up ON links (agent_id) WHERE state = 'up';

-- A server's row says when it could last hear.
CREATE TABLE servers (
    server_id     TEXT PRIMARY KEY,
    started_at_ms BIGINT NOT NULL,
    pulsed_at_ms  BIGINT NOT NULL
);

CREATE TABLE leases (
    lease_id        TEXT PRIMARY KEY,
    task_key        INTEGER NOT NULL REFERENCES tasks (key) ON DELETE CASCADE,
    project_id      TEXT NOT NULL,
    task_id         TEXT NOT NULL,
    agent_id        TEXT NOT NULL REFERENCES agents (agent_id),
    incarnation     INTEGER NOT NULL,
    token           BIGINT NOT NULL,
    profile         TEXT NOT NULL,
    state           TEXT NOT NULL
                    CHECK (state IN ('offered', 'active', 'released', 'completed', 'expired', 'revoked')),
    granted_at_ms   BIGINT NOT NULL,
    slot            INTEGER NOT NULL,
    accepted_at_ms  BIGINT,
    fixed           INTEGER NOT NULL,
    touch_extends   INTEGER NOT NULL,
    term_ms         BIGINT NOT NULL CHECK (term_ms > 0),
    grace_ms        BIGINT NOT NULL,
    cadence_ms      BIGINT NOT NULL,
    hung_after_ms   BIGINT NOT NULL,
    silence_cap_ms  BIGINT NOT NULL,
    warning_ms      BIGINT NOT NULL,
    expires_at_ms   BIGINT NOT NULL,
    seen_at_ms      BIGINT NOT NULL,
    pulsed_at_ms    BIGINT,
    silent_until_ms BIGINT,
    death_at_ms     BIGINT,
    recover_at_ms   BIGINT NOT NULL,
    wake_at_ms      BIGINT NOT NULL,
    warned          INTEGER NOT NULL,
    renewals        INTEGER NOT NULL,
    reports         INTEGER NOT NULL,
    touches         INTEGER NOT NULL,
    progress        INTEGER NOT NULL,
    message         TEXT NOT NULL,
    mark_gaps       TEXT NOT NULL,
    marked_at_ms    BIGINT,
    stuck           INTEGER NOT NULL,
    over_max        INTEGER NOT NULL,
    server_id       TEXT,
    ended_at_ms     BIGINT,
    end_reason      TEXT NOT NULL,
    returned_at_ms  BIGINT,
    UNIQUE (task_key, token)
);
-- A second unended lease in a slot is impossible, whatever the engine believes.
CREATE UNIQUE INDEX leases_one_per_slot ON leases (task_key, slot) WHERE state IN ('offered', 'active');
CREATE INDEX leases_of_agent ON leases (agent_id) WHERE state IN ('offered', 'active');
CREATE INDEX leases_of_server ON leases (server_id) WHERE state IN ('offered', 'active') AND server_id IS NOT NULL;

-- The one timer index: the next instant of interest of everything that waits. kind: lease, task.
CREATE TABLE timers (
    kind       TEXT NOT NULL,
    ref        TEXT NOT NULL,
    wake_at_ms BIGINT NOT NULL,
    PRIMARY KEY (kind, ref)
);
CREATE INDEX timers_wake ON timers (wake_at_ms);

CREATE TABLE handoffs (
    handoff_id             TEXT PRIMARY KEY,
    task_key               INTEGER NOT NULL REFERENCES tasks (key) ON DELETE CASCADE,
    lease_id               TEXT NOT NULL,
    token                  BIGINT NOT NULL,
    state                  TEXT NOT NULL CHECK (state IN ('open', 'withdrawn', 'closed')),
    recovered_at_ms        BIGINT NOT NULL,
    recovered_from_agent   TEXT NOT NULL,
    previous_progress      INTEGER NOT NULL,
    time_spent_minutes     DOUBLE PRECISION NOT NULL,
    recovery_reason        TEXT NOT NULL,
    previous_agent_branch  TEXT,
    instructions           TEXT NOT NULL,
    recovery_expires_at_ms BIGINT NOT NULL,
    attempts               INTEGER NOT NULL,
    last_message           TEXT NOT NULL,
    decisions              TEXT NOT NULL,
    artifacts              TEXT NOT NULL,
    git                    TEXT
);
CREATE INDEX handoffs_of_task ON handoffs (task_key, token);

-- Idempotency keys: the leases a request made (ids joined with spaces), for the request's retries.
CREATE TABLE idempotency (
    project_id TEXT NOT NULL,
    agent_id   TEXT NOT NULL,
    verb       TEXT NOT NULL,
    key        TEXT NOT NULL,
    digest     TEXT NOT NULL,
    leases     TEXT NOT NULL,
    at_ms      BIGINT NOT NULL,
    PRIMARY KEY (project_id, agent_id, verb, key)
);
CREATE INDEX idempotency_age ON idempotency (at_ms);

CREATE TABLE messages (
    seq        INTEGER PRIMARY KEY,
    at_ms      BIGINT NOT NULL,
    project_id TEXT NOT NULL,
    task_key   INTEGER REFERENCES tasks (key) ON DELETE CASCADE,
    task_id    TEXT,
    sender     TEXT NOT NULL,
    recipient  TEXT,
    kind       TEXT NOT NULL,
    text       TEXT NOT NULL
);
CREATE INDEX messages_of_task ON messages (task_key, seq);
CREATE INDEX messages_to ON messages (recipient, seq) WHERE recipient IS NOT NULL;

-- How far an agent has read a task's thread, or its inbox (task_key 0).
CREATE TABLE reads (
    agent_id TEXT NOT NULL,
    task_key INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (agent_id, task_key)
);

CREATE TABLE decisions (
    seq      INTEGER PRIMARY KEY,
    at_ms    BIGINT NOT NULL,
    task_key INTEGER NOT NULL REFERENCES tasks (key) ON DELETE CASCADE,
    lease_id TEXT,
    agent_id TEXT NOT NULL,
    text     TEXT NOT NULL
);
CREATE INDEX decisions_of_task ON decisions (task_key, seq);

CREATE TABLE artifacts (
    seq           INTEGER PRIMARY KEY,
    at_ms         BIGINT NOT NULL,
    task_key      INTEGER NOT NULL REFERENCES tasks (key) ON DELETE CASCADE,
    lease_id      TEXT,
    agent_id      TEXT NOT NULL,
    filename      TEXT NOT NULL,
    artifact_type TEXT NOT NULL,
    description   TEXT NOT NULL,
    location      TEXT,
    content       TEXT
);
CREATE INDEX artifacts_of_task ON artifacts (task_key, seq);

CREATE TABLE events (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms      BIGINT NOT NULL,
    kind       TEXT NOT NULL,
    project_id TEXT,
    task_key   INTEGER,
    task_id    TEXT,
    lease_id   TEXT,
    agent_id   TEXT,
    data       TEXT NOT NULL
);
CREATE INDEX events_of_task ON events (task_key, seq) WHERE task_key IS NOT NULL;

-- Totals that must outlive the events they count.
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);

-- The ledger. Receipts outlive their task's deletion and are never updated.
CREATE TABLE receipts (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    receipt_id  TEXT NOT NULL UNIQUE,
    project_id  TEXT NOT NULL,
    task_key    INTEGER NOT NULL,
    task_id     TEXT NOT NULL,
    position    INTEGER NOT NULL,
    phase       TEXT NOT NULL CHECK (phase IN ('accepted', 'progress', 'complete', 'escalate')),
    at_ms       BIGINT NOT NULL,
    lease_id    TEXT,
    dedupe_key  TEXT,
    content_key TEXT NOT NULL,
    principal   TEXT NOT NULL,
    body        TEXT NOT NULL,
    prev_hash   TEXT NOT NULL,
    hash        TEXT NOT NULL,
    UNIQUE (task_key, position)
);
CREATE UNIQUE INDEX receipts_dedupe ON receipts (project_id, dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE INDEX receipts_of_task ON receipts (task_id, seq);

-- What a deleted task leaves behind, so that its chain can still be verified and a task of the same name never reissues
-- one of its tokens.
CREATE TABLE graves (
    task_key      INTEGER PRIMARY KEY,
    project_id    TEXT NOT NULL,
    task_id       TEXT NOT NULL,
    last_token    BIGINT NOT NULL,
    receipt_count INTEGER NOT NULL,
    receipt_hash  TEXT NOT NULL,
    deleted_at_ms BIGINT NOT NULL
);
CREATE INDEX graves_named ON graves (task_id, project_id);

-- Tasks that live in other systems and whose receipts are kept here, because this store is their ReceiptGate. Their
-- receipts carry the negative of `key`, so that no chain is ever taken for that of a task of our own.
CREATE TABLE foreign_tasks (
    key           INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id    TEXT NOT NULL,
    task_id       TEXT NOT NULL,
    receipt_count INTEGER NOT NULL DEFAULT 0,
    receipt_hash  TEXT NOT NULL DEFAULT '',
    UNIQUE (project_id, task_id)
);

-- The outbox: how far our ledger has been delivered to an external ReceiptGate, and how far its ledger has been read.
CREATE TABLE gates (
    project_id TEXT NOT NULL,
    gate       TEXT NOT NULL,
    sent_seq   BIGINT NOT NULL DEFAULT 0,
    read_seq   BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (project_id, gate)
);

-- The receipts of ours that are not sent to a gate: it refused them for good, or they came from there.
CREATE TABLE gate_receipts (
    project_id TEXT NOT NULL,
    gate       TEXT NOT NULL,
    receipt_id TEXT NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('parked', 'taken')),
    detail     TEXT NOT NULL,
    at_ms      BIGINT NOT NULL,
    PRIMARY KEY (project_id, gate, receipt_id)
);
CREATE INDEX gate_receipts_parked ON gate_receipts (project_id, gate) WHERE state = 'parked';

CREATE TABLE seals (
    seal_id   INTEGER PRIMARY KEY AUTOINCREMENT,
    first_seq BIGINT NOT NULL,
    last_seq  BIGINT NOT NULL,
    at_ms     BIGINT NOT NULL,
    prev_hash TEXT NOT NULL,
    hash      TEXT NOT NULL
);

INSERT INTO projects (project_id, name, settings, created_at_ms) VALUES ('default', 'default', '{}', 0);
INSERT INTO meta (key, value) VALUES ('settings', '{}');
-- The oldest schema version whose binaries may still write here.
INSERT INTO meta (key, value) VALUES ('oldest_writer', '1');
