"""A real ``vllm serve`` on the CPU, as a process of a test."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = (
    "--host 127.0.0.1 --dtype float32 --enforce-eager --block-size 32 --no-enable-chunked-prefill "
    "--logprobs-mode processed_logprobs --generation-config vllm --kv-cache-memory-bytes 16777216 "
    "--worker-extension-cls rlinf.samplers.vllm_weights.WeightReceiver --enable-scale-out"
)
ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


class VllmServer:
    """The process group of a server: its front and its engine."""

    def __init__(
        self, folder: Path, *, max_model_len: int = 128, max_num_seqs: int = 32, path: str = str(ROOT)
    ) -> None:
        """Serves the model and tokenizer in ``folder`` at :attr:`url`; ready when the constructor returns.

        ``path`` is the server's PYTHONPATH.
        """
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        self._root = self.url.removesuffix("/v1")
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
        sizes = ["--port", str(port), "--max-model-len", str(max_model_len), "--max-num-seqs", str(max_num_seqs)]
        self._log = folder / "server.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, *sizes, *OPTIONS.split()],
                env=os.environ | ENVIRONMENT | {"PYTHONPATH": path},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._wait_until_ready()

    def running(self) -> int:
        """Requests that the engine works on now, by the server's own metrics."""
        text = urllib.request.urlopen(f"{self._root}/metrics", timeout=10).read().decode()
        (line,) = [line for line in text.splitlines() if line.startswith("vllm:num_requests_running{")]
        return int(float(line.rsplit(" ", 1)[1]))

    def signal(self, number: signal.Signals) -> None:
        """To all of its processes, if there are any left."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        # The engine is a child of the front; whatever is left of the group goes too.
        self.signal(signal.SIGKILL)

    def _wait_until_ready(self, limit_s: float = 280.0) -> None:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self._log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{self._root}/health", timeout=5)
                return
            except OSError:
                time.sleep(0.5)
        self.stop()
        raise AssertionError(f"the server was not ready within {limit_s} s: {self._log.read_text()[-3000:]}")


@contextlib.contextmanager
def served(
    folder: Path, *, max_model_len: int = 128, max_num_seqs: int = 32, path: str = str(ROOT)
) -> Iterator[VllmServer]:
    server = VllmServer(folder, max_model_len=max_model_len, max_num_seqs=max_num_seqs, path=path)
    try:
        yield server
    finally:
        server.stop()


def save_word_tokenizer(folder: Path, vocabulary: int) -> None:
    """The server wants a tokenizer; one word per id will do."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{index}": index for index in range(vocabulary)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w2"))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w2", eos_token="w1", pad_token="w0").save_pretrained(
        folder
    )
