"""The documentation as a site: `python -m website` builds it from README, `docs/` and the code.

The pages are plain Markdown and are read on the forge, too. Links between them are the same in both places: the sources of
the site lie as in the repository. The reference of commands, tables and frames is made of the code and is on the site alone.
"""
