# SPDX-License-Identifier: MIT
"""Runs of the program with --watch."""
import contextlib
import signal

from program import TIMEOUT, start, until


class Watch:
    """A running `conv emboss --watch IN OUT`. `end` stops it by a signal."""

    def __init__(self, source, target, *options, filters="emboss"):
        self.source, self.target = source, target
        self.process = start(filters, "--watch", *options, source, target)
        self.err = None

    def has(self, *names):
        until(lambda: all((self.target / name).exists() for name in names), self.process)

    def end(self, number=signal.SIGINT, code=0):
        if number:
            self.process.send_signal(number)
        _, err = self.process.communicate(timeout=TIMEOUT)
        self.err = err.decode()
        assert "Sanitizer" not in self.err and self.process.returncode == code, self.err
        return self.err


@contextlib.contextmanager
def watch(source, target, *options, **kwargs):
    watched = Watch(source, target, *options, **kwargs)
    try:
        # The output folder is made after the input folders are watched.
        until(target.exists, watched.process)
        yield watched
    finally:
        watched.process.kill()
        watched.process.communicate()
