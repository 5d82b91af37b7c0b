from __future__ import annotations

import pytest
from another_python import run_python

from spark_kafka_sink.librdkafka.setting_specs import (
    SettingSpec,
    producer_setting_specs,
    setting_problem,
)


@pytest.mark.parametrize("name", ["linger.ms", "queue.buffering.max.ms"])
def test_a_setting_is_described_under_both_of_its_names(name):
    assert producer_setting_specs()[name] == SettingSpec("0 .. 900000", "5", "float")


def test_settings_that_a_producer_does_not_take_as_strings_are_left_out():
    specs = producer_setting_specs()
    assert "sasl.password" in specs
    assert not {"group.id", "log_cb", "Property"} & specs.keys()


def test_the_manual_is_read_where_no_file_can_be_written():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "from spark_kafka_sink.librdkafka.setting_specs import producer_setting_specs\n"
        "print(len(producer_setting_specs()))"
    )
    done = run_python("-c", code)
    assert int(done.stdout) == len(producer_setting_specs())


FORKING = """
import os
from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.librdkafka.setting_specs import producer_setting_specs

# As another thread might, while the manual is being read.
show = c.conf_properties_show
reader, writer = os.pipe()
def show_while_a_child_lives(stream):
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # until the parent ends
        os._exit(0)
    show(stream)

c.conf_properties_show = show_while_a_child_lives
print(len(producer_setting_specs()), flush=True)
"""


def test_the_manual_is_read_while_a_forked_process_lives():
    # If it waits for the child, and the child for it, only the timeout ends both.
    done = run_python("-c", FORKING)
    assert int(done.stdout) == len(producer_setting_specs())


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("linger.ms", "9999999", "outside allowed range"),
        ("linger.mss", "5", "No such configuration property"),
    ],
)
def test_a_rejection_says_why(name, value, why):
    assert why in str(setting_problem(name, value))


def test_a_value_within_its_range_is_not_rejected():
    assert setting_problem("linger.ms", "5") is None
