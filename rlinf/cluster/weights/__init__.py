"""Moves weights from the learner to whatever acts: shared memory on one node, a broadcast between nodes.

The third way, Ray's object store, is a call whose value another call takes. This package is used inside workers and
imports torch, which :mod:`rlinf.cluster` itself does not.
"""
