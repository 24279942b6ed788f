//! Numbers as text for people.

/// A number without decimals, its thousands separated by commas.
pub fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.abs());
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if number <= -0.5 {
        format!("-{out}")
    } else {
        out
    }
}

/// A value with as many decimals as make sense, or a hyphen.
pub fn show(value: Option<f64>) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    match value.abs() {
        _ if value.fract() == 0.0 => thousands(value),
        size if size >= 1000.0 => thousands(value),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Formats a figure as [`show`] does, followed by its unit, which may be empty.
pub fn show_with_unit(value: f64, unit: &str) -> String {
    format!("{} {unit}", show(Some(value)))
        .trim_end()
        .to_owned()
}

/// A ratio with as many decimals as make sense.
pub fn show_ratio(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= 100.0 => thousands(ratio),
        ratio if ratio >= 10.0 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.2}"),
    }
}

/// The name of a value on the command line.
pub fn value_name(value: &impl clap::ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        for (number, text) in [
            (0.0, "0"),
            (999.4, "999"),
            (999.6, "1,000"),
            (1_234_567.0, "1,234,567"),
            (-1234.0, "-1,234"),
            (-0.2, "0"),
        ] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn values_have_as_many_decimals_as_make_sense() {
        for (value, text) in [
            (None, "-"),
            (Some(3.0), "3"),
            (Some(151_234.56), "151,235"),
            (Some(123.456), "123.5"),
            (Some(1.234), "1.23"),
            (Some(0.1234), "0.123"),
        ] {
            assert_eq!(show(value), text);
        }
        assert_eq!(show_with_unit(1.25, "ms"), "1.25 ms");
        assert_eq!(show_with_unit(2.0, ""), "2");
    }
}
