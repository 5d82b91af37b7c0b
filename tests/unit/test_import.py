from __future__ import annotations

import pytest
from another_python import run_python


@pytest.fixture
def fresh_python(tmp_path):
    """Runs statements in another interpreter, away from the source tree."""
    return lambda statements: run_python("-c", statements, cwd=tmp_path)


def test_importing_the_package_loads_nothing_heavy(fresh_python):
    done = fresh_python("import sys, spark_kafka_sink; print(*sys.modules)")
    loaded = set(done.stdout.split())
    assert "spark_kafka_sink.errors" in loaded
    assert not loaded & {"pyspark", "pyarrow", "numpy", "confluent_kafka"}


def test_finding_the_format_loads_neither_arrow_nor_librdkafka(fresh_python):
    pytest.importorskip("pyspark.sql.datasource")
    done = fresh_python(
        "import sys, pyspark.sql.datasource\n"
        "already = set(sys.modules)\n"  # PySpark 4.1 itself loads numpy
        "import pyspark_kafka_nb\n"
        "print(*set(sys.modules) - already)"
    )
    loaded = set(done.stdout.split())
    assert "spark_kafka_sink.spark.datasource" in loaded
    assert not loaded & {
        "pyarrow",
        "numpy",
        "confluent_kafka",
        "spark_kafka_sink.librdkafka._prototypes",
    }
    assert done.stderr == ""


def test_a_former_name_leads_to_the_present_one():
    import spark_kafka_sink

    with pytest.warns(DeprecationWarning, match="now called RegistryRejected"):
        assert spark_kafka_sink.RegistryRefused is spark_kafka_sink.RegistryRejected


def test_a_task_loads_nothing_that_only_errors_and_registries_need(fresh_python):
    """Every cold worker imports it."""
    done = fresh_python(
        "import sys, pyspark.worker, pyarrow\n"
        "already = set(sys.modules)\n"
        "import spark_kafka_sink.spark.task, spark_kafka_sink.producer.cache\n"
        "print(*set(sys.modules) - already)"
    )
    loaded = set(done.stdout.split())
    assert "spark_kafka_sink.producer.engine" in loaded
    unwanted = {"confluent_kafka", "http.client", "httpx", "referencing", "urllib.request", "yaml"}
    assert not loaded & unwanted


def test_spark_finds_the_sink_under_the_name_it_looks_for(fresh_python):
    pytest.importorskip("pyspark.sql.datasource")
    done = fresh_python(
        "import pyspark_kafka_nb, spark_kafka_sink\n"
        "print(pyspark_kafka_nb.DefaultSource is spark_kafka_sink.KafkaSink)"
    )
    assert done.stdout == "True\n"


# As Spark 3.5 is.
NO_DATA_SOURCES = "import sys; sys.modules['pyspark.sql.datasource'] = None\n"


def test_missing_data_source_api_is_a_warning_and_no_error(fresh_python):
    done = fresh_python(
        f"{NO_DATA_SOURCES}import pyspark_kafka_nb\n"
        "print(hasattr(pyspark_kafka_nb, 'DefaultSource'))"
    )
    assert done.stdout == "False\n"
    assert 'UserWarning: format("kafka-nb") is not available' in done.stderr


def test_without_data_sources_all_else_is_there_and_registering_says_what_to_use(fresh_python):
    done = fresh_python(
        f"{NO_DATA_SOURCES}from spark_kafka_sink import *\n"
        "try:\n"
        "    register(None)\n"
        "except KafkaSinkError as error:\n"
        "    print(error)"
    )
    assert done.stdout.endswith('no format("kafka-nb"): use foreach_batch\n')


def test_foreach_batch_does_not_load_what_only_the_format_needs(fresh_python):
    done = fresh_python(
        "import sys, pyspark.sql\n"
        "already = set(sys.modules)\n"
        "from spark_kafka_sink import foreach_batch\n"
        "print(*set(sys.modules) - already)"
    )
    loaded = set(done.stdout.split())
    assert "spark_kafka_sink.spark.task" in loaded
    assert not loaded & {"spark_kafka_sink.spark.datasource", "pyspark.sql.datasource"}


def test_importing_the_module_patches_nothing(fresh_python):
    done = fresh_python(
        "import pyspark.sql.readwriter as r, pyspark.sql.streaming.readwriter as s\n"
        "before = dict(vars(r.DataFrameWriter)), dict(vars(s.DataStreamWriter))\n"
        "import spark_kafka_sink.spark.patch\n"
        "print(before == (dict(vars(r.DataFrameWriter)), dict(vars(s.DataStreamWriter))))"
    )
    assert done.stdout == "True\n"


def test_without_connects_packages_the_classic_writers_are_patched(fresh_python):
    done = fresh_python(
        "import sys; sys.modules['grpc'] = None\n"
        "import spark_kafka_sink\n"
        "spark_kafka_sink.patch_pyspark()\n"
        "from pyspark.sql.readwriter import DataFrameWriter\n"
        "print(DataFrameWriter.save.__wrapped__.__qualname__)"
    )
    assert done.stdout == "DataFrameWriter.save\n"


def test_unknown_name_in_the_package_is_an_attribute_error():
    import spark_kafka_sink

    with pytest.raises(AttributeError, match="no attribute 'KafkaSource'"):
        _ = spark_kafka_sink.KafkaSource


def test_every_public_name_can_be_imported():
    import spark_kafka_sink

    assert all(getattr(spark_kafka_sink, name) for name in spark_kafka_sink.__all__)
