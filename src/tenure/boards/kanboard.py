"""Kanboard over its JSON-RPC API, as the application (`jsonrpc:<api token>`).

What is worth knowing of it:

- Acts done with the application's token leave no rows in the project's activity; people's acts do. So the activity is a
  feed of exactly what we did not do ourselves.
- With several workers on SQLite it answers errors ("database is locked") for calls that did take effect. Every write is
  therefore settled by reading afterwards, and a card is looked up by its `reference` before another is made.
- Ids of deleted cards are used again, so that a card is named by its id and the time of its making.
- A card in a column for done is done, and so is a closed one. We move cards and leave closing to people.
- A comment's `reference` cannot be listed, so the key of a comment stands in its last line.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

import httpx

from tenure.boards.mapping import Fit, parse, tidy_text, tidy_title
from tenure.boards.port import BoardDown, BoardFault, Card, Change, Finding
from tenure.core.reconcile import CardState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CONNECT_S = 5.0
ANSWER_S = 20.0
OPEN, CLOSED = 1, 0
# How long columns and people are taken to be as they were; a card that does not fit them is a reason to look again.
REFRESH_S = 60.0
# Kanboard's own names of the links it comes with.
WAITS, HOLDS_UP = "is blocked by", "blocks"
LINK_EVENTS = ("task_internal_link.create_update", "task_internal_link.delete")


class Rpc:
    """JSON-RPC calls, with what can go wrong sorted into the port's two exceptions."""

    def __init__(self, url: str, token: str, *, answer_s: float = ANSWER_S) -> None:
        url = url.rstrip("/")
        self.url = url if url.endswith("jsonrpc.php") else url + "/jsonrpc.php"
        timeout = httpx.Timeout(answer_s, connect=min(CONNECT_S, answer_s))
        self._http = httpx.Client(auth=("jsonrpc", token), timeout=timeout, trust_env=False)
        self._ids = itertools.count(1)

    def __call__(self, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        try:
            response = self._http.post(self.url, json=body)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BoardDown(f"{type(error).__name__}: {error}") from error
        if response.status_code in (401, 403):
            raise BoardDown(f"HTTP {response.status_code}: the token is not accepted")
        if response.status_code == 404:
            raise BoardDown(f"HTTP 404: there is no Kanboard at {self.url}")
        try:
            told = response.json()
        except ValueError as error:
            raise BoardFault(f"{method}: HTTP {response.status_code}, not JSON: {response.text[:200]}") from error
        if not isinstance(told, dict) or "error" in told or "result" not in told:
            raise BoardFault(f"{method}: {_told(told)}")
        return told["result"]

    def close(self) -> None:
        self._http.close()


def _told(told: Any) -> str:
    error = told.get("error") if isinstance(told, dict) else None
    if isinstance(error, dict):
        more = error.get("data") or ""
        return f"{error.get('message', '')} {more}".strip()[:300]
    return "an answer that is not JSON-RPC"


class Kanboard:
    """One Kanboard project."""

    def __init__(
        self,
        url: str,
        token: str,
        place: str,
        config: Mapping[str, Any],
        *,
        answer_s: float = ANSWER_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call = Rpc(url, token, answer_s=answer_s)
        self._place = place
        self._config = config
        self._fit: Fit | None = None
        self._project = 0
        self._columns: dict[int, str] = {}
        self._users: dict[int, str] = {}
        self._assignable: dict[str, int] = {}
        # Names that stand on cards although they could not be put there now: their accounts lost the project since.
        self._named: set[str] = set()
        self._waits = 0
        self._lane = 0
        self._monotonic = monotonic
        self._refreshed_at = 0.0

    def close(self) -> None:
        self._call.close()

    # -- what is there ----------------------------------------------------------------------------------------------

    def refresh(self) -> list[str]:
        """Read columns, people and links; what is wrong with the mapping."""
        project = self._find_project()
        if project is None:
            raise BoardDown(f"there is no project {self._place} on this board")
        self._project = int(project["id"])
        columns = self._call("getColumns", project_id=self._project)
        self._columns = {int(column["id"]): column["title"] for column in columns}
        self._fit, wrong = parse(self._config, list(self._columns.values()))
        self._users = {int(user["id"]): user["username"] for user in self._call("getAllUsers")}
        assignable = self._call("getAssignableUsers", project_id=self._project) or {}
        self._assignable = {
            self._users[int(number)]: int(number) for number in assignable if int(number) in self._users
        }
        links = {link["label"]: int(link["id"]) for link in self._call("getAllLinks")}
        self._waits = links.get(WAITS, 0)
        lanes = self._call("getActiveSwimlanes", project_id=self._project)
        self._lane = int(lanes[0]["id"]) if lanes else 0
        self._refreshed_at = self._monotonic()
        return wrong

    def _find_project(self) -> dict[str, Any] | None:
        found: Any = None
        if self._place.isdigit():
            found = self._call("getProjectById", project_id=int(self._place))
        found = found or self._call("getProjectByIdentifier", identifier=self._place.upper())
        found = found or self._call("getProjectByName", name=self._place)
        return found or None

    def _ready(self) -> Fit:
        if self._fit is None:
            wrong = self.refresh()
            if wrong:
                # A status that we cannot read must not be guessed at: it would be applied as somebody's act.
                self._fit = None
                raise BoardDown("the mapping does not fit the board: " + "; ".join(wrong))
        assert self._fit is not None
        return self._fit

    def check(self) -> list[Finding]:
        """A report for people, before anything is changed."""
        try:
            version = self._call("getVersion")
            wrong = self.refresh()
        except (BoardDown, BoardFault) as error:
            repair = "check --url, --token and --board; the token is in Kanboard's settings, under API"
            return [Finding(check="board", well=False, detail=str(error), repair=repair)]
        assert self._fit is not None
        detail = f"Kanboard {version}, project {self._place} (#{self._project})"
        found = [Finding(check="board", well=True, detail=detail)]
        found += [Finding(check="mapping", well=False, detail=text, repair="connect again") for text in wrong]
        for status, names in self._fit.columns.items():
            where = ", ".join(names)
            note = {"blocked": "no column; a blocked task is shown as todo", "done": "closed cards only"}.get(
                status, ""
            )
            found.append(Finding(check=f"column for {status}", well=True, detail=where or note))
        people = ", ".join(f"{name} is {self._fit.agent_of(name)}" for name in sorted(self._assignable)[:20])
        found.append(Finding(check="people", well=True, detail=people or "nobody can be assigned in this project"))
        if not self._waits:
            found.append(
                Finding(check="links", well=True, detail=f"no link '{WAITS}': dependencies are not shown on the board")
            )
        return found

    def counts(self) -> dict[str, int]:
        """How many cards there are of each status, for the report at connect time."""
        numbers: dict[str, int] = {}
        for card in self.listing():
            numbers[card.state.status] = numbers.get(card.state.status, 0) + 1
        return numbers

    # -- reading ----------------------------------------------------------------------------------------------------

    def listing(self) -> list[Card]:
        if self._monotonic() - self._refreshed_at > REFRESH_S:
            self._fit = None
        self._ready()
        rows: list[Any] = []
        for status in (OPEN, CLOSED):
            found = self._call("getAllTasks", project_id=self._project, status_id=status)
            if not isinstance(found, list):
                raise BoardFault("getAllTasks: not a list")
            rows += found
        # Between the two calls a card may have been closed or opened: it is there once, as the later call has it.
        cards = {row["id"]: row for row in rows}
        return [self._card(row) for row in cards.values()]

    def card(self, card_id: str) -> Card | None:
        self._ready()
        row = self._call("getTask", task_id=int(card_id))
        if not row:
            return None
        if int(row["project_id"]) != self._project:
            raise BoardFault(f"card {card_id} was moved to another project of the board")
        return self._card(row)

    def find(self, reference: str) -> Card | None:
        self._ready()
        row = self._call("getTaskByReference", project_id=self._project, reference=reference)
        return self._card(row) if row else None

    def links(self, card_id: str) -> list[str]:
        self._ready()
        found = self._call("getAllTaskLinks", task_id=int(card_id))
        return sorted(
            str(link["task_id"])
            for link in found
            if link["label"] == WAITS and int(link["project_id"]) == self._project
        )

    def comments(self, card_id: str) -> list[str]:
        return [str(comment["comment"]) for comment in self._call("getAllComments", task_id=int(card_id))]

    def changed(self, cursor: str) -> tuple[list[Change], str]:
        self._ready()
        rows = self._call("getProjectActivity", project_id=self._project)
        newest = max((int(row["id"]) for row in rows), default=0)
        if not cursor:
            return [], str(newest)
        after = int(cursor)
        if newest < after:
            # The board was restored from an older copy and counts from there again.
            return [], str(newest)
        fresh = sorted((row for row in rows if int(row["id"]) > after), key=lambda row: int(row["id"]))
        return [_change(row) for row in fresh], str(max(newest, after))

    def _card(self, row: Mapping[str, Any]) -> Card:
        fit = self._ready()
        column = self._columns.get(int(row["column_id"]), "")
        status = fit.status_of(column)
        closed = int(row["is_active"]) == CLOSED
        if status is None and not closed:
            # A column that was added since; the next listing reads the columns again and says what is wrong.
            self._fit = None
            raise BoardDown(f"the column of card {row['id']} has no status")
        owner = int(row["owner_id"] or 0)
        if owner and owner not in self._users:
            # Somebody who came since: to take them for nobody would be to apply an act that nobody did.
            self.refresh()
        name = self._users.get(owner)
        if name:
            self._named.add(name)
        state = CardState(
            title=tidy_title(row["title"] or ""),
            status="done" if closed or status is None else status,  # type: ignore[arg-type]
            assignee=fit.agent_of(name) if name else None,
            body=tidy_text(row["description"] or ""),
            priority=fit.priority_of(int(row["priority"] or 0)),
        )
        return Card(
            card_id=str(row["id"]),
            born=str(row["date_creation"]),
            reference=row["reference"] or "",
            state=state,
            closed=closed,
            more={"swimlane_id": int(row["swimlane_id"] or self._lane), "closed": closed, "column": column},
        )

    # -- writing ----------------------------------------------------------------------------------------------------

    def create(self, reference: str, state: CardState) -> None:
        made = self._call("createTask", project_id=self._project, reference=reference, **self._fields(state.as_dict()))
        _must(made, "createTask")

    def write(self, card: Card, changes: Mapping[str, Any]) -> None:
        number = int(card.card_id)
        fields = self._fields({name: value for name, value in changes.items() if name != "status"})
        if fields:
            _must(self._call("updateTask", id=number, **fields), "updateTask")
        if "status" in changes:
            self._move(card, number, changes["status"])

    def _move(self, card: Card, number: int, status: str) -> None:
        fit = self._ready()
        column = fit.column_for(status)
        if column is None:
            _must(self._call("closeTask", task_id=number), "closeTask")
            return
        if card.more["closed"]:
            _must(self._call("openTask", task_id=number), "openTask")
        if fit.status_of(card.more["column"]) != status:
            place = {"column_id": self._column(column), "position": 1, "swimlane_id": card.more["swimlane_id"]}
            moved = self._call("moveTaskPosition", project_id=self._project, task_id=number, **place)
            _must(moved, "moveTaskPosition")

    def _column(self, title: str) -> int:
        return next(number for number, name in self._columns.items() if name == title)

    def _fields(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Ours in Kanboard's words."""
        fit = self._ready()
        fields: dict[str, Any] = {}
        if "title" in state:
            fields["title"] = state["title"]
        if "body" in state:
            fields["description"] = state["body"]
        if "priority" in state:
            fields["priority"] = fit.priorities[state["priority"]]
        if "assignee" in state:
            name = fit.user_of(state["assignee"], list(self._assignable))
            fields["owner_id"] = self._assignable[name] if name else 0
        column = fit.column_for(state["status"]) if "status" in state else None
        if column is not None:
            fields["column_id"] = self._column(column)
        return fields

    def link(self, card_id: str, other: str, wanted: bool) -> None:
        found = self._call("getAllTaskLinks", task_id=int(card_id))
        known = [link for link in found if link["label"] == WAITS and str(link["task_id"]) == other]
        if wanted and not known:
            made = self._call("createTaskLink", task_id=int(card_id), opposite_task_id=int(other), link_id=self._waits)
            _must(made, "createTaskLink")
        for link in known if not wanted else ():
            _must(self._call("removeTaskLink", task_link_id=int(link["id"])), "removeTaskLink")

    def comment(self, card_id: str, text: str) -> None:
        _must(self._call("createComment", task_id=int(card_id), user_id=0, content=text), "createComment")

    def retire(self, card_id: str) -> None:
        _must(self._call("closeTask", task_id=int(card_id)), "closeTask")

    def shown(self, state: CardState) -> CardState:
        """What a read of this state would give: names without an account, columns that are not there, long titles."""
        fit = self._fit
        if fit is None:
            # Asked within a transaction, where nobody may wait for a server.
            raise BoardDown("the board's columns are to be read again")
        status = state.status
        if status == "blocked" and fit.column_for("blocked") is None:
            status = "todo"
        name = fit.user_of(state.assignee, [*self._assignable, *self._named])
        return state.replace(
            title=tidy_title(state.title),
            body=tidy_text(state.body),
            status=status,
            assignee=fit.agent_of(name) if name else None,
            needs=state.needs if self._waits else None,
        )


def _must(result: Any, method: str) -> None:
    """Kanboard says false to what it will not do."""
    if not result:
        raise BoardFault(f"{method}: refused")


def _change(row: Mapping[str, Any]) -> Change:
    event = str(row.get("event_name", ""))
    comment = row.get("comment") if event == "comment.create" else None
    said = comment if isinstance(comment, dict) else {}
    return Change(
        card_id=str(row.get("task_id", "")),
        author=str(row.get("author_username") or row.get("author") or "someone"),
        comment=tidy_text(str(said.get("comment", ""))),
        comment_id=str(said.get("id", "")),
        links=event in LINK_EVENTS,
    )
