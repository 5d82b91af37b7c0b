"""[both] Kerberos tickets of this process: from kinit and a keytab, or from a cache of others."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spark_kafka_sink.advice import Advice, advice_on_kerberos
from spark_kafka_sink.config.kerberos import (
    KEYTAB,
    KINIT,
    PRINCIPAL,
    RENEWAL_MS,
    TICKET_CACHE,
    is_kerberos,
)
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import AuthenticationFailed, InvalidOption, TokenUnavailable

_KINIT, _KLIST = "kinit", "klist"
_CACHE_VARIABLE = "KRB5CCNAME"
_SECONDS = 10.0
# A ticket is renewed when a third of its life is over, so that two attempts may fail.
_PARTS = 3
_LONGEST_SECONDS = 86_400  # librdkafka's longest time between two renewals
_USUAL_SECONDS = 90.0  # of a ticket of which klist does not show the life

# MIT's klist says "Default principal", Heimdal's "Principal".
_PRINCIPAL = re.compile(r"^\s*(?:Default principal|Principal): (\S+)", re.MULTILINE)
_CACHE_NAME = re.compile(r"^\s*(?:Ticket cache|Credentials cache): (\S+)", re.MULTILINE)
_TIME = r"(\d\d/\d\d/\d{2,4} \d\d:\d\d:\d\d)"
_GRANTING_TICKET = re.compile(rf"{_TIME}\s+{_TIME}\s+krbtgt/.*(\s+renew until)?")


@dataclass(frozen=True)
class Ticket:
    """A user's ticket, in a cache that all clients of the process use.

    ``command``: what renews it, for a shell; "" if nothing does. ``seconds``: between renewals.
    """

    pid: int
    #: the option that names the user, and its value; another one cannot log in beside it
    owner: tuple[str, str]
    principal: str
    command: str
    seconds: float
    next_check: Deadline = field(repr=False)
    end: Deadline = field(repr=False)


# GSSAPI finds the cache in the environment, so all clients of a process are the same user.
_lock = threading.Lock()  # guards _ticket, and the environment's variable
_ticket: Ticket | None = None


def add_ticket(settings: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings, with the command that renews the ticket that this process now has.

    Raises AuthenticationFailed if there is no ticket, TokenUnavailable if there may be one later,
    and InvalidOption for a second user. Without Kerberos, the settings stay as they are.
    """
    result = {name: value for name, value in settings.items() if name != TICKET_CACHE}
    if not is_kerberos(settings):
        return result
    ticket = current_ticket(settings)
    # librdkafka runs its command at once, before its first connection.
    if ticket.command:
        result[KINIT] = ticket.command
        result[RENEWAL_MS] = str(round(1000 * ticket.seconds))
    else:
        result.pop(KINIT, None)
    return result


def current_ticket(settings: Mapping[str, str]) -> Ticket:
    """The ticket of this process, got now if it has none that lasts; raises as ``add_ticket``."""
    global _ticket  # noqa: PLW0603 - of the process, as its environment is
    with _lock:
        known = _ticket if _ticket is not None and _ticket.pid == os.getpid() else None
        owner = _owner(settings)
        if known is not None and known.owner != owner:
            raise InvalidOption(
                f"{' '.join(owner)}: this Python process is logged in with Kerberos as "
                f"{known.principal}, and can have one user only; write as another user in another "
                "application, or start this one again",
            )
        if known is not None and not known.next_check.expired:
            return known
        try:
            _ticket = (
                _ticket_from_keytab(settings)
                if KEYTAB in settings
                else _ticket_from_cache(settings)
            )
        except AuthenticationFailed:
            if known is None or known.end.expired:
                raise
            return known  # it still lasts; librdkafka logs what its own renewals fail with
        return _ticket


def _owner(settings: Mapping[str, str]) -> tuple[str, str]:
    if KEYTAB in settings:
        return "the principal", settings[PRINCIPAL]
    return "the ticket cache", settings.get(TICKET_CACHE, "")


# --- with a keytab --------------------------------------------------------------------------------


def _ticket_from_keytab(settings: Mapping[str, str]) -> Ticket:
    """Java keeps the ticket in its own memory; here it is in a folder of this process."""
    keytab, principal = Path(settings[KEYTAB]).absolute(), settings[PRINCIPAL]
    try:
        keytab.open("rb").close()
    except OSError as error:
        raise AuthenticationFailed(
            f"the keytab {keytab} cannot be read: {error.strerror}", Advice.KEYTAB_UNREADABLE.remedy
        ) from None
    cache = _folder() / "ticket"
    # The ticket is replaced at once: other threads may be reading it.
    kinit, draft = [settings.get(KINIT) or _KINIT, "-k", "-t", str(keytab), "-c"], f"{cache}.new"
    _run([*kinit, draft, principal])
    Path(draft).replace(cache)
    os.environ[_CACHE_VARIABLE] = f"FILE:{cache}"
    file = shlex.quote(str(cache))
    own_draft = f"{file}.$$"  # librdkafka runs it whenever it likes
    command = f"{_limited(shlex.join(kinit))} {own_draft} {shlex.quote(principal)}"
    command += f" && mv -f {own_draft} {file}"
    return _ticket_of(_owner(settings), _list(str(cache)), principal, command)


_folders: dict[int, Path] = {}


def _folder() -> Path:
    """A folder of this process; Spark removes it with the application's if this process cannot."""
    pid = os.getpid()
    if pid not in _folders:
        parent = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
        where = parent if os.access(parent, os.W_OK | os.X_OK) else None
        _folders[pid] = Path(tempfile.mkdtemp(prefix="kafka-nb-ticket-", dir=where))
        atexit.register(_remove, pid)
    return _folders[pid]


def _remove(pid: int) -> None:
    if pid == os.getpid():
        shutil.rmtree(_folders.pop(pid), ignore_errors=True)


# --- with a cache of tickets ----------------------------------------------------------------------


def _ticket_from_cache(settings: Mapping[str, str]) -> Ticket:
    """A ticket that kinit, or the system's login, has put into a cache."""
    name = settings.get(TICKET_CACHE, "")
    if name:
        os.environ[_CACHE_VARIABLE] = name
    text = _list(name)
    line = _PRINCIPAL.search(text)
    principal = line[1] if line else "?"
    wanted = settings.get(PRINCIPAL, principal)
    if principal not in (wanted, f"{wanted}@{principal.rpartition('@')[2]}"):
        raise AuthenticationFailed(
            f"the cache of Kerberos tickets is of {principal}, not of {wanted}",
            "Run kinit for that user, or name the other one as the principal",
        )
    granted = _GRANTING_TICKET.search(text)
    # As in Java, whoever fills the cache also replaces a ticket that cannot be renewed.
    command = ""
    if granted is not None and granted[3]:
        kinit = _limited(shlex.quote(settings.get(KINIT) or _KINIT))
        cache = _CACHE_NAME.search(text)
        kind, _, path = (cache[1] if cache else "").rpartition(":")
        if kind == "FILE":
            file, draft = shlex.quote(path), f"{shlex.quote(path)}.$$"
            command = (
                f"cp -p {file} {draft} && {kinit} -R -c {draft} && mv -f {draft} {file} "
                f"|| {{ rm -f {draft}; false; }}"
            )
        else:
            command = f"{kinit} -R"
    return _ticket_of(_owner(settings), text, principal, command)


# --- what the programs of Kerberos say ------------------------------------------------------------


def _ticket_of(owner: tuple[str, str], listed: str, principal: str, command: str) -> Ticket:
    granted = _GRANTING_TICKET.search(listed)
    life = _life(granted[1], granted[2]) if granted else _USUAL_SECONDS
    seconds = max(1.0, min(life / _PARTS, _LONGEST_SECONDS))
    check, end = Deadline(seconds), Deadline(life)
    return Ticket(os.getpid(), owner, principal, command, seconds, check, end)


def _life(start: str, end: str) -> float:
    """Seconds between two times as klist writes them; its years have two digits, or four."""
    begun, ended = (
        time.mktime(time.strptime(text, "%m/%d/%Y %H:%M:%S" if text[8] != " " else "%m/%d/%y %X"))
        for text in (start, end)
    )
    return ended - begun


def _limited(kinit: str) -> str:
    """``kinit``, for at most as long as ``_run``, where there is a program for that.

    While it runs, librdkafka does nothing else.
    """
    return f"timeout {_SECONDS:g} {kinit}" if shutil.which("timeout") else kinit


def _list(cache: str) -> str:
    return _run([_KLIST, *(["-c", cache] if cache else [])])


def _run(command: list[str]) -> str:
    """What a program writes; raises AuthenticationFailed or TokenUnavailable for its error."""
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        text = f"{command[0]} has not ended within {_SECONDS:g} s"
        raise TokenUnavailable(f"no Kerberos ticket: {text}", Advice.KDC_AWAY.remedy) from None
    except OSError as error:
        raise AuthenticationFailed(
            f"no Kerberos ticket: {command[0]} cannot be run: {error.strerror}",
            Advice.KINIT_IS_MISSING.remedy,
        ) from None
    if ended.returncode:
        raise kerberos_error("no Kerberos ticket: ", " ".join(ended.stderr.split()))
    return ended.stdout


def kerberos_error(begin: str, text: str) -> AuthenticationFailed:
    """What to raise for the ``text`` of a program of Kerberos, or of GSSAPI."""
    advice = advice_on_kerberos(text)
    kind = TokenUnavailable if advice is Advice.KDC_AWAY else AuthenticationFailed
    return kind(f"{begin}{text}", advice.remedy)
