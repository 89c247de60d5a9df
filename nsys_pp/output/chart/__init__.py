"""Charts of a pipeline: an interactive page, and pictures for papers and chat.

Each lane has a row of jobs, drawn as bars over the bubbles (colored by cause), and below it a row of sends
and a row of receives. The bar of a job spans its compute interval if known, otherwise all its operations;
tooltips show both.
"""
