"""The MCP server: tools, resources and prompts over stdio and streamable HTTP, each one rendering of a verb."""
