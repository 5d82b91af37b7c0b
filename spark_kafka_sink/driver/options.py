"""[driver] Options as tasks get them: with what a client, Java or the environment adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from spark_kafka_sink.advice import settings_error
from spark_kafka_sink.clients.aws_signer import add_region
from spark_kafka_sink.clients.local_files import FILE_ENDINGS
from spark_kafka_sink.config.kerberos import TICKET_CACHE
from spark_kafka_sink.config.logins import MSK_IAM_CALLBACK, TOKEN_METHOD
from spark_kafka_sink.config.options import SinkOptions, parse
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.key_store import replace_key_store
from spark_kafka_sink.driver.trust_store import store_certificates
from spark_kafka_sink.librdkafka.client import Client

_CLOSE_SECONDS = 5.0


def read_options(options: Mapping[str, object]) -> SinkOptions:
    """``parse`` and ``complete_options``; raises InvalidOption."""
    return complete_options(parse(options))


def complete_options(options: SinkOptions) -> SinkOptions:
    """Parsed options with what tasks could not find out, after librdkafka has checked all settings.

    Needs the driver's machine: its Java if the trust store is in one of Java's formats, which may
    take a minute, its file of a key store of type JKS, and its environment if the servers do not
    show the region of Amazon's cluster.
    Raises InvalidOption.
    """
    client = complete_client_settings(options.producer.client)
    _check_together(client)
    return replace(options, producer=replace(options.producer, client=client))


def complete_client_settings(settings: ClientSettings) -> ClientSettings:
    """Settings without Java's stores, and with Amazon's region; raises InvalidOption."""
    pairs = dict(settings)
    location = pairs.pop("ssl.truststore.location", None)
    if location is not None:
        kind = pairs.pop("ssl.truststore.type")
        password = pairs.pop("ssl.truststore.password", None)
        pairs["ssl.ca.pem"] = store_certificates(location, kind, password)
    if pairs.pop("ssl.keystore.type", None) is not None:
        replace_key_store(pairs)
    if settings.oauth_callback == MSK_IAM_CALLBACK:
        name = "sasl.oauthbearer.config"
        pairs[name] = add_region(pairs[name], pairs["bootstrap.servers"])
    return replace(settings, pairs=tuple(sorted(pairs.items())))


@cache  # Spark builds several writers per micro-batch in one process
def _check_together(settings: ClientSettings) -> None:
    """Let librdkafka check all settings together, unless that would open files.

    Files may exist only on the executors; they are checked there.
    """
    if any(name.endswith(FILE_ENDINGS) for name in settings):
        return
    # With the first, a new client logs in at the identity provider at once; the other is ours.
    left_out = (TOKEN_METHOD, TICKET_CACHE)
    checked = {name: value for name, value in settings.items() if name not in left_out}
    try:
        client = Client({**checked, "bootstrap.servers": "", "log_level": "0"})
    except ValueError as error:
        raise settings_error(str(error)) from None
    client.close(Deadline(_CLOSE_SECONDS))
