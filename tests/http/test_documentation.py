"""docs/http.md is true: its examples are played in order against a server, and the answers are as printed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tenure.surfaces.http.openapi import OPERATIONS
from tests.http.serving import Api

TEXT = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```http\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
IDS = re.compile(r"(?:lease-)?[0-9A-HJKMNP-TV-Z]{26}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")


class Story:
    """The examples, with the ids that they print and those that the server gave instead."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._ids: dict[str, str] = {}

    def play(self, example: str) -> None:
        request, status, answer = self._parts(self._with_our_ids(example))
        method, path, *_ = request[0].split()
        headers = dict(line.split(": ", 1) for line in request[1:] if ": " in line and not line.startswith(("{", " ")))
        body = "\n".join(line for line in request[1:] if line.startswith(("{", " ")))
        if path.startswith("/events"):
            self._stream(path, headers, answer)
            return
        if body:
            headers["Content-Type"] = "application/json"
        response = self._api.http.request(method, path, content=body or None, headers=headers)
        assert response.status_code == status, f"{request[0]}: {response.status_code} {response.text}"
        if answer:
            self._compare(json.loads(answer), response.json(), request[0])
        else:
            assert response.content == b""

    def _parts(self, example: str) -> tuple[list[str], int, str]:
        found = re.search(r"^(\d{3})$", example, re.MULTILINE)
        assert found is not None, example
        request = [line for line in example[: found.start()].splitlines() if line.strip()]
        return request, int(found.group()), example[found.end() :].strip()

    def _with_our_ids(self, example: str) -> str:
        head, found, answer = example.partition("\n200\n")
        return IDS.sub(lambda match: self._ids.get(match.group(), match.group()), head) + found + answer

    def _compare(self, printed: Any, given: Any, where: str) -> None:
        if isinstance(printed, dict):
            assert isinstance(given, dict), where
            more = printed.pop("...", None) is not None
            assert printed.keys() == given.keys() if not more else printed.keys() <= given.keys(), where
            for name, value in printed.items():
                self._compare(value, given[name], f"{where}: {name}")
        elif isinstance(printed, list):
            assert len(printed) == len(given), where
            for one, other in zip(printed, given, strict=True):
                self._compare(one, other, where)
        elif isinstance(printed, str) and IDS.fullmatch(printed):
            assert IDS.fullmatch(given), where
            assert self._ids.setdefault(printed, given) == given, where
        elif isinstance(printed, str) and TIME.fullmatch(printed):
            assert TIME.fullmatch(given), where
        elif where.endswith(": token"):
            assert given > 0
        else:
            assert given == printed, where

    def _stream(self, path: str, headers: dict[str, str], answer: str) -> None:
        printed = answer.splitlines()
        with self._api.http.stream("GET", path, headers=headers) as response:
            lines = response.iter_lines()
            given = [next(lines) for _ in printed]
        for one, other in zip(printed, given, strict=True):
            if one.startswith("data: "):
                self._compare_events(json.loads(one[6:]), json.loads(other[6:]))
            elif one.startswith("id: ") and one != "id: 0":
                assert re.fullmatch(r"id: \d+", other)
            else:
                assert one == other

    def _compare_events(self, printed: dict[str, Any], given: dict[str, Any]) -> None:
        self._compare({**printed, "seq": 0}, {**given, "seq": 0}, "event")


def test_examples_are_answered_as_printed(own: Api) -> None:
    assert len(EXAMPLES) >= 15
    story = Story(own)
    for example in EXAMPLES:
        story.play(example)


def test_every_route_is_named() -> None:
    generic = re.sub(r"/lease-\w+", "/{lease_id}", TEXT.replace("T-123", "{task_id}"))
    for method, path in OPERATIONS:
        assert path in generic, f"{method} {path}"
