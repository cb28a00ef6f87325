"""The ledger API of an external ReceiptGate over HTTP: `POST /receipts`, `GET /receipts`, `GET /receipts/{id}`.

Three things can become of a receipt that is sent. The gate has it (any 2xx, or a conflict with the very same receipt).
The gate refuses *this receipt* for good. Or the gate cannot be used now: it does not answer, it fails, or it refuses us
as a whole (a wrong token, no such project, too many requests), which says nothing about the receipt; then GateDown is
raised and the receipt is sent again later. A reply that is lost after the gate recorded the receipt is of the third
kind: the gate knows the receipt again by its receipt_id and its dedupe_key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx

from tenure.core import receipts as rules

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_S = 5.0
ANSWER_S = 10.0
PAGE = 50
# Statuses of the 4xx family that are about us, the address or the moment, not about the receipt.
ABOUT_THE_WHOLE = frozenset((401, 402, 403, 404, 405, 407, 408, 421, 423, 425, 426, 429, 431, 451))
# What a Tenure server says of those when it acts on receipts and knows no such lease: it keeps no receipts of others at
# all, which is about the whole, or it has a task of that name itself, which is about the receipt.
NO_SUCH_LEASE = ("lease_not_found", "not_holder")
CONFLICT = 409


class GateDown(Exception):
    """The gate cannot be used now."""


class GateClient:
    """One project at one gate. Used by one thread at a time; connections are kept open."""

    def __init__(self, url: str, project: str, token: str = "", *, answer_s: float = ANSWER_S) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx.Timeout(answer_s, connect=min(CONNECT_S, answer_s))
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)
        self._project = project

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(self, body: Mapping[str, Any]) -> str | None:
        """Send one receipt. None: the gate has it. Otherwise why it will never take it."""
        # The gate should know a receipt again by whichever key it goes by.
        key = body["dedupe_key"] if rules.said(body.get("dedupe_key")) else body["receipt_id"]
        response = self._ask("POST", "/receipts", json={**body, "dedupe_key": key})
        if response.is_success:
            return None
        if response.status_code == CONFLICT and self._holds(body):
            return None
        if response.is_client_error and self._is_about_the_receipt(response, body):
            return _told(response)
        raise GateDown(_told(response))

    def after(self, seq: int) -> list[tuple[int, dict[str, Any]]]:
        """The gate's receipts behind a place in its ledger, in its order, with their places. Empty: there are none."""
        response = self._ask("GET", "/receipts", params={"after": seq, "limit": PAGE})
        if not response.is_success:
            raise GateDown(_told(response))
        found = _json(response).get("receipts")
        if not isinstance(found, list):
            raise GateDown("The gate's answer has no list of receipts.")
        page = [(_place(receipt), receipt) for receipt in found]
        if any(place <= before for (before, _), (place, _) in zip([(seq, None), *page], page, strict=False)):
            raise GateDown("The gate's receipts are not in the order of chain.seq.")
        return page

    def _is_about_the_receipt(self, response: httpx.Response, body: Mapping[str, Any]) -> bool:
        """Whether a refusal would be the same at any time, and is no reason to expect it for the next receipt."""
        if response.status_code not in ABOUT_THE_WHOLE:
            return True
        if _problem(response).get("code") not in NO_SUCH_LEASE:
            return False
        return self._ask("GET", f"/tasks/{quote(body['task_id'], safe='')}").is_success

    def _holds(self, body: Mapping[str, Any]) -> bool:
        """Whether the gate has this very receipt, under its id."""
        response = self._ask("GET", f"/receipts/{quote(body['receipt_id'], safe='')}")
        return response.is_success and _content(_json(response)) == _content(body)

    def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        params = {"project": self._project, **more.pop("params", {})}
        try:
            response = self._http.request(method, path, params=params, **more)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise GateDown(f"{type(error).__name__}: {error}") from error
        return response


def _content(body: Mapping[str, Any]) -> str:
    """What two copies of a receipt have in common; each side has its own project, and ours adds a dedupe_key."""
    other = ("project_id", "dedupe_key")
    return rules.content_key(
        {name: value for name, value in body.items() if name in rules.FIELDS and name not in other}
    )


def _place(receipt: Any) -> int:
    chain = receipt.get("chain") if isinstance(receipt, dict) else None
    place = chain.get("seq") if isinstance(chain, dict) else None
    if not isinstance(place, int):
        raise GateDown("The gate's receipts do not tell their place, chain.seq.")
    return place


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except (ValueError, RecursionError) as error:
        raise GateDown("The gate's answer is not JSON.") from error
    if not isinstance(found, dict):
        raise GateDown("The gate's answer is not an object.")
    return found


def _problem(response: httpx.Response) -> dict[str, Any]:
    """What a refusal says of itself, if it says so in JSON."""
    if "json" not in response.headers.get("content-type", ""):
        return {}
    try:
        return _json(response)
    except GateDown:
        return {}


def _told(response: httpx.Response) -> str:
    """A refusal in a line: the status, and what a problem document says."""
    found = _problem(response)
    words = ": ".join(str(found[name]) for name in ("code", "error", "detail") if found.get(name))
    return " ".join(filter(None, (f"HTTP {response.status_code}", words)))[:400]
