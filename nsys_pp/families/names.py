"""Parts of the names of kernels: the function, and the name without sizes and hashes."""

from __future__ import annotations

import polars as pl

from nsys_pp.families.rules import read_inner_names

_UNNAMED = r"<unnamed>::|\(anonymous namespace\)::|\{anonymous\}::"
_COMPARISON = r" [<>]=? "  # in conditions of `std::enable_if`
_BRACKETS = r"<[^<>()\[\]{}]*>|\([^<>()\[\]{}]*\)|\[[^<>()\[\]{}]*\]|\{[^<>()\[\]{}]*\}"
_MOST_LEVELS = 100  # of brackets; names that nest deeper are cut at the first bracket
_OPEN = r"^([^<(\[{]*)"
_LAST_WORD = r"(\S+)\s*$"
_FOLDS = (
    # words with the sizes that follow them: `tilesize128x128x32`, `stages_32x1`, `ldg8`
    (
        r"_(?:tilesize|tile|warpsize|warpgroupsize|cgasize|tensor|cluster|stages?_?|align[abc]?|ldg|sliced)"
        r"[0-9]+(?:x[0-9]+)*(_|$)"
    ),
    r"_[0-9]+x[0-9]+(?:x[0-9]+)*(_|$)",
    r"_(?:[0-9]+[a-f]|[a-f]+[0-9])[0-9a-f]{6,}(_|$)",  # hashes
    # numbers of fusions, concretisations, runtimes and groups of nvFuser
    r"_f[0-9]+_c[0-9]+_r[0-9]+_g[0-9]+(_|$)",
    r"_[0-9]+(_|$)",
)


def extract_functions(names: pl.Series) -> pl.Series:
    """Return the function of each name.

    Namespaces and base name, without result, template arguments and parameters.

    >>> name = "void at::native::reduce_kernel<(int)512, at::MeanOps<float>>(T3)"
    >>> extract_functions(pl.Series([name])).to_list()
    ['at::native::reduce_kernel']
    """
    text = names.cast(pl.String).str.replace_all(_UNNAMED, "").str.replace_all(_COMPARISON, " ")
    for _ in range(_MOST_LEVELS):
        shorter = text.str.replace_all(_BRACKETS, "")
        if shorter.equals(text):
            break
        text = shorter
    return text.str.extract(_OPEN, 1).str.extract(_LAST_WORD, 1).fill_null("")


def fold_names(names: pl.Series, functions: pl.Series) -> pl.Series:
    """Remove namespaces, template arguments, sizes and hashes, so that kernels of other sizes have one name.

    >>> names = pl.Series(["nvjet_tst_128x24_64x11_2x1_v_bz_TNT", "triton_poi_fused_add_mul_12"])
    >>> fold_names(names, extract_functions(names)).to_list()
    ['nvjet_tst_v_bz_TNT', 'triton_poi_fused_add_mul']
    """
    base = functions.str.extract(r"([^:]*)$", 1)
    folded = base.clone()  # scattered into
    for inner in read_inner_names():
        rows = functions.str.contains(inner.function).arg_true()
        if len(rows):
            name = names[rows].cast(pl.String).str.extract(inner.pattern, 1)
            if inner.is_suffix:
                name = base[rows] + " " + name
            folded = folded.scatter(rows, name.zip_with(name.is_not_null(), folded[rows]))
    for pattern in _FOLDS * 2:  # twice: matches do not overlap, and neighbours share an underscore
        folded = folded.str.replace_all(pattern, "${1}")
    return folded
