"""Writes decimal_functions.csv: functions of decimals with 34 digits, rounded half to even from 120 and more digits by mpmath.

Usage: python3 decimal_functions.py > decimal_functions.csv   (needs mpmath)
"""
import random
import sys
from decimal import Context, Decimal, ROUND_HALF_EVEN

from mpmath import mp, mpf

sys.set_int_max_str_digits(0)
mp.dps = 6400
FORMAT = Context(prec=34, rounding=ROUND_HALF_EVEN, Emin=-6143, Emax=6144, clamp=0, traps=[])
WIDE = Context(prec=200, Emin=-999999, Emax=999999)


def rounded(value, digits=150):
    text = mp.nstr(value, digits, strip_zeros=False, min_fixed=0, max_fixed=0)
    return FORMAT.plus(WIDE.create_decimal(text))


def number(random_, low, high):
    digits = random_.choice([1, 3, 17, 34])
    coefficient = random_.randrange(10 ** (digits - 1), 10 ** digits)
    first = random_.uniform(low, high)
    sign = random_.choice([1, -1])
    return Decimal(sign * coefficient).scaleb(round(first) - digits + 1, WIDE)


def emit(name, *arguments, value):
    if value == 0 and str(value) == "0.0":
        return  # exact, so that its exponent is no matter of rounding
    print(",".join([name, *map(str, arguments), str(value)]))


def m(x):
    return mpf(str(x))


def main():
    r = random.Random(20)
    near = lambda x, e: WIDE.add(Decimal(x), Decimal(1).scaleb(e))
    for name, f, low, high, extra in [
        ("exp", mp.exp, -19, 4, ["14149.5", "-14149.9", "-14200.123", "1E-33", "1E-18", "-14222.9"]),
        ("sin", mp.sin, -19, 6, ["1E6144", "9.999999999999999999999999999999999E6144", "3.141592653589793238462643383279503",
                                 "1570796326794896619231321691639751E-33", "12345678901234567890E2000", "1000", "999.9", "1E33"]),
        ("cos", mp.cos, -19, 6, ["1E6144", "1570796326794896619231321691639751E-33", "7E3000", "1000", "1E34"]),
        ("tan", mp.tan, -19, 6, ["1E6144", "1570796326794896619231321691639751E-33", "7E3000", "12345", "1E33", "4E100"]),
        ("atan", mp.atan, -19, 40, ["1E6144", "-1E6144"]),
        ("sinh", mp.sinh, -19, 4, ["14150", "-14150.1"]),
        ("cosh", mp.cosh, -19, 4, ["14150", "-14150.1"]),
        ("tanh", mp.tanh, -19, 1, ["39.5", "99", "-50"]),
        ("asinh", mp.asinh, -19, 40, ["1E6144", "-1E6144"]),
    ]:
        cases = [number(r, low, high) for _ in range(40)] + [Decimal(x) for x in extra]
        for x in cases:
            if name in ("exp", "sinh", "cosh") and not -14240 < x < 14151:
                continue
            emit(name, x, value=rounded(f(m(x))))
    for name, f in [("asin", mp.asin), ("acos", mp.acos), ("atanh", mp.atanh)]:
        cases = [number(r, -19, -1) for _ in range(40)]
        cases += [near(1, -34) - Decimal("2E-34"), near(-1, -33), Decimal("0.5"), Decimal("-0.9999999999")]
        for x in cases:
            if abs(x) < 1:
                emit(name, x, value=rounded(f(m(x))))
    for x in [abs(number(r, 0, 40)) for _ in range(40)] + [near(1, -33), Decimal("1E6144"), Decimal("1.5")]:
        if x > 1:
            emit("acosh", x, value=rounded(mp.acosh(m(x))))
    positive = [abs(number(r, -40, 40)) for _ in range(40)] + [abs(number(r, -6100, 6100)) for _ in range(10)]
    positive += [Decimal("1E-6143"), Decimal("1E-6176"), Decimal("9.999999999999999999999999999999999E6144"), near(1, -33),
                 Decimal("0.9999999999999999999999999999999999")]
    for x in positive:
        emit("ln", x, value=rounded(mp.log(m(x))))
        if x.scaleb(-x.adjusted(), WIDE) != 1:
            emit("log10", x, value=rounded(mp.log(m(x)) / mp.log(10)))
        emit("sqrt", x, value=FORMAT.sqrt(x))
        base = abs(number(r, -3, 3))
        if base != 1:
            emit("log", x, base, value=rounded(mp.log(m(x)) / mp.log(m(base))))
    for x in positive:
        for y in [number(r, -3, 2), Decimal(r.randrange(-30, 30)), Decimal("0.5")]:
            exact = mp.power(m(x), m(y))
            if m("1E-6170") < exact < m("9E6144"):
                emit("pow", x, y, value=rounded(exact))
    for x, y in [(near(1, -33), Decimal("1E36")), (near(1, -33), Decimal("-1234567E31")), (Decimal("-1.1"), Decimal(7)),
                 (Decimal("0.9999999999999999999999999999999999"), Decimal("1E37")), (Decimal(2), Decimal("-20500"))]:
        emit("pow", x, y, value=rounded(mp.power(m(x), m(y))))
    for _ in range(60):
        y, x = number(r, -30, 30), number(r, -30, 30)
        emit("atan2", y, x, value=rounded(mp.atan2(m(y), m(x))))
    for y, x in [("1E-6176", "1E6144"), ("1E6144", "1E-6176"), ("1E-6176", "-1"), ("-1E-40", "-1"), ("1E-6000", "3E-100")]:
        emit("atan2", y, x, value=rounded(mp.atan2(m(y), m(x))))


main()
