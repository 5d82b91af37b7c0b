"""[both] ``kafka.sasl.jaas.config``, read as Java reads it.

Java splits the text with ``java.io.StreamTokenizer``; Kafka's class ``JaasConfig`` sets its rules.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from spark_kafka_sink.config.option import PREFIX, Notices, most_similar
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

JAAS = "sasl.jaas.config"
JAAS_OPTION = PREFIX + JAAS

_JAVAS_TOKEN = re.compile(
    r"""
    "(?P<double>(?:[^"\\\r\n]|\\.)*)(?:"|(?=[\r\n]))  # a quotation ends with its line, too
  | '(?P<single>(?:[^'\\\r\n]|\\.)*)(?:'|(?=[\r\n]))
  | [\0-\x20]+ | /\*(?:.*?\*/|.*) | //[^\r\n]*
  | /.?[^\r\n]*  # a comment, to the end of the line that the next character is on
  | (?P<word>[A-Za-z_$\xa0-\U0010ffff][\w$.\xa0-\U0010ffff-]*)
  | (?P<sign>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]*)|.)  # a number is no text
    """,
    re.ASCII | re.DOTALL | re.VERBOSE,
)
# What Java refuses but means one thing: no-break spaces, quotations of several lines, and any text
# without quotation marks.
_FORGIVEN_TOKEN = re.compile(
    r"""
    "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)'
  | [\0-\x20\s]+ | /\*.*?\*/ | //[^\r\n]*
  | (?P<word>[^\0-\x20\s;="']+)
  | (?P<sign>[;=])
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_END = (";", None)
_OPTION_TOKENS = 3  # name, =, value
_FLAGS = ("required", "requisite", "sufficient", "optional")

_SIMILARITY = 0.85
#: options that programs set beside those of a login
_PUBLIC_NAME = re.compile(
    r"aws[A-Z]|(debug|doNotPrompt|isInitiator|keyTab|principal|renewTGT|serviceName|storeKey"
    r"|refreshKrb5Config|tokenauth|useKeyTab|useTicketCache|username|metadataServerUrls)$"
    r"|(clientId|clientSecret|scope)$|extension_|oauth\.|sasl\.|ssl\.|unsecuredLogin|user_"
)


def parsed_jaas(text: str) -> tuple[str, dict[str, str]] | None:
    """Login module, without its package, and its options, whose values are Secrets.

    None if the text is malformed, or has several modules. Some texts that Java refuses are
    forgiven: those without the last semicolon, for instance. Raises nothing: a traceback with local
    variables would show the text.
    """
    tokens = _tokens(_JAVAS_TOKEN, text)
    parsed = _parsed(tokens[:-1]) if tokens[-1:] == [_END] else None
    if parsed is not None:
        return parsed
    tokens = _tokens(_FORGIVEN_TOKEN, text)
    return _parsed(tokens[:-1] if tokens[-1:] == [_END] else tokens)


def _tokens(pattern: re.Pattern[str], text: str) -> list[tuple[str, str | None]]:
    """A sign and None, or "" and the text of a word; nothing if a quotation does not end."""
    tokens: list[tuple[str, str | None]] = []
    position = 0
    while position < len(text):
        matched = pattern.match(text, position)
        kind = matched and matched.lastgroup
        if matched is None or (kind == "sign" and matched[kind] in ('"', "'")):
            return []
        position = matched.end()
        if kind == "sign":
            tokens.append((matched[kind], None))
        elif kind == "word":
            tokens.append(("", Secret(matched[kind])))
        elif kind is not None:
            tokens.append(("", Secret(_ESCAPE.sub(_unescaped, matched[kind]))))
    return tokens


def _unescaped(escape: re.Match[str]) -> str:
    text = escape[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _CONTROLS.get(text, text)


def _parsed(tokens: list[tuple[str, str | None]]) -> tuple[str, dict[str, str]] | None:
    """``tokens``: without the semicolon that ends them."""
    (_, module), (_, flag) = [*tokens[:2], ("", None), ("", None)][:2]
    starts = range(2, len(tokens), _OPTION_TOKENS)
    triples = [tokens[start : start + _OPTION_TOKENS] for start in starts]
    if not module or not flag or flag.lower() not in _FLAGS:
        return None
    options: dict[str, str] = {}
    for triple in triples:
        if len(triple) != _OPTION_TOKENS or triple[0] == _END or triple[1][0] != "=":
            return None
        (_, name), _, (_, value) = triple
        if value is None:
            return None
        if name is not None:  # Java reads a sign there as the name null
            options[str(name)] = value
    return str(module).rpartition(".")[2], options


def check_names(module: str, options: AbstractSet[str], known: AbstractSet[str]) -> None:
    """Raise InvalidOption for an option that is a misspelt known one, which Java would ignore."""
    for name in sorted(options - known):
        similar = most_similar(name, known - options, _SIMILARITY)
        if similar:
            raise InvalidOption(
                f"{JAAS_OPTION}: {module} does not read {name}; did you mean {similar}?",
                option=JAAS_OPTION,
            )


def ignore(name: str, reason: str, notices: Notices) -> None:
    """Note that an option of a login module has no effect.

    An unknown name may be a piece of a password that is not quoted; it is not shown.
    """
    shown = name if _PUBLIC_NAME.match(name) else "an option"
    notices.ignore(f"{shown} in {JAAS_OPTION}", reason)
