"""Videos as files that browsers play: H.264 in MP4. The only import of PyAV."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

# Small files at full legibility of the drawn words; `veryfast` costs 6 ms of one core per frame of 640 by 560.
_QUALITY = {"preset": "veryfast", "crf": "24"}


class Film:
    """Frames of one size, encoded as they come into a file aside, which :meth:`close` renames."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path, self.fps = path, fps
        self._writing = path.with_name(f".{path.name}.writing")
        self._container: Any = None
        self._stream: Any = None

    def write(self, frame: np.ndarray) -> None:
        """One frame [H, W, 3] uint8. H.264 wants even sides: an odd last line is left out."""
        import av

        if self._container is None:
            self._open(frame.shape[0] // 2 * 2, frame.shape[1] // 2 * 2)
        even = np.ascontiguousarray(frame[: self._stream.height, : self._stream.width])
        self._container.mux(self._stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))

    def close(self, *, keep: bool) -> None:
        """Ends the file. The video appears whole, or (``keep`` false, or an error on the way) not at all."""
        if self._container is None:
            return
        try:
            if keep:
                self._container.mux(self._stream.encode(None))
            self._container.close()
            if keep:
                os.replace(self._writing, self.path)
        finally:
            self._container = None
            self._writing.unlink(missing_ok=True)

    def _open(self, height: int, width: int) -> None:
        import av

        self.path.parent.mkdir(parents=True, exist_ok=True)
        # The index goes to the front, so that a browser starts before it has read the whole file.
        self._container = av.open(str(self._writing), "w", format="mp4", options={"movflags": "+faststart"})
        rate = Fraction(self.fps).limit_denominator(1000)
        self._stream = self._container.add_stream("libx264", rate=rate, options=_QUALITY)
        self._stream.height, self._stream.width, self._stream.pix_fmt = height, width, "yuv420p"
        self._stream.codec_context.thread_count = 1
