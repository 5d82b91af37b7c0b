"""``python -m spark_kafka_sink report``: a stream's reports, in a terminal or as a page."""
