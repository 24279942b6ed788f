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
            ("{$dateToString: {date: '$old'}}", 18537, "0-9999: -1"),
            (
                "{$dateToString: {}}",
                18628,
                "Missing 'date' parameter to $dateToString",
            ),
            (
                "{$dateFromString: {dateString: '2023-02-29'}}",
                241,
                "The parsed date was invalid",
            ),
            (
                "{$dateFromString: {dateString: '2024-02-29T25:00'}}",
                241,
                "The parsed time was invalid",
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
                "Trailing data",
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
                5976500,
                "amount",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'day', binSize: 0}}",
                5439018,
                "greater than 0",
            ),
            (
                "{$dateDiff: {startDate: '$d', endDate: '$d', unit: 'week', startOfWeek: 'x'}}",
                5439016,
                "value cannot be recognized as a day of a week: x",
            ),
            (
                "{$dateDiff: {startDate: 'x', endDate: '$d', unit: 'week'}}",
                5166307,
                "string",
            ),
        ],
    );
}

#[test]
fn zones_of_the_iana_database() {
    // 2024-02-29 and 2024-07-04, 12:34:56.789Z.
    check(
        "{w: Date(1709210096789), s: Date(1720096496789), z: 'America/New_York'}",
        &[
            ("{$hour: {date: '$w', timezone: 'Europe/Berlin'}}", "13"),
            ("{$hour: {date: '$s', timezone: 'Europe/Berlin'}}", "14"),
            ("{$hour: {date: '$w', timezone: '$z'}}", "7"),
            ("{$hour: {date: '$w', timezone: '$none'}}", "null"),
            (
                "{$dateToString: {date: '$s', timezone: '$z', format: '%Y-%m-%d %H:%M %z %Z'}}",
                "'2024-07-04 08:34 -0400 -240'",
            ),
            (
                "{$dateToString: {date: '$s', timezone: 'Asia/Kathmandu'}}",
                "'2024-07-04T18:19:56.789'",
            ),
            (
                "{$dateToParts: {date: '$w', timezone: 'Pacific/Auckland'}}",
                "{year: 2024, month: 3, day: 1, hour: 1, minute: 34, second: 56, millisecond: 789}",
            ),
            (
                "{$dateFromParts: {year: 2024, month: 7, day: 4, hour: 8, minute: 34, second: 56, millisecond: 789, timezone: '$z'}}",
                "Date(1720096496789)",
            ),
            (
                "{$dateFromString: {dateString: '2024-07-04T08:34:56.789', timezone: '$z'}}",
                "Date(1720096496789)",
            ),
            (
                "{$dateTrunc: {date: '$s', unit: 'day', timezone: '$z'}}",
                "Date(1720065600000)",
            ),
            ("{$dateFromParts: {year: '$none'}}", "null"),
            (
                "{$dateAdd: {startDate: '$s', unit: 'day', amount: 1, timezone: '$none'}}",
                "null",
            ),
        ],
    );
    check_errors(
        "{d: Date(0)}",
        &[
            (
                "{$hour: {date: '$d', timezone: 'america/new_york'}}",
                40485,
                "america/new_york",
            ),
            ("{$hour: {date: '$d', timezone: 'EST5'}}", 40485, "EST5"),
            (
                "{$dateToString: {date: null, timezone: 'Nowhere'}}",
                40485,
                "Nowhere",
            ),
            ("{$dateToString: {date: null, format: '%Q'}}", 18536, "'%Q'"),
            ("{$dateToString: 5}", 18629, "object"),
            ("{$dateToString: {date: 1, x: 1}}", 18534, "x"),
            ("{$dateFromString: {x: 1}}", 40541, "x"),
            ("{$dateFromString: {}}", 40542, "dateString"),
            ("{$dateToParts: 1}", 40524, "object"),
            ("{$dateFromParts: 1}", 40519, "object"),
            ("{$dateFromParts: {x: 1}}", 40518, "x"),
            (
                "{$dateFromParts: {year: 2000, month: 40000}}",
                31034,
                "'month'",
            ),
            ("{$dateFromParts: {isoWeekYear: 0}}", 31095, "isoWeekYear"),
            (
                "{$dateAdd: {startDate: 'x', unit: 'day', amount: 1}}",
                5166403,
                "date",
            ),
            (
                "{$dateAdd: {startDate: '$d', unit: 5, amount: 1}}",
                5166404,
                "unit",
            ),
            ("{$dateAdd: 5}", 5166400, "object"),
            (
                "{$dateAdd: {startDate: '$d', unit: 'day'}}",
                5166402,
                "amount",
            ),
            (
                "{$dateTrunc: {date: '$d', unit: 'day', binSize: 'x'}}",
                5439017,
                "string",
            ),
            ("{$dateTrunc: {date: 5, unit: 'day'}}", 5439012, "int"),
            (
                "{$dateDiff: {startDate: '$d', endDate: '$d', unit: 'day', q: 1}}",
                5166302,
                "q",
            ),
        ],
    );
}
