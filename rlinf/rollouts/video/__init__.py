"""Episodes as videos."""
