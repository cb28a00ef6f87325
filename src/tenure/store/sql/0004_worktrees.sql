-- Where agents work, and what a handoff still has to be told about it.

ALTER TABLE agents ADD COLUMN host TEXT NOT NULL DEFAULT '';

-- As they were when the lease ended: the agent may since work elsewhere.
ALTER TABLE handoffs ADD COLUMN worktree TEXT NOT NULL DEFAULT '';
ALTER TABLE handoffs ADD COLUMN host TEXT NOT NULL DEFAULT '';
-- 1 while somebody on that host should look at git.
ALTER TABLE handoffs ADD COLUMN look INTEGER NOT NULL DEFAULT 0;
ALTER TABLE handoffs ADD COLUMN looked_at_ms BIGINT NOT NULL DEFAULT 0;
CREATE INDEX handoffs_of_agent ON handoffs (recovered_from_agent, handoff_id);
CREATE INDEX handoffs_to_look_at ON handoffs (host, handoff_id) WHERE look = 1;
