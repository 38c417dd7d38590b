"""YAML to a typed, checked configuration. Imports neither torch nor ray."""
