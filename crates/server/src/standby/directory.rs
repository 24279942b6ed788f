//! The file in the data directory that tells whether it is a standby's. It is read before the store is opened.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The name of the file.
const NAME: &str = "standby.state";

/// The state of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// That of a server which is no standby.
    Own,
    /// A copy of the primary is being written, or is to be: the content is of no use.
    Copying,
    /// It follows a primary.
    Following,
    /// It was a standby, and was made a primary.
    Promoted,
}

impl State {
    fn text(self) -> &'static str {
        match self {
            State::Own => "",
            State::Copying => "copying",
            State::Following => "following",
            State::Promoted => "promoted",
        }
    }
}

pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// That at a path.
    pub fn new(path: &Path) -> Directory {
        Directory {
            path: path.to_owned(),
        }
    }

    /// Its state.
    ///
    /// # Errors
    /// A file that cannot be read or understood.
    pub fn state(&self) -> io::Result<State> {
        let text = match std::fs::read_to_string(self.path.join(NAME)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::Own),
            Err(error) => return Err(error),
        };
        let states = [State::Copying, State::Following, State::Promoted];
        let known = states.into_iter().find(|state| state.text() == text.trim());
        known.ok_or_else(|| {
            let what = format!("{NAME} in the data directory has {text:?}, which is no state");
            io::Error::new(io::ErrorKind::InvalidData, what)
        })
    }

    /// Makes it another one, durably.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn set(&self, state: State) -> io::Result<()> {
        let (new, name) = (self.path.join(format!("{NAME}.new")), self.path.join(NAME));
        let mut file = File::create(&new)?;
        file.write_all(format!("{}\n", state.text()).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &name)?;
        File::open(&self.path)?.sync_all()
    }

    /// Whether it has a store.
    pub fn has_store(&self) -> bool {
        self.path.join("data.frond").exists()
    }

    /// Removes the files of the store.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn clear(&self) -> io::Result<()> {
        for file in std::fs::read_dir(&self.path)? {
            let file = file?;
            let name = file.file_name();
            let is_of_store = name.to_str().is_some_and(|name| {
                name.ends_with(".frond") && (name == "data.frond" || name.starts_with("log-"))
            });
            if is_of_store && file.file_type()?.is_file() {
                std::fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }
}
