"""[both] AWS_MSK_IAM of Amazon MSK: OAUTHBEARER with tokens signed by AWS credentials.

The options are those of Amazon's Java library, aws-msk-iam-auth.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from spark_kafka_sink.config.jaas import JAAS, JAAS_OPTION, check_names, ignore, parsed_jaas
from spark_kafka_sink.config.java_security import OAUTH_MODULE
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

MECHANISM = "AWS_MSK_IAM"
#: the ``oauth.callback`` that signs the tokens
CALLBACK = "spark_kafka_sink.clients.aws_signer:token"

_MODULE = "IAMLoginModule"
_HANDLERS = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class")
#: Amazon's other way: the handler of Java's OAUTHBEARER that makes the same tokens
_OAUTH_HANDLER = "IAMOAuthBearerLoginCallbackHandler"
_JAAS_OPTIONS = frozenset({"awsProfileName", "awsRoleArn", "awsRoleSessionName"})

_WHERE = "instead, where Spark's driver and executors start"
#: options with an effect beside awsRoleArn that the signer cannot have -> what to do instead
_INSTEAD_BESIDE_ROLE: Mapping[str, str] = {
    "awsRoleAccessKeyId": f"set the environment variable AWS_ACCESS_KEY_ID {_WHERE}",
    "awsRoleExternalId": "write a profile with role_arn, external_id and source_profile into "
    "the AWS configuration file of every machine, and set awsProfileName instead of awsRoleArn",
    "awsRoleSecretAccessKey": f"set the environment variable AWS_SECRET_ACCESS_KEY {_WHERE}",
    "awsRoleSessionToken": f"set the environment variable AWS_SESSION_TOKEN {_WHERE}",
    "awsStsRegion": "set the environment variables AWS_DEFAULT_REGION, to this region, and "
    f"AWS_STS_REGIONAL_ENDPOINTS=regional {_WHERE}",
}
_REGION_CLASS = "awsMskRegionProvider"
_FIPS = "awsShouldUseFips"


def is_wanted(settings: Mapping[str, str]) -> bool:
    """Whether the settings, named without ``kafka.``, name this mechanism, or Amazon's handler."""
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    handler = settings.get(_HANDLERS[1], "").rpartition(".")[2]
    is_oauth = mechanism.upper() == "OAUTHBEARER" and handler == _OAUTH_HANDLER
    return mechanism == MECHANISM or is_oauth


def translate_login(
    settings: Mapping[str, str], oauth_callback: str, notices: Notices
) -> dict[str, str]:
    """The settings for OAUTHBEARER with ``CALLBACK``, without the region; raises InvalidOption."""
    if oauth_callback or "sasl.oauthbearer.config" in settings:
        raise InvalidOption(
            f"kafka.sasl.mechanism={MECHANISM} makes its tokens itself; remove oauth.callback "
            "and kafka.sasl.oauthbearer.config"
        )
    own = ("sasl.mechanism", "sasl.mechanisms", JAAS, *_HANDLERS)
    others = {name: value for name, value in settings.items() if name not in own}
    return {
        **others,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": Secret(json.dumps(_jaas_options(settings, notices))),
    }


def _jaas_options(settings: Mapping[str, str], notices: Notices) -> dict[str, str]:
    text = settings.get(JAAS)
    if text is None:
        return {}
    parsed = parsed_jaas(text)
    if parsed is None or parsed[0] not in (_MODULE, OAUTH_MODULE):
        raise InvalidOption(
            f"{JAAS_OPTION}: for kafka.sasl.mechanism={MECHANISM} it must be "
            f"`software.amazon.msk.auth.iam.{_MODULE} required;`, optionally with options (its "
            "text is not shown); or remove it",
            option=JAAS_OPTION,
        )
    options = parsed[1]
    check_names(_MODULE, options.keys(), _JAAS_OPTIONS)
    for name, value in sorted(options.items()):
        advice = _advice(name, value, has_role="awsRoleArn" in options)
        if advice:
            raise InvalidOption(f"{JAAS_OPTION}: {name}: {advice}", option=JAAS_OPTION)
        if name not in _JAAS_OPTIONS:
            ignore(name, "no effect on the login of Amazon MSK", notices)
    return {name: str(options[name]) for name in options.keys() & _JAAS_OPTIONS}


def _advice(name: str, value: str, *, has_role: bool) -> str:
    """What to do about an option with an effect that this client cannot have, else ""."""
    if name == _REGION_CLASS:
        return (
            "it names a Java class; set the environment variable AWS_REGION on the driver instead"
        )
    if has_role and name == _FIPS and value == "true":
        return f"set the environment variable AWS_USE_FIPS_ENDPOINT=true {_WHERE}"
    return _INSTEAD_BESIDE_ROLE.get(name, "") if has_role else ""
