"""The functions behind ``rlinf.load``, ``rlinf.check``, ``rlinf.fit``, ``rlinf.evaluate`` and ``rlinf.Policy``."""
