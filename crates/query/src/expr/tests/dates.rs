//! Dates: parts, text, arithmetic.

use super::*;

/// 2024-02-29T12:34:56.789Z, a Thursday.
const DOC: &str = "{d: Date(1709210096789), old: Date(-62198755200000), n: null}";

#[test]
fn parts() {
    check(
        DOC,
        &[
            ("{$year: '$d'}", "2024"),
            ("{$month: '$d'}", "2"),
            ("{$dayOfMonth: ['$d']}", "29"),
            ("{$hour: '$d'}", "12"),
            ("{$hour: {date: '$d', timezone: '+05:30'}}", "18"),
            ("{$hour: {date: '$d', timezone: '-13'}}", "23"),
            ("{$dayOfMonth: {date: '$d', timezone: '-1300'}}", "28"),
            ("{$minute: '$d'}", "34"),
            ("{$second: '$d'}", "56"),
            ("{$millisecond: '$d'}", "789"),
            ("{$dayOfYear: '$d'}", "60"),
            ("{$dayOfWeek: '$d'}", "5"),
            ("{$isoDayOfWeek: '$d'}", "4"),
            ("{$week: '$d'}", "8"),
            ("{$isoWeek: '$d'}", "9"),
            ("{$isoWeekYear: '$d'}", "NumberLong(2024)"),
            ("{$year: '$n'}", "null"),
            ("{$tsSecond: Timestamp(7, 9)}", "NumberLong(7)"),
            ("{$tsIncrement: Timestamp(7, 9)}", "NumberLong(9)"),
            ("{$year: {date: '$d', timezone: null}}", "null"),
            ("{$year: Timestamp(1709210096, 1)}", "2024"),
            ("{$year: ObjectId('650000000123456789abcdef')}", "2023"),
            (
                "{$dateToParts: {date: '$d'}}",
                "{year: 2024, month: 2, day: 29, hour: 12, minute: 34, second: 56, millisecond: 789}",
            ),
            (
                "{$dateToParts: {date: '$d', iso8601: true}}",
                "{isoWeekYear: 2024, isoWeek: 9, isoDayOfWeek: 4, hour: 12, minute: 34, second: 56, millisecond: 789}",
            ),
            (
                "{$dateFromParts: {year: 2024, month: 2, day: 29, hour: 12, minute: 34, second: 56, millisecond: 789}}",
                "Date(1709210096789)",
            ),
            (
                "{$dateFromParts: {isoWeekYear: 2024, isoWeek: 9, isoDayOfWeek: 4}}",
                "Date(1709164800000)",
            ),
            (
                "{$dateFromParts: {year: 2023, month: 14, day: 0, timezone: '+01:00'}}",
                "Date(1706655600000)",
            ),
            ("{$dateFromParts: {year: 2023, month: null}}", "null"),
        ],
    );
    check_errors(
        DOC,
        &[
            (
                "{$year: 'x'}",
                16006,
                "can't convert from BSON type string to Date",
            ),
            (
                "{$year: {date: '$d', timezone: 'Mars/Olympus'}}",
                40485,
                "Mars/Olympus",
            ),
            ("{$year: {date: '$d', timezone: 5}}", 40517, "string"),
            ("{$year: {timezone: 'UTC'}}", 40539, "date"),
            ("{$year: {date: '$d', x: 1}}", 40535, "x"),
            ("{$year: ['$d', '$d']}", 40536, "given 2"),
            ("{$dateFromParts: {month: 2}}", 40516, "isoWeekYear"),
            (
                "{$dateFromParts: {year: 2024, isoWeek: 1}}",
                40489,
                "mixing",
            ),
            ("{$dateFromParts: {year: 20240}}", 40523, "9999"),
            ("{$dateFromParts: {year: 'x'}}", 40515, "integer"),
        ],
    );
}

#[test]
fn text() {
    check(
        DOC,
        &[
            (
                "{$dateToString: {date: '$d'}}",
                "'2024-02-29T12:34:56.789Z'",
            ),
            (
                "{$dateToString: {date: '$d', timezone: '+01:00'}}",
                "'2024-02-29T13:34:56.789'",
            ),
            (
                "{$dateToString: {date: '$d', format: '%Y/%m/%d %H:%M:%S.%L %j %w %u %U %V %G %z %Z %%'}}",
                "'2024/02/29 12:34:56.789 060 5 4 08 09 2024 +0000 0 %'",
            ),
            (
                "{$dateToString: {date: '$d', format: '%b %B %z', timezone: '-0330'}}",
                "'Feb February -0330'",
            ),
            ("{$dateToString: {date: '$n'}}", "null"),
            (
                "{$dateToString: {date: '$none', onNull: 'no date'}}",
                "'no date'",
            ),
            (
                "{$dateFromString: {dateString: '2024-02-29T12:34:56.789Z'}}",
                "Date(1709210096789)",
            ),
            (
                "{$dateFromString: {dateString: '2024-02-29 13:34:56.789 +0100'}}",
                "Date(1709210096789)",
            ),
            (
                "{$dateFromString: {dateString: '2024-02-29T12:34', timezone: '-01:00'}}",
                "Date(1709213640000)",
            ),
            (
                "{$dateFromString: {dateString: '29.2.2024 12h', format: '%d.%m.%Y %Hh'}}",
                "Date(1709208000000)",
            ),
            (
                "{$dateFromString: {dateString: 'Feb 29 2024 +0100', format: '%b %d %Y %z'}}",
                "Date(1709161200000)",
            ),
            (
                "{$dateFromString: {dateString: '2024-060', format: '%Y-%j'}}",
                "Date(1709164800000)",
            ),
            (
                "{$dateFromString: {dateString: '2024 09 4', format: '%G %V %u'}}",
                "Date(1709164800000)",
            ),
            (
                "{$dateFromString: {dateString: 'never', onError: 'bad'}}",
                "'bad'",
            ),
            (
                "{$dateFromString: {dateString: null, onNull: 'nil'}}",
                "'nil'",
            ),
        ],
    );
    check_errors(
        DOC,
        &[
            ("{$dateToString: {date: '$d', format: '%Q'}}", 18536, "'%Q'"),
            (
                "{$dateToString: {date: '$d', format: 'x%'}}",
                18535,
                "Unmatched '%'",
            ),
            ("{$dateToString: {date: '$d', format: 5}}", 18533, "string"),
            ("{$dateToString: {date: '$old'}}", 18537, "year -1"),
            (
                "{$dateToString: {}}",
                9,
                "Missing 'date' parameter to $dateToString",
            ),
            (
                "{$dateFromString: {dateString: '2023-02-29'}}",
                241,
                "out of range",
            ),
            (
                "{$dateFromString: {dateString: '2024-02-29T25:00'}}",
                241,
                "out of range",
            ),
            ("{$dateFromString: {dateString: 5}}", 241, "int"),
            (
                "{$dateFromString: {dateString: '2024-02-29T12:00Z', timezone: '+01'}}",
                241,
                "timezone",
            ),
            (
                "{$dateFromString: {dateString: '2024-02-29x', format: '%Y-%m-%d'}}",
                241,
                "trailing data",
            ),
        ],
    );
}

#[test]
fn arithmetic() {
    check(
        "{d: Date(1706704496789)}", // 2024-01-31T12:34:56.789Z
        &[
            (
                "{$dateAdd: {startDate: '$d', unit: 'month', amount: 1}}",
                "Date(1709210096789)",
            ),
            (
                "{$dateAdd: {startDate: '$d', unit: 'day', amount: 2}}",
                "Date(1706877296789)",
            ),
            (
                "{$dateAdd: {startDate: '$d', unit: 'week', amount: -1}}",
                "Date(1706099696789)",
            ),
            (
                "{$dateSubtract: {startDate: '$d', unit: 'quarter', amount: 1}}",
                "Date(1698755696789)",
            ),
            (
                "{$dateAdd: {startDate: null, unit: 'day', amount: 2}}",
                "null",
            ),
            (
                "{$dateDiff: {startDate: '$d', endDate: Date(1709210096789), unit: 'month'}}",
                "NumberLong(1)",
            ),
            (
                "{$dateDiff: {startDate: '$d', endDate: Date(1709210096789), unit: 'day'}}",
                "NumberLong(29)",
            ),
            (
                "{$dateDiff: {startDate: '$d', endDate: Date(1709210096789), unit: 'week', startOfWeek: 'monday'}}",
                "NumberLong(4)",
            ),
            (
                "{$dateDiff: {startDate: '$d', endDate: Date(1706745600000), unit: 'year'}}",
                "NumberLong(0)",
            ),
            (
                "{$dateDiff: {startDate: '$d', endDate: Date(1706745600000), unit: 'hour'}}",
                "NumberLong(12)",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'hour'}}",
                "Date(1706702400000)",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'minute', binSize: 15}}",
                "Date(1706704200000)",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'day', timezone: '+12'}}",
                "Date(1706702400000)",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'week'}}",
                "Date(1706400000000)",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'week', startOfWeek: 'mon'}}",
                "Date(1706486400000)",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'month'}}",
                "Date(1704067200000)",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'quarter'}}",
                "Date(1704067200000)",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'year', binSize: 10}}",
                "Date(1577836800000)",
            ),
        ],
    );
    check_errors(
        "{d: Date(0)}",
        &[
            (
                "{$dateAdd: {startDate: '$d', unit: 'fortnight', amount: 1}}",
                9,
                "fortnight",
            ),
            (
                "{$dateAdd: {startDate: '$d', unit: 'day', amount: 1.5}}",
                5166405,
                "integer",
            ),
            (
                "{$dateAdd: {startDate: '$d', unit: 'year', amount: NumberLong('9223372036854775807')}}",
                159,
                "overflow",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'day', binSize: 0}}",
                5439017,
                "greater than 0",
            ),
            (
                "{$dateDiff: {startDate: '$d', endDate: '$d', unit: 'week', startOfWeek: 'x'}}",
                9,
                "x",
            ),
            (
                "{$dateDiff: {startDate: 'x', endDate: '$d', unit: 'week'}}",
                16006,
                "string",
            ),
        ],
    );
}
