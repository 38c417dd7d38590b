"""From words to tokens and back: prompts, chat templates, tool calls, decoding."""
