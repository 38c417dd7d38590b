"""Models that others made: their code is not run, and a chat template without an end is given up."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_models import tiny_qwen2

from rlinf.base.time_limit import TimeLimitError, time_limit
from rlinf.rollouts.text.tokens import chat_template
from rlinf.rollouts.text.tokens.chat_template import rendered
from rlinf.rollouts.text.tokens.prompts import PromptRenderer, TemplateTooSlowError

ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


class Endless:
    """A tokenizer whose template has no end."""

    chat_template = ENDLESS
    eos_token_id = 0

    def get_chat_template(self, _template: object, _tools: object) -> str:
        return self.chat_template

    def apply_chat_template(self, _messages: Any, **_given: Any) -> str:
        while True:
            pass


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "DEADLINE_S", 0.2)


@pytest.mark.usefixtures("short")
def test_a_template_without_an_end_is_named_in_any_thread() -> None:
    errors: list[str] = []

    def render() -> None:
        try:
            rendered(Endless(), [], prompt=True, variables={})
        except TimeLimitError as error:
            errors.append(str(error))

    thread = threading.Thread(target=render)
    thread.start()
    render()
    thread.join()
    assert errors == ["one rendering takes more than 0.2 s"] * 2
    with pytest.raises(TemplateTooSlowError, match=r"data\.chat_template: the tokenizer's template can't be rendered"):
        PromptRenderer(Endless()).prompt("question")


def test_a_time_limit_is_only_for_its_block() -> None:
    for _ in range(200):
        with time_limit(0.5):
            pass
    time.sleep(1.2)
    with pytest.raises(TimeLimitError), time_limit(0.1):
        Endless().apply_chat_template([])


def test_code_that_comes_with_a_model_is_not_run(tmp_path: Path) -> None:
    tiny_qwen2(vocabulary=32).save_pretrained(tmp_path)
    mark = tmp_path / "executed"
    code = f"open({str(mark)!r}, 'w').close()\nclass Config: pass\nclass Model: pass\nclass Tokenizer: pass\n"
    (tmp_path / "own_code.py").write_text(code)
    config = json.loads((tmp_path / "config.json").read_text())
    own = {"AutoConfig": "own_code.Config", "AutoModelForCausalLM": "own_code.Model"}
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "unheard_of", "auto_map": own}))
    maps = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own_code.Tokenizer", None]}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(maps))
    program = (
        "import sys\nfrom rlinf.models.loading import PolicyError, checkpoint_config, load_causal_lm, load_tokenizer\n"
        "for load in (checkpoint_config, load_causal_lm, load_tokenizer):\n"
        "    try:\n        load(sys.argv[1])\n    except PolicyError as error:\n        print('refused')\n"
    )
    # A user at the terminal, or a pipe into it, may answer a question with yes.
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], input="y\n" * 9, capture_output=True, text=True, check=True
    )
    assert done.stdout == "refused\n" * 3
    assert not mark.exists()
