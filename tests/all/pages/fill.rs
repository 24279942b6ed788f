//! Puts figures into a text: a reference between `{{` and `}}` becomes the figure that it names.
//!
//! | notation | becomes |
//! | --- | --- |
//! | `{{reference}}` | the figure, see [`Runs::value`]; text stays as it is |
//! | `{{reference ÷ reference}}` | their ratio |
//! | `{{reference as millions}}` | divided by a million; also `thousands`, and `thousandths` for times thousand |
//! | `{{reference as 2 decimals}}` | with this many decimals, instead of the default |
//! | `{{more: … A vs B …}}` | three cells of a table: both figures, the winner's bold, and how many times better A is |
//! | `{{less: … A vs B …}}` | the same where less is better |
//! | `{{share: … A vs B …}}` | three cells: both figures and A / B, without a winner |
//! | `{{must: reference = value}}` | nothing, or an error if the run has another value |
//! | `{{path: run file}}` | the path of a run's file, from the page's folder; of `file or file` the first that there is |
//! | `{{date: run}}` | the day of a run |

use crate::pages::runs::Runs;
use crate::pages::source::number;

/// Splits a text into the parts outside and inside of `{{…}}`, alternately.
pub fn split(text: &str) -> Result<Vec<&str>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (inside, after) = after
            .split_once("}}")
            .ok_or_else(|| format!("no }}}} after {{{{{after}"))?;
        parts.extend([before, inside]);
        rest = after;
    }
    parts.push(rest);
    Ok(parts)
}

/// The text with its figures. `benchmarks` leads from the page's folder to `benchmarks/`.
pub fn fill(text: &str, runs: &Runs, benchmarks: &str) -> Result<String, String> {
    let parts = split(text)?;
    let filled = parts
        .iter()
        .enumerate()
        .map(|(index, part)| match index % 2 {
            0 => Ok((*part).to_owned()),
            _ => expand(part, runs, benchmarks),
        });
    filled.collect()
}

fn expand(inside: &str, runs: &Runs, benchmarks: &str) -> Result<String, String> {
    match inside.split_once(": ") {
        Some(("more", rest)) => cells(rest, runs, Some(true)),
        Some(("less", rest)) => cells(rest, runs, Some(false)),
        Some(("share", rest)) => cells(rest, runs, None),
        Some(("must", rest)) => must(rest, runs),
        Some(("path", rest)) => path(rest, runs, benchmarks),
        Some(("date", run)) => Ok(runs.run(run)?.get(..10).unwrap_or_default().to_owned()),
        _ => {
            let (reference, format) = Format::cut(inside)?;
            match reference.split_once('÷') {
                Some((above, below)) => {
                    let ratio = number(&runs.value(above)?)? / number(&runs.value(below)?)?;
                    Ok(format.show(ratio))
                }
                None => {
                    let value = runs.value(reference)?;
                    Ok(number(&value).map_or(value, |number| format.show(number)))
                }
            }
        }
    }
}

/// Two figures side by side and their ratio. `more` says whether more is better, if one can win.
fn cells(rest: &str, runs: &Runs, more: Option<bool>) -> Result<String, String> {
    let (reference, format) = Format::cut(rest)?;
    let parts: Vec<&str> = reference.split(';').map(str::trim).collect();
    let contest = parts.iter().position(|part| part.contains(" vs "));
    let at = contest.ok_or_else(|| format!("{rest}: no `A vs B`"))?;
    let (first, second) = parts[at].split_once(" vs ").unwrap_or_default();
    // In `engine = tree vs rocksdb` the column belongs to both.
    let second = match first.split_once(" = ") {
        Some((column, _)) => format!("{column} = {second}"),
        None => second.to_owned(),
    };
    let figure = |of: &str| {
        let mut parts = parts.clone();
        parts[at] = of;
        number(&runs.value(&parts.join("; "))?)
    };
    let (a, b) = (figure(first)?, figure(&second)?);
    let ratio = if more == Some(false) { b / a } else { a / b };
    let shown = |value: f64, wins: bool| match (more, wins) {
        (Some(_), true) => format!("**{}**", format.show(value)),
        _ => format.show(value),
    };
    Ok(format!(
        "{} | {} | {}",
        shown(a, ratio >= 1.0),
        shown(b, ratio <= 1.0),
        show_ratio(ratio)
    ))
}

fn path(rest: &str, runs: &Runs, benchmarks: &str) -> Result<String, String> {
    let (run, files) = rest
        .split_once(' ')
        .ok_or_else(|| format!("{rest}: not `run file`"))?;
    for file in files.split(" or ") {
        if runs.path(run, file)?.exists() {
            return Ok(format!("{benchmarks}runs/{}/{file}", runs.run(run)?));
        }
    }
    Err(format!("{run} has no file {files}"))
}

/// Nothing, or an error if the run has another value.
fn must(rest: &str, runs: &Runs) -> Result<String, String> {
    let (reference, wanted) = rest
        .rsplit_once(" = ")
        .ok_or_else(|| format!("{rest}: not `… = value`"))?;
    let value = runs.value(reference)?;
    if value != wanted {
        return Err(format!(
            "the text needs a run with {reference} = {wanted}, not {value}"
        ));
    }
    Ok(String::new())
}

/// The format of a number.
struct Format {
    factor: f64,
    decimals: Option<usize>,
}

impl Format {
    /// Splits ` as …` off the end of a reference.
    fn cut(text: &str) -> Result<(&str, Format), String> {
        let mut words = text.split(" as ");
        let reference = words.next().unwrap_or_default();
        let mut format = Format {
            factor: 1.0,
            decimals: None,
        };
        for word in words {
            match (word, word.split_once(" decimal")) {
                ("millions", _) => format.factor = 1e-6,
                ("thousands", _) => format.factor = 1e-3,
                ("thousandths", _) => format.factor = 1e3,
                (_, Some((count, "" | "s"))) => {
                    format.decimals =
                        Some(count.parse().map_err(|_| format!("as {word}: how many?"))?);
                }
                _ => return Err(format!("as {word}: not a way to show a number")),
            }
        }
        Ok((reference, format))
    }

    fn show(&self, number: f64) -> String {
        let number = number * self.factor;
        let decimals = self.decimals.unwrap_or(match number.abs() {
            size if number.fract() == 0.0 || size >= 100.0 => 0,
            size if size >= 10.0 => 1,
            size if size >= 0.1 => 2,
            _ => 3,
        });
        with_commas(&format!("{number:.decimals$}"))
    }
}

fn show_ratio(ratio: f64) -> String {
    let decimals = match ratio {
        ratio if ratio >= 100.0 => 0,
        ratio if ratio >= 10.0 => 1,
        _ => 2,
    };
    with_commas(&format!("{ratio:.decimals$}"))
}

fn with_commas(digits: &str) -> String {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if fraction.is_empty() {
        out
    } else {
        format!("{out}.{fraction}")
    }
}
