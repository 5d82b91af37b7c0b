"""A streaming job from a configuration file: ``jobs/stream_to_kafka.py``."""
