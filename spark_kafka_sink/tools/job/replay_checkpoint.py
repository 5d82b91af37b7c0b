"""The checkpoint of a replay: to which replay it belongs, and its progress.

Read and written through Spark, so it may be wherever Spark's own files may be.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.spark.private_api import committed_offsets, is_checkpoint, read_text
from spark_kafka_sink.tools.job.replay_job import Replay, wrong_argument
from spark_kafka_sink.tools.job.spark_errors import SPARK_ERRORS, is_transient, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OWNER = "replay"  # a folder beside Spark's own: commits, metadata, offsets
_ADVICE = "name another folder"


def check_owner(spark: SparkSession, replay: Replay) -> bool:
    """Whether the checkpoint is already in use.

    Raises InvalidConfiguration if anything but a replay of the same selection uses it: dead letters
    would be skipped. Raises what ``refused`` returns if it cannot be read.
    """
    folder = replay.configuration.job.checkpoint
    with _used_by_spark(folder):
        found = read_text(spark, f"{folder}/{_OWNER}")
        is_of_query = found is None and is_checkpoint(spark, folder)
    if found is not None and found != replay.owner:
        raise wrong_argument(
            "--checkpoint",
            f"{folder} belongs to another replay: {found}. This one is {replay.owner}. It would "
            f"skip the dead letters that the other replay has read; {_ADVICE}",
        )
    if is_of_query:
        what = f"{folder} is the checkpoint of another query, not of a replay; {_ADVICE}"
        raise wrong_argument("--checkpoint", what)
    return found is not None


def claim(spark: SparkSession, replay: Replay) -> None:
    """``check_owner``, then record this replay as the owner."""
    if not check_owner(spark, replay):
        folder = replay.configuration.job.checkpoint
        row = spark.range(1, numPartitions=1).select(F.lit(replay.owner))
        with _used_by_spark(folder):
            row.write.mode("overwrite").text(f"{folder}/{_OWNER}")


@contextmanager
def _used_by_spark(folder: str) -> Iterator[None]:
    try:
        yield
    except SPARK_ERRORS as error:
        what = f"Spark cannot use {folder}: {reason(error)}; correct its rights, or {_ADVICE}"
        raise refused("--checkpoint", what, error) from None


def refused(argument: str, what: str, error: Exception) -> KafkaSinkError:
    """The error for an argument that Spark refuses: a mistake, unless it may be transient."""
    return (
        KafkaSinkError(f"{argument}: {what}")
        if is_transient(error)
        else wrong_argument(argument, what)
    )


def ends(spark: SparkSession, replay: Replay) -> dict[int, int]:
    """The offset that the replay has reached in each partition; empty before its first commit."""
    text = committed_offsets(spark, replay.configuration.job.checkpoint)
    of_topic = {} if text is None else json.loads(text).get(replay.dead_letter_topic, {})
    return {int(partition): int(offset) for partition, offset in of_topic.items()}
