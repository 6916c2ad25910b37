"""What somebody who waits should read at once, such as who uses the GPUs a study waits for."""

from __future__ import annotations

import logging

from autoscout.core.log import NOTICES


class _Printed(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from autoscout.cli import options  # on use: `--version` need not pay for it

        options.errors.print(record.getMessage(), style="yellow", markup=False, highlight=False, soft_wrap=True)


def show_notices() -> None:
    """Print notices on standard error, next to a progress display; calling it twice does nothing more."""
    log = logging.getLogger(NOTICES)
    if not any(isinstance(handler, _Printed) for handler in log.handlers):
        log.addHandler(_Printed())
