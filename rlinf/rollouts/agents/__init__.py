"""Programs of other people that call the policy over HTTP, and the tokens of what they asked and were told."""
