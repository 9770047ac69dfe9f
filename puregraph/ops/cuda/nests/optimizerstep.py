"""A fused multi-tensor optimizer step: all parameters in few launches, from the formulas of the rule.

Parameters whose arrays have the same dtypes are one launch: a table in memory has the addresses of their arrays, a
block takes a chunk of one of them. All values that change from step to step are read from memory, so that a captured
launch serves every step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from puregraph.ops.cuda.nests.multitensor import ROW, chunked
from puregraph.ops.cuda.runtime.launch import THREADS, WAVE, Launch, isDense
from puregraph.ops.cuda.runtime.preprocess import computed, stored
from puregraph.ops.formula import Formula
from puregraph.ops.formula.formula import cudaFrom, preambleFrom

if TYPE_CHECKING:
    from types import NotImplementedType


PACKS = (8, 4, 2, 1)  # packs that a thread updates one after the other; fewer if there are few elements
FLOATS = ("float16", "bfloat16", "float32", "float64")
COUNTS = ("int32", "int64")  # computed in float64, exact up to 2^53
Arrays = Mapping[str, Any]


def launches(
    formulas: Mapping[str, Formula],
    arrays: Sequence[Arrays],
    scalars: Sequence[Arrays],
    copies: Sequence[Arrays] | None = None,
    skip: Any = None,
) -> list[Launch] | NotImplementedType:
    """Update each parameter's arrays by the formulas, in place, all from the old values.

    `formulas`  by the name of the array that each assigns to: the parameter, its states
    `arrays`    for each parameter the arrays that formulas name or assign to, all of one shape
    `scalars`   for each parameter the other names: arrays of one element on the GPU, or constants
    `copies`    for each parameter arrays, in dtypes of their own, that also get the values of the array of that name:
                weights in bfloat16 beside those in float32 that are updated
    `skip`      an array of one element; if it is not 0 nothing changes, as after a gradient that is not finite

    NotImplemented if the arrays of a parameter have gaps, differ in the order of axes, or hold no floats.
    """
    copies = [mangled(targets) for targets in copies or [{} for _ in arrays]]
    formulas, arrays, scalars = inVariables(formulas), list(map(mangled, arrays)), list(map(mangled, scalars))
    groups: dict[Any, list[tuple[Arrays, Arrays, Arrays]]] = {}
    for updated, read, copied in zip(arrays, scalars, copies):
        every = [*updated.values(), *copied.values()]
        if not any(x.size for x in every):  # the strides of an empty array do not matter
            continue
        if not areAlike(every):
            return NotImplemented
        groups.setdefault(signature(updated, read, copied), []).append((updated, read, copied))
    return [launch(formulas, members, skip) for members in groups.values()]


def mangled(named: Mapping[str, object]) -> dict[str, Any]:
    """Arrays under names that neither C++ nor the kernel text below uses."""
    return {f"v0{name}_": array for name, array in named.items()}


def inVariables(formulas: Mapping[str, Formula]) -> dict[str, Formula]:
    """Formulas with the names of `mangled`, both as keys and as variables."""
    return mangled({to: formula.put(**{n: f"v0{n}_" for n in formula.names}) for to, formula in formulas.items()})


def areAlike(arrays: Sequence[Any]) -> bool:
    """True if arrays, of floats or of counts, have one shape, no gaps, and the same order of axes."""
    first = order(arrays[0])
    kinds = COUNTS if arrays[0].dtype.name in COUNTS else FLOATS
    return all(x.dtype.name in kinds and isDense(x) and x.size == arrays[0].size and order(x) == first for x in arrays)


def order(x: Any) -> list[tuple[int, int]]:
    """The axes of an array that matter: their sizes, and strides in elements."""
    return [(n, stride // x.dtype.itemsize) for n, stride in zip(x.shape, x.strides) if n > 1]


def signature(*groups: Arrays) -> tuple:
    """The key of a launch's text: dtypes and constants."""
    return tuple([tuple([(name, getattr(x, "dtype", x)) for name, x in group.items()]) for group in groups])


def launch(formulas: Mapping[str, Formula], members: Sequence[tuple[Arrays, Arrays, Arrays]], skip: Any) -> Launch:
    """A launch for parameters with the same text."""
    arrays, scalars, copies = members[0]
    fixed = {name: x for name, x in scalars.items() if not hasattr(x, "dtype")}
    formulas = {name: withConstants(formula, fixed) for name, formula in formulas.items()}
    reads = {name for formula in formulas.values() for name in formula.names}
    arrayNames = [name for name in arrays if name in reads or name in formulas]
    fields = [name for name in scalars if name in reads and name not in fixed]
    targets = {name: arrays[name] for name in arrayNames} | {f"{name}Copy": copies[name] for name in copies}

    pack = 16 // max(x.dtype.itemsize for x in targets.values())
    isWide = any(computed(x.dtype) == "double" or x.dtype.name in COUNTS for x in targets.values())
    real = "double" if isWide else "float"
    kinds = {name: stored(x.dtype) for name, x in targets.items()}
    read = {name: stored(scalars[name].dtype) for name in fields}
    old, new = ({name: kind for name, kind in kinds.items() if (name in reads) == isOld} for isOld in (True, False))
    changed = [name for name in targets if name in formulas or name not in arrayNames]
    number = f"const {real} {{0}}Number = load(reinterpret_cast<const {{1}}*>(row[{{2}}]), 0);"
    names = {
        "threads": THREADS,
        "pack": pack,
        "columns": 2 + len(targets) + len(fields),
        "skip": "" if skip is None else f", const {stored(skip.dtype)}* skip",
        "leave": "" if skip is None else "if (load(skip, 0) != 0) return;",
        "pointers": statements("{1}* const {0}Memory = reinterpret_cast<{1}*>(row[{2}]);", kinds, 2),
        "scalars": statements(number, read, 2 + len(targets)),
        "isWide": " && ".join(f"isAligned({name}Memory, sizeof({kind}) * pack)" for name, kind in kinds.items()),
        "loads": statements("Pack<{1}, pack> {0}Pack = loadPack<pack>({0}Memory, i);", old)
        + statements("Pack<{1}, pack> {0}Pack;", new),
        "stores": statements("storePack({0}Memory, i, {0}Pack);", changed),
        "packed": ", ".join([*(f"{name}Pack.at[j]" for name in targets), *(f"{name}Number" for name in fields)]),
        "single": ", ".join([*(f"{name}Memory[i]" for name in targets), *(f"{name}Number" for name in fields)]),
    }
    text = ROW + rule(formulas, kinds, arrayNames, fields, changed, real) + TEXT.format(**names)
    whats = [
        [*(x[name] for name in arrayNames), *(y[name] for name in copies), *(n[name] for name in fields)]
        for x, n, y in members
    ]
    sizes = [x[arrayNames[0]].size for x, *_ in members]
    packs = next((n for n in PACKS if sum(sizes) >= n * pack * THREADS * WAVE // 2), PACKS[-1])
    chunk = packs * pack * THREADS
    table, blocks = chunked(sizes, whats, chunk)
    slots = (("pointer", table), ("int", len(members)), ("int", chunk), *(() if skip is None else (("pointer", skip),)))
    return Launch("update", text, "update", slots, (blocks, 1, 1), (THREADS, 1, 1))


def withConstants(formula: Formula, fixed: Mapping[str, float]) -> Formula:
    """The formula with its constants."""
    return formula.put(**{name: x for name, x in fixed.items() if name in formula.names})


def statements(pattern: str, names: Iterable[str], start: int = 0) -> str:
    """A statement for each of some names."""
    kinds = names if isinstance(names, Mapping) else {}
    return " ".join(pattern.format(name, kinds.get(name), i) for i, name in enumerate(names, start))


def rule(
    formulas: Mapping[str, Formula],
    kinds: Mapping[str, str | None],
    arrayNames: Sequence[str],
    fields: Sequence[str],
    changed: Sequence[str],
    real: str,
) -> str:
    """The formulas as a function of one stored element per array."""
    parameters = [f"{kind}& {name}Stored" for name, kind in kinds.items()] + [f"{real} {name}" for name in fields]
    reads = {name for formula in formulas.values() for name in formula.names}
    loads = statements(
        f"{real} {{0}} = Number<{{1}}>::widen({{0}}Stored);", {n: kinds[n] for n in arrayNames if n in reads}
    )
    loads += statements(f"{real} {{0}};", [name for name in arrayNames if name not in reads])
    values = {name: name if name in arrayNames else name.removesuffix("Copy") for name in changed}
    stores = "\n".join(f"{name}Stored = Number<{kinds[name]}>::narrow({value});" for name, value in values.items())
    body = cudaFrom(list(formulas.values()), list(formulas), real)
    before = preambleFrom(list(formulas.values()), real)
    return f"{before}\n__device__ static inline void rule({', '.join(parameters)}) {{\n{loads}\n{body}\n{stores}\n}}\n"


TEXT = """
extern "C" __global__ void __launch_bounds__({threads})
    update(const int64* __restrict__ table, int rows, int chunk{skip}) {{
  {leave}
  const int pack = {pack};
  const int64* const row = rowOf(table, rows, {columns});
  const int64 from = (blockIdx.x - row[0]) * chunk, to = min(from + chunk, row[1]);
  {pointers}
  {scalars}
  const int64 even = {isWide} ? from + (to - from) / pack * pack : from;
  for (int64 i = from + threadIdx.x * pack; i < even; i += {threads} * pack) {{
    {loads}
#pragma unroll
    for (int j = 0; j < pack; j++) rule({packed});
    {stores}
  }}
#pragma unroll 1
  for (int64 i = even + threadIdx.x; i < to; i += {threads}) rule({single});
}}
"""
