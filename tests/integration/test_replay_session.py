"""What a replay asks Spark before and after it: its checkpoint, and the remaining dead letters."""

from __future__ import annotations

import json

import pytest
from dead_letters import dead_letter, produce

from spark_kafka_sink.errors import InvalidConfiguration, KafkaSinkError
from spark_kafka_sink.tools.job.replay import counted
from spark_kafka_sink.tools.job.replay_checkpoint import check_owner, claim, ends
from spark_kafka_sink.tools.job.replay_job import load_replay
from spark_kafka_sink.tools.job.selection import Selection


@pytest.fixture
def session(spark):
    """Counting changes a setting of the session."""
    return spark.newSession()


@pytest.fixture
def replay_of(tmp_path, bootstrap_servers):
    def replay_of(dead_letters, *errors, checkpoint=str(tmp_path / "checkpoint")):
        options = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "on.record.error": "dead-letter",
            "dead.letter.topic": dead_letters,
        }
        document = {"name": "orders", "sink": {"options": options}}
        file = tmp_path / "stream.yaml"
        file.write_text(json.dumps(document))
        return load_replay(file, checkpoint, Selection(frozenset(errors)))

    return replay_of


def test_a_checkpoint_belongs_to_one_dead_letter_topic_and_selection(session, replay_of):
    mine = replay_of("dead", "A", "B")
    assert not check_owner(session, mine)
    claim(session, mine)
    assert check_owner(session, mine)
    claim(session, replay_of("dead", "B", "A"))
    for other in (replay_of("dead"), replay_of("dead", "A"), replay_of("dead2", "A", "B")):
        for refuse in (check_owner, claim):
            with pytest.raises(InvalidConfiguration, match=r"--checkpoint: .* belongs to another"):
                refuse(session, other)
    assert check_owner(session, mine)


def test_the_checkpoint_of_another_query_is_refused(session, replay_of, tmp_path):
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", tmp_path / "checkpoint")
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    with pytest.raises(InvalidConfiguration, match="is the checkpoint of another query"):
        claim(session, replay_of("dead"))
    assert not (tmp_path / "checkpoint" / "replay").exists()


def test_a_checkpoint_that_spark_cannot_use_is_an_error_in_one_line(session, replay_of, tmp_path):
    elsewhere = replay_of("dead", checkpoint="no-such-system://bucket/checkpoint")
    with pytest.raises(InvalidConfiguration, match=r"--checkpoint: Spark cannot use no-such-s.*:/"):
        check_owner(session, elsewhere)
    (tmp_path / "file").write_text("")
    below_a_file = replay_of("dead", checkpoint=str(tmp_path / "file" / "checkpoint"))
    with pytest.raises(
        KafkaSinkError, match=r"^--checkpoint: Spark cannot use .*name another"
    ) as e:
        claim(session, below_a_file)
    assert not isinstance(e.value, InvalidConfiguration)
    assert len(str(e.value).splitlines()) == 1


def test_a_checkpoint_says_how_far_the_replay_has_come(session, replay_of, topics, tmp_path):
    topic = topics.create(2)
    produce(topics.bootstrap_servers, topic, [dead_letter("A", "t"), dead_letter("B", "t")])
    replay = replay_of(topic, "A")
    assert ends(session, replay) == {}
    assert counted(session, replay) == ({("A", "t"): 1}, {("B", "t"): 1})
    rows = session.readStream.format("kafka").options(**replay.configuration.job.source.options)
    writer = rows.load().writeStream.format("noop")
    writer = writer.option("checkpointLocation", tmp_path / "checkpoint")
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    assert sum(ends(session, replay).values()) == 2
    assert counted(session, replay) == ({}, {("B", "t"): 1})
    produce(topics.bootstrap_servers, topic, [dead_letter("A", "new")])
    assert counted(session, replay) == ({("A", "new"): 1}, {("B", "t"): 1})


def test_a_missing_dead_letter_topic_is_named(session, replay_of, topics):
    name = topics.new_name()
    expected = f"the dead letters in {name} cannot be counted: .*UnknownTopicOrPartition"
    with pytest.raises(KafkaSinkError, match=expected):
        counted(session, replay_of(name))
