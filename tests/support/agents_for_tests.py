"""Agents for tests: they call the policy over plain HTTP and break in several ways."""

from __future__ import annotations

import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

TASKS = [{"prompt": f"task {number}: ", "number": number, "response": "yes"} for number in range(8)]


def tasks() -> list[dict[str, Any]]:
    return TASKS


def unanswered() -> list[dict[str, Any]]:
    """Tasks that no response belongs to."""
    return [{name: value for name, value in task.items() if name != "response"} for task in TASKS]


class Client:
    """Posts JSON, after a while that ``latency`` seeds."""

    def __init__(self, base_url: str, api_key: str, model: str, latency: int = 0, most_s: float = 0.0) -> None:
        self.base_url, self.api_key, self.model = base_url, api_key, model
        self.wait, self.most_s = random.Random(f"{latency} {api_key}"), most_s

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        time.sleep(self.most_s * self.wait.random())
        headers = {"Authorization": f"Bearer {self.api_key}", "Content-Type": "application/json"}
        request = urllib.request.Request(path, json.dumps({"model": self.model, **body}).encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def chat(self, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        done = self.post(f"{self.base_url}/chat/completions", {"messages": messages, **more})
        return done["choices"][0]["message"]


def user_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def talk(task: Mapping[str, Any], *, turns: int = 3, **client: Any) -> float:
    """Appends turns; the reward is for an even number of letters."""
    policy, messages = Client(**client), [user_message(task["prompt"])]
    for turn in range(turns):
        messages += [policy.chat(messages), user_message(f"and {turn}?")]
    return float(sum(len(message["content"]) for message in messages) % 2 == 0)


def impatient(task: Mapping[str, Any], **client: Any) -> float:
    """Leaves before the first answer, as a client whose time is over, and sends the same request again."""
    policy, messages = Client(**client), [user_message(task["prompt"])]
    url = urlsplit(policy.base_url)
    body = json.dumps({"model": policy.model, "messages": messages}).encode()
    connection = HTTPConnection(str(url.hostname), url.port, timeout=60)
    headers = {"Authorization": f"Bearer {policy.api_key}", "Content-Type": "application/json"}
    connection.request("POST", f"{url.path}/chat/completions", body, headers)
    connection.close()
    time.sleep(0.2)
    policy.chat(messages)
    return 1.0


def streams(task: Mapping[str, Any], *, base_url: str, api_key: str, model: str) -> dict[str, Any]:
    """Reads an answer event by event, then the same one at once: a second call with the same words."""
    body = {
        "model": model,
        "messages": [user_message(task["prompt"])],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    headers = {"Authorization": f"Bearer {api_key}"}
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = [line.decode().removeprefix("data: ").strip() for line in answer if line.strip()]
    events = [json.loads(line) for line in lines[:-1]]
    choices = [choice for event in events for choice in event["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    ends = (choices[-1]["finish_reason"] in ("stop", "length"), lines[-1] == "[DONE]", bool(events[-1]["usage"]))
    policy = Client(base_url, api_key, model)
    whole = policy.chat([user_message(task["prompt"]), {"role": "assistant", "content": text}, user_message("and?")])
    return {"reward": float(all(ends) and bool(whole)), "reward/events": float(len(events))}


def fork(task: Mapping[str, Any], **client: Any) -> dict[str, Any]:
    """Sends two requests at once after the first answer, and once with other words before it: three branches."""
    policy, first = Client(**client), [user_message(task["prompt"])]
    first.append(policy.chat(first))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(policy.chat, ([*first, user_message("one?")], [*first, user_message("two?")])))
    policy.chat([user_message("else: "), first[1], user_message("three?")])
    return {"reward": float(task["number"]), "reward/number": float(task["number"]), "verdict": "correct"}


def breaks(task: Mapping[str, Any], *, how: Mapping[str, int], **client: Any) -> float:
    """Fails about the tasks that ``how`` names."""
    policy, number = Client(**client), task["number"]
    policy.chat([user_message(task["prompt"])])
    if number == how.get("raise"):
        raise RuntimeError("the agent is broken")
    if number == how.get("hang"):
        time.sleep(3600)
    if number == how.get("long"):
        policy.chat([user_message("x" * 10_000)])
    return 1.0


async def generate(task: Mapping[str, Any], *, base_url: str, api_key: str, model: str) -> float:
    """Token ids in and out."""
    policy, ids = Client(base_url, api_key, model), [ord(letter) for letter in task["prompt"]]
    for _ in range(2):
        url = base_url.removesuffix("/v1") + "/inference/v1/generate"
        (choice,) = policy.post(url, {"token_ids": ids, "sampling_params": {"max_tokens": 5}})["choices"]
        assert len(choice["logprobs"]["content"]) == len(choice["token_ids"]) <= 5
        ids = [*ids, *choice["token_ids"], ord("?")]
    return 1.0


async def guesses(task: Mapping[str, Any], *, base_url: str, api_key: str, model: str, vocabulary: int = 128) -> float:
    """Sends what no policy has; 1 where each is refused as a bad request, and a good one is answered after it."""
    policy, generate = Client(base_url, api_key, model), base_url.removesuffix("/v1") + "/inference/v1/generate"
    chat = f"{base_url}/chat/completions"
    wrong: list[tuple[str, dict[str, Any]]] = [
        *(
            (generate, {"token_ids": [65, token]})
            for token in (-1, vocabulary, 10**9, 2**63, 10**40, True, 1.0, "a", None)
        ),
        (generate, {"token_ids": [65], "sampling_params": [1]}),
        (chat, {"messages": "text"}),
        (chat, {"messages": [{"role": "user", "content": "a"}], "tools": {"a": 1}}),
        (chat, {"messages": [{"role": "user", "content": "a"}], "stream_options": 5}),
    ]
    for url, body in wrong:
        try:
            policy.post(url, body)
        except urllib.error.HTTPError as error:
            if error.code != 400 or "invalid_request_error" not in error.read().decode():
                return 0.0
        else:
            return 0.0
    return float(bool(policy.post(generate, {"token_ids": [65, 127]})["choices"]))
