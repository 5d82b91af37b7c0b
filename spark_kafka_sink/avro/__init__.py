"""Avro: the schema of a Spark type, and a vectorised encoder for Arrow columns."""
