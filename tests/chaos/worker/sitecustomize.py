"""Every Python of the streams imports this first: it observes, and kills, what writes a partition.

The product has no code for tests, so its function is replaced as soon as its module is imported.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import signal
import sys

MODULE = "spark_kafka_sink.spark.task"


class _Finder:
    """Finds MODULE as usual, and lets ``observed_tasks`` change it after its import."""

    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            import observed_tasks

            observed_tasks.install(module)

        spec.loader.exec_module = exec_module
        return spec


# To standard error, which is the log of the streams: after a crash, and when asked.
faulthandler.enable()
faulthandler.register(signal.SIGUSR1)
sys.meta_path.insert(0, _Finder())
