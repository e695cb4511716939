"""The types of arrays that the whole engine speaks of."""

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
UInt64s = NDArray[np.uint64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Slots = NDArray[np.int32]
"""The group of each row: its place in the arrays of the states."""
