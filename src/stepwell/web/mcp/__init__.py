"""A read-only MCP server over the dashboard's JSON, for assistants: `stepwell mcp MODULE:APP`.

`server` has the tools. Each asks the dashboard for a page as JSON (`ask`), as a program would over HTTP, so that its
bounds, its redaction and its errors are those of the page; the user of these requests may only look. `bounds` cuts what
is too long for the context of an assistant.

It needs the extra `mcp`. Nothing but the command line imports this.
"""
