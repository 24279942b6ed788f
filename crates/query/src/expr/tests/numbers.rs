//! Arithmetic, rounding, statistics, trigonometry.

use super::*;

#[test]
fn addition_and_multiplication_widen() {
    check(
        "{a: 5, d: Date(1000), n: null}",
        &[
            ("{$add: [1, 2]}", "3"),
            ("{$add: []}", "0"),
            ("{$add: [1, NumberLong(2)]}", "NumberLong(3)"),
            ("{$add: [1, 2.5]}", "3.5"),
            ("{$add: [2147483647, 1]}", "NumberLong(2147483648)"),
            (
                "{$add: [NumberLong('9223372036854775807'), 1]}",
                "9223372036854775808.0",
            ),
            ("{$add: ['$a', '$n']}", "null"),
            ("{$add: ['$a', '$none']}", "null"),
            ("{$add: ['$d', 500]}", "Date(1500)"),
            ("{$add: [0.6, '$d']}", "Date(1001)"),
            ("{$add: [NumberDecimal('0.1'), 2]}", "NumberDecimal('2.1')"),
            ("{$subtract: [5, 7]}", "-2"),
            ("{$subtract: ['$d', 400]}", "Date(600)"),
            ("{$subtract: ['$d', '$d']}", "NumberLong(0)"),
            ("{$subtract: ['$d', null]}", "null"),
            ("{$multiply: [2, 3, 4]}", "24"),
            ("{$multiply: [65536, 65536]}", "NumberLong(4294967296)"),
            ("{$multiply: [2, 0.5]}", "1.0"),
            ("{$multiply: [2, null]}", "null"),
            ("{$divide: [6, 3]}", "2.0"),
            ("{$divide: [1, 4]}", "0.25"),
            (
                "{$divide: [NumberDecimal('1'), 4]}",
                "NumberDecimal('0.25')",
            ),
            ("{$mod: [7, 3]}", "1"),
            ("{$mod: [-7, 3]}", "-1"),
            ("{$mod: [7.5, 2]}", "1.5"),
            ("{$mod: [NumberLong(7), 4]}", "NumberLong(3)"),
            ("{$mod: [-2147483648, -1]}", "0"),
        ],
    );
    check_errors(
        "{s: 'x', d: Date(0)}",
        &[
            (
                "{$add: [1, '$s']}",
                14,
                "$add only supports numeric or date types, not string",
            ),
            ("{$add: ['$d', '$d']}", 16612, "only one date allowed"),
            (
                "{$subtract: [1, '$s']}",
                14,
                "can't $subtract string from int",
            ),
            (
                "{$subtract: [1, '$d']}",
                14,
                "can't $subtract date from int",
            ),
            (
                "{$multiply: ['$s']}",
                14,
                "$multiply only supports numeric types, not string",
            ),
            ("{$divide: [1, 0]}", 2, "can't $divide by zero"),
            (
                "{$divide: [1, '$s']}",
                14,
                "$divide only supports numeric types, not int and string",
            ),
            ("{$mod: [1, 0.0]}", 16610, "can't $mod by zero"),
            ("{$mod: [1, '$s']}", 16611, "int and string"),
        ],
    );
}

#[test]
fn rounding() {
    check(
        "{}",
        &[
            ("{$abs: -5}", "5"),
            ("{$abs: -2147483648}", "NumberLong(2147483648)"),
            ("{$abs: -1.5}", "1.5"),
            ("{$ceil: 1.2}", "2.0"),
            ("{$floor: -1.2}", "-2.0"),
            ("{$floor: 5}", "5"),
            ("{$ceil: NumberDecimal('1.2')}", "NumberDecimal('2')"),
            ("{$round: 2.5}", "2.0"),
            ("{$round: 3.5}", "4.0"),
            ("{$round: [1.2345, 2]}", "1.23"),
            ("{$round: [1250, -2]}", "1200"),
            ("{$round: [1350, -2]}", "1400"),
            ("{$round: [-1251, -2]}", "-1300"),
            ("{$round: [5, 2]}", "5"),
            (
                "{$round: [NumberDecimal('2.675'), 2]}",
                "NumberDecimal('2.68')",
            ),
            ("{$trunc: -1.7}", "-1.0"),
            ("{$trunc: [1.29, 1]}", "1.2"),
            ("{$trunc: [1299, -2]}", "1200"),
            ("{$round: null}", "null"),
            ("{$round: [1.5, null]}", "null"),
            ("{$round: [1.5, '$none']}", "null"),
            ("{$trunc: [1.5, '$none']}", "null"),
            ("{$round: [1.5]}", "2.0"),
            ("{$ceil: '$none'}", "null"),
        ],
    );
    check_errors(
        "{}",
        &[
            (
                "{$abs: 'x'}",
                28765,
                "$abs only supports numeric types, not string",
            ),
            (
                "{$abs: NumberLong('-9223372036854775808')}",
                28680,
                "long long min",
            ),
            ("{$round: [1, 101]}", 51083, "[-20, 100]"),
            ("{$round: [1, 1.5]}", 51082, "integral"),
            (
                "{$trunc: [1, NumberLong(3000000000)]}",
                51082,
                "precision argument to  $trunc must be a integral value",
            ),
            ("{$round: [1, 'x']}", 16004, "from BSON type string to long"),
            (
                "{$round: ['x', null]}",
                51081,
                "$round only supports numeric types, not string",
            ),
        ],
    );
}

#[test]
fn powers_and_logarithms() {
    check(
        "{}",
        &[
            ("{$sqrt: 25}", "5.0"),
            (
                "{$sqrt: NumberDecimal('2')}",
                "NumberDecimal('1.414213562373095048801688724209698')",
            ),
            ("{$pow: [5, 2]}", "25"),
            ("{$pow: [2, 40]}", "NumberLong(1099511627776)"),
            ("{$pow: [2, 64]}", "18446744073709551616.0"),
            ("{$pow: [2, -1]}", "0.5"),
            ("{$pow: [-1, -3]}", "-1"),
            ("{$pow: [NumberLong(2), 3]}", "NumberLong(8)"),
            (
                "{$pow: [NumberDecimal('1.1'), 2]}",
                "NumberDecimal('1.210000000000000000000000000000000')",
            ),
            ("{$pow: ['x', null]}", "null"),
            ("{$pow: [4, 0.5]}", "2.0"),
            ("{$exp: 0}", "1.0"),
            ("{$ln: 1}", "0.0"),
            ("{$log10: 1000}", "3.0"),
            ("{$log: [8, 2]}", "3.0"),
            ("{$log: [null, 2]}", "null"),
        ],
    );
    check_errors(
        "{}",
        &[
            ("{$sqrt: -1}", 28714, "greater than or equal to 0"),
            ("{$pow: [0, -1]}", 28764, "negative exponent"),
            ("{$pow: ['x', 1]}", 28762, "base"),
            ("{$ln: 0}", 28766, "positive number, but is 0"),
            ("{$log10: -1}", 28761, "positive number"),
            ("{$log: [8, 1]}", 28759, "not equal to 1"),
            ("{$log: [0, 2]}", 28758, "positive"),
        ],
    );
}

/// Of decimals all operators have all digits, also beyond the range of doubles.
#[test]
fn powers_and_logarithms_of_decimals() {
    check(
        "{}",
        &[
            (
                "{$ln: NumberDecimal('1E-6143')}",
                "NumberDecimal('-14144.78022626242263692252150612605')",
            ),
            (
                "{$ln: NumberDecimal('2')}",
                "NumberDecimal('0.6931471805599453094172321214581766')",
            ),
            ("{$ln: NumberDecimal('1.00')}", "NumberDecimal('0')"),
            (
                "{$ln: NumberDecimal('Infinity')}",
                "NumberDecimal('Infinity')",
            ),
            ("{$ln: NumberDecimal('NaN')}", "NaN"),
            (
                "{$log10: NumberDecimal('1E-6176')}",
                "NumberDecimal('-6176')",
            ),
            ("{$log10: NumberDecimal('1000.0')}", "NumberDecimal('3')"),
            (
                "{$log10: NumberDecimal('2')}",
                "NumberDecimal('0.3010299956639811952137388947244930')",
            ),
            ("{$log: [NumberDecimal('8'), 2]}", "NumberDecimal('3')"),
            (
                "{$log: [2, NumberDecimal('8')]}",
                "NumberDecimal('0.3333333333333333333333333333333333')",
            ),
            (
                "{$log: [NumberDecimal('1E6144'), NumberDecimal('1E-6143')]}",
                "NumberDecimal('-1.000162786911932280644636171251831')",
            ),
            (
                "{$exp: NumberDecimal('1')}",
                "NumberDecimal('2.718281828459045235360287471352662')",
            ),
            (
                "{$exp: NumberDecimal('1E6144')}",
                "NumberDecimal('Infinity')",
            ),
            (
                "{$exp: NumberDecimal('-1E6144')}",
                "NumberDecimal('0E-6176')",
            ),
            ("{$exp: NumberDecimal('0.0')}", "NumberDecimal('1')"),
            ("{$sqrt: NumberDecimal('4.00')}", "NumberDecimal('2.0')"),
            (
                "{$sqrt: NumberDecimal('1E6144')}",
                "NumberDecimal('1.00000000000000000E+3072')",
            ),
            (
                "{$sqrt: NumberDecimal('1E-6175')}",
                "NumberDecimal('3.162277660168379331998893544432719E-3088')",
            ),
            (
                "{$pow: [NumberDecimal('2'), 0.5]}",
                "NumberDecimal('1.414213562373095048801688724209698')",
            ),
            (
                "{$pow: [NumberDecimal('1E6144'), 2]}",
                "NumberDecimal('Infinity')",
            ),
            (
                "{$pow: [NumberDecimal('-10'), NumberDecimal('6145')]}",
                "NumberDecimal('-Infinity')",
            ),
            ("{$pow: [NumberDecimal('-2'), 0.5]}", "NumberDecimal('NaN')"),
            (
                "{$pow: [NumberDecimal('NaN'), 0]}",
                "NumberDecimal('1.000000000000000000000000000000000')",
            ),
        ],
    );
    check_errors(
        "{}",
        &[
            (
                "{$ln: NumberDecimal('0')}",
                28766,
                "positive number, but is",
            ),
            (
                "{$ln: NumberDecimal('-1E-6143')}",
                28766,
                "positive number, but is",
            ),
            ("{$log: [NumberDecimal('-1E-6143'), 2]}", 28758, "positive"),
            ("{$log: [2, NumberDecimal('1.0')]}", 28759, "not equal to 1"),
            (
                "{$sqrt: NumberDecimal('-1E-6176')}",
                28714,
                "greater than or equal to 0",
            ),
            (
                "{$pow: [NumberDecimal('0'), NumberDecimal('-1E-6143')]}",
                28764,
                "negative exponent",
            ),
            (
                "{$mod: [1, NumberDecimal('0')]}",
                5733415,
                "can't $mod by zero",
            ),
        ],
    );
}

#[test]
fn bits() {
    check(
        "{}",
        &[
            ("{$bitAnd: [12, 10]}", "8"),
            ("{$bitOr: [12, NumberLong(3)]}", "NumberLong(15)"),
            ("{$bitXor: [12, 10]}", "6"),
            ("{$bitNot: 5}", "-6"),
            ("{$bitAnd: []}", "-1"),
            ("{$bitOr: [1, null]}", "null"),
        ],
    );
    check_errors(
        "{}",
        &[
            ("{$bitAnd: [1.5]}", 14, "$bitAnd"),
            ("{$bitNot: 'x'}", 14, "$bitNot"),
        ],
    );
}

#[test]
fn statistics_over_arguments_or_one_array() {
    check(
        "{l: [1, 2, 'x', 3], d: 5}",
        &[
            ("{$sum: '$l'}", "6"),
            ("{$sum: ['$l', '$d']}", "5"),
            ("{$sum: [1, 2.5]}", "3.5"),
            ("{$sum: '$none'}", "0"),
            ("{$avg: '$l'}", "2.0"),
            ("{$avg: ['x']}", "null"),
            ("{$min: ['$d', 3, null]}", "3"),
            ("{$max: '$l'}", "'x'"),
            ("{$max: ['$d', '$l']}", "[1, 2, 'x', 3]"),
            ("{$min: '$none'}", "null"),
            ("{$stdDevPop: [1, 3]}", "1.0"),
            ("{$stdDevSamp: [5]}", "null"),
        ],
    );
}

#[test]
fn sums_of_decimals_keep_the_digits_of_doubles() {
    check(
        "{}",
        &[
            (
                "{$sum: [NumberDecimal('1'), 0.5, 2]}",
                "NumberDecimal('3.5')",
            ),
            (
                "{$sum: [NumberDecimal('1'), 0.1]}",
                "NumberDecimal('1.100000000000000005551115123125783')",
            ),
            (
                "{$avg: [NumberDecimal('1'), 2, 2]}",
                "NumberDecimal('1.666666666666666666666666666666667')",
            ),
            // The millisecond of a date is exact beyond the integers of doubles.
            (
                "{$subtract: [{$add: [Date(0), NumberDecimal('9007199254740993')]}, Date(0)]}",
                "NumberLong('9007199254740993')",
            ),
        ],
    );
}

#[test]
fn trigonometry_of_decimals() {
    check(
        "{}",
        &[
            (
                "{$sin: NumberDecimal('1')}",
                "NumberDecimal('0.8414709848078965066525023216302990')",
            ),
            (
                "{$sin: NumberDecimal('1E6144')}",
                "NumberDecimal('0.9168078385445297016578219657016703')",
            ),
            ("{$sin: NumberDecimal('NaN')}", "NumberDecimal('NaN')"),
            ("{$cos: NumberDecimal('0')}", "NumberDecimal('1')"),
            (
                "{$acos: NumberDecimal('-1')}",
                "NumberDecimal('3.141592653589793238462643383279503')",
            ),
            (
                "{$atanh: NumberDecimal('-1')}",
                "NumberDecimal('-Infinity')",
            ),
            ("{$acosh: NumberDecimal('1')}", "NumberDecimal('0')"),
            (
                "{$atan2: [NumberDecimal('-0'), -1]}",
                "NumberDecimal('-3.141592653589793238462643383279503')",
            ),
            (
                "{$degreesToRadians: NumberDecimal('180')}",
                "NumberDecimal('3.141592653589793238462643383279503')",
            ),
            (
                "{$radiansToDegrees: NumberDecimal('1')}",
                "NumberDecimal('57.29577951308232087679815481410517')",
            ),
        ],
    );
    check_errors(
        "{}",
        &[
            (
                "{$asin: NumberDecimal('1.000000000000000000000000000000001')}",
                50989,
                "[-1,1]",
            ),
            ("{$cos: NumberDecimal('-Infinity')}", 50989, "(-inf,inf)"),
            (
                "{$acosh: NumberDecimal('0.9999999999999999999999999999999999')}",
                50989,
                "[1,inf]",
            ),
        ],
    );
}

#[test]
fn trigonometry() {
    check(
        "{}",
        &[
            ("{$sin: 0}", "0.0"),
            ("{$cos: 0}", "1.0"),
            ("{$atan2: [0, 1]}", "0.0"),
            ("{$tanh: 0}", "0.0"),
            ("{$acos: 1}", "0.0"),
            ("{$degreesToRadians: 180}", "3.141592653589793"),
            ("{$radiansToDegrees: 0}", "0.0"),
            ("{$sin: null}", "null"),
        ],
    );
    check_errors(
        "{}",
        &[
            ("{$sin: Infinity}", 50989, "(-inf,inf)"),
            ("{$acos: 2}", 50989, "[-1,1]"),
            ("{$tan: 'x'}", 28765, "string"),
        ],
    );
}
