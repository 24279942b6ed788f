"""Writes decimal_arithmetic.csv: random operations and their results by Python's decimal module (an
implementation of the General Decimal Arithmetic specification), set up as decimal128.

Run: python3 decimal_arithmetic.py > decimal_arithmetic.csv
"""

import decimal
import random

CONTEXT = decimal.Context(
    prec=34, rounding=decimal.ROUND_HALF_EVEN, Emin=-6143, Emax=6144, clamp=1, capitals=1, traps=[]
)
decimal.setcontext(CONTEXT)
RANDOM = random.Random(34)


def number():
    """A decimal128, often with few digits or at the edge of the range."""
    digits = RANDOM.choice([1, 1, 2, 3, 5, 15, 16, 17, 18, 19, 20, 33, 34, 34])
    kind = RANDOM.randrange(8)
    if kind == 0:
        coefficient = 10 ** digits - 1
    elif kind == 1:
        coefficient = 10 ** (digits - 1)
    elif kind == 2:
        coefficient = 5 * 10 ** (digits - 1)
    elif kind == 3 and RANDOM.randrange(3) == 0:
        coefficient = 0
    else:
        coefficient = RANDOM.randrange(10 ** digits)
    exponent = RANDOM.choice(
        [0, 0, -2, RANDOM.randrange(-50, 50), RANDOM.randrange(-50, 50), RANDOM.randrange(-400, 400),
         RANDOM.randrange(-6176, 6112), -6176, -6170, 6111, 6100]
    )
    sign = RANDOM.choice(["", "", "-"])
    return CONTEXT.create_decimal(f"{sign}{coefficient}E{exponent}")


def near(a):
    """A number whose exponent is about that of `a`, so that digits meet."""
    shift = RANDOM.choice([0, 0, 1, -1, 33, 34, 35, -33, -34, -35, 36, 40, 41, 45, 70, 74, 75, -40, -41, -75])
    b = number()
    sign, digits, _ = b.as_tuple()
    return CONTEXT.create_decimal(decimal.Decimal((sign, digits, a.as_tuple().exponent + shift)))


def long_text():
    """More digits than fit, half of them ties."""
    head = RANDOM.randrange(10 ** 33, 10 ** 34)
    tail = RANDOM.choice(["5", "50", "500000000000000", "49", "51", "5000000001", "4999999999", "0", "05"])
    return f"{RANDOM.choice(['', '-'])}{head}{tail}E{RANDOM.choice([0, -60, -6200, -6190, 6070, 6110])}"


def finite(a):
    return a.is_finite()


def main():
    operations = {"+": CONTEXT.add, "-": CONTEXT.subtract, "*": CONTEXT.multiply, "/": CONTEXT.divide,
                  "%": CONTEXT.remainder, "?": lambda a, b: CONTEXT.compare(a, b)}
    for _ in range(500):
        for name, operation in operations.items():
            a = number()
            b = near(a) if RANDOM.randrange(3) else number()
            if RANDOM.randrange(12) == 0:
                b = CONTEXT.copy_negate(a)
            if not finite(a) or not finite(b) or (name in "/%" and b.is_zero()):
                continue
            result = operation(a, b)
            # Python gives up on remainders whose quotient has more than 34 digits; IEEE 754 does not.
            if not result.is_nan():
                print(f"{a},{name},{b},{result}")
    for _ in range(200):
        text = long_text()
        result = CONTEXT.create_decimal(text)
        if finite(result):
            print(f"{text},=,,{result}")


main()
