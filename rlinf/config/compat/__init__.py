"""Other frameworks' names for our keys."""
