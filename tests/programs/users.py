"""Who may log in at the brokers of the programs, with names and passwords as services give them."""

from __future__ import annotations

from identity_provider import CLIENT_SECRET

PASSWORD = CLIENT_SECRET
CONNECTION_STRING = (
    "Endpoint=sb://orders.servicebus.example.net/;SharedAccessKeyName=send;SharedAccessKey=c2VuZA=="
)
TOKEN = "tok3n.with;signs"

USERS = {"alice": PASSWORD, "$ConnectionString": CONNECTION_STRING, "etl": TOKEN}
