"""Opening of outputs in a browser: Perfetto's UI for traces, from this machine alone, and pages as they are."""
