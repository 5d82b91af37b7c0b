"""What the serialization formats share: Arrow columns in, encoded records out."""
