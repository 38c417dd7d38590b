"""Videos as files that browsers play: H.264 in MP4, written and read again. The only import of PyAV."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

# Small files at full legibility of the drawn words; `veryfast` costs 6 ms of one core per frame of 640 by 560.
_QUALITY = {"preset": "veryfast", "crf": "24"}
NEARLY_LOSSLESS = {"preset": "veryfast", "crf": "12", "g": "2", "bf": "0"}
"""For pictures that are trained on. Every second frame is whole, so that any frame is read without many before it."""


class NoFrameError(ValueError):
    """A film without a picture at a time; ``key`` is that of the requested picture."""

    def __init__(self, message: str, key: int) -> None:
        super().__init__(message)
        self.key = key


class FilmEncoder:
    """Frames of one size, encoded as they come into a file aside, which :meth:`close` renames."""

    def __init__(self, path: Path, fps: float, quality: Mapping[str, str] = _QUALITY) -> None:
        self.path, self.fps = path, fps
        self._quality = dict(quality)
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

    @property
    def bytes_written(self) -> int:
        """The size of the file so far, about."""
        return self._writing.stat().st_size if self._container is not None else 0

    def close(self, *, keep: bool) -> None:
        """End the file. The video appears whole, or (``keep`` false, or an error on the way) not at all."""
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
        self._stream = self._container.add_stream("libx264", rate=rate, options=self._quality)
        self._stream.height, self._stream.width, self._stream.pix_fmt = height, width, "yuv420p"
        self._stream.codec_context.thread_count = 1


def frames_at(
    path: Path, requests: Sequence[tuple[float, int]], *, tolerance_s: float
) -> Iterator[tuple[int, np.ndarray]]:
    """(key, frame [H, W, 3] uint8) for the (time in seconds, key) in ``requests``, in the order of time.

    The film is read once. Raises NoFrameError if no frame lies within ``tolerance_s`` of a time, OSError for a
    file that is missing or damaged, ValueError for one without pictures.
    """
    import av

    left = sorted(requests)
    index = 0
    with av.open(str(path)) as container:
        if not container.streams.video:
            raise ValueError("it holds no pictures")
        for frame in container.decode(video=0):
            shown: np.ndarray | None = None
            time = float(frame.time or 0.0)
            while index < len(left) and left[index][0] <= time + tolerance_s:
                if left[index][0] < time - tolerance_s:
                    raise NoFrameError(f"there is no frame at {left[index][0]:.3f} s", left[index][1])
                shown = frame.to_ndarray(format="rgb24") if shown is None else shown
                yield left[index][1], shown
                index += 1
            if index == len(left):
                return
    if index < len(left):
        raise NoFrameError(f"it ends before {left[index][0]:.3f} s", left[index][1])
