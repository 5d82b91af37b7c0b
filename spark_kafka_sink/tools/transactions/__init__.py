"""``python -m spark_kafka_sink transactions``: shows and ends what queries have left open."""
