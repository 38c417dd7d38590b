"""Metrics of rollouts, rewards, evaluations, environments and time."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.metrics.entry import COUNT, NATS, REWARD, SECONDS, SHARE, TOKENS, Metric

_EPISODES = "of the episodes that ended in this step"
_LONGER = "a larger rollout.max_new_tokens, or algorithm.overlong_penalty"
_BOUND = "more workers for the side that is waited for"

REWARDS: Mapping[str, Metric] = {
    "reward/mean": Metric("mean reward of the responses", "mean R", REWARD, "rises", "docs: my run does not learn"),
    "reward/std": Metric("spread of the rewards", "std R", REWARD, "above 0", "tasks of other difficulty"),
    "reward/constant_groups": Metric(
        "groups whose members all have the same reward: they teach nothing",
        "constant groups / groups",
        SHARE,
        "below 0.7",
        "other tasks, a larger group_size, algorithm.dynamic_sampling",
    ),
    "reward/mean/{term}": Metric(
        "mean reward of one environment of env.tasks", "mean R", REWARD, "rises", "a larger weight of it"
    ),
    "reward/constant_groups/{term}": Metric(
        "groups of one environment of env.tasks whose members all have the same reward",
        "constant groups / groups",
        SHARE,
        "below 0.7",
        "easier or harder tasks, or a smaller weight of it",
    ),
    "reward_terms/{term}": Metric(
        "mean of one term of env.kwargs.reward, before its weight",
        "mean",
        "of the term",
        "those you care for rise",
        "other weights",
    ),
    "reward_steps/mean": Metric(
        "mean score of the steps of responses (env.kwargs.steps)",
        "mean of the steps that have a score",
        REWARD,
        "rises",
        "samples show which lines fail; more warm start",
    ),
    "reward_steps/scored": Metric(
        "steps with a score",
        "steps / responses",
        COUNT,
        "above 1",
        "a scorer that reads more steps, or another steps.delimiter",
    ),
    "reward_failures/{term}": Metric(
        "responses over which a service (judge, http) failed, after its retries",
        "number",
        COUNT,
        "0",
        "the warning in the log holds the service's answer; retries, concurrency and timeout_s of the term",
    ),
    "verdict/correct": Metric(
        "responses that the verifier accepts", "correct / responses", SHARE, "rises", "see samples"
    ),
    "verdict/wrong": Metric("responses with a wrong answer", "wrong / responses", SHARE, "falls", "see samples"),
    "verdict/unparsable": Metric(
        "responses without an answer in env.kwargs.answer_format",
        "unparsable / responses",
        SHARE,
        "below 0.1 after the first steps",
        "request the format in the prompt, reward it, or warm-start (sft)",
    ),
    "verdict/timeout": Metric(
        "answers that the verifier gave up on", "timeouts / responses", SHARE, "0", "simpler answers"
    ),
    "verdict/quarantined": Metric(
        "responses whose reward was no finite number", "number / responses", SHARE, "0", "repair the reward function"
    ),
}

ROLLOUT: Mapping[str, Metric] = {
    "rollout/accuracy": Metric(
        "responses that are correct", "correct / responses", SHARE, "rises", "docs: my run does not learn"
    ),
    "rollout/accuracy/{term}": Metric(
        "the same of one environment of env.tasks", "correct / responses", SHARE, "rises", "a larger weight of it"
    ),
    "rollout/response_length/{term}": Metric(
        "mean length of the responses of one environment of env.tasks", "mean", TOKENS
    ),
    "rollout/groups/{term}": Metric(
        "groups of one environment of env.tasks in this batch", "number", COUNT, "its share of rollout.batch_size"
    ),
    "curriculum/share": Metric(
        "data.curriculum: share of the tasks, the easiest first, that could be drawn",
        "share",
        SHARE,
        "rises to 1",
        remedy="data.curriculum.steps, or a lower data.curriculum.accuracy",
    ),
    "pool/seen": Metric("data.pool: tasks drawn so far", "number", COUNT, "rises"),
    "pool/resting": Metric(
        "data.pool: tasks that are passed over, since they were always or never solved",
        "number",
        COUNT,
        remedy="data.pool.rest, or other thresholds",
    ),
    "pool/learnable": Metric(
        "data.pool: tasks that some of their responses solved when they were drawn last",
        "number",
        COUNT,
        "above rollout.batch_size",
        "other tasks",
    ),
    "rollout/prompt_length": Metric("mean length of the prompts", "mean", TOKENS),
    "rollout/response_length": Metric(
        "mean length of the responses", "mean", TOKENS, "steady, or rises with accuracy", _LONGER
    ),
    "rollout/response_length_max": Metric("the longest response", "max", TOKENS, "below max_new_tokens", _LONGER),
    "rollout/cut_by_length": Metric(
        "responses cut by the length limit", "cut / responses", SHARE, "below 0.2", _LONGER
    ),
    "rollout/calls_per_episode": Metric("agents: how often an episode called the policy", "mean", COUNT),
    "rollout/branches_per_episode": Metric(
        "agents: token sequences that an episode left; more than 1 where conversations were rewritten or forked",
        "mean",
        COUNT,
        "1",
        "append messages, and send them as they were received",
    ),
    "rollout/cut_by_conversation_length": Metric(
        "conversations that ended because rollout.max_conversation_tokens was reached",
        "cut / conversations",
        SHARE,
        "below 0.2",
        "a larger rollout.max_conversation_tokens",
    ),
    "rollout/cut_by_turns": Metric(
        "conversations that ended because env.max_turns was reached",
        "cut / conversations",
        SHARE,
        "below 0.5",
        "a larger env.max_turns",
    ),
    "rollout/masked": Metric(
        "conversations that count for nothing, since their environment could not grade them",
        "masked / conversations",
        SHARE,
        "0",
        "`reward_failures/{term}` names the term that failed",
    ),
    "rollout/tokens": Metric("tokens that the policy generated", "sum", TOKENS),
    "rollout/prompts_dropped": Metric(
        "prompts longer than data.max_prompt_length",
        "number since the start",
        COUNT,
        "0",
        "a larger data.max_prompt_length",
    ),
    "rollout/hinted": Metric(
        "teacher.hint: rows whose teacher reads a hint; the others learn nothing from it",
        "rows with a hint / rows",
        SHARE,
        "1 with {answer} or {demonstration}; rises with {solution}",
        "adv_type: grpo with opd_coef, until a group has a correct response",
    ),
    "rollout/groups_kept": Metric(
        "dynamic_sampling: groups with differing rewards",
        "number",
        COUNT,
        "rollout.batch_size",
        "more algorithm.max_resample",
    ),
    "rollout/greedy_reward": Metric("remax: mean reward of the greedy responses", "mean R_greedy", REWARD, "rises"),
    "rollout/responses_continued": Metric(
        "over_sampling, staleness: responses begun in an earlier step",
        "number",
        COUNT,
        remedy="a smaller rollout.over_sampling",
    ),
    "rollout/staleness": Metric(
        "versions of the weights between sampling and training",
        "training iterations",
        COUNT,
        "0 or 1",
        "rollout.staleness: 0",
    ),
    "rollout/staleness_max": Metric(
        "rollout.staleness: the oldest weights that made a token of the batch",
        "training iterations",
        COUNT,
        "at most rollout.staleness",
    ),
    "rollout/age/{k}": Metric(
        "rollout.staleness: the share of tokens that were made by weights {k} iterations old",
        "tokens of that age / tokens",
        SHARE,
        "0 above the bound",
    ),
    "rollout/batches_open": Metric("rollout.staleness: batches that are begun and not complete", "number", COUNT),
    "rollout/rounds": Metric(
        "dynamic_sampling: rollouts made for this batch", "number", COUNT, "1 to 3", "tasks of other difficulty"
    ),
    "rollout/return": Metric(
        f"mean return {_EPISODES}", "mean sum of rewards", REWARD, "rises", "docs: my run does not learn"
    ),
    "rollout/return_last_100": Metric(
        "mean return of the last 100 episodes", "mean", REWARD, "rises", "docs: my run does not learn"
    ),
    "rollout/episode_len": Metric(f"mean length {_EPISODES}", "mean", "environment steps"),
    "rollout/episodes": Metric(
        "episodes that ended in this step", "number", COUNT, "above 0", "a larger rollout.num_steps or env.num_envs"
    ),
    "rollout/success_once": Metric(
        f"success at any time {_EPISODES}", "episodes / episodes", SHARE, "rises", "a denser reward, or imitation (sft)"
    ),
    "rollout/success_once/{term}": Metric(
        "the same of one task of env.tasks", "episodes / episodes", SHARE, "rises", "a larger weight of that task"
    ),
    "rollout/return/{term}": Metric(
        "mean return of one task of env.tasks, where none reports success",
        "mean sum of rewards",
        REWARD,
        "rises",
        "a larger weight of that task",
    ),
    "rollout/success_at_end": Metric(
        f"success at the last step {_EPISODES}",
        "episodes / episodes",
        SHARE,
        "rises",
        "a denser reward, or imitation (sft)",
    ),
    "rollout/env_steps": Metric("environment steps of this training iteration", "number", COUNT),
    "rollout/env_steps_total": Metric("environment steps since the start", "number", COUNT),
}

EVALUATION_OF_TEXT: Mapping[str, Metric] = {
    "eval/accuracy": Metric(
        "held-out tasks that are solved", "correct / responses", SHARE, "rises", "docs: my run does not learn"
    ),
    "eval/accuracy/{term}": Metric(
        "the same of one environment of env.tasks", "correct / responses", SHARE, "rises", "a larger weight of it"
    ),
    "eval/reward/{term}": Metric(
        "mean reward of the held-out responses of one environment of env.tasks", "mean R", REWARD, "rises"
    ),
    "eval/avg@{k}": Metric("the same with k responses a task", "mean share of correct ones", SHARE, "rises"),
    "eval/pass@{k}": Metric(
        "tasks solved by at least one of k responses", "1 - C(n-c, k) / C(n, k)", SHARE, "above accuracy"
    ),
    "eval/maj@{k}": Metric("tasks whose most frequent answer is right", "majority of k", SHARE, "above accuracy"),
    "eval/reward": Metric(
        "mean reward of the held-out responses", "mean R", REWARD, "rises", "compare with rollout/accuracy"
    ),
    "eval/unparsable": Metric(
        "held-out responses without an answer in the format",
        "unparsable / responses",
        SHARE,
        "below 0.1",
        "as verdict/unparsable",
    ),
    "eval/cut_by_length": Metric("held-out responses cut by the limit", "cut / responses", SHARE, "below 0.2", _LONGER),
    "eval/response_length": Metric("mean length of held-out responses", "mean", TOKENS),
    "eval/blank_pictures": Metric(
        "held-out accuracy with pictures of one colour (evaluation.pictures)",
        "correct / responses",
        SHARE,
        "near chance",
        "the pictures decide nothing: questions whose words alone do not give the answer",
    ),
    "eval/swapped_pictures": Metric(
        "held-out accuracy with the pictures of other tasks (evaluation.pictures)",
        "correct / responses",
        SHARE,
        "near chance",
        "the pictures decide nothing: questions whose words alone do not give the answer",
    ),
    "eval/blank_questions": Metric(
        "held-out accuracy without the words of the questions (evaluation.questions)",
        "correct / responses",
        SHARE,
        "near chance",
        "the questions decide nothing: answers that differ more between tasks",
    ),
    "eval/swapped_questions": Metric(
        "held-out accuracy with the questions of other tasks (evaluation.questions)",
        "correct / responses",
        SHARE,
        "near chance",
        "the questions decide nothing: answers that differ more between tasks",
    ),
    "eval/wrong_tools": Metric(
        "held-out accuracy while every digit of the environment's answers is one higher (evaluation.wrong_tools)",
        "correct / responses",
        SHARE,
        "far below eval/accuracy",
        "the policy does not read its tools: tasks that it cannot solve without them",
    ),
}

EVALUATION_OF_SIMULATORS: Mapping[str, Metric] = {
    "eval/return": Metric(
        "mean return of the evaluation episodes", "mean sum of rewards", REWARD, "rises", "docs: my run does not learn"
    ),
    "eval/episode_len": Metric("mean length of them", "mean", "environment steps"),
    "eval/success_once": Metric(
        "episodes with success at any time", "episodes / episodes", SHARE, "rises", "a denser reward"
    ),
    "eval/success_once/{term}": Metric(
        "the same of one task of env.tasks", "episodes / episodes", SHARE, "rises", "a larger weight of that task"
    ),
    "eval/return/{term}": Metric(
        "mean return of one task of env.tasks, where none reports success",
        "mean sum of rewards",
        REWARD,
        "rises",
        "a larger weight of that task",
    ),
    "eval/follows": Metric(
        "success where the same starts name another goal (evaluation.words)",
        "episodes / episodes",
        SHARE,
        "near eval/success_once",
        "policy.vla.vision.conditioning: film; more start states and demonstrations",
    ),
    "eval/blank_words": Metric(
        "success without words (evaluation.words)",
        "episodes / episodes",
        SHARE,
        "far below eval/success_once",
        "the words decide nothing: use tasks whose start alone does not show what is to be done",
    ),
    "eval/success_at_end": Metric(
        "episodes with success at the last step", "episodes / episodes", SHARE, "rises", "a denser reward"
    ),
    "eval/failures": Metric(
        "episodes, or conversations, that the environment broke", "number", COUNT, "0", "repair the environment"
    ),
}

EVALUATION_OF_FILES: Mapping[str, Metric] = {
    "eval/sft_loss": Metric(
        "loss on held-out demonstrations",
        "-mean log p(response token)",
        "nats",
        "falls; rises again where training overfits",
        "fewer sft.steps",
    ),
    "eval/sft_perplexity": Metric("the same as a perplexity", "exp(eval/sft_loss)", "", "falls", "fewer sft.steps"),
    "eval/dpo_loss": Metric(
        "loss of DPO on held-out pairs", "-mean log sigmoid(margin)", "nats", "below 0.69 (a coin's)", "fewer sft.steps"
    ),
    "eval/dpo_accuracy": Metric(
        "held-out pairs whose chosen answer it prefers", "mean [margin > 0]", SHARE, "above 0.6", "more pairs"
    ),
    "eval/dpo_pairs": Metric("pairs it was measured on", "number", COUNT),
    "eval/sft_tokens": Metric("tokens it was measured on", "number", TOKENS),
}

EVALUATION: Mapping[str, Metric] = {**EVALUATION_OF_TEXT, **EVALUATION_OF_SIMULATORS, **EVALUATION_OF_FILES}

MACHINE: Mapping[str, Metric] = {
    "step": Metric("training iteration; 0 is before the first, negative ones are the warm start", "number", COUNT),
    "env/steps_per_s": Metric(
        "speed of the environments",
        "environment steps / rollout time",
        "1/s",
        remedy="env.num_workers, env.vectorization",
    ),
    "env/failures": Metric(
        "environments that raised an error, and were restarted",
        "number since the start",
        COUNT,
        "0",
        "repair the environment; env.max_failures",
    ),
    "env/timeouts": Metric(
        "steps that took longer than env.step_timeout_s",
        "number since the start",
        COUNT,
        "0",
        "a larger env.step_timeout_s",
    ),
    "env/nan": Metric(
        "observations or rewards that were no finite numbers",
        "number since the start",
        COUNT,
        "0",
        "repair the environment",
    ),
    "failures/samplers": Metric(
        "samplers that died and were restarted", "number since the start", COUNT, "0", "docs: reliability"
    ),
    "failures/env_workers": Metric(
        "env workers that died and were restarted", "number since the start", COUNT, "0", "docs: reliability"
    ),
    "failures/responses_redone": Metric(
        "responses that were lost with them and made again", "number since the start", COUNT, "0", "docs: reliability"
    ),
    "speed/context_cached": Metric(
        "context tokens of responses that the sampler's prefix cache still had",
        "cached / all, once a turn",
        SHARE,
        "high with several turns",
        "docs: agents, a sampler for life",
    ),
    "speed/steps_per_s": Metric("environment steps per second, all phases included", "env_steps / step time", "1/s"),
    "speed/tokens_per_s": Metric("generated tokens per second, all phases included", "tokens / step time", "1/s"),
    "weights/weight_update_bytes": Metric("weights that travelled to the samplers", "sum", "bytes"),
    "weights/weight_update_s": Metric(
        "how long that took", "sum", SECONDS, "small against time/step_s", "rollout.weight_transport"
    ),
    "weights/proved": Metric(
        "weights that samplers, or env workers, have shown to hold as they were sent",
        "compared and the same / sent",
        SHARE,
        "1",
        "a sampler that can read its weights back (rollout.verify_weights)",
    ),
    "weights/proof_s": Metric("how long that took", "wall time", SECONDS, "small against time/step_s"),
    "weights/answer_gap": Metric(
        "samplers whose weights cannot be read: how far they differ from the learner on fixed prompts",
        "mean |logp_learner - logp_sampler|, of several samplers the largest",
        NATS,
        "below rollout.gap_limit",
        "a run whose sampler is further off ends (rollout.verify_weights)",
    ),
    "weights/answer_change": Metric(
        "how much of what an update changed in the learner's log-probabilities changed in theirs too",
        "regression of one change on the other, of several samplers the smallest",
        SHARE,
        "1; 0: the sampler holds the weights of before, and the run ends",
        "a sampler that takes every update",
    ),
    "weights/probe_s": Metric("how long that took", "wall time", SECONDS, "small against time/step_s"),
    "weights/offload_bytes": Metric("what moved to the host while samplers answered", "sum", "bytes"),
    "weights/offload_s": Metric("how long that took", "sum", SECONDS, "small against time/step_s", "learner.offload"),
    "time/step_s": Metric("the whole training iteration", "wall time", SECONDS, remedy="the largest of the others"),
    "time/sft_step_s": Metric("a step of the warm start", "wall time", SECONDS, remedy="sft.batch_size"),
    "time/rollout_s": Metric("collecting the batch", "wall time", SECONDS, remedy="more samplers or env workers"),
    "time/generation_s": Metric(
        "generating responses", "wall time", SECONDS, remedy="rollout.sampler: vllm, more samplers"
    ),
    "time/verification_s": Metric(
        "waiting for responses to be judged while none is generated",
        "wall time",
        SECONDS,
        "small against generation",
        "env.num_workers",
    ),
    "time/verification_hidden_s": Metric("judging responses while others are generated", "wall time", SECONDS),
    "time/prepare_s": Metric(
        "rewards, advantages and old log-probabilities",
        "wall time",
        SECONDS,
        "small against update",
        "learner.micro_batch_tokens",
    ),
    "time/update_s": Metric(
        "optimiser steps", "wall time", SECONDS, remedy="learner.num_workers, learner.micro_batch_tokens"
    ),
    "time/weights_s": Metric(
        "getting new weights to the samplers",
        "wall time",
        SECONDS,
        "small against time/step_s",
        "rollout.weight_transport",
    ),
    "time/evaluation_s": Metric(
        "the evaluation of this step", "wall time", SECONDS, remedy="a smaller evaluation.size"
    ),
    "time/evaluation_hidden_s": Metric(
        "evaluation.background: of it, while the learner trained", "wall time", SECONDS, "near time/evaluation_s"
    ),
    "time/learner_idle_s": Metric(
        "rollout.staleness: the learner waiting for the next batch", "wall time", SECONDS, "near 0", "more samplers"
    ),
    "time/samplers_idle_s": Metric(
        "rollout.staleness: samplers waiting for the learner's next weights",
        "wall time",
        SECONDS,
        remedy="a larger rollout.staleness, or fewer samplers",
    ),
    "time/interrupt_s": Metric(
        "rollout.staleness: interrupting the samplers for new weights", "wall time", SECONDS, "under 0.1"
    ),
    "time/env_busy_s": Metric("environments stepping", "sum over workers", SECONDS, remedy=_BOUND),
    "time/env_waits_s": Metric("environments waiting for the policy", "sum over workers", SECONDS, remedy=_BOUND),
    "time/env_reset_s": Metric(
        "new tasks from the environments", "wall time", SECONDS, "small against generation", "a cheaper reset"
    ),
    "time/policy_busy_s": Metric("the policy deciding", "sum over workers", SECONDS, remedy=_BOUND),
    "time/policy_waits_s": Metric(
        "the policy waiting for environments",
        "sum over workers",
        SECONDS,
        remedy="rollout.pipeline_stages, more environments",
    ),
}
