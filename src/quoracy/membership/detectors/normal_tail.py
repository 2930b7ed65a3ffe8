"""How improbable it is that a normal variable is larger than z, as minus the decimal logarithm.

    phi(z) = -log10(P(Z > z))

The obvious formula, -log10(1 - F(z)), ends at phi 16: there F(z) is 1 in a float and the logarithm is
infinite.  With erfc it ends at phi 307.  Three formulas that never leave the range of floats:

    z <= 0         -log1p(-erfc(-z/√2) / 2)     keeps its digits where phi is nearly nothing
    0 < z <= 20    -log(erfc(z/√2) / 2)
    z > 20         z²/2 + log(z √2π) - log1p(-1/z² + 3/z⁴ - 15/z⁶ …)

The last is the asymptotic expansion of Mills' ratio (Abramowitz and Stegun 26.2.12).  It alternates, so
its error is below the first term left out: 3e-15 at z = 20, less beyond.

Invariants
    * Finite and never negative for every z up to 1e150 in size.
    * Where the formulas meet, phi does not fall: each stays on its side of the common value.
"""

from __future__ import annotations

import math

__all__ = ["LN_10", "phi_of_normal"]

LN_10 = math.log(10.0)

_SQRT_2 = math.sqrt(2.0)
_LOG_SQRT_2_PI = 0.5 * math.log(2.0 * math.pi)
_EXPANSION_FROM = 20.0
# (2k-1)!! with alternating signs, k = 7 down to 1, for Horner's scheme in 1/z².
_TERMS = (-135_135.0, 10_395.0, -945.0, 105.0, -15.0, 3.0, -1.0)


def phi_of_normal(z: float) -> float:
    """-log10 of the probability that a standard normal variable exceeds z.

    >>> round(phi_of_normal(0.0), 6)  # one in two
    0.30103
    >>> round(phi_of_normal(5.612), 3)  # about one in 10**8
    8.0
    >>> round(phi_of_normal(1_000.0), 3)  # far beyond what erfc can tell from nothing
    217150.64
    """
    if z <= 0.0:
        return -math.log1p(-0.5 * math.erfc(-z / _SQRT_2)) / LN_10
    if z <= _EXPANSION_FROM:
        return min(-math.log(0.5 * math.erfc(z / _SQRT_2)) / LN_10, _PHI_WHERE_THEY_MEET)
    return max(_by_expansion(z), _PHI_WHERE_THEY_MEET)


def _by_expansion(z: float) -> float:
    inverse_square = 1.0 / (z * z)
    series = 0.0
    for term in _TERMS:
        series = (series + term) * inverse_square
    return (0.5 * z * z + math.log(z) + _LOG_SQRT_2_PI - math.log1p(series)) / LN_10


_PHI_WHERE_THEY_MEET = _by_expansion(_EXPANSION_FROM)
