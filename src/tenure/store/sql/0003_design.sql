-- What the reserved owner has to do now, by when it may be begun: the design runner looks at one row of it.
CREATE INDEX tasks_internal ON tasks (retry_at_ms, key) WHERE owner = 'internal' AND status = 'in_progress' AND unmet = 0;
