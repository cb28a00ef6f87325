"""Git plumbing: worktrees and branches of agents, rescue of uncommitted work, what git shows of a lost holder."""
