"""``python -m spark_kafka_sink report``: what the reports of a stream's micro-batches tell."""
