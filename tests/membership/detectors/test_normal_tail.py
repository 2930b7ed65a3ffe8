"""The tail of the normal distribution, next to values of sixty digits."""

from __future__ import annotations

import decimal
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quoracy.membership.detectors.phi import LN_10, phi_of_normal

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")
DIGITS = decimal.Context(prec=120, Emin=-(10**9), Emax=10**9)


def phi_by_series(z: float) -> Decimal:
    """From the Taylor series of the distribution function; for a small z."""
    with decimal.localcontext(DIGITS):
        x = Decimal(z)
        term, total, k = x, x, 0
        while abs(term) > Decimal(10) ** -110:
            k += 1
            term *= -x * x / (2 * k)
            total += term / (2 * k + 1)
        return -(Decimal("0.5") - total / (2 * PI).sqrt()).log10()


def phi_by_fraction(z: float) -> Decimal:
    """From the continued fraction of Mills' ratio; for a z that is not small."""
    with decimal.localcontext(DIGITS):
        x = Decimal(z)
        fraction = x
        for k in range(1_500, 0, -1):
            fraction = x + k / fraction
        return (x * x / 2 + ((2 * PI).sqrt() * fraction).ln()) / Decimal(10).ln()


def phi_reference(z: float) -> Decimal:
    return phi_by_series(z) if z < 5 else phi_by_fraction(z)


@pytest.mark.parametrize("z", [4.0, 5.0, 6.0, 8.0])
def test_the_two_references_agree(z: float) -> None:
    assert abs(phi_by_series(z) - phi_by_fraction(z)) < Decimal(10) ** -35


# Both sides of the places where formulas meet (0 and 20), of where 1 - F(z) ends (8.3) and of where
# erfc does (38), and up to a phi of 2 * 10**11.
WHERE = [
    -8.0, -5.0, -2.0, -0.5, -1e-9, 0.0, 1e-9, 0.5, 1.0, 2.0, 3.0, 4.99, 5.0, 6.0, 7.0, 8.0, 8.2, 8.3,
    9.0, 12.0, 15.0, 19.0, 19.999999, 20.0, 20.000001, 21.0, 25.0, 30.0, 37.0, 38.0, 38.5, 39.0, 50.0,
    100.0, 214.567301, 500.0, 1_000.0, 12_345.678, 1e6,
]  # fmt: skip


@pytest.mark.parametrize("z", WHERE)
def test_phi_is_right_to_fourteen_digits(z: float) -> None:
    reference = phi_reference(z)
    assert abs(Decimal(phi_of_normal(z)) - reference) <= abs(reference) * Decimal("1e-14")


@pytest.mark.parametrize("z", [1.0, 5.0, 10.0, 19.0, 25.0, 35.0])
def test_phi_is_that_of_erfc_where_erfc_is_good(z: float) -> None:
    assert phi_of_normal(z) == pytest.approx(-math.log10(0.5 * math.erfc(z / math.sqrt(2))), rel=1e-13)


def test_one_minus_the_distribution_would_have_ended_at_sixteen() -> None:
    z = 8.3
    assert 1 - 0.5 * (1 + math.erf(z / math.sqrt(2))) == 0
    assert 16 < phi_of_normal(z) < 17


@given(st.floats(-1e150, 1e150))
def test_phi_is_finite_and_not_negative_everywhere(z: float) -> None:
    phi = phi_of_normal(z)
    assert math.isfinite(phi)
    assert phi >= 0


@given(st.floats(-40, 1e6), st.floats(1e-9, 10))
def test_phi_grows_with_z(z: float, step: float) -> None:
    assert phi_of_normal(z + step) >= phi_of_normal(z)


@pytest.mark.parametrize("seam", [0.0, 20.0])
def test_phi_does_not_fall_where_formulas_meet(seam: float) -> None:
    below, above = seam, seam
    for _ in range(1_000):
        below, above = math.nextafter(below, -math.inf), math.nextafter(above, math.inf)
        assert phi_of_normal(below) <= phi_of_normal(seam) <= phi_of_normal(above)


@given(st.floats(0.1, 1e8))
def test_phi_is_at_least_the_exponential_bound(z: float) -> None:
    assert phi_of_normal(z) >= z * z / (2 * LN_10)
