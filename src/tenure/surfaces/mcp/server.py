"""The MCP server on the official SDK's low-level server: handlers, and the one middleware that touches.

Everything that differs between stdio and HTTP is in who calls (`Surface.caller_of`); tools, resources and prompts are
the same for both.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tenure import __version__
from tenure.core.errors import Refused, refuse
from tenure.engine.agents import show_agent
from tenure.engine.touch import touch
from tenure.surfaces.mcp import reading, shown, toolsets
from tenure.surfaces.mcp.call import Call, Caller
from tenure.surfaces.mcp.news import News
from tenure.surfaces.mcp.streams import StreamLinks
from tenure.surfaces.mcp.tool import WORKER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from tenure.surfaces.http.node import Node
    from tenure.surfaces.mcp.tool import Tool

    Context = ServerRequestContext[Any, Any]

log = logging.getLogger("tenure.mcp")

INSTRUCTIONS = """\
Tenure gives you tasks and keeps your work safe. Work in this loop:
1. register_agent once, with your own agent_id; give that agent_id in every call.
2. request_next_task. Follow its instructions; if they begin with a recovery handoff, continue from there.
3. While working: log_decision for choices others must know, log_artifact for what others will use, and \
report_task_progress about every quarter. Commit often.
4. Any call keeps your lease alive. Before a long silent command, report with expect_silence_s.
5. When done, report_task_progress with status completed, then go to 2. If you cannot go on, report_blocker.
If a call answers lease_lost or superseded, stop that task and change nothing more.
If there is no task, ask again with wait_s, or end when should_exit is true."""

# The call in hand, made by the middleware and used by the handler beneath it.
_CALL: ContextVar[Call | Refused] = ContextVar("tenure_call")
# What an agent's own doing sends. Lists and pings are its client's.
_TOUCHING = ("tools/call", "resources/read", "prompts/get")
_DAY_MS = 86_400_000
# What the newest protocol wants of every result. Results are plain dicts: the SDK checks them against each version of
# the protocol anyway, and models would be built only to be taken apart.
_WHOLE = {"resultType": "complete"}


class Surface:
    """One MCP server: which tools it has, and how to tell who calls."""

    def __init__(self, node: Node, caller_of: Callable[[Context], Caller], tools: str = "agent") -> None:
        self._node = node
        self._caller_of = caller_of
        self._tools = tools
        self.listening = ListenHandler(News(node))
        self.server: Server[Any] = Server(
            "tenure",
            version=__version__,
            title="Tenure",
            instructions=INSTRUCTIONS,
            # The tools depend on who asks, so no shared cache may keep them.
            cache_hints={
                "tools/list": CacheHint(ttl_ms=_DAY_MS),
                # What is read is stale the next moment.
                "resources/read": CacheHint(),
                "resources/list": CacheHint(ttl_ms=_DAY_MS, scope="public"),
                "resources/templates/list": CacheHint(ttl_ms=_DAY_MS, scope="public"),
                "prompts/list": CacheHint(ttl_ms=_DAY_MS, scope="public"),
            },
            get_tool_input_schema=_input_schema,
            on_list_tools=self._list_tools,  # type: ignore[arg-type]
            on_call_tool=self._call_tool,  # type: ignore[arg-type]
            on_list_resources=self._list_resources,  # type: ignore[arg-type]
            on_list_resource_templates=self._list_templates,  # type: ignore[arg-type]
            on_read_resource=self._read_resource,  # type: ignore[arg-type]
            on_list_prompts=self._list_prompts,  # type: ignore[arg-type]
            on_get_prompt=self._get_prompt,  # type: ignore[arg-type]
            on_subscriptions_listen=self._listen,
        )
        self.server.middleware.append(self._touching)
        self.server.add_request_handler("server/discover", types.RequestParams, self._discover)

    def _allowed(self, caller: Caller) -> Mapping[str, Tool]:
        return toolsets.allowed("all" if caller.is_operator else self._tools)

    # -- any call is a touch ----------------------------------------------------------------------------------------

    async def _touching(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Find out who calls, and tell the engine that it is alive, before anything is done for it."""
        if ctx.method not in _TOUCHING or ctx.request_id is None:
            return await call_next(ctx)
        token = _CALL.set(await self._call(self._caller_of(ctx), ctx))
        try:
            return await call_next(ctx)
        finally:
            _CALL.reset(token)

    async def _call(self, caller: Caller, context: Context) -> Call | Refused:
        params = context.params or {}
        arguments = params.get("arguments") if context.method == "tools/call" else None
        tool = toolsets.named(params.get("name", "")) if context.method == "tools/call" else None
        agent_id = caller.named(
            arguments if isinstance(arguments, dict) else {}, tool.speaker if tool is not None else "agent_id"
        )
        if agent_id is None or isinstance(agent_id, Refused):
            return Call(caller) if agent_id is None else agent_id
        if tool is not None and tool.name == "register_agent":
            # Registering begins the incarnation that is touched.
            return Call(caller, agent_id)
        if tool is not None and tool.of == WORKER:
            # A worker is taken up by its first poll, and no connection speaks for it.
            touched = await caller.node.call(touch, agent_id=agent_id, server_id=caller.node.server_id)
            if isinstance(touched, Refused) and touched.code == "agent_not_found":
                return Call(caller, agent_id)
        else:
            touched = await caller.touched(agent_id)
        return touched if isinstance(touched, Refused) else Call(caller, agent_id, touched)

    # -- tools ------------------------------------------------------------------------------------------------------

    async def _list_tools(self, context: Context, params: types.PaginatedRequestParams | None) -> dict[str, Any]:
        return {**_WHOLE, "tools": [tool.definition for tool in self._allowed(self._caller_of(context)).values()]}

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> dict[str, Any]:
        tool = toolsets.named(params.name)
        if tool is None:
            # A model that misremembers a name reads results; an error of the protocol would only reach its client.
            known = ", ".join(self._allowed(self._caller_of(context)))
            message = f"Unknown tool: {ascii(params.name)[:80]}."
            return {**_WHOLE, **shown.refusal(refuse("invalid_argument", message, f"Use one of: {known}."))}
        call = _CALL.get()
        answer = call if isinstance(call, Refused) else await self._answer(call, tool, params.arguments or {})
        result = shown.refusal(tool.told(answer)) if isinstance(answer, Refused) else shown.result(answer)
        return {**_WHOLE, **result}

    async def _answer(self, call: Call, tool: Tool, arguments: dict[str, Any]) -> dict[str, Any] | Refused:
        if tool.name not in self._allowed(call.caller):
            message = f"{tool.name} is not among the tools of this server."
            return refuse("not_permitted", message, "Use an operator's token, or start it with --tools all.")
        refused = tool.check(arguments)
        if refused is not None:
            return refused
        try:
            answer = await tool.act(call, arguments)
        except Exception:
            log.exception("tool %s failed", tool.name)
            return refuse("internal_error", "Something unforeseen went wrong.")
        if isinstance(answer, Refused) or call.lost is None:
            return answer
        # The engine tells a loss once; the agent hears it with whatever it asked.
        return {**answer, "lost_lease": shown.lost(call.lost)}

    # -- resources and prompts --------------------------------------------------------------------------------------

    async def _list_resources(self, context: Context, params: Any) -> dict[str, Any]:
        return {**_WHOLE, "resources": reading.RESOURCES}

    async def _list_templates(self, context: Context, params: Any) -> dict[str, Any]:
        return {**_WHOLE, "resourceTemplates": reading.TEMPLATES}

    async def _read_resource(self, context: Context, params: types.ReadResourceRequestParams) -> dict[str, Any]:
        call = _CALL.get()
        uri = str(params.uri)
        text = call if isinstance(call, Refused) else await reading.read(call, uri)
        if isinstance(text, Refused):
            raise MCPError(types.INVALID_PARAMS, text.message, {"uri": uri, **shown.problem(text)})
        return {**_WHOLE, "contents": [{"uri": uri, "mimeType": "application/json", "text": text}]}

    async def _list_prompts(self, context: Context, params: Any) -> dict[str, Any]:
        return {**_WHOLE, "prompts": reading.PROMPTS}

    async def _get_prompt(self, context: Context, params: types.GetPromptRequestParams) -> dict[str, Any]:
        call = _CALL.get()
        text = call if isinstance(call, Refused) else reading.prompt(params.name, params.arguments or {}, call.agent_id)
        if isinstance(text, Refused):
            raise MCPError(types.INVALID_PARAMS, text.message, shown.problem(text))
        return {**_WHOLE, "messages": [{"role": "user", "content": {"type": "text", "text": text}}]}

    async def _discover(self, context: Context, params: types.RequestParams) -> types.DiscoverResult:
        """What this server can do. Tools and prompts never change while it runs, so nobody need listen for that."""
        able = self.server.get_capabilities(protocol_version=context.protocol_version)
        able = able.model_copy(
            update={
                "tools": types.ToolsCapability(list_changed=False),
                "prompts": types.PromptsCapability(list_changed=False),
                "resources": types.ResourcesCapability(subscribe=True, list_changed=False),
            }
        )
        versions = list(MODERN_PROTOCOL_VERSIONS)
        return types.DiscoverResult(supported_versions=versions, capabilities=able, instructions=INSTRUCTIONS)

    # -- streams of the newest protocol -----------------------------------------------------------------------------

    async def _listen(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Tell what changes while the stream is open, which also proves that its agent lives."""
        caller = self._caller_of(context)
        agent_id = caller.named({})
        if caller.connection is not None or not isinstance(agent_id, str):
            # A connection has links of its own; of a stream that nobody's credential opened, nothing can be said.
            return await self.listening(context, params)
        known = await self._node.call(show_agent, agent_id=agent_id)
        if isinstance(known, Refused):
            return await self.listening(context, params)
        spoken = {agent_id: caller.incarnation or known.agent.incarnation}
        async with StreamLinks(self._node, lambda: spoken).held():
            return await self.listening(context, params)


def _input_schema(name: str) -> Mapping[str, Any] | None:
    tool = toolsets.EVERY.get(name)
    return None if tool is None else tool.input_schema


def manager(surface: Surface) -> StreamableHTTPSessionManager:
    """The SDK's HTTP side of a surface. Host and Origin were checked before, with the credentials."""
    return StreamableHTTPSessionManager(surface.server)
