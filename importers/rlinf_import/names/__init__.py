"""Our names for other frameworks' keys, one table a framework.

Nothing is translated by these tables: an unknown key stays an error, and the error states what to write
instead. Names that are read as ours are in :mod:`rlinf.config.compat.aliases`.
"""
