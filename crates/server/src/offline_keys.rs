//! The master keys of the offline tools, `frond encrypt`, `frond rotate-master-key` and `frond decrypt`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use frond_store::encryption::{
    KeySource, MasterKey, begin_encryption, file_cipher, read_master_key, rotate_offline,
};

use crate::host::lock_file::LockFile;

/// The options for the master key of an encrypted directory. `prefix` is that of their names.
#[derive(Clone, Copy)]
pub struct KeyOptions {
    file: &'static str,
    command: &'static str,
    whose: &'static str,
}

/// Of the directory that is read.
pub const KEY: KeyOptions = KeyOptions {
    file: "encryptionKeyFile",
    command: "encryptionKeyCommand",
    whose: "if the directory is encrypted",
};

/// Of the directory that is written.
pub const OUT_KEY: KeyOptions = KeyOptions {
    file: "outEncryptionKeyFile",
    command: "outEncryptionKeyCommand",
    whose: "for the new files, which are encrypted then",
};

/// The one that replaces the old one.
const NEW_KEY: KeyOptions = KeyOptions {
    file: "newEncryptionKeyFile",
    command: "newEncryptionKeyCommand",
    whose: "that replaces the old one",
};

impl KeyOptions {
    pub fn arguments(self) -> [Arg; 2] {
        [
            Arg::new(self.file)
                .long(self.file)
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .conflicts_with(self.command)
                .help(format!("A file with the master key {}", self.whose)),
            Arg::new(self.command)
                .long(self.command)
                .value_name("COMMAND")
                .help(format!(
                    "A command that prints the master key {}",
                    self.whose
                )),
        ]
    }

    /// The master key, if one of the options is given.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn read(self, arguments: &ArgMatches) -> Result<Option<MasterKey>, String> {
        let file = arguments.get_one::<PathBuf>(self.file).cloned();
        let command = arguments.get_one::<String>(self.command).cloned();
        let source = file
            .map(KeySource::File)
            .or_else(|| command.map(KeySource::Command));
        let read = source.as_ref().map(read_master_key).transpose();
        read.map_err(|error| error.to_string())
    }
}

/// The arguments of `frond encrypt`.
pub fn encrypt_command() -> Command {
    Command::new("encrypt")
        .about("Prepare the data directory of a stopped server to be encrypted")
        .long_about(
            "Makes the key store of a data directory that is not encrypted, and encrypts the log. Start the server with --enableEncryption and the same \
             master key then: it encrypts the data in the background, while clients use it. Do so with one member of a replica set \
             after the other.",
        )
        .arg(directory())
        .args(KEY.arguments())
}

/// The arguments of `frond rotate-master-key`.
pub fn rotate_command() -> Command {
    Command::new("rotate-master-key")
        .about("Encrypt the store keys of a stopped server with another master key")
        .long_about(
            "Reads the key store of an encrypted data directory with the old master key, and writes it with the new one. Data \
             is not written again. After an error or a crash one of the two keys opens the directory.",
        )
        .arg(directory())
        .args(KEY.arguments())
        .args(NEW_KEY.arguments())
        .arg(
            Arg::new("newStoreKey")
                .long("newStoreKey")
                .num_args(0)
                .help("Also make a new store key for what is written from now on"),
        )
}

/// The arguments of `frond decrypt`.
pub fn decrypt_command() -> Command {
    Command::new("decrypt")
        .about("Decrypt a file that a rollback has left in an encrypted data directory")
        .long_about(
            "Writes the documents of a file rollback/UUID/removed.TIME.0.bson.encrypted as BSON to the standard output, or to the \
             file --out. The server may run.",
        )
        .arg(directory().help("Directory of the data files, which has the key store"))
        .args(KEY.arguments())
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("A new file for the documents"),
        )
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("The encrypted file, in the folder that is named after its collection"),
        )
}

/// Runs `frond decrypt`.
#[must_use]
pub fn decrypt(arguments: &ArgMatches) -> ExitCode {
    ended("decrypt", try_decrypt(arguments))
}

/// Prints the error of a command, and returns its exit code.
fn ended(command: &str, outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("frond {command}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn try_decrypt(arguments: &ArgMatches) -> Result<(), String> {
    let path = |name| {
        let path = arguments.get_one::<PathBuf>(name);
        path.map_or(Path::new(""), PathBuf::as_path)
    };
    let master = KEY.read(arguments)?.ok_or_else(|| missing(KEY))?;
    let cipher = file_cipher(path("dbpath"), &master).map_err(|error| error.message())?;
    let file = path("file");
    let shown = |error: io::Error| format!("{}: {error}", file.display());
    let parent = std::path::absolute(file).map_err(shown)?;
    let context = parent
        .parent()
        .and_then(Path::file_name)
        .unwrap_or_default();
    let mut from = BufReader::new(File::open(file).map_err(shown)?);
    let mut to: Box<dyn Write> = match arguments.get_one::<PathBuf>("out") {
        Some(out) => {
            let made = frond_files::create_new(out);
            Box::new(BufWriter::new(
                made.map_err(|error| format!("{}: {error}", out.display()))?,
            ))
        }
        None => Box::new(io::stdout().lock()),
    };
    while let Some(document) = cipher
        .read(&mut from, context.as_encoded_bytes())
        .map_err(shown)?
    {
        to.write_all(&document).map_err(|error| error.to_string())?;
    }
    to.flush().map_err(|error| error.to_string())
}

fn directory() -> Arg {
    Arg::new("dbpath")
        .long("dbpath")
        .value_name("DIR")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("Directory of the data files")
}

fn missing(options: KeyOptions) -> String {
    format!(
        "the master key is missing: give --{} or --{}",
        options.file, options.command
    )
}

/// Runs `frond encrypt`.
#[must_use]
pub fn encrypt(arguments: &ArgMatches) -> ExitCode {
    ended("encrypt", try_encrypt(arguments))
}

fn try_encrypt(arguments: &ArgMatches) -> Result<(), String> {
    let path = arguments.get_one::<PathBuf>("dbpath");
    let path = path.map_or(Path::new(""), PathBuf::as_path);
    let master = KEY.read(arguments)?.ok_or_else(|| missing(KEY))?;
    let _lock = LockFile::hold(path).map_err(|error| error.to_string())?;
    begin_encryption(path, &master).map_err(|error| error.message())?;
    println!("a server with --enableEncryption and this master key encrypts the data now");
    Ok(())
}

/// Runs `frond rotate-master-key`.
#[must_use]
pub fn rotate(arguments: &ArgMatches) -> ExitCode {
    ended("rotate-master-key", try_rotate(arguments))
}

fn try_rotate(arguments: &ArgMatches) -> Result<(), String> {
    let path = arguments.get_one::<PathBuf>("dbpath");
    let path = path.map_or(Path::new(""), PathBuf::as_path);
    let old = KEY.read(arguments)?.ok_or_else(|| missing(KEY))?;
    let new = NEW_KEY.read(arguments)?.ok_or_else(|| missing(NEW_KEY))?;
    let _lock = LockFile::hold(path).map_err(|error| error.to_string())?;
    let rotated = rotate_offline(path, &old, &new, arguments.get_flag("newStoreKey"));
    rotated.map_err(|error| error.message())?;
    println!("the store keys are encrypted with the new master key");
    Ok(())
}
