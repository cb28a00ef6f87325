"""What a tool is: its name, words and schemas as data, and the function that does it.

What a client is told of its tools, it pays for in every conversation. So schemas say only what a model needs to call
the tool well; what they leave out, the verbs check and refuse with words that say what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tenure.core import inputs
from tenure.core.errors import Refused
from tenure.core.record import Record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tenure.surfaces.mcp.call import Call

    Act = Callable[[Call, dict[str, Any]], Awaitable[dict[str, Any] | Refused]]

AGENT, OPERATOR, WORKER = "agent", "operator", "worker"
SETS = (AGENT, WORKER, "all")

TEXT: dict[str, Any] = {"type": "string"}
WHOLE: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
OBJECT: dict[str, Any] = {"type": "object"}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
OBJECTS: dict[str, Any] = {"type": "array", "items": OBJECT}
ANYTHING: dict[str, Any] = {}


def one_of(*words: str) -> dict[str, Any]:
    """The schema of one of a few words."""
    return {"enum": list(words)}


class Tool(Record):
    """One tool. `speaker` names the argument that says who calls; `renamed` maps a verb's argument to the tool's."""

    name: str
    summary: str
    takes: Mapping[str, Any]
    gives: Mapping[str, Any]
    act: Act
    required: tuple[str, ...] = ()
    of: str = AGENT
    reads: bool = False
    repeatable: bool = False
    speaker: str = "agent_id"
    renamed: Mapping[str, str] = {}

    @property
    def input_schema(self) -> dict[str, Any]:
        """Every tool also takes `agent_id`: whoever calls may always say so."""
        schema: dict[str, Any] = {"type": "object", "properties": {"agent_id": TEXT, **self.takes}}
        if self.required:
            schema["required"] = list(self.required)
        return schema

    @property
    def output_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": dict(self.gives)}

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as a client is told of it."""
        hints: dict[str, Any] = {"readOnlyHint": True} if self.reads else {"destructiveHint": False}
        if self.repeatable and not self.reads:
            hints["idempotentHint"] = True
        return {
            "name": self.name,
            "description": self.summary,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": {**hints, "openWorldHint": False},
        }

    def check(self, arguments: Mapping[str, Any]) -> Refused | None:
        """Why these arguments cannot be meant for this tool; what each one holds, its verb judges."""
        known = self.input_schema["properties"]
        for name in arguments:
            if name not in known:
                return inputs.bad(inputs.shown(name), f"is not an argument of {self.name}", arguments=list(known))
        missing = [name for name in self.required if arguments.get(name) is None and name != self.speaker]
        return inputs.bad(missing[0], "is missing") if missing else None

    def told(self, refusal: Refused) -> Refused:
        """A verb's refusal in the words of this tool."""
        name = refusal.facts.get("argument")
        if refusal.code != "invalid_argument" or not isinstance(name, str) or name not in self.renamed:
            return refusal
        own = self.renamed[name]
        message = own + refusal.message.removeprefix(name)
        return refusal.replace(message=message, facts={**refusal.facts, "argument": own})


def whole_if_equal(value: Any) -> Any:
    """A whole number that a client wrote as 15.0; anything else as it came, for its check to judge."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
