"""The page of a comparison: one file without a network, in the style of the report page."""
