"""The plan of a configuration, in numbers, before anything starts: processes, batch, memory, traffic."""
