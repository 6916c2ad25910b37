"""`autoscout dashboard`: studies in a browser, live."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import complete, options
from autoscout.core.errors import ConfigError, Fault, PluginError
from autoscout.study.folder import DEFAULT

PORT = 8642


def dashboard(
    target: Annotated[str, typer.Argument(autocompletion=complete.folders, help="A result folder, a folder of them, or a store.")] = str(
        DEFAULT
    ),
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = PORT,
    token_file: Annotated[
        Path | None, typer.Option(help="File that holds the token for actions, made where it is missing; or set AUTOSCOUT_TOKEN.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS: file with the certificate (PEM); needs --key.")] = None,
    key: Annotated[Path | None, typer.Option(help="TLS: file with the key of the certificate (PEM).")] = None,
) -> None:
    """Show studies in a browser while they run: results, plots, trials and logs; with a token, steer them."""
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        fix = "pip install 'autoscout[web]'"
        raise PluginError(Fault(where="dashboard", rule=f"needs packages that are not installed: {', '.join(missing)}", fix=fix))
    from autoscout.web.guard import read_token
    from autoscout.web.library import Library
    from autoscout.web.server import listen, make_server

    token = read_token(token_file)
    library = Library(target)
    try:
        server = make_server(library, host=host, token=token, certificate=certificate, key=key)
        try:
            socket = listen(host, port)
        except OSError as error:
            fix = "Give another --host or --port; --port 0 takes a free one"
            raise ConfigError(Fault(where="dashboard", value=f"{host}:{port}", rule=error.strerror or str(error), fix=fix)) from error
        library.start()
        address = f"[{host}]" if ":" in host else host
        rights = "actions with the token" if token else "read-only"
        scheme = "https" if certificate else "http"
        words = f"{library.title}: {scheme}://{address}:{socket.getsockname()[1]} ({rights}; Ctrl-C ends it)"
        options.errors.print(words, markup=False, highlight=False, soft_wrap=True)
        server.run(sockets=[socket])
    finally:
        library.close()
