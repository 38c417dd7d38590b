"""Tools of a server of the Model Context Protocol, over its standard input and output."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.tools.calls import written
from rlinf_envs.tools.toolbox import Toolbox

pytest.importorskip("mcp")

SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("test")


@server.tool()
def double(number: int) -> int:
    "Doubles a number."
    return 2 * number


@server.tool()
def refuse(reason: str) -> str:
    "Raises."
    raise ValueError(reason)


server.run()
"""


def test_the_tools_of_a_server_answer(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    command: dict[str, Any] = {"command": sys.executable, "args": [str(tmp_path / "server.py")]}
    command["env"] = {"PYTHONPATH": os.pathsep.join(sys.path)}
    tools = Toolbox([{"mcp": {**command, "only": ["double", "refuse"]}}])
    assert tools.names == ("double", "refuse")
    assert tools.answer(0, written("double", {"number": 21})) == "42"
    assert str(tools.answer(0, written("refuse", {"reason": "no luck"}))).startswith("error: ")
    with pytest.raises(SettingError, match=r"has no tool 'treble' \(it has double, refuse\)"):
        Toolbox([{"mcp": {**command, "only": ["treble"]}}])


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(SettingError, match="no-such-server cannot be reached"):
        Toolbox([{"mcp": {"command": "no-such-server"}}])
