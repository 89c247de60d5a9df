"""The command line: click only; one module per command."""
