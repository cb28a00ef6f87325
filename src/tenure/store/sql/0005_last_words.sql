-- What a process printed last and how it ended, told by whoever watched it, and kept in the handoff that it leaves.
ALTER TABLE links ADD COLUMN exited TEXT NOT NULL DEFAULT '';
ALTER TABLE links ADD COLUMN output_tail TEXT NOT NULL DEFAULT '';
ALTER TABLE handoffs ADD COLUMN exited TEXT NOT NULL DEFAULT '';
ALTER TABLE handoffs ADD COLUMN output_tail TEXT NOT NULL DEFAULT '';

CREATE INDEX links_last_words ON links (agent_id, linked_at_ms) WHERE exited <> '';
-- The processes that one host can watch.
CREATE INDEX links_watched ON links (boot_id, pid_ns) WHERE state = 'up' AND pid > 0;
