-- The last signs of life under a lease: "gap/allowed" in tenths of a second for each call of its holder, newest last.
-- A touch writes its lease's row anyway, so a picture of a holder's silences costs no row and no index of its own.
ALTER TABLE leases ADD COLUMN signs TEXT NOT NULL DEFAULT '';

-- An agent's past leases in time, for its timeline.
CREATE INDEX leases_past ON leases (agent_id, granted_at_ms) WHERE state NOT IN ('offered', 'active');
