"""JSON Schema as a formal language: which texts satisfy it."""
