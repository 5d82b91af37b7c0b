"""A job's file with several sinks: what is accepted, and every mistake with its place."""

from __future__ import annotations

import job_files
import pytest

from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.errors import InvalidConfiguration
from spark_kafka_sink.tools.job.configuration import check
from spark_kafka_sink.tools.job.document import Document

GOOD = """\
name: shop
source:
  format: rate
sinks:
  orders:
    sql: SELECT string(value) AS value FROM source
    options:
      kafka.bootstrap.servers: localhost:9092
      topic: orders
    checkpoint: /data/orders
  audit:
    mode: format
    options:
      kafka.bootstrap.servers: localhost:9093
      topic: audit
    trigger: {processingTime: 1 minute}
    checkpoint: /data/audit
"""


def checked(text=GOOD, *overrides, **environment):
    return check(Document(text, "job.yaml", overrides), environment)


def mistakes(text=GOOD, *overrides, **environment):
    return job_files.mistakes(lambda: checked(text, *overrides, **environment))


def with_options(**options):
    """Each sink's further option."""
    text = GOOD
    for sink, option in options.items():
        text = text.replace(f"topic: {sink}\n", f"topic: {sink}\n      {option}\n")
    return text


def test_each_sink_is_a_query_with_the_jobs_name_and_its_own():
    file = checked()
    assert file.has_several_sinks
    assert file.job.name == "shop"
    orders, audit = (each.job for each in file.queries)
    assert (orders.name, audit.name) == ("shop.orders", "shop.audit")
    assert (orders.source.format, audit.source.format) == ("rate", "rate")
    assert (orders.sql, audit.sql) == ("SELECT string(value) AS value FROM source", None)
    assert (orders.sink.mode, audit.sink.mode) == ("foreach_batch", "format")
    assert (orders.checkpoint, audit.checkpoint) == ("/data/orders", "/data/audit")
    assert orders.trigger is None
    assert audit.trigger.processing_time == "1 minute"
    assert [each.sink_options.topic for each in file.queries] == ["orders", "audit"]


def test_all_queries_share_the_keys_at_the_top():
    top = "restart: {attempts: 3}\nmetrics: {port: 0}\nwarm_up: true\nstop_timeout_seconds: 7\n"
    for query in checked(GOOD + top).queries:
        job = query.job
        assert (job.restart.attempts, job.metrics.port) == (3, 0)
        assert (job.warm_up, job.stop_timeout_seconds) == (True, 7)


def test_a_failure_stops_all_queries_unless_the_file_says_otherwise():
    assert checked().stops_all
    assert not checked(GOOD + "on_failure: leave_others\n").stops_all
    (line,) = mistakes(GOOD + "on_failure: stop\n")
    assert line == "job.yaml:18:1: on_failure: allowed: stop_all or leave_others"


def test_a_file_with_sink_is_one_query_with_the_jobs_name():
    text = GOOD.replace("sinks:\n  orders:\n", "sink:\n").partition("  audit:")[0]
    text = text.replace("    sql: SELECT string(value) AS value FROM source\n", "")
    file = checked(text.replace("    checkpoint", "checkpoint"))
    assert not file.has_several_sinks
    assert not file.stops_all
    assert [query.job.name for query in file.queries] == ["shop"]


def test_options_of_every_sink_may_refer_to_secrets(tmp_path):
    (tmp_path / "password").write_text("of-file\n")
    login = "{kafka.security.protocol: SASL_SSL, kafka.sasl.mechanism: PLAIN, "
    text = GOOD.replace(
        "options:\n      kafka.bootstrap.servers: localhost:9092\n      topic: orders",
        f"options: {login}kafka.sasl.username: u, kafka.sasl.password: '${{env:P}}', "
        "kafka.bootstrap.servers: 'localhost:9092', topic: orders}",
    ).replace(
        "options:\n      kafka.bootstrap.servers: localhost:9093\n      topic: audit",
        f"options: {login}kafka.sasl.username: u, kafka.sasl.password: "
        f"'${{file:{tmp_path}/password}}', kafka.bootstrap.servers: 'localhost:9093'}}",
    )
    passwords = [
        query.job.sink.options["kafka.sasl.password"] for query in checked(text, P="of-env").queries
    ]
    assert passwords == ["of-env", "of-file"]
    assert all(isinstance(each, Secret) for each in passwords)
    (line,) = mistakes(text)
    assert line.endswith(
        "sinks.orders.options.kafka.sasl.password: the environment variable P is not set"
    )


def test_a_secret_that_is_written_out_is_refused_and_not_shown():
    (line,) = mistakes(with_options(audit="kafka.sasl.password: hunter2"))
    assert line.startswith("job.yaml:16:7: sinks.audit.options.kafka.sasl.password: is a secret:")
    assert "hunter2" not in line


def test_variables_in_a_sinks_sql_are_sparks():
    file = checked(GOOD, "sinks.orders.sql=SELECT '${env:X}' AS value FROM source")
    assert file.queries[0].job.sql == "SELECT '${env:X}' AS value FROM source"


def test_a_value_is_replaced_in_one_sink():
    file = checked(GOOD, "sinks.audit.options.kafka.linger.ms=7", "sinks.orders.options.Topic=new")
    orders, audit = file.queries
    assert orders.job.sink.options["Topic"] == "new"
    assert orders.sink_options.topic == "new"
    assert audit.job.sink.options["kafka.linger.ms"] == "7"
    assert "kafka.linger.ms" not in orders.job.sink.options


# --- mistakes -------------------------------------------------------------------------------------


def test_mistakes_of_all_sinks_are_reported_together_with_their_places():
    text = GOOD.replace("topic: orders", "topic: a b").replace("mode: format", "mode: formt")
    text = text.replace("1 minute", "soon").replace(
        "      kafka.bootstrap.servers: localhost:9093\n", ""
    )
    found = mistakes(text)
    assert [line.split(": ")[:2] for line in found] == [
        ["job.yaml:9:7", "sinks.orders.options.topic"],
        ["job.yaml:12:5", "sinks.audit.mode"],
        ["job.yaml:13:5", "sinks.audit.options"],
        ["job.yaml:15:15", "sinks.audit.trigger.processingTime"],
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("name: shop", "name: shop\nsink: {}", "2:1: sink: a file has either sink or sinks"),
        (
            "name: shop",
            "name: shop\nsql: SELECT 1",
            "2:1: sql: belongs to one sink; write it as sin",
        ),
        ("name: shop", "name: shop\ncheckpoint: /c", "write it as sinks.NAME.checkpoint"),
        ("name: shop", "name: shop\ntrigger: {once: true}", "write it as sinks.NAME.trigger"),
        ("name: shop", "name: shop\noutput_mode: append", "write it as sinks.NAME.output_mode"),
        ("name: shop", "name: shop\nwarm: true", "warm: unknown key; did you mean warm_up? (allow"),
        ("    checkpoint: /data/audit\n", "", "sinks.audit.checkpoint: is required: the folder of"),
        (
            "mode: format",
            "mde: format",
            "12:5: sinks.audit.mde: unknown key; did you mean mode? (a",
        ),
        (
            "mode: format",
            "mode: format\n    output_mode: update",
            "sinks.audit.output_mode: Spark does not support update for Python sinks; set mode to",
        ),
        (
            "mode: format",
            "create_topics: {topic: {}}",
            "sinks.audit.create_topics.topic.partitions: is required: how many",
        ),
        (
            "mode: format",
            "create_topics: {dead.letter.topic: {partitions: 1}}",
            "has an effect only with sinks.audit.options.dead.letter.topic",
        ),
        ("{processingTime: 1 minute}", "{}", "sinks.audit.trigger: needs exactly one of"),
        (
            "topic: audit",
            "topic: audit\n      TOPIC: again",
            "16:7: sinks.audit.options.TOPIC: already set at job.yaml:15:7 as topic;",
        ),
        ("  audit:", "  a.b:", "11:3: sinks.a.b: a sink's name has only letters, digits, _ and -"),
        ("  audit:", "  'a b':", "sinks.a b: a sink's name has only letters"),
    ],
)
def test_a_mistake_says_where_it_is_and_what_is_allowed(old, new, expected):
    assert old in GOOD
    (line,) = mistakes(GOOD.replace(old, new, 1))
    assert expected in line


@pytest.mark.parametrize(
    ("sinks", "expected"),
    [
        ("{}", "job.yaml:3:1: sinks: needs at least one sink"),
        ("many", "job.yaml:3:1: sinks: must be a mapping of keys to values"),
        ("", "job.yaml:3:1: sinks: has no value; leave it out"),
        ("{orders: many}", "job.yaml:3:9: sinks.orders: must be a mapping of keys to values"),
    ],
)
def test_sinks_are_a_mapping_by_name(sinks, expected):
    assert mistakes(f"name: a\nsource: {{format: rate}}\nsinks: {sinks}\n") == [expected]


def test_on_failure_has_an_effect_only_with_sinks():
    text = "name: a\nsource: {format: rate}\ncheckpoint: /c\non_failure: stop_all\n"
    (line,) = mistakes(text + "sink: {options: {kafka.bootstrap.servers: 'b:9092', topic: t}}\n")
    assert line == "job.yaml:4:1: on_failure: has an effect only with sinks"


def test_what_the_format_refuses_is_a_mistake_of_its_sink():
    once = "delivery.guarantee: exactly-once"
    (line,) = mistakes(with_options(orders=once, audit=once))
    assert line.startswith("job.yaml:14:5: sinks.audit.options: ")
    assert "exactly.once.partitions" in line


# --- what sinks may not have in common ------------------------------------------------------------


@pytest.mark.parametrize(
    "same",
    [
        "/data/orders",
        "/data//x/../orders/",
        "file:/data/orders",
        "file:///data/orders",
    ],
)
def test_two_queries_with_one_checkpoint_are_refused_however_it_is_written(same):
    (line,) = mistakes(GOOD, f"sinks.audit.checkpoint={same}")
    assert line.startswith("--set sinks.audit.checkpoint: sinks.audit.checkpoint: shop.orders and ")
    assert "shop.orders and shop.audit have the same one" in line


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("s3://bucket/a/", "S3://bucket//a", True),
        ("s3://bucket", "s3://bucket/", True),
        ("s3://bucket/a", "s3://bucket/b", False),
        ("s3://bucket/a", "s3://other/a", False),
        ("s3://bucket/a", "/bucket/a", False),
        ("a", "./b/../a", True),
        ("a", "/a", False),
    ],
)
def test_folders_are_compared_as_storage_does(one, other, is_same):
    text = GOOD.replace("/data/orders", one).replace("/data/audit", other)
    if is_same:
        assert len(mistakes(text)) == 1
    else:
        checked(text)


def test_a_link_to_the_other_checkpoint_is_the_same_one(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    text = GOOD.replace("/data/orders", f"{tmp_path}/real/c")
    assert len(mistakes(text.replace("/data/audit", f"{tmp_path}/link/c"))) == 1


def test_two_queries_with_one_folder_of_reports_are_refused():
    text = with_options(orders="report.path: /reports", audit="Report.Path: /reports/")
    (line,) = mistakes(text)
    assert line.startswith(
        "job.yaml:17:7: sinks.audit.options.Report.Path: shop.orders and shop.au"
    )


def test_two_queries_with_one_prefix_for_transactions_are_refused():
    once = "delivery.guarantee: exactly-once\n      transactional.id.prefix: p"
    text = with_options(orders=once, audit=once).replace("mode: format", "mode: foreach_batch")
    (line,) = mistakes(text)
    assert "sinks.audit.options.transactional.id.prefix: shop.orders and shop.audit have" in line
    checked(text, "sinks.audit.options.transactional.id.prefix=q")


# --- --sink ---------------------------------------------------------------------------------------


def test_one_of_several_sinks_is_chosen_by_name():
    assert checked().of_sink("audit").job.name == "shop.audit"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, "--sink: the file has several sinks; choose one of them: orders, audit"),
        ("billing", "--sink: there is no sink billing; choose one of them: orders, audit"),
    ],
)
def test_a_sink_that_is_not_there_is_not_chosen(name, expected):
    assert job_files.mistakes(lambda: checked().of_sink(name)) == [expected]


def test_a_file_with_sink_has_nothing_to_choose():
    options = "{kafka.bootstrap.servers: 'b:9092', topic: t}"
    text = f"name: a\nsource: {{format: rate}}\ncheckpoint: /c\nsink: {{options: {options}}}\n"
    assert checked(text).of_sink(None).job.name == "a"
    with pytest.raises(InvalidConfiguration, match="--sink: the file has sink, not sinks; leave"):
        checked(text).of_sink("a")


# --- mistakes that Spark finds --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), "job.yaml:11:3: sinks.audit: x"),
        (("sql",), "job.yaml:11:3: sinks.audit.sql: x"),
        (("source",), "job.yaml:2:1: source: x"),
        (("sink", "options", "topic"), "job.yaml:15:7: sinks.audit.options.topic: x"),
        (("checkpoint",), "job.yaml:17:5: sinks.audit.checkpoint: x"),
    ],
)
def test_a_later_mistake_of_a_query_has_its_place_in_the_file(path, expected):
    assert str(checked().of_sink("audit").mistake(path, "x")) == expected
