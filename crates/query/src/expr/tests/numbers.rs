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
            ("{$pow: [NumberDecimal('1.1'), 2]}", "NumberDecimal('1.21')"),
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
