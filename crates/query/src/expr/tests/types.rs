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
            // Text and binData, as of MongoDB 8.0.
            (
                "{$convert: {input: 'hi?>', to: 'binData', format: 'utf8'}}",
                "BinData(0, '68693f3e')",
            ),
            (
                "{$convert: {input: 'aGk_Pg', to: {type: 'binData', subtype: 128}, format: 'base64url'}}",
                "BinData(128, '68693f3e')",
            ),
            (
                "{$convert: {input: 'aGk/Pg==', to: 5, format: 'base64'}}",
                "BinData(0, '68693f3e')",
            ),
            (
                "{$convert: {input: '68693F3e', to: 'binData', format: 'hex'}}",
                "BinData(0, '68693f3e')",
            ),
            (
                "{$convert: {input: BinData(0, '68693f3e'), to: 'string', format: 'hex'}}",
                "'68693F3E'",
            ),
            (
                "{$convert: {input: BinData(0, '68693f3e'), to: 'string', format: 'base64url'}}",
                "'aGk_Pg'",
            ),
            (
                "{$convert: {input: BinData(0, '68693f3e'), to: {type: 'string'}, format: 'utf8'}}",
                "'hi?>'",
            ),
            ("{$toString: BinData(0, '68693f3e')}", "'aGk/Pg=='"),
            (
                "{$toUUID: '0e3b9063-8abd-4eb3-9f9f-f4c59fd30a60'}",
                "BinData(4, '0e3b90638abd4eb39f9ff4c59fd30a60')",
            ),
            (
                "{$toString: {$toUUID: '0E3B9063-8abd-4eb3-9f9f-f4c59fd30a60'}}",
                "'0e3b9063-8abd-4eb3-9f9f-f4c59fd30a60'",
            ),
            (
                "{$convert: {input: {$toUUID: '0e3b9063-8abd-4eb3-9f9f-f4c59fd30a60'}, to: 'string', format: 'uuid'}}",
                "'0e3b9063-8abd-4eb3-9f9f-f4c59fd30a60'",
            ),
            ("{$toUUID: '$none'}", "null"),
            (
                "{$convert: {input: 'x', to: 'binData', format: 'base64', onError: 'bad'}}",
                "'bad'",
            ),
            (
                "{$convert: {input: BinData(0, '68693f3e'), to: 'binData'}}",
                "BinData(0, '68693f3e')",
            ),
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
                "{$convert: {input: 'x', to: 'binData'}}",
                4_341_115,
                "Format must be specified",
            ),
            (
                "{$convert: {input: BinData(0, '6869'), to: 'string'}}",
                4_341_115,
                "'binData' to 'string'",
            ),
            (
                "{$convert: {input: 'x', to: 'binData', format: 'base32'}}",
                4_341_125,
                "base32",
            ),
            (
                "{$convert: {input: 'x', to: 'binData', format: 1}}",
                4_341_106,
                "int",
            ),
            (
                "{$convert: {input: 'x', to: 'binData', format: 'auto'}}",
                241,
                "auto",
            ),
            (
                "{$convert: {input: 'abc', to: 'binData', format: 'hex'}}",
                241,
                "abc",
            ),
            (
                "{$convert: {input: 'aGk_Pg', to: 'binData', format: 'base64'}}",
                241,
                "Base64",
            ),
            (
                "{$convert: {input: BinData(0, 'ff'), to: 'string', format: 'utf8'}}",
                241,
                "UTF-8",
            ),
            (
                "{$convert: {input: BinData(0, 'ff'), to: 'string', format: 'uuid'}}",
                241,
                "subtype 4",
            ),
            (
                "{$convert: {input: BinData(0, 'ff'), to: {type: 'binData', subtype: 4}}}",
                241,
                "different binData subtypes",
            ),
            (
                "{$convert: {input: 'x', to: {type: 'binData', subtype: 4}, format: 'hex'}}",
                241,
                "uuid",
            ),
            ("{$convert: {input: 1, to: {subtype: 4}}}", 9, "type"),
            (
                "{$convert: {input: 1, to: {type: 'int', subtype: 999}}}",
                2,
                "999",
            ),
            ("{$toUUID: 'soon'}", 241, "soon"),
            ("{$toUUID: 1}", 241, "int to binData"),
            (
                "{$convert: {input: 1}}",
                9,
                "Missing 'to' parameter to $convert",
            ),
            ("{$convert: {input: 1, to: 'int', x: 1}}", 9, "x"),
        ],
    );
}
