"""The decorator that compiles a reward kernel: numba, no GIL, cached on disk where there is a place for the
cache.

numba refuses to decorate at all when neither the package folder nor the user's cache folder is writable,
which would make the import fail on a read-only installation. Then the kernel is compiled anew in each process
instead. The disk cache is invalidated by the file that a kernel stands in, not by the files it calls into:
kernels that call each other stand in one file (`ngrams.py`).
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


@functools.cache
def _warn_uncached() -> None:
    warnings.warn(
        "numba finds no writable place for its cache: the reward kernels are compiled again in every "
        "process, which takes some seconds. Set NUMBA_CACHE_DIR to a private writable folder.",
        RuntimeWarning,
        stacklevel=3,
    )


def _compile(function: Function, **options: Any) -> Function:
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        compiled = numba.njit(function, cache=True, **options)
    except RuntimeError as error:
        if "cannot cache function" not in str(error):
            raise
        _warn_uncached()
        compiled = numba.njit(function, **options)
    return cast(Function, compiled)


def kernel(function: Function) -> Function:
    """Compiles `function` at its first call. Warns once, and goes on uncached, where no cache can be kept."""
    return _compile(function)


def kernel_without_allocation(function: Function) -> Function:
    """As `kernel`, for one that makes no array, nor do its parts: nothing is counted to be freed.

    Otherwise numba counts references whenever an array is taken from a tuple, at ten times the price of an
    n-gram.
    """
    return _compile(function, _nrt=False)


def part(function: Function) -> Function:
    """A part of a kernel, compiled into those that call it: a call with a dozen arrays costs more than the
    work.
    """
    return cast(Function, numba.njit(function, nogil=True, error_model="numpy", forceinline=True))
