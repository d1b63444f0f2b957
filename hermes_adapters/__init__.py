"""hermes-plugins in the agent framework that you already use.

Each module adapts the memory to one host and imports it only when you use that module:

chat         a small agent for the terminal, `hermes-plugins chat`
mcp          an MCP server, `hermes-plugins mcp`
mcp_clients  its entry in the configuration of MCP clients
"""
