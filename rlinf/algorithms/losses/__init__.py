"""Policy losses: one file with one function each. A new one also needs an entry in ``catalog.LOSSES`` and a test."""
