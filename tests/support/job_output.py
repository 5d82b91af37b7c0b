"""The output of a job that keeps what it gets, for tests."""

from __future__ import annotations


class Said:
    def __init__(self):
        self.micro_batches = []
        self.messages = []

    def show_micro_batch(self, micro_batch):
        self.micro_batches.append(micro_batch)

    def say(self, message):
        self.messages.append(message)

    def show_state(self, what):
        pass
