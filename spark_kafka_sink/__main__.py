"""Runs the command line."""

import sys

from spark_kafka_sink.cli import main

sys.exit(main())
