"""Jobs from a configuration file: ``jobs/stream_to_kafka.py``, ``jobs/replay_dead_letters.py``."""
