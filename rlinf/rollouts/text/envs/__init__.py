"""Text environments: made from their ids, mixed, or run one copy per conversation."""
