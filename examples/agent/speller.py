"""An ordinary agent that calls a model through the OpenAI SDK: nothing here depends on its training."""

from openai import OpenAI

WORDS = ["cat", "dog", "owl", "bee", "fox", "hen", "pig", "cow"]


def tasks():
    """What there is to do; ``response`` is what a warm start imitates."""
    return [
        {"prompt": f"Spell {word} in capitals.", "answer": word.upper(), "response": word.upper()} for word in WORDS
    ]


def solve(task, *, base_url, api_key, model, second_chance=0.5):
    """Requests an answer, and again after a wrong one; the reward is 1, or less for a second attempt."""
    client = OpenAI(base_url=base_url, api_key=api_key)
    messages = [{"role": "user", "content": task["prompt"]}]
    for reward in (1.0, second_chance):
        reply = client.chat.completions.create(model=model, messages=messages)
        answer = reply.choices[0].message.content
        if answer.strip() == task["answer"]:
            return reward
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "No. Try again."}]
    return 0.0
