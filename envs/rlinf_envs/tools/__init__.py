"""Tools that a policy may call: functions, classes, a Python sandbox, a search, and the tools of MCP servers."""
