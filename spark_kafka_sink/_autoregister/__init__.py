"""[driver] Installed as ``pyspark_kafka_nb``: Spark finds the format without a register call.

Spark imports every top-level module named ``pyspark_*`` and gives up on all of them if one fails,
so this module warns instead of raising.
"""

try:
    from spark_kafka_sink.spark.private_api import require_data_sources

    require_data_sources()
    from spark_kafka_sink.spark.datasource import KafkaSink as DefaultSource  # noqa: F401
except Exception as error:  # noqa: BLE001 - Spark must still find other data sources
    import warnings

    warnings.warn(
        f'format("kafka-nb") is not available: {error!r}',
        stacklevel=1,
    )
