"""AWS_MSK_IAM, the mechanism of Amazon MSK: OAUTHBEARER with tokens signed by AWS credentials.

The options are those of Amazon's Java library, aws-msk-iam-auth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from spark_kafka_sink.config.java_security import parsed_jaas
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

MECHANISM = "AWS_MSK_IAM"
#: the ``oauth.callback`` that signs the tokens
CALLBACK = "spark_kafka_sink.connection.aws_signer:token"

_MODULE = "IAMLoginModule"
_HANDLER = "sasl.client.callback.handler.class"
_JAAS_OPTIONS = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")


def is_wanted(settings: Mapping[str, str]) -> bool:
    """Whether the settings, named without ``kafka.``, name this mechanism."""
    return settings.get("sasl.mechanism", settings.get("sasl.mechanisms")) == MECHANISM


def translate_login(
    settings: Mapping[str, str], oauth_callback: str, _notices: Notices
) -> dict[str, str]:
    """The settings for OAUTHBEARER with ``CALLBACK``, without the region; raises InvalidOption."""
    if oauth_callback or "sasl.oauthbearer.config" in settings:
        raise InvalidOption(
            f"kafka.sasl.mechanism={MECHANISM} makes its tokens itself; remove oauth.callback "
            "and kafka.sasl.oauthbearer.config"
        )
    own = ("sasl.mechanism", "sasl.mechanisms", "sasl.jaas.config", _HANDLER)
    others = {name: value for name, value in settings.items() if name not in own}
    return {
        **others,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": Secret(json.dumps(_jaas_options(settings))),
    }


def _jaas_options(settings: Mapping[str, str]) -> dict[str, str]:
    text = settings.get("sasl.jaas.config")
    if text is None:
        return {}
    parsed = parsed_jaas(text)
    if parsed is None or parsed[0] != _MODULE:
        raise InvalidOption(
            f"kafka.sasl.jaas.config: for kafka.sasl.mechanism={MECHANISM} it must be "
            f"`software.amazon.msk.auth.iam.{_MODULE} required;`, optionally with options (its "
            "text is not shown); or remove it"
        )
    unknown = sorted(parsed[1].keys() - set(_JAAS_OPTIONS))
    if unknown:
        raise InvalidOption(
            f"kafka.sasl.jaas.config: {', '.join(unknown)} is not supported; allowed: "
            f"{', '.join(_JAAS_OPTIONS)}"
        )
    return {name: str(value) for name, value in parsed[1].items()}
