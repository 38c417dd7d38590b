"""Stand-ins for LIBERO's assets: boxes and cylinders with the names, sites and joints its engine reads.

LIBERO's package has tasks and start states; its meshes come from a hub. With these the engine, the task language, the
goal predicates and the cameras run as they are, for tests. Sizes are round numbers: results mean nothing for LIBERO's.

    python tests/support/libero_stand_in.py FOLDER      # then env.kwargs.assets=FOLDER, for libero_spatial and _goal
"""

from __future__ import annotations

import math
import struct
import sys
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

Numbers = tuple[float, ...]

_SINKS = 0.04
"""LIBERO puts fixtures so far below the top of its table, less the bottom site's height [m]."""
_MOVABLE_FALLS = 0.06
"""LIBERO's start states have movable things' origins 0.07 m over the table, 0.01 m of it of its own."""
_SIDES = 8


def write_assets(folder: Path) -> Path:
    """Fills ``folder`` with what the tasks of `libero_spatial` and `libero_goal` read, and returns it."""
    _write(folder / "scenes" / "libero_tabletop_base_style.xml", _scene())
    for name, shade in (("light-gray-floor-tile", 190), ("light-gray-plaster", 225)):
        _write_png(folder / "textures" / f"{name}.png", shade)
    things = {
        "articulated_objects/wooden_cabinet": _cabinet(),
        "articulated_objects/flat_stove": _stove(),
        "stable_scanned_objects/akita_black_bowl/akita_black_bowl": _vessel("0.1 0.1 0.1 1", 0.06, 0.05),
        "stable_scanned_objects/glazed_rim_porcelain_ramekin/glazed_rim_porcelain_ramekin": _vessel(
            "0.9 0.85 0.7 1", 0.045, 0.045
        ),
        "stable_scanned_objects/plate/plate": _solid("cylinder", (0.08, 0.008), "0.9 0.4 0.3 1"),
        "stable_hope_objects/cookies/cookies": _solid("box", (0.04, 0.06, 0.02), "0.2 0.3 0.8 1"),
        "stable_hope_objects/cream_cheese/cream_cheese": _solid("box", (0.04, 0.025, 0.015), "0.3 0.7 0.9 1"),
        "turbosquid_objects/wine_bottle/wine_bottle": _solid("cylinder", (0.025, 0.06), "0.2 0.5 0.2 1"),
        "turbosquid_objects/wine_rack/wine_rack": _rack(),
    }
    for path, thing in things.items():
        _write(folder / f"{path}.xml", thing)
    return folder


def _text(numbers: Numbers) -> str:
    return " ".join(f"{number:g}" for number in numbers)


def _write(path: Path, model: ET.Element) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    ET.indent(model)
    ET.ElementTree(model).write(path)


def _write_png(path: Path, shade: int, size: int = 8) -> None:
    """A grey checkerboard, RGB, eight bits."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    path.parent.mkdir(parents=True, exist_ok=True)
    rows = b"".join(
        b"\0" + b"".join(bytes([shade - 30 * ((row + column) % 2)] * 3) for column in range(size))
        for row in range(size)
    )
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)


def _shape(body: ET.Element, kind: str, size: Numbers, rgba: str, pos: Numbers = (0, 0, 0), yaw: float = 0.0) -> None:
    """A part twice over, as LIBERO's are: group 0 touches and is not drawn, group 1 is drawn and touches nothing."""
    pose = {"type": kind, "size": _text(size), "pos": _text(pos), "quat": _quat(yaw)}
    ET.SubElement(body, "geom", pose, group="0", density="200", friction="0.95 0.3 0.1", condim="4")
    ET.SubElement(body, "geom", pose, group="1", rgba=rgba, contype="0", conaffinity="0", mass="1e-8")


def _quat(yaw: float) -> str:
    return _text((math.cos(yaw / 2), 0, 0, math.sin(yaw / 2)))


def _region(body: ET.Element, name: str, pos: Numbers, size: Numbers, rgba: str = "0 1 0 0") -> None:
    """LIBERO reads all of these attributes."""
    ET.SubElement(body, "site", name=name, type="box", pos=_text(pos), size=_text(size), quat="1 0 0 0", rgba=rgba)


def _thing(bottom: float, top: float, radius: float) -> tuple[ET.Element, ET.Element]:
    """An empty model and its body; the three sites mark its ends, relative to its origin [m]."""
    model = ET.Element("mujoco", model="stand_in")
    outer = ET.SubElement(ET.SubElement(model, "worldbody"), "body")
    body = ET.SubElement(outer, "body", name="object")
    ends = {"bottom_site": (0, 0, bottom), "top_site": (0, 0, top), "horizontal_radius_site": (radius, 0, 0)}
    for name, pos in ends.items():
        ET.SubElement(outer, "site", name=name, pos=_text(pos), size="0.005", rgba="0 0 0 0")
    return model, body


def _solid(kind: str, size: Numbers, rgba: str) -> ET.Element:
    model, body = _thing(-_MOVABLE_FALLS, size[-1], max(size[:-1]))
    _shape(body, kind, size, rgba)
    return model


def _vessel(rgba: str, radius: float, height: float) -> ET.Element:
    """A round floor and a wall of boxes; the origin is in the middle."""
    model, body = _thing(-_MOVABLE_FALLS, height / 2, radius)
    _shape(body, "cylinder", (0.8 * radius, 0.005), rgba, (0, 0, 0.005 - height / 2))
    for side in range(_SIDES):
        yaw = 2 * math.pi * side / _SIDES
        position = (0.9 * radius * math.cos(yaw), 0.9 * radius * math.sin(yaw), 0)
        _shape(body, "box", (0.1 * radius, 0.42 * radius, height / 2), rgba, position, yaw)
    return model


def _cabinet() -> ET.Element:
    """Three drawers, one over the other, that open towards +y as their joints go from 0 to -0.16 m."""
    model, body = _thing(-_SINKS, 0.25, 0.05)  # the radius is that within which LIBERO would put nothing into a drawer
    wood = "0.6 0.4 0.2 1"
    for x in (-0.11, 0.11):
        _shape(body, "box", (0.01, 0.1, 0.125), wood, (x, 0, 0.125))
    _shape(body, "box", (0.1, 0.01, 0.125), wood, (0, -0.09, 0.125))
    _shape(body, "box", (0.12, 0.1, 0.005), wood, (0, 0, 0.245))
    lid = ET.SubElement(body, "body", name="top", pos="0 0 0.25")
    _region(lid, "top_side", (0, 0, 0), (0.1, 0.08, 0.001))
    for level, name in enumerate(("top", "middle", "bottom")):
        drawer = ET.SubElement(body, "body", name=f"{name}_drawer", pos=_text((0, 0.01, 0.17 - 0.08 * level)))
        ET.SubElement(
            drawer, "joint", name=f"{name}_level", type="slide", axis="0 -1 0", range="-0.16 0.001", limited="true",
            damping="20", frictionloss="1",
        )  # fmt: skip
        _region(drawer, f"{name}_region", (0, 0, 0.03), (0.08, 0.07, 0.03))
        _shape(drawer, "box", (0.09, 0.08, 0.004), wood)
        _shape(drawer, "box", (0.09, 0.005, 0.03), "0.8 0.6 0.4 1", (0, 0.08, 0.03))
        _shape(drawer, "box", (0.09, 0.005, 0.02), wood, (0, -0.075, 0.02))
        for x in (-0.085, 0.085):
            _shape(drawer, "box", (0.005, 0.075, 0.02), wood, (x, 0, 0.02))
        _shape(drawer, "box", (0.03, 0.01, 0.006), "0.2 0.2 0.2 1", (0, 0.095, 0.03))
    return model


def _stove() -> ET.Element:
    """A hot plate whose knob turns it on, as its joint goes from 0 to 2 rad; the burner's site then shows."""
    model, body = _thing(-_SINKS, 0.04, 0.12)
    _shape(body, "box", (0.1, 0.1, 0.02), "0.7 0.7 0.7 1", (0, 0, 0.02))
    burner = ET.SubElement(body, "body", name="burner_plate", pos="0 0 0.04")
    _region(burner, "burner", (0, 0, 0.002), (0.06, 0.06, 0.001), "1 0.2 0 0")
    _region(burner, "cook_region", (0, 0, 0), (0.08, 0.08, 0.001))
    knob = ET.SubElement(body, "body", name="knob", pos="0.13 0 0.02")
    ET.SubElement(
        knob, "joint", name="button", type="hinge", axis="0 0 1", range="-0.005 2.1", limited="true", damping="0.5"
    )
    ET.SubElement(knob, "site", name="knob_site", pos="0 0 0.02", size="0.002", rgba="0 0 0 0")
    _shape(knob, "cylinder", (0.02, 0.02), "0.2 0.2 0.2 1")
    _shape(knob, "box", (0.004, 0.02, 0.01), "1 1 1 1", (0, 0, 0.03))
    return model


def _rack() -> ET.Element:
    model, body = _thing(-_SINKS, 0.06, 0.08)
    bed = ET.SubElement(body, "body", name="bed", pos="0 0 0.03")
    _region(bed, "top_region", (0, 0, 0.01), (0.06, 0.04, 0.01))
    _shape(bed, "box", (0.08, 0.06, 0.005), "0.5 0.35 0.2 1")
    for y in (-0.05, 0.05):
        _shape(bed, "box", (0.08, 0.005, 0.03), "0.5 0.35 0.2 1", (0, y, 0))
    return model


def _scene() -> ET.Element:
    """Floor, a wall and a table. LIBERO sets the table's size and the files of both textures."""
    model = ET.Element("mujoco", model="stand_in")
    asset, world = ET.SubElement(model, "asset"), ET.SubElement(model, "worldbody")
    for texture, material in (("texplane", "floorplane"), ("tex-wall", "walls_mat")):
        ET.SubElement(asset, "texture", name=texture, type="2d", file="../textures/of_the_style.png")
        ET.SubElement(asset, "material", name=material, texture=texture, texrepeat="3 3", texuniform="true")
    unfelt = {"group": "1", "contype": "0", "conaffinity": "0"}
    ET.SubElement(world, "geom", name="floor", type="plane", size="3 3 0.125", material="floorplane", group="1")
    ET.SubElement(world, "geom", unfelt, type="box", size="0.01 3 1.5", pos="-2 0 1.5", material="walls_mat")
    ET.SubElement(world, "light", pos="1 1 3", dir="-0.2 -0.2 -1", directional="true")
    table = ET.SubElement(world, "body", name="table")
    ET.SubElement(table, "geom", name="table_collision", type="box", size="0.4 0.4 0.4", group="0")
    ET.SubElement(table, "geom", unfelt, name="table_visual", type="box", size="0.4 0.4 0.4", rgba="0.75 0.7 0.6 1")
    ET.SubElement(table, "site", name="table_top", size="0.001", rgba="0 0 0 0")
    for leg in range(1, 5):
        ET.SubElement(
            table, "geom", unfelt, name=f"table_leg{leg}_visual", type="cylinder", size="0.05 0.1", rgba="0.4 0.4 0.4 1"
        )
    return model


if __name__ == "__main__":
    print(write_assets(Path(sys.argv[1])))
