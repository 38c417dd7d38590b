"""Programs for other interpreters: nothing here imports, or is imported by, the rest of the package."""
