"""What a recipe sees of releases of nsys that cannot be had here, as far as that is known.

Written from facts that NVIDIA's documentation and public programs tell of them, not from their code.
`$FAKE_NSYS` is the release.
"""
