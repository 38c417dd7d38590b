"""Programs of other people that call the policy over HTTP, and the tokens of their requests and the answers."""
