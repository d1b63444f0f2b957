"""The command line: `hermes-plugins`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of the console script: run a command, report a failure in one line."""
    _prepare_streams()
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()  # here, where an error is still caught and reported
    except SystemExit as error:  # click's way to end
        code = _flushed(error.code)
    except KeyboardInterrupt:
        # 128 + 2, the number of SIGINT: what a shell returns for a command that was interrupted.
        code = 130
    except BrokenPipeError:  # `... | head`: the reader is gone, so there is nothing to report
        code = 1
    except Exception as error:  # noqa: BLE001 - whatever it is, a person reads it
        _print_error(error)
        code = 1
    _leave(code)


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # `>&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal can't show must not end the listing.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    from hermes_core.cli.output import SafeStream  # noqa: PLC0415 - see _run

    sys.stdout, sys.stderr = SafeStream(sys.stdout), SafeStream(sys.stderr)


def _print_error(error: Exception) -> None:
    from hermes_core.cli.output import print_error, print_traceback  # noqa: PLC0415 - see _run

    # Looked up in argv, since the error may come before or from click's parsing.
    if "--debug" in sys.argv:
        from traceback import format_exception  # noqa: PLC0415 - rarely needed

        # As one text, in which a secret is found even if it is split over lines.
        print_traceback("".join(format_exception(error)))
    else:
        print_error(error)


def _flushed(code: object) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return 1
    except OSError as error:
        _print_error(error)
        return 1
    return code if isinstance(code, int) else int(code is not None)


def _leave(code: int) -> None:
    """Exit. The interpreter must not try to write again what could not be written."""
    try:
        sys.stdout.flush()
    except OSError:
        # The interpreter flushes stdout once more at its end, and would print a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    # `list` is run by prompts and scripts, and importing click takes longer than all it does.
    from hermes_core.cli.provider_list import parse_list, run_list  # noqa: PLC0415

    request = parse_list(arguments)
    if request is not None:
        return run_list(request)
    if "search" in arguments[:3]:
        from hermes_core.cli.plugin_search import parse_search, run_search  # noqa: PLC0415

        search = parse_search(arguments)
        if search is not None:
            return run_search(search)
    import signal  # noqa: PLC0415

    import click  # noqa: PLC0415

    from hermes_core.cli.app import cli  # noqa: PLC0415

    # As an exception, so that `finally` ends the processes that a command has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        code = cli(prog_name="hermes-plugins", standalone_mode=False)
    except click.Abort:
        sys.stderr.write("Aborted!\n")
        return 1
    except click.ClickException as error:
        from hermes_core.cli.usage import print_click_error  # noqa: PLC0415

        print_click_error(error, cli, arguments)
        return error.exit_code
    return code if isinstance(code, int) else 0
