"""Tasks of the Berkeley Function-Calling Leaderboard."""
