"""The table of commands: all there are, with their words, options and examples. Help, completion and docs read it."""

from __future__ import annotations

from tenure.surfaces.cli.spec import Argument, Command, Option
from tenure.surfaces.cli.touch import AGENT, HOOKED
from tenure.surfaces.cli.touch import COMMAND as TOUCH

HERE = "tenure.surfaces.cli."
TASK = Argument(name="TASK", help="The task's id.")
PRIORITIES = ("critical", "high", "medium", "low")
COMPLEXITIES = ("none", "simple", "complex", "research", "epic")
STATUSES = ("todo", "in_progress", "blocked", "done", "dead", "ready")

_LEASE = Option(name="--lease", value="ID", help="The lease you mean (default: TENURE_LEASE).", aliases=("--lease-id",))
_FULL = Option(name="--full", help="Long messages whole.")
_FORCE = Option(name="--force", help="As an operator, although you do not hold it; this is recorded.")
_MESSAGE = Option(
    name="--message",
    value="TEXT",
    help="A note for the task's thread; - reads standard input.",
    aliases=("--comment", "--note", "--reason", "-m"),
)
_NEWEST = Option(
    name="--from", value="CURSOR", help="Go on forward after this cursor (default: the newest page).", kind="int"
)
_LIMIT = Option(name="--limit", value="N", help="How many to show.", kind="int", aliases=("-n",))
_AFTER_KEY = Option(name="--from", value="CURSOR", help="Go on after this cursor, from the last page.", kind="int")
_TTL = Option(
    name="--ttl",
    value="TIME",
    help="How long the lease lasts: 5m, 1h, 90s, PT5M; 1 s to 7 d (default: TENURE_LEASE_TTL, else 15m).",
    kind="ttl",
)
_NEW_TTL = Option(
    name="--ttl",
    value="TIME",
    help="Change how long the lease lasts, now and at later renewals (default: it keeps its own TTL).",
    kind="ttl",
)
_CAPABILITIES = Option(
    name="--capability",
    value="NAME",
    help="A capability you have; tasks that require others are left out (default: the skills you joined with).",
    many=True,
    aliases=("--capabilities", "--skill", "--skills"),
)
_PROFILE = Option(
    name="--profile", value="NAME", help="The rules of the lease: cli (default), agent, worker, or your own."
)
_KEY = Option(
    name="--idempotency-key",
    value="KEY",
    help="Repeating the request with this key gives the same lease.",
    aliases=("--key",),
)
_TASK_OPTIONS = (
    Option(
        name="--body",
        value="TEXT",
        help="What is to be done; - reads standard input.",
        aliases=("--description", "--desc", "-b"),
    ),
    Option(name="--body-file", value="FILE", help="A file that says what is to be done.", aliases=("-F",)),
    Option(
        name="--priority", value="LEVEL", help="critical, high, medium or low.", choices=PRIORITIES, aliases=("-p",)
    ),
    Option(name="--complexity", value="LEVEL", help="none, simple, complex, research or epic.", choices=COMPLEXITIES),
    Option(name="--kind", value="KIND", help="The task type, such as code.generate.", aliases=("--type", "-t")),
    Option(name="--estimate", value="HOURS", help="Estimated hours.", kind="number", aliases=("--estimated-hours",)),
    Option(name="--requires", value="NAME", help="A capability the holder must have.", many=True),
    Option(name="--lease-duration", value="TIME", help="How long leases on it last.", kind="ttl"),
    Option(name="--max-attempts", value="N", help="Attempts before it is dead.", kind="int"),
    Option(name="--not-before", value="TIME", help="Not before this moment (RFC 3339), day, or this long from now."),
    Option(
        name="--assign", value="NAME", help="Keep it for an agent, or give it to a person.", aliases=("--assignee",)
    ),
)
_AFTER = Option(
    name="--after",
    value="TASK",
    help="A task that must be done first.",
    many=True,
    aliases=("--blocked-by", "--depends-on", "--needs", "--dep", "--deps"),
)
_RESCUE = Argument(name="NAME", help="A task (its newest rescue), TASK/TOKEN, or the whole ref.")
_TTL_NOTES = """Recommended TTLs:
  Quick fix        5-10m
  Standard task    15-30m
  Complex feature  1h
  Large refactor   2h"""


def _command(path: str, run: str, summary: str, *examples: str, **more: object) -> Command:
    return Command(path=path, run=HERE + run, summary=summary, examples=examples, **more)  # type: ignore[arg-type]


_TOOLS = Option(
    name="--tools",
    value="SET",
    help="Which MCP tools: agent (the default), worker, or all.",
    choices=("agent", "worker", "all"),
)

COMMANDS: tuple[Command, ...] = (
    _command(
        "init",
        "setup:init",
        "Make a store for this repository (or folder), shared by all its worktrees.",
        "tenure init",
    ),
    _command(
        "setup",
        "setup:setup",
        "Set up a coding agent (MCP server, hooks) or git (pre-push) to work with Tenure.",
        "tenure setup claude-code",
        "tenure setup codex --user",
        "tenure setup git",
        "tenure setup git --check",
        "tenure setup git --server --store /srv/tenure.db",
        arguments=(Argument(name="CLIENT", help="claude-code, codex, gemini, opencode, cursor or git."),),
        options=(
            Option(name="--check", help="Change nothing; say what is set up and what differs.", aliases=("--dry-run",)),
            Option(name="--remove", help="Take it out again: every file is as it was.", aliases=("--uninstall",)),
            Option(name="--user", help="For all of your projects instead of this one.", aliases=("--global",)),
            Option(name="--server", help="git: the pre-receive hook of a bare repository, which enforces."),
        ),
        notes="""Setting up twice changes nothing. What else is in a file stays as it is, comments included. Hooks have
a time limit and never fail: a coding agent is not held up. See docs/clients.md for each client's files.""",
        aliases=("install",),
    ),
    _command("status", "overview:status", "How things stand: tasks, agents, claims.", "tenure status"),
    _command(
        "ready",
        "overview:ready",
        "What can be claimed now, best first.",
        "tenure ready",
        "tenure ready -n 5",
        options=(_LIMIT,),
    ),
    _command(
        "next",
        "tasks:take_next",
        "Claim the best ready task.",
        "tenure next --agent A1234ABCD",
        options=(
            AGENT,
            _TTL,
            _PROFILE,
            _CAPABILITIES,
            _KEY,
            Option(
                name="--prefer",
                value="KIND",
                help="A kind you would rather have.",
                many=True,
                aliases=("--kind", "--preferred-kinds"),
            ),
        ),
        aliases=("task next", "task claim-next", "claim-next"),
    ),
    _command(
        "why",
        "overview:why",
        "Why a task is where it is, and why it is or is not given out.",
        "tenure why F001",
        "tenure why F001 --agent A1234ABCD",
        arguments=(TASK,),
        options=(AGENT, _CAPABILITIES),
        aliases=("task why", "explain"),
    ),
    _command(
        "doctor",
        "doctor:doctor",
        "Check the store, the clock, worktrees, the ledger and gridlock.",
        "tenure doctor",
        "tenure doctor --fix",
        options=(Option(name="--fix", help="Repair what can be repaired."),),
        aliases=("check",),
    ),
    _command(
        "watch",
        "watch:watch",
        "Watch the board, countdowns and recoveries live (ends with Ctrl-C).",
        "tenure watch",
        options=(
            Option(name="--once", help="Draw once and end."),
            Option(name="--interval", value="TIME", help="How often to look (default 1s).", kind="interval"),
        ),
    ),
    TOUCH,
    _command(
        "prime",
        "prime:prime",
        "The working loop, for an agent that starts here.",
        "tenure prime",
        options=(
            Option(
                name="--hook",
                value="CLIENT",
                help="As a coding agent's hook: in the form it reads, and nothing where there is no store.",
                choices=HOOKED,
            ),
        ),
    ),
    _command(
        "agent join",
        "agents:join",
        "Register an agent that works in this folder.",
        "tenure agent join --name Ada",
        "tenure agent join --id A1234ABCD --name Ada",
        options=(
            Option(name="--id", value="ID", help="Its id (default: a new one).", aliases=("--agent", "--agent-id")),
            Option(name="--name", value="NAME", help="Its name."),
            Option(name="--role", value="ROLE", help="What it does."),
            Option(name="--skill", value="NAME", help="Something it can do.", many=True, aliases=("--skills",)),
            Option(name="--pid", value="PID", help="Its process, for a server on this host to watch.", kind="int"),
        ),
        aliases=("join", "agent register", "register", "agent add"),
    ),
    _command(
        "agent list",
        "agents:list_agents",
        "The agents.",
        "tenure agent list",
        options=(_LIMIT,),
        aliases=("agents", "agent ls"),
    ),
    _command(
        "agent show",
        "agents:show",
        "One agent: what it holds, its links.",
        "tenure agent show A1234ABCD",
        arguments=(Argument(name="AGENT", help="Its id (default: you).", required=False),),
        options=(AGENT,),
        aliases=("whoami", "agent whoami"),
    ),
    _command(
        "agent leave",
        "agents:leave",
        "Leave: what the agent holds is on offer at once.",
        "tenure agent leave --agent A1234ABCD",
        options=(AGENT, _MESSAGE),
        aliases=("leave", "agent remove"),
    ),
    _command(
        "task add",
        "tasks:add",
        "Add a task.",
        'tenure task add "Implement login" --id F001 --priority high',
        'tenure task add "Test login" --id F002 --after F001',
        arguments=(Argument(name="TITLE", help="What the task is called."),),
        options=(
            Option(name="--id", value="ID", help="Its id (default: a new one).", aliases=("--task", "--task-id")),
            _AFTER,
            *_TASK_OPTIONS,
            Option(
                name="--slots", value="N", help="How many may hold it at once; the first to finish wins.", kind="int"
            ),
            Option(name="--allow-missing", help="Allow --after to name tasks that do not exist yet."),
        ),
        aliases=("new", "add", "create", "task new", "task create"),
    ),
    _command(
        "task list",
        "tasks:list_tasks",
        "The tasks.",
        "tenure task list",
        "tenure task list --status blocked",
        options=(
            Option(
                name="--status",
                value="STATUS",
                help="Only this status, or what is ready.",
                choices=STATUSES,
                aliases=("-s",),
            ),
            Option(name="--kind", value="KIND", help="Only this kind.", aliases=("--type",)),
            Option(
                name="--assigned-to",
                value="NAME",
                help="Only what is assigned to this name.",
                aliases=("--assignee", "--owner"),
            ),
            Option(
                name="--search", value="TEXT", help="Only where id or title contain this.", aliases=("--grep", "--text")
            ),
            _LIMIT,
            _AFTER_KEY,
        ),
        aliases=("list", "ls", "tasks", "task ls"),
    ),
    _command(
        "task show",
        "tasks:show",
        "Everything about one task.",
        "tenure task show F001",
        arguments=(TASK,),
        aliases=("show", "task get", "task view"),
    ),
    _command(
        "task claim",
        "tasks:claim",
        "Claim a task.",
        "tenure task claim F001 --agent A1234ABCD",
        "tenure task claim F001 --agent A1234ABCD --ttl 5m",
        arguments=(TASK,),
        options=(AGENT, _TTL, _PROFILE, _CAPABILITIES, _KEY),
        notes=_TTL_NOTES,
        aliases=("claim", "task take", "task start"),
    ),
    _command(
        "task renew",
        "tasks:renew",
        "Extend your lease on a task.",
        "tenure task renew F001",
        "tenure task renew F001 --progress 40",
        arguments=(TASK, Argument(name="PERCENT", help="How far you are, like --progress.", required=False)),
        options=(
            AGENT,
            _LEASE,
            _NEW_TTL,
            Option(name="--progress", value="PERCENT", help="Report how far you are.", kind="int"),
            _MESSAGE,
            Option(
                name="--expect-silence",
                value="TIME",
                help="Announce a silence, such as 10m; your next call ends it (at most tenure.silence_cap_s).",
                kind="duration",
                aliases=("--silence",),
            ),
        ),
        aliases=("renew", "task extend", "task report", "task progress", "report"),
    ),
    _command(
        "task release",
        "tasks:release",
        "Give a task back.",
        'tenure task release F001 --message "blocked on API credentials"',
        arguments=(TASK,),
        options=(AGENT, _LEASE, _MESSAGE, _FORCE),
        aliases=("release", "task unclaim"),
    ),
    _command(
        "task done",
        "tasks:done",
        "Mark a task done.",
        "tenure task done F001",
        arguments=(TASK,),
        options=(
            AGENT,
            _LEASE,
            _MESSAGE,
            Option(name="--artifact", value="PLACE", help="Where the result is."),
            _FORCE,
        ),
        aliases=("done", "close", "complete", "finish", "task close", "task complete", "task finish"),
    ),
    _command(
        "task block",
        "tasks:block",
        "Say that a task cannot go on; this ends the lease.",
        'tenure task block F001 --message "no credentials"',
        arguments=(TASK, Argument(name="REASON", help="Why, like --message.", required=False)),
        options=(
            AGENT,
            _LEASE,
            _MESSAGE,
            Option(name="--severity", value="LEVEL", help="low, medium or high.", choices=("low", "medium", "high")),
            _FORCE,
        ),
        aliases=("block",),
    ),
    _command(
        "task unblock",
        "tasks:unblock",
        "Put a blocked task back into the queue.",
        "tenure task unblock F001",
        arguments=(TASK,),
        options=(AGENT, _MESSAGE),
        aliases=("unblock",),
    ),
    _command(
        "task update",
        "tasks:update",
        "Change what a task says about itself.",
        "tenure task update F001 --priority critical",
        arguments=(TASK,),
        options=(
            Option(name="--title", value="TEXT", help="A new title."),
            *_TASK_OPTIONS,
            Option(name="--unassign", help="Assign it to nobody."),
        ),
        aliases=("update", "task edit", "edit"),
    ),
    _command(
        "task depend",
        "tasks:depend",
        "Make a task wait for others, or no longer.",
        "tenure task depend F002 --after F001",
        "tenure task depend F002 --remove F001",
        arguments=(TASK,),
        options=(
            _AFTER,
            Option(name="--remove", value="TASK", help="No longer wait for this.", many=True),
            Option(name="--allow-missing", help="Allow tasks that do not exist yet."),
        ),
        aliases=("depend", "task dep", "dep add"),
    ),
    _command(
        "task graph",
        "drawing:graph",
        "What waits for what, as a tree (or mermaid, dot).",
        "tenure task graph",
        "tenure task graph --format mermaid",
        arguments=(Argument(name="TASK", help="Only around this task.", required=False),),
        options=(
            Option(
                name="--format",
                value="FORMAT",
                help="text, json, mermaid or dot.",
                choices=("text", "json", "mermaid", "dot"),
                aliases=("-o",),
            ),
        ),
        aliases=("graph",),
    ),
    _command(
        "task requeue",
        "tasks:requeue",
        "Give a dead, blocked or waiting task a new start.",
        "tenure task requeue F001",
        arguments=(TASK,),
        aliases=("requeue", "task retry", "retry"),
    ),
    _command(
        "task reopen",
        "tasks:reopen",
        "Reopen a done task; its dependants wait for it again.",
        "tenure task reopen F001",
        arguments=(TASK,),
        options=(_MESSAGE,),
        aliases=("reopen",),
    ),
    _command(
        "task delete",
        "tasks:delete",
        "Delete a task; its receipts stay.",
        "tenure task delete F001",
        arguments=(TASK,),
        options=(_FORCE,),
        aliases=("delete", "task rm", "task remove"),
    ),
    _command(
        "msg send",
        "messages:send",
        "Write to a task's thread, or to an agent.",
        'tenure msg send --task F001 --from A1234ABCD --text "Released: blocked on API credentials"',
        'tenure msg send F001 "the parser is half done"',
        arguments=(
            Argument(name="TASK", help="The task whose thread it goes to, like --task.", required=False),
            Argument(name="TEXT", help="The message, like --text.", required=False),
        ),
        options=(
            Option(name="--task", value="TASK", help="The task whose thread it goes to.", aliases=("--task-id",)),
            Option(name="--to", value="AGENT", help="The agent it goes to."),
            Option(
                name="--from", value="AGENT", help="Who writes (default: you).", aliases=("--agent", "--sender", "--as")
            ),
            Option(
                name="--text",
                value="TEXT",
                help="The message; - reads standard input.",
                aliases=("--message", "--body", "-m"),
            ),
        ),
        aliases=("message", "comment", "msg", "msg add"),
    ),
    _command(
        "msg thread",
        "messages:thread",
        "A task's thread.",
        "tenure msg thread F001",
        arguments=(TASK,),
        options=(_LIMIT, _FULL),
        aliases=("thread", "msg list", "comments"),
    ),
    _command(
        "msg inbox",
        "messages:inbox",
        "What was sent to you.",
        "tenure msg inbox --agent A1234ABCD",
        options=(AGENT, _LIMIT, Option(name="--keep", help="Leave it unread.")),
        aliases=("inbox",),
    ),
    _command(
        "receipts list",
        "ledger:list_receipts",
        "The ledger: its newest page.",
        "tenure receipts list --task F001",
        options=(
            Option(name="--task", value="TASK", help="Only this task's."),
            Option(
                name="--phase",
                value="PHASE",
                help="accepted, progress, complete or escalate.",
                choices=("accepted", "progress", "complete", "escalate"),
            ),
            _LIMIT,
            _NEWEST,
        ),
        aliases=("receipts",),
    ),
    _command(
        "receipts show",
        "ledger:show_receipt",
        "One receipt.",
        "tenure receipts show 01KDVDNA00VASRN8Y8BBAP5DX9",
        arguments=(Argument(name="RECEIPT", help="Its id."),),
        aliases=("receipt",),
    ),
    _command(
        "receipts verify",
        "ledger:verify",
        "Check every hash chain and seal of the ledger.",
        "tenure receipts verify",
        options=(Option(name="--task", value="TASK", help="Only this task's chain."),),
        aliases=("verify",),
    ),
    _command(
        "events",
        "ledger:events",
        "What happened last, in order.",
        "tenure events",
        "tenure events --from 120",
        "tenure events --follow",
        options=(
            _LIMIT,
            _NEWEST,
            Option(name="--follow", help="Go on with new ones as they come (ends with Ctrl-C).", aliases=("-f",)),
            Option(name="--task", value="TASK", help="Only this task."),
            Option(name="--agent", value="ID", help="Only this agent."),
        ),
        aliases=("log", "history"),
    ),
    _command(
        "export",
        "transfer:export",
        "Write tasks and what was said about them as JSON lines.",
        "tenure export > tasks.jsonl",
        options=(Option(name="--output", value="FILE", help="Write to this file instead of standard output."),),
        notes="""Exported: projects with their settings; tasks with state, dependencies and assignment; messages in
threads, decisions, artifacts, and receipts for reading. Not exported: leases, agents, inboxes, handoffs, events, seals.
It is for moving tasks, and not a backup: for that, copy the store's .db file (sqlite3 tenure.db ".backup copy.db").""",
    ),
    _command(
        "import",
        "transfer:import_",
        "Read JSON lines written by export, or one task per line.",
        "tenure import tasks.jsonl",
        arguments=(Argument(name="FILE", help="The file, or - for standard input."),),
        notes="""What is there already is skipped. A task that was held comes in as todo, with its progress. An
assignment stays for the reserved owner, a person, or an agent that is registered here. Receipts are never imported: a
ledger is written by its own store alone. A task's line needs a title; it may have task_id (or id), body (or
description), after (or depends_on, blocked_by), priority, kind, requires, status and what else export writes.""",
    ),
    _command(
        "store copy",
        "store:copy",
        "Copy a whole store into an empty one: a file to PostgreSQL, or back.",
        "tenure store copy .git/tenure/tenure.db postgresql://tenure@db.example/tenure",
        arguments=(
            Argument(name="FROM", help="The store to copy: a path or an address."),
            Argument(name="TO", help="The store to make: a path or an address. It must be empty."),
        ),
        notes="""Everything is copied, live leases included, and the ledger is verified in the copy. What is written to
the old store meanwhile is not: stop its servers first. The old store stays as it is.""",
    ),
    _command(
        "store check",
        "store:check",
        "Check the store's tables and its ledger.",
        "tenure store check --store postgresql://tenure@db.example/tenure",
    ),
    _command(
        "project add",
        "projects:add",
        "Make a project: a namespace of tasks with settings of its own.",
        "tenure project add website",
        arguments=(Argument(name="ID", help="Its id."),),
        options=(Option(name="--name", value="NAME", help="Its name."),),
        aliases=("project new", "project create"),
    ),
    _command(
        "project list",
        "projects:list_projects",
        "The projects.",
        "tenure project list",
        aliases=("projects", "project ls"),
    ),
    _command(
        "config show",
        "settings:show",
        "The settings and profiles in force.",
        "tenure config show",
        "tenure config show task_lease.max_renewals",
        arguments=(Argument(name="NAME", help="One setting, section or profile.", required=False),),
        aliases=("config", "config get", "config list"),
    ),
    _command(
        "config set",
        "settings:set_",
        "Change one setting.",
        "tenure config set task_lease.max_renewals 20",
        arguments=(
            Argument(name="SETTING", help="Its name, such as task_lease.max_renewals."),
            Argument(name="VALUE", help="The new value, as JSON."),
        ),
    ),
    _command(
        "config import",
        "settings:import_",
        "Take the settings of a JSON or TOML file.",
        "tenure config import tenure.toml",
        arguments=(Argument(name="FILE", help="The file."),),
    ),
    _command(
        "worktree list",
        "worktrees:list_",
        "The worktrees of this repository: who works in them, and what is in them.",
        "tenure worktree list",
        aliases=("worktrees", "worktree ls"),
    ),
    _command(
        "worktree add",
        "worktrees:add",
        "Give an agent a worktree and a branch of its own; one that it has is used again.",
        "tenure worktree add ada",
        "tenure worktree add ada --base origin/main --path ../ada",
        arguments=(Argument(name="AGENT_ID", help="The agent's id; it need not have joined."),),
        options=(
            Option(name="--base", value="REVISION", help="What a new branch begins from (default: the base branch)."),
            Option(name="--path", value="PATH", help="The folder (default: <repository>.worktrees/AGENT_ID)."),
        ),
    ),
    _command(
        "worktree remove",
        "worktrees:remove",
        "Remove a worktree: uncommitted work is saved first, and its branch stays.",
        "tenure worktree remove ada",
        arguments=(Argument(name="WORKTREE", help="Its path, its branch, or its agent."),),
        options=(Option(name="--force", help="Also when it holds files that a rescue does not save."),),
        aliases=("worktree rm",),
    ),
    _command(
        "worktree prune",
        "worktrees:prune",
        "Remove the worktrees of agents that hold nothing and whose work is merged.",
        "tenure worktree prune",
        "tenure worktree prune --all",
        options=(Option(name="--all", help="Also those with unmerged or uncommitted work, which is saved first."),),
    ),
    _command(
        "rescue list",
        "rescues:list_",
        "Uncommitted work that was saved from lost holders.",
        "tenure rescue list",
        "tenure rescue list F001",
        arguments=(Argument(name="TASK", help="Only of this task.", required=False),),
        aliases=("rescues", "rescue ls"),
    ),
    _command(
        "rescue show",
        "rescues:show",
        "What one rescue changes.",
        "tenure rescue show F001",
        "tenure rescue show F001/1767541500000 --patch",
        arguments=(_RESCUE,),
        options=(Option(name="--patch", help="The changes themselves.", aliases=("-p",)),),
    ),
    _command(
        "rescue apply",
        "rescues:apply",
        "Bring a rescue into this worktree, as uncommitted changes.",
        "tenure rescue apply F001/1767541500000",
        arguments=(_RESCUE,),
    ),
    _command(
        "rescue drop",
        "rescues:drop",
        "Forget one rescue.",
        "tenure rescue drop F001/1767541500000",
        arguments=(_RESCUE,),
    ),
    _command(
        "board connect",
        "boards:connect",
        "Connect the project with an external board: check the mapping, then bring both into step.",
        "tenure board connect kanboard --url http://127.0.0.1:8080 --token TOKEN --board WEB",
        "tenure board connect kanboard --url http://127.0.0.1:8080 --board 3 --column 'Triage=todo' --dry-run",
        arguments=(Argument(name="KIND", help="The kind of board: kanboard."),),
        options=(
            Option(name="--url", value="URL", help="Where the board is."),
            Option(name="--token", value="TOKEN", help="Its API token (default: TENURE_BOARD_TOKEN, then not kept)."),
            Option(name="--board", value="NAME", help="The board's project: its number, identifier or name."),
            Option(
                name="--column", value="NAME=STATUS", help="What a column means, if its name does not say.", many=True
            ),
            Option(name="--user", value="NAME=AGENT", help="Which agent a name on the board is.", many=True),
            Option(name="--priority", value="NAME=NUMBER", help="A priority's number on the board.", many=True),
            Option(name="--webhook-token", value="TOKEN", help="The token with which the board calls /boards/webhook."),
            Option(name="--dry-run", help="Only report what would fit and what not."),
        ),
    ),
    _command(
        "board check",
        "boards:check",
        "Whether the board can be reached, fits, and agrees; what waits and what is parked.",
        "tenure board check",
    ),
    _command("board list", "boards:list_boards", "Every connected board, with what waits.", "tenure board list"),
    _command("board retry", "boards:retry", "Try parked writes again.", "tenure board retry"),
    _command("board disconnect", "boards:disconnect", "Forget the board; its cards stay.", "tenure board disconnect"),
    _command(
        "reconcile",
        "boards:reconcile",
        "Bring board and engine into step now, and say what was done.",
        "tenure reconcile",
        options=(Option(name="--believe", help="Believe a board that lost most of its cards: they were deleted."),),
        aliases=("board reconcile", "force_reconciliation"),
    ),
    _command(
        "gate status",
        "gates:status",
        "External gates: what was sent, what waits, and which receipts are parked and why.",
        "tenure gate",
        "tenure gate --project ours --json",
        aliases=("gate", "gates", "gate list"),
    ),
    _command(
        "gate resend",
        "gates:resend",
        "Have the gate's parked receipts sent again, once what kept it from taking them is gone.",
        "tenure gate resend",
        "tenure gate resend --receipt 01HTZQX7Y8Z9A0B1C2D3E4F5G6",
        options=(Option(name="--receipt", value="ID", help="Only this one.", aliases=("--receipt-id",)),),
        aliases=("gate retry",),
    ),
    _command(
        "up",
        "server:up",
        "Start the server: HTTP for workers, with the monitors inside.",
        "tenure up",
        "tenure up --port 8000",
        options=(
            Option(name="--host", value="HOST", help="Where to listen (default 127.0.0.1)."),
            Option(name="--port", value="PORT", help="The port (default 7420; 0 for any free one).", kind="int"),
            Option(name="--tokens", value="FILE", help="Tokens to demand; needed to listen beyond this machine."),
            _TOOLS,
        ),
        aliases=("serve", "server"),
    ),
    _command(
        "mcp",
        "mcp:mcp",
        "Speak MCP on standard input and output, for a coding agent that starts it.",
        "tenure mcp",
        "tenure mcp --tools all",
        options=(_TOOLS,),
        notes="""It works on the store itself and needs no server. TENURE_AGENT says which agent is meant when a call
does not, TENURE_INCARNATION which run of it (tenure run sets both).""",
    ),
    _command(
        "worker",
        "worker:work",
        "Work for a server: run a program for every task of some types.",
        "tenure worker --kind shell.run -- ./script.sh",
        "tenure worker --kind code.generate --kind code.refactor --concurrency 4 -- python3 generate.py",
        arguments=(Argument(name="COMMAND", help="The program and its arguments, after --.", many=True),),
        options=(
            Option(name="--kind", value="KIND", help="A task type it does.", many=True, aliases=("--task-type", "-t")),
            Option(name="--url", value="URL", help="The server (default: TENURE_URL, else http://127.0.0.1:7420)."),
            Option(name="--type", value="NAME", help="The first part of the worker's id (default: worker)."),
            Option(name="--instance", value="NAME", help="The second part (default: this host and process)."),
            _CAPABILITIES,
            Option(name="--concurrency", value="N", help="How many at once (default 1).", kind="int", aliases=("-n",)),
            Option(name="--limit", value="N", help="End after so many tasks.", kind="int"),
            Option(
                name="--drain", value="TIME", help="How long to finish after SIGTERM (default 30s).", kind="duration"
            ),
        ),
        notes="""The task comes as JSON on standard input. Standard output is the result: a JSON object of outcome
fields (outcome_text, artifact_location, artifact_mime, message, metadata, ...) or any text. Exit status 0 is
success, any other failure. TENURE_TASK, TENURE_LEASE and TENURE_URL are set; a token is taken from TENURE_TOKEN.""",
    ),
    _command(
        "run",
        "run:run",
        "Run a coding agent or any command as an agent, and watch its process.",
        "tenure run --task F001 -- make build",
        "tenure run --agent ada --next --worktree -- claude",
        "tenure run --hold --timeout 20m -- make test",
        arguments=(Argument(name="COMMAND", help="The program and its arguments, after --.", many=True),),
        options=(
            AGENT,
            Option(name="--task", value="TASK", help="Claim this task for it.", aliases=("--task-id",)),
            Option(name="--next", help="Claim the best ready task for it."),
            Option(name="--wait", value="TIME", help="With --next: wait so long for one.", kind="duration"),
            Option(name="--worktree", help="Give it a worktree and a branch of its own, and run it there."),
            Option(name="--base", value="REVISION", help="With --worktree: what a new branch begins from."),
            Option(name="--hold", help="Keep the leases you hold while a long command of yours runs."),
            Option(
                name="--timeout",
                value="TIME",
                help="End it after this long (status 124); until then its silence is vouched for.",
                kind="duration",
            ),
            Option(name="--no-complete", help="Release the task after exit status 0, unless 100% was reported."),
            Option(
                name="--on-lost",
                value="WHAT",
                help="When the lease is lost: stop it, or only tell (default on a terminal).",
                choices=("stop", "tell"),
            ),
            _CAPABILITIES,
            Option(name="--prefer", value="KIND", help="With --next: a kind you would rather have.", many=True),
            Option(
                name="--url", value="URL", help="What to export as TENURE_URL (default: TENURE_URL, else this host's)."
            ),
            Option(name="--quiet", help="Say nothing but what went wrong.", aliases=("-q",)),
        ),
        notes="""The program finds TENURE_AGENT, TENURE_INCARNATION, TENURE_URL and TENURE_STORE in its environment, and
with a task TENURE_TASK and TENURE_LEASE. Exit status 0 completes the task if the program reported 100% or never called
at all; any other end gives it back with the last lines of output. The exit status is the program's.""",
    ),
    _command(
        "demo",
        "setup:demo",
        "Watch three agents work, and one of them being killed: real processes, worktrees and commits.",
        "tenure demo",
        "tenure demo --store .git/tenure/tenure.db",
        notes="""It takes less than half a minute and works in a temporary repository. With --store it keeps its tasks
in that store, in a project of its own: a server on it, and what it shows, takes part.""",
    ),
    _command(
        "replay",
        "replay:replay",
        "Replay traces of real agents through the rules: false recoveries and latency.",
        "tenure replay silences.csv.gz",
        "tenure replay silences.csv.gz --set tenure.hung_after_s=900 --json",
        arguments=(Argument(name="FILE", help="A trace: CSV, packed with gzip or not."),),
        options=(
            Option(
                name="--set",
                value="SETTING=VALUE",
                help="Another value for a setting, for this replay only.",
                many=True,
            ),
        ),
        notes="""The settings of this store are used, or the defaults where there is none. Three rules are compared:
unlinked, linked, linked_announced. See docs/replay.md for the model and the columns of the file.""",
    ),
    _command(
        "hook pre-push",
        "guard:pre_push",
        "What git's pre-push hook asks: may this agent push these refs?",
        "tenure hook pre-push origin git@example.com:repository.git < refs",
        arguments=(
            Argument(name="REMOTE", help="The remote's name.", required=False),
            Argument(name="URL", help="Its address.", required=False),
        ),
        notes="Installed by: tenure setup git. Reads the refs from standard input, as git gives them.",
    ),
    _command(
        "hook pre-receive",
        "guard:pre_receive",
        "What a server's pre-receive hook asks: does the push carry the token of a live lease?",
        "tenure hook pre-receive --store /srv/tenure.db < refs",
        notes="Installed by: tenure setup git --server. Reads the refs from standard input, as git gives them.",
    ),
    _command("tour", "setup:tour", "A short tour of the engine, on a manual clock.", "tenure tour"),
    _command(
        "completion",
        "completion:completion",
        "Shell completion for bash, zsh or fish.",
        'eval "$(tenure completion bash)"',
        arguments=(Argument(name="SHELL", help="bash, zsh or fish."),),
    ),
)

GROUPS = {
    "agent": "Agents: join, list, show, leave.",
    "task": "Tasks, and the leases on them.",
    "msg": "Messages: threads and inboxes.",
    "receipts": "The ledger.",
    "store": "The store as a whole: copy, check.",
    "project": "Projects: add, list.",
    "config": "Settings.",
    "worktree": "The folders that agents work in.",
    "rescue": "Uncommitted work that was saved from lost holders.",
    "hook": "What git's hooks run.",
    "board": "An external board: connect, check, retry.",
    "gate": "An external ReceiptGate: what waits, what is parked, send it again.",
}
