"""Every file in conf/ is right, and holds what docs/tuning.md measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_files import checked
from redaction import OPTIONS, redaction_settings

ROOT = Path(__file__).parents[2]
JOBS = sorted((ROOT / "conf").glob("*.yaml"))


def configuration(path, tmp_path):
    return checked(path.read_text(encoding="utf-8"), path.name, tmp_path)


def test_there_is_a_configuration_for_each_kind_of_cluster():
    assert {path.stem for path in JOBS} >= {
        "local",
        "confluent_cloud",
        "confluent_cloud_oidc",
        "event_hubs",
        "msk_iam",
        "redpanda",
        "mtls",
        "throughput",
        "low_latency",
    }


@pytest.mark.parametrize("path", JOBS, ids=lambda path: path.stem)
def test_a_configuration_is_right(path, tmp_path):
    right = configuration(path, tmp_path)
    assert right.sink_options.topic is not None
    assert right.job.checkpoint


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("confluent_cloud", "sasl.mechanism", "PLAIN"),
        ("confluent_cloud_oidc", "sasl.oauthbearer.method", "oidc"),
        ("msk_iam", "sasl.mechanism", "OAUTHBEARER"),
        ("event_hubs", "sasl.username", "$ConnectionString"),
        ("event_hubs", "bootstrap.servers", "example.servicebus.windows.net:9093"),
        ("event_hubs", "socket.timeout.ms", "60000"),
        ("redpanda", "sasl.mechanism", "SCRAM-SHA-256"),
        ("mtls", "ssl.key.password", "of kafka-key-password"),
        ("mtls", "ssl.ca.location", "/etc/kafka/ca.pem"),
        ("throughput", "compression.type", "lz4"),
    ],
)
def test_the_client_gets_the_settings_that_matter(name, setting, value, tmp_path):
    client = configuration(ROOT / "conf" / f"{name}.yaml", tmp_path).sink_options.producer.client
    assert client[setting] == value


@pytest.mark.parametrize("name", ["throughput.conf", "low_latency.conf"])
def test_profiles_set_what_the_page_on_tuning_names(name):
    lines = (ROOT / "conf" / name).read_text(encoding="utf-8").splitlines()
    settings = [line.split() for line in lines if line and not line.startswith("#")]
    tuning = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
    assert settings
    for setting, value in settings:
        assert setting in tuning or value in tuning


def test_the_file_for_one_machine_has_the_settings_for_throughput_and_for_secrets():
    def settings(name):
        lines = (ROOT / "conf" / name).read_text(encoding="utf-8").splitlines()
        return {tuple(line.split()) for line in lines if line and not line.startswith("#")}

    assert settings("throughput.conf") <= settings("spark.conf")
    assert (OPTIONS, redaction_settings()[OPTIONS]) in settings("spark.conf")
