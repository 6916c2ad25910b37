"""The command line: one module per verb."""


def program() -> None:
    """Entry point of the `autoscout` program: Ctrl-C ends it with 130 and no traceback, also while its packages still load."""
    try:
        from autoscout.cli.main import main

        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # EXIT_INTERRUPTED, which may not be loaded yet


__all__ = ["program"]
