"""The batch, and the ways in which its rows are stored, sent and split."""
