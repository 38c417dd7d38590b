"""The tool server of vf_shop."""

from __future__ import annotations

import verifiers.v1 as vf


class ShopToolset(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = "shop"

    @vf.tool
    def price(self, thing: str) -> str:
        """Says what a thing costs."""
        return "17"


if __name__ == "__main__":
    ShopToolset.run()
