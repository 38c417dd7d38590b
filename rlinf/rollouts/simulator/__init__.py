"""Episodes and fragments of simulators, collected by env workers and joined into batches."""
