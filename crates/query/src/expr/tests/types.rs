//! Types and conversion.

use super::*;

#[test]
fn types() {
    check(
        "{a: 1, l: []}",
        &[
            ("{$type: '$a'}", "'int'"),
            ("{$type: '$none'}", "'missing'"),
            ("{$type: '$l'}", "'array'"),
            ("{$type: {$literal: 1.5}}", "'double'"),
            ("{$isNumber: '$a'}", "true"),
            ("{$isNumber: 'x'}", "false"),
            (
                "{$toHashedIndexKey: 42.5}",
                "NumberLong(-944302157085130861)",
            ),
            (
                "{$toHashedIndexKey: '$none'}",
                "NumberLong(2338878944348059895)",
            ),
        ],
    );
}

#[test]
fn conversion() {
    check(
        "{id: ObjectId('650000000123456789abcdef')}",
        &[
            ("{$toInt: '42'}", "42"),
            ("{$toInt: 3.9}", "3"),
            ("{$toInt: -3.9}", "-3"),
            ("{$toInt: true}", "1"),
            ("{$toInt: NumberDecimal('7.9')}", "7"),
            ("{$toLong: '-5'}", "NumberLong(-5)"),
            ("{$toLong: Date(7)}", "NumberLong(7)"),
            ("{$toDouble: '1.5e3'}", "1500.0"),
            ("{$toDouble: true}", "1.0"),
            ("{$toDecimal: '1.50'}", "NumberDecimal('1.50')"),
            ("{$toDecimal: 3}", "NumberDecimal('3')"),
            ("{$toBool: 0}", "false"),
            ("{$toBool: 'false'}", "true"),
            ("{$toBool: ['$id']}", "true"),
            ("{$toString: 1.5}", "'1.5'"),
            ("{$toString: 5.0}", "'5'"),
            ("{$toString: 1e100}", "'1e+100'"),
            ("{$toString: 0.00001}", "'1e-05'"),
            ("{$toString: 0.1}", "'0.1'"),
            ("{$toString: 123456789.125}", "'123456789.125'"),
            ("{$toString: true}", "'true'"),
            ("{$toString: NumberLong(7)}", "'7'"),
            ("{$toString: '$id'}", "'650000000123456789abcdef'"),
            ("{$toString: Date(1500)}", "'1970-01-01T00:00:01.500Z'"),
            ("{$toDate: NumberLong(5)}", "Date(5)"),
            ("{$toDate: 5.9}", "Date(5)"),
            ("{$toDate: '$id'}", "Date(1694498816000)"),
            (
                "{$toDate: '2024-02-29T12:30:15.250Z'}",
                "Date(1709209815250)",
            ),
            ("{$toDate: '2024-02-29'}", "Date(1709164800000)"),
            (
                "{$toObjectId: '650000000123456789abcdef'}",
                "ObjectId('650000000123456789abcdef')",
            ),
            ("{$toInt: null}", "null"),
            ("{$toString: '$none'}", "null"),
            ("{$convert: {input: '5', to: 'int'}}", "5"),
            ("{$convert: {input: '5', to: 16}}", "5"),
            (
                "{$convert: {input: 'x', to: 'int', onError: 'bad'}}",
                "'bad'",
            ),
            (
                "{$convert: {input: null, to: 'int', onNull: 'nil'}}",
                "'nil'",
            ),
            ("{$convert: {input: '$none', to: 'int'}}", "null"),
            ("{$convert: {input: 1, to: null}}", "null"),
        ],
    );
    check_errors(
        "{l: [1]}",
        &[
            (
                "{$toInt: 'x'}",
                241,
                "Failed to parse number 'x' in $convert with no onError value",
            ),
            ("{$toInt: '1.5'}", 241, "1.5"),
            ("{$toInt: 3000000000}", 241, "overflow"),
            ("{$toInt: NaN}", 241, "NaN"),
            (
                "{$toInt: '$l'}",
                241,
                "Unsupported conversion from array to int in $convert with no onError value",
            ),
            ("{$toLong: 1e30}", 241, "overflow"),
            ("{$toDouble: '1e999'}", 241, "Out of range"),
            ("{$toObjectId: 'zz'}", 241, "zz"),
            ("{$toDate: 'soon'}", 241, "soon"),
            ("{$toDate: 5}", 241, "int to date"),
            (
                "{$convert: {input: 1, to: 'number'}}",
                2,
                "Unknown type name: number",
            ),
            ("{$convert: {input: 1, to: 99}}", 9, "99"),
            (
                "{$convert: {input: 1}}",
                9,
                "Missing 'to' parameter to $convert",
            ),
            ("{$convert: {input: 1, to: 'int', x: 1}}", 9, "x"),
        ],
    );
}
