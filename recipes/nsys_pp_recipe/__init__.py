"""What the recipes of nsys-pp share; `adapter` is all that knows the classes of nsys.

It runs in the interpreter that nsys takes for its recipes, which need not be the one of nsys-pp: all work is done by
the command line of nsys-pp, which `command` finds. Standard library only.
"""
