"""Common modules of the recipes; only `adapter` uses the classes of nsys.

They run in the interpreter of nsys' recipes, which may lack nsys-pp: all work is done by the command line of
nsys-pp, found by `command`. Standard library only.
"""
