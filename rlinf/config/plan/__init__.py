"""What a configuration will do, in numbers, before anything starts: processes, batch, memory, traffic."""
