"""Checks the types of arguments against the annotations of public methods.

An argument of a wrong type is reported by its name, before anything is sent. The only values that are refused here are
whole numbers that the messages cannot hold: negative and very large ones. The services check all others.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ParamSpec, TypeVar, Union

ClassT = TypeVar("ClassT")
Parameters = ParamSpec("Parameters")
ResultT = TypeVar("ResultT")

_ADVICE = {
    "argv": "; for a line of a shell write ['sh', '-c', line]",
    "stdin": "; give the bytes of a text (`text.encode()`), or `pathlib.Path(…)` for the content of a file",
}
_TEXT = (str, bytes, bytearray, memoryview)
_UINT32_NAMES = {"depth", "limit", "mode"}
"""Arguments whose fields have 32 bits; those of all other whole numbers have 64."""


def checked(cls: type[ClassT]) -> type[ClassT]:
    """Checks the arguments of all public methods of a class."""
    for name, member in list(vars(cls).items()):
        if not name.startswith("_") and inspect.isfunction(member):
            setattr(cls, name, checked_method(member))
    return cls


def checked_method(method: Callable[Parameters, ResultT]) -> Callable[Parameters, ResultT]:
    """Checks the arguments of one method. Those of a coroutine are checked when it is awaited."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def coroutine(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Any:
            _check(method, args, kwargs)
            return await method(*args, **kwargs)

        return typing.cast("Callable[Parameters, ResultT]", coroutine)

    @functools.wraps(method)
    def function(*args: Parameters.args, **kwargs: Parameters.kwargs) -> ResultT:
        _check(method, args, kwargs)
        return method(*args, **kwargs)

    return function


def _check(method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    signature, hints = _declaration(method)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        # The call itself raises the error of the interpreter, which names the missing or unknown argument.
        return
    for name, value in given.items():
        hint = hints.get(name, Any)
        is_variable = signature.parameters[name].kind in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        if not is_variable and not _matches(value, hint):
            owner = method.__qualname__.removesuffix(".__init__")
            advice = _ADVICE.get(name, "")
            raise TypeError(f"`{name}` of `{owner}` must be {_describe(hint)}, not {_describe_value(value, hint)}{advice}")
        if int in (hint, *typing.get_args(hint)) and hasattr(value, "__index__"):
            most = 2 ** (32 if name in _UINT32_NAMES else 64) - 1
            owner = method.__qualname__.removesuffix(".__init__")
            if operator.index(value) < 0:
                raise ValueError(f"`{name}` of `{owner}` must not be negative")
            if operator.index(value) > most:
                raise ValueError(f"`{name}` of `{owner}` must be at most {most}")


@functools.cache
def _declaration(method: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    # This happens at the first call and not at the definition, because annotations may name classes that are defined
    # later.
    return inspect.signature(method), typing.get_type_hints(method)


def _matches(value: object, hint: Any) -> bool:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_matches(value, option) for option in arguments)
    if origin is Sequence:
        is_list = isinstance(value, Sequence) and not isinstance(value, _TEXT)
        return is_list and all(_matches(item, arguments[0]) for item in typing.cast("Sequence[object]", value))
    if origin is Mapping:
        # JSON turns other keys than texts into texts.
        is_json = arguments[1] is object
        return isinstance(value, Mapping) and (is_json or all(_matches(*pair) for pair in _items(value, arguments)))
    if origin in (Iterable, AsyncIterable):
        # A text and a mapping are iterable as well, but they are not messages one after the other.
        return isinstance(value, origin) and not isinstance(value, str | Mapping)
    if hint is BinaryIO:
        return hasattr(value, "read")
    if hint is float:
        return hasattr(value, "__float__") and not isinstance(value, bool)
    if hint is int:
        return hasattr(value, "__index__") and not isinstance(value, bool)
    expected = origin or hint
    # `Any` is a class from Python 3.11 on.
    return expected is Any or not isinstance(expected, type) or isinstance(value, expected)


def _items(value: Mapping[object, object], hints: tuple[Any, ...]) -> Iterator[tuple[object, Any]]:
    """Every key and every value of a mapping, with the type that it must have."""
    for pair in value.items():
        yield from zip(pair, hints)


def _describe(hint: Any) -> str:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        names = list(dict.fromkeys(_describe(option) for option in arguments))
        return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    if origin is Sequence:
        return f"a list of {_describe(arguments[0])}"
    if origin is Mapping and arguments[1] is not object:
        return f"a mapping from {_describe(arguments[0])} to {_describe(arguments[1])}"
    if origin in (Iterable, AsyncIterable):
        return f"{origin.__name__} of {_describe(arguments[0])}"
    if hint is BinaryIO:
        return "a file opened for reading bytes"
    if hint is types.NoneType:
        return "None"
    return str(getattr(origin or hint, "__name__", hint))


def _describe_value(value: object, hint: Any) -> str:
    for option in (hint, *typing.get_args(hint)):
        origin, arguments = typing.get_origin(option), typing.get_args(option)
        if origin is Sequence and isinstance(value, Sequence) and not isinstance(value, _TEXT):
            wrong = next(item for item in value if not _matches(item, arguments[0]))
            return f"a list that contains {_describe_value(wrong, arguments[0])}"
        if origin is Mapping and isinstance(value, Mapping):
            wrong, expected = next(pair for pair in _items(value, arguments) if not _matches(*pair))
            return f"a mapping that contains {_describe_value(wrong, expected)}"
    return "None" if value is None else type(value).__name__
