"""The order in which tasks are drawn: mixtures, a pool that rests solved tasks, a curriculum."""
