"""The checkpoint of a replay: to which replay it belongs, and how far that has come.

Read and written through Spark, so it may be wherever Spark's own files may be.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from spark_kafka_sink.tools.job.replay_job import Replay, wrong_argument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OWNER = "replay"  # a folder beside Spark's own: commits, metadata, offsets
_ADVICE = "name another folder, such as a new one"


def check_owner(spark: SparkSession, replay: Replay) -> bool:
    """Whether the checkpoint is used already.

    Raises InvalidConfiguration if anything but a replay of the same selection uses it: its dead
    letters would be passed over.
    """
    folder = replay.configuration.job.checkpoint
    found = _text(spark, f"{folder}/{_OWNER}")
    if found is not None and found != replay.owner:
        raise wrong_argument(
            "--checkpoint",
            f"{folder} belongs to another replay: {found}. This one is {replay.owner}. Its dead "
            f"letters up to where the other one came would be passed over; {_ADVICE}",
        )
    if found is None and _text(spark, f"{folder}/metadata") is not None:
        what = f"{folder} is the checkpoint of another query, not of a replay; {_ADVICE}"
        raise wrong_argument("--checkpoint", what)
    return found is not None


def claim(spark: SparkSession, replay: Replay) -> None:
    """``check_owner``, and from now on the checkpoint belongs to this replay."""
    if not check_owner(spark, replay):
        row = spark.range(1, numPartitions=1).select(F.lit(replay.owner))
        row.write.mode("overwrite").text(f"{replay.configuration.job.checkpoint}/{_OWNER}")


def ends(spark: SparkSession, replay: Replay) -> dict[int, int]:
    """The offset in each partition up to which the replay has come; empty before it has begun."""
    folder = replay.configuration.job.checkpoint
    commits = _files(spark, f"{folder}/commits")
    if commits is None:
        return {}
    names = commits.select("_metadata.file_name").collect()
    last = max((int(row.file_name) for row in names if row.file_name.isdigit()), default=None)
    log = None if last is None else _text(spark, f"{folder}/offsets/{last}")
    if log is None:
        return {}
    # A line with Spark's version of the file, one with settings, one for each source.
    offsets = json.loads(log.splitlines()[-1])
    of_topic = offsets.get(replay.dead_letter_topic, {})
    return {int(partition): int(offset) for partition, offset in of_topic.items()}


def _text(spark: SparkSession, path: str) -> str | None:
    """The text of a file, or of the file in a folder; None if there is none."""
    files = _files(spark, path)
    row = None if files is None else files.first()
    return None if row is None else str(row.value).strip()


def _files(spark: SparkSession, path: str) -> DataFrame | None:
    """A row for each file; None if there is no such file or folder."""
    try:
        return spark.read.text(path, wholetext=True)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return None
        raise
