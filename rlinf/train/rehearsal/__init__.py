"""A run's learner at full size without its memory: real code, fake tensors, one rank at a time (``rlinf check``)."""
