from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import settings

settings.register_profile("tests", deadline=None)  # a slow machine is no failure
# Generated examples depend on no clock: few of them will do where tests are repeated.
settings.register_profile("repeated", deadline=None, max_examples=10)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

# Spark's Python workers start in half the time of those that compile PySpark from Spark's zip.
os.environ["PYSPARK_PYTHON"] = str(Path(sys.executable).parent / "kafka-nb-python")
