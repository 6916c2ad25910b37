"""Names for the arrays that kernels pass around."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Table = NDArray[np.float64]
Index = NDArray[np.int64]
Ledger = tuple[NDArray[np.int64], Index, Vector, Index, Index, Table]
"""Who holds what: held (2 x jobs), the pool of links (node, GPUs, next), its cursor, shares of split GPUs (nodes x slots)."""
