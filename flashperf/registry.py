"""Finds mechanisms: the modules of ``flashperf.mechanisms``, and the entry points of other packages.

There is no list to keep: a file ``mechanisms/<name>.py`` with ``MECHANISM = Mechanism("<name>", ...)`` is
found. Modules are imported when their mechanism is asked for; a name that begins with ``_`` is a helper.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from flashperf.backends import backend
from flashperf.errors import UserError
from flashperf.records import Case, Mechanism
from flashperf.suggest import unknown_name

PACKAGE = "flashperf.mechanisms"
ENTRY_POINTS = "flashperf.mechanisms"


class RegistryError(UserError):
    """A mechanism that is unknown, or a file or entry point that doesn't give one."""


def names(package: str = PACKAGE) -> list[str]:
    """The names of all mechanisms, sorted; nothing of theirs is imported.

    Raises RegistryError if two share one.
    """
    return sorted(_sources(package))


def mechanism(name: str, package: str = PACKAGE) -> Mechanism:
    """The mechanism called ``name``. Raises RegistryError, with the nearest names, if there is none."""
    sources = _sources(package)
    if name not in sources:
        raise RegistryError(unknown_name("mechanism", name, sources))
    source = sources[name]
    found: object
    if isinstance(source, str):
        module = importlib.import_module(source)
        found, where = getattr(module, "MECHANISM", None), _file(module)
    else:
        where = f"entry point {source.value!r}"
        try:
            found = source.load()
        except (ImportError, AttributeError) as error:
            raise RegistryError(f"{where} can't be loaded: {error}") from error
    if not isinstance(found, Mechanism):
        raise RegistryError(
            f"{where} defines no MECHANISM (a flashperf.Mechanism); a helper's name begins with _"
        )
    if found.name != name:
        raise RegistryError(
            f"{where} defines the mechanism {found.name!r}: its name must be {name!r}, as the file's"
        )
    return found


def mechanisms(package: str = PACKAGE) -> list[Mechanism]:
    """All mechanisms, by name. Raises RegistryError on the first file that doesn't give one."""
    return [mechanism(name, package) for name in names(package)]


def _file(module: ModuleType) -> str:
    return Path(module.__file__ or module.__name__).name


def _sources(package: str) -> dict[str, str | importlib.metadata.EntryPoint]:
    """Name -> module name or entry point."""
    folder = importlib.import_module(package).__path__
    sources: dict[str, str | importlib.metadata.EntryPoint] = {
        module.name: f"{package}.{module.name}"
        for module in pkgutil.iter_modules(folder)
        if not module.name.startswith("_")
    }
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        known = sources.get(entry.name)
        if isinstance(known, importlib.metadata.EntryPoint) and known.value == entry.value:
            continue  # one distribution found twice, such as an editable install beside its wheel
        if known is not None:
            where = known if isinstance(known, str) else known.value
            raise RegistryError(
                f"two mechanisms are called {entry.name!r}: {where} and entry point {entry.value!r}"
            )
        sources[entry.name] = entry
    return sources


def cases(
    mechanism: Mechanism,
    kind: str = "test",
    backends: Iterable[str] | None = None,
    dtypes: Iterable[str] | None = None,
    variants: Iterable[str] | None = None,
    seed: int = 0,
) -> list[Case]:
    """Every case of a mechanism at its sizes for "test" or "bench", the standard variant first.

    Cases are listed whether or not they can run here (``why_not`` says that). Tests take every dtype,
    benches the first. Raises RegistryError for a kind, backend, dtype or variant that is not known.
    """
    if kind not in ("test", "bench"):
        raise RegistryError(unknown_name("kind of case", kind, ("test", "bench")))
    declared = [b for supported in mechanism.variants.values() for b in supported]
    wanted_backends = (
        list(dict.fromkeys(declared)) if backends is None else [backend(b).name for b in backends]
    )
    default_dtypes = mechanism.dtypes if kind == "test" else mechanism.dtypes[:1]
    wanted_dtypes = _chosen(f"dtype of {mechanism.name}", dtypes, mechanism.dtypes, default_dtypes)
    order = sorted(mechanism.variants, key=lambda variant: variant != mechanism.standard)
    wanted_variants = _chosen(f"variant of {mechanism.name}", variants, order, order)
    return [
        Case.of(mechanism.name, variant, backend_name, dtype, size, seed)
        for backend_name in wanted_backends
        for size in mechanism.sizes(kind, backend_name)
        for dtype in wanted_dtypes
        for variant in wanted_variants
        if backend_name in mechanism.variants[variant]
    ]


def _chosen(
    kind: str, wanted: Iterable[str] | None, valid: Iterable[str], default: Iterable[str]
) -> list[str]:
    if wanted is None:
        return list(default)
    chosen = list(wanted)
    for name in chosen:
        if name not in valid:
            raise RegistryError(unknown_name(kind, name, valid))
    return chosen


def why_not(mechanism: Mechanism, case: Case) -> str:
    """Empty if the case can run on this machine, else the reason: its backend, an ISA, a size."""
    return backend(case.backend).why_not() or mechanism.supports(case)
