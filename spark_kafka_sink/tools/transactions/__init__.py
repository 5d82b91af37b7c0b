"""``python -m spark_kafka_sink transactions``: lists and ends what queries left open."""
