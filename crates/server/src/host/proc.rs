//! The formats of the system's tables in `/proc`. The functions take text, so that the doctor and tests can read it elsewhere.
//!
//! The crate `procfs` is not used: it would add three crates, and it parses every field of a table for the few that are wanted.

/// The value of the first line `name: value`.
pub fn value<'a>(table: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    table.lines().find_map(value).map(str::trim)
}

/// The number that the value begins with. A unit may follow it.
pub fn number(table: &str, name: &str) -> Option<u64> {
    value(table, name)?.split_whitespace().next()?.parse().ok()
}

/// A size, which the system shows in KiB, in bytes.
pub fn size(table: &str, name: &str) -> Option<u64> {
    Some(number(table, name)? << 10)
}

/// A field of `/proc/PID/stat`, by its number in proc_stat(5), 3 or more.
pub fn stat_field(stat: &str, number: usize) -> Option<u64> {
    // The second field is the name of the program in brackets. It may have blanks and brackets.
    let (_, rest) = stat.rsplit_once(')')?;
    let field = rest.split_whitespace().nth(number.checked_sub(3)?)?;
    field.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read() {
        let table =
            "Name:\tfrond\nVmHWM:\t  2048 kB\nVm:\tx\nSigIgn:\t0000000000000001\nThreads:\t7\n";
        for (name, text, count) in [
            ("Name", Some("frond"), None),
            ("VmHWM", Some("2048 kB"), Some(2048)),
            ("Vm", Some("x"), None),
            ("SigIgn", Some("0000000000000001"), Some(1)),
            ("Threads", Some("7"), Some(7)),
            ("Thread", None, None),
            ("", None, None),
        ] {
            assert_eq!(value(table, name), text, "{name}");
            assert_eq!(number(table, name), count, "{name}");
        }
        assert_eq!(size(table, "VmHWM"), Some(2 << 20));
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 905";
        assert_eq!(stat_field(stat, 4), Some(1));
        assert_eq!(stat_field(stat, 10), Some(905));
        assert_eq!(stat_field(stat, 3), None);
        assert_eq!(stat_field(stat, 1), None);
        assert_eq!(stat_field(stat, 11), None);
        assert_eq!(stat_field("", 4), None);
    }
}
