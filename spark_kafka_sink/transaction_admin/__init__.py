"""``python -m spark_kafka_sink transactions``: shows and ends what exactly-once queries left open."""
