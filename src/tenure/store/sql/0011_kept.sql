-- Work kept for agents, by project first: whether a project has any is then one seek.
DROP INDEX tasks_kept;
CREATE INDEX tasks_kept ON tasks (project_id, assigned_to, rank_ms)
    WHERE status = 'todo' AND owner = 'agent' AND unmet = 0 AND waiting = 0;
