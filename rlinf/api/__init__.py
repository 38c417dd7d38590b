"""The functions behind ``rlinf.load``, ``rlinf.check``, ``rlinf.train``, ``rlinf.evaluate`` and ``rlinf.Policy``."""
