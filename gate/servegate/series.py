"""Long rows of numbers in a record: one array in memory, a list or one packed string in JSON.

Two million arrivals as a JSON list take a second to read and 60 bytes each to hold; as base64 of their
little-endian bytes they take milliseconds and 8 bytes. Small records stay lists that a person can read:
which form is written is the writer's choice, both are always read.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar, overload

import numpy as np
import numpy.typing as npt
from pydantic import GetCoreSchemaHandler, SerializationInfo
from pydantic_core import core_schema

T = TypeVar("T", int, float)

PACK: Final = {"packed": True}
"""Serialisation context that asks for packed strings."""


class Series(Sequence[T], Generic[T]):
    """A read-only row of numbers; equal to any sequence with the same numbers."""

    __slots__ = ("array",)

    def __init__(self, array: npt.NDArray[Any]) -> None:
        array.flags.writeable = False
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Series[T]: ...
    def __getitem__(self, index: int | slice) -> T | Series[T]:
        if isinstance(index, slice):
            return Series(self.array[index])
        item: T = self.array[index].item()
        return item

    def __iter__(self) -> Iterator[T]:
        return iter(self.array.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Series):
            return bool(np.array_equal(self.array, other.array))
        if isinstance(other, Sequence) and not isinstance(other, str):
            return tuple(self) == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Series({self.array.tolist()})"


class _Field:
    """How pydantic reads and writes one kind of series: element type, bounds, packed element."""

    def __init__(self, element: type[int] | type[float], packed: str, low: float, high: float) -> None:
        self.element, self.dtype, self.low, self.high = element, np.dtype(packed), low, high
        limits = np.iinfo(self.dtype) if element is int else None
        self.holds_all = limits is not None and limits.min >= low and limits.max <= high

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        item = (
            core_schema.int_schema(ge=int(self.low), le=int(self.high))
            if self.element is int
            else core_schema.float_schema(ge=self.low, le=self.high, allow_inf_nan=False)
        )
        from_list = core_schema.no_info_after_validator_function(
            self._from_items, core_schema.tuple_variable_schema(item)
        )
        packed = {"contentEncoding": "base64", "description": f"packed {self.dtype.str} numbers"}
        from_text = core_schema.no_info_after_validator_function(
            self._unpack, core_schema.str_schema(metadata={"pydantic_js_updates": packed})
        )
        from_array = core_schema.no_info_after_validator_function(
            self._checked_series, core_schema.is_instance_schema(Series)
        )
        return core_schema.json_or_python_schema(
            json_schema=core_schema.union_schema([from_text, from_list], mode="left_to_right"),
            python_schema=core_schema.union_schema([from_array, from_text, from_list], mode="left_to_right"),
            serialization=core_schema.plain_serializer_function_ser_schema(self._write, info_arg=True),
        )

    def _from_items(self, items: tuple[Any, ...]) -> Series[Any]:
        return Series(np.array(items, dtype=self.dtype))

    def _unpack(self, text: str) -> Series[Any]:
        try:
            array = np.frombuffer(binascii.a2b_base64(text, strict_mode=True), dtype=self.dtype)
        except ValueError as error:
            raise ValueError(f"not a packed row of {self.dtype.name}: {error}") from error
        return Series(self._checked(array))

    def _checked_series(self, series: Series[Any]) -> Series[Any]:
        if series.array.dtype != self.dtype:
            raise ValueError(f"a row of {series.array.dtype.name}: read number by number")
        return Series(self._checked(series.array))

    def _checked(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """One pass where it can be: a large record has tens of thousands of rows."""
        if self.element is float:
            inside = math.isfinite(np.add.reduce(array))  # NaN and infinity survive a sum
        elif self.holds_all:
            inside = True
        else:
            inside = not array.size or bool(array.min() >= self.low and array.max() <= self.high)
        if not inside:
            raise ValueError("a number out of range, infinite or NaN")
        return array

    def _write(self, series: Series[Any], info: SerializationInfo) -> Any:
        if info.context is PACK:
            return base64.b64encode(series.array.astype(self.dtype, copy=False).tobytes()).decode("ascii")
        return series.array.tolist()


Stamps = Annotated[Series[int], _Field(int, "<i8", -(2**61), 2**61)]
"""ns. Differences of two stay within 64 bits. A negative stamp is a clock fault: kept, and judged invalid."""
TokenCounts = Annotated[Series[int], _Field(int, "<u4", 1, 2**16)]
TokenIds = Annotated[Series[int], _Field(int, "<u4", 0, 2**32 - 1)]
Logprobs = Annotated[Series[float], _Field(float, "<f8", -1e300, 1e300)]
