"""hermes-plugins in the agent framework that you already use.

Each module adapts the memory to one host and imports it only when you use that module:

adk            a memory service for Google's Agent Development Kit
anthropic      Claude's memory tool on the notes
chat           a small agent for the terminal, `hermes-plugins chat`
langgraph      a store and a middleware for LangGraph
mcp            an MCP server, `hermes-plugins mcp`
mcp_clients    its entry in the configuration of MCP clients
openai_agents  a session, tools and instructions for the OpenAI Agents SDK
pydantic_ai    a capability for Pydantic AI
"""
