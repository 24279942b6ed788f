//! `fuzz`: with the feature `libfuzzer` a fuzzer of the target that FROND_FUZZ_TARGET names; without it a program that runs a
//! target on files, to repeat a failure.
#![cfg_attr(feature = "libfuzzer", no_main)]

#[cfg(feature = "libfuzzer")]
mod guided {
    use std::sync::OnceLock;

    use frond_fuzz::{Mutator, Target, inputs};
    use libfuzzer_sys::{fuzz_mutator, fuzz_target};

    fn target() -> &'static Target {
        static CHOSEN: OnceLock<&Target> = OnceLock::new();
        CHOSEN.get_or_init(|| {
            let name = std::env::var("FROND_FUZZ_TARGET").unwrap_or_default();
            frond_fuzz::named(&name).unwrap_or_else(|| {
                let names: Vec<&str> = frond_fuzz::TARGETS
                    .iter()
                    .map(|target| target.name)
                    .collect();
                eprintln!(
                    "FROND_FUZZ_TARGET is '{name}'; it must be one of {}",
                    names.join(", ")
                );
                std::process::exit(2);
            })
        })
    }

    fuzz_target!(|input: &[u8]| target().check(input));

    // Half of the changes are those of the tests, which know documents, and half are libFuzzer's own.
    fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
        if seed.is_multiple_of(2) {
            return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
        }
        static KNOWN: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
        let known = KNOWN.get_or_init(|| inputs(target()));
        let mut input = data[..size].to_vec();
        Mutator::new(target().format, known.clone(), u64::from(seed)).change(&mut input);
        let len = input.len().min(max_size);
        data[..len].copy_from_slice(&input[..len]);
        len
    });
}

#[cfg(not(feature = "libfuzzer"))]
fn main() -> std::process::ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    // `scripts/fuzz.sh` gives libFuzzer the inputs that code makes as files.
    let writes = arguments.next_if(|word| word == "--write-inputs").is_some();
    let Some(target) = arguments.next().and_then(|name| frond_fuzz::named(&name)) else {
        eprintln!(
            "usage: frond-fuzz TARGET FILE..., or --write-inputs TARGET FOLDER; the targets are:"
        );
        for target in frond_fuzz::TARGETS {
            eprintln!("  {:14} {}", target.name, target.about);
        }
        return std::process::ExitCode::FAILURE;
    };
    frond_fuzz::watch_panics();
    for file in arguments {
        if writes {
            if let Err(error) = write_inputs(target, &file) {
                eprintln!("{file}: {error}");
                return std::process::ExitCode::FAILURE;
            }
            continue;
        }
        match std::fs::read(&file) {
            Ok(input) => target.check(&input),
            Err(error) => {
                eprintln!("{file}: {error}");
                return std::process::ExitCode::FAILURE;
            }
        }
        println!("{file}: passed");
    }
    std::process::ExitCode::SUCCESS
}

/// Writes the known inputs of a target to files of a folder.
#[cfg(not(feature = "libfuzzer"))]
fn write_inputs(target: &frond_fuzz::Target, folder: &str) -> std::io::Result<()> {
    for (number, input) in frond_fuzz::inputs(target).iter().enumerate() {
        std::fs::write(format!("{folder}/known-{number:04}"), input)?;
    }
    Ok(())
}
