"""`python -m memoryd_server` is `memoryd`."""

from memoryd_server.cli import main

main()
