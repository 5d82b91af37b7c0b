"""JSON with JSON Schema: the schema of a column, its check against a given one, and the encoder."""
