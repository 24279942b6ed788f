//! The command lines.

use std::path::PathBuf;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Extended JSON, one document after another, or in an array with --jsonArray
    Json,
    /// Values separated by commas
    Csv,
    /// Values separated by tabs
    Tsv,
    /// BSON documents of one collection, one after another: a file of a dump or of a rollback
    Bson,
    /// A folder of BSON files with metadata, as mongodump writes it
    Dump,
    /// All of these in one file, as mongodump --archive writes it
    Archive,
}

/// The way in which documents are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    Insert,
    /// Put it in the place of the document with the same --upsertFields, or insert it
    Upsert,
    /// Set its fields in the document with the same --upsertFields, or insert it
    Merge,
    /// Delete the document with the same --upsertFields
    Delete,
}

/// The treatment of a value that is not of its column's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ParseGrace {
    AutoCast,
    /// Leave out the field
    SkipField,
    /// Leave out the row
    SkipRow,
    /// End with an error
    Stop,
}

/// Options that both commands have.
#[derive(Clone, Debug, clap::Args)]
pub struct CommonOptions {
    #[arg(long, value_name = "URI", default_value = "mongodb://127.0.0.1:27017")]
    pub uri: String,
    /// The database; for dumps and archives all databases if it is not given
    #[arg(long, short)]
    pub db: Option<String>,
    /// The collection; for dumps and archives all collections if it is not given
    #[arg(long, short)]
    pub collection: Option<String>,
    /// Of a dump or archive only these: database, database.collection, or with * for any text
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub include: Vec<String>,
    /// Of a dump or archive leave these out
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub exclude: Vec<String>,
    /// The format of the file; guessed from its name if it is not given
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Documents are in one JSON array
    #[arg(long = "jsonArray")]
    pub json_array: bool,
    /// Compress or uncompress with gzip; files whose name ends with .gz need no option
    #[arg(long)]
    pub gzip: bool,
    /// Columns of CSV and TSV, or fields of JSON, separated by commas
    #[arg(long, short, value_name = "NAMES", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Leave out users and roles of dumps and archives
    #[arg(long)]
    pub no_users: bool,
    #[arg(long)]
    pub quiet: bool,
}

/// Options of `frond export`.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportOptions {
    #[command(flatten)]
    pub common: CommonOptions,
    /// The file or folder to write; - is the standard output
    #[arg(long, short, value_name = "PATH", default_value = "-")]
    pub out: PathBuf,
    /// Which documents, as a query in Extended JSON
    #[arg(long, short, value_name = "JSON")]
    pub query: Option<String>,
    /// The sort, in Extended JSON
    #[arg(long, value_name = "JSON")]
    pub sort: Option<String>,
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub limit: u32,
    /// Canonical Extended JSON, which keeps every type
    #[arg(long)]
    pub canonical: bool,
    /// Pack the measurements of time series into buckets, which MongoDB restores (dumps and archives)
    #[arg(long)]
    pub buckets: bool,
    /// Leave out the first line with the names of the columns
    #[arg(long = "noHeaderLine")]
    pub no_header_line: bool,
}

/// Options of `frond import`.
#[derive(Clone, Debug, clap::Args)]
pub struct ImportOptions {
    #[command(flatten)]
    pub common: CommonOptions,
    /// The file or folder to read; - is the standard input
    #[arg(value_name = "PATH", default_value = "-")]
    pub file: PathBuf,
    /// The way in which documents are written
    #[arg(long, value_enum, default_value_t = Mode::Insert)]
    pub mode: Mode,
    /// Fields that say which document is meant
    #[arg(
        long = "upsertFields",
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "_id"
    )]
    pub upsert_fields: Vec<String>,
    /// Drop the collections first
    #[arg(long)]
    pub drop: bool,
    /// The first line names the columns
    #[arg(long)]
    pub headerline: bool,
    /// Columns are given as name.type(argument), such as n.int32() and at.date_ms(yyyy-MM-dd)
    #[arg(long = "columnsHaveTypes")]
    pub columns_have_types: bool,
    /// The treatment of a value that is not of its column's type
    #[arg(long = "parseGrace", value_enum, default_value_t = ParseGrace::Stop)]
    pub parse_grace: ParseGrace,
    /// Leave out fields of empty values
    #[arg(long = "ignoreBlanks")]
    pub ignore_blanks: bool,
    /// Read version 1 of Extended JSON, and the forms of the shell: ObjectId("…"), NaN, names without quotes
    #[arg(long)]
    pub legacy: bool,
    /// End at the first document that the server refuses
    #[arg(long = "stopOnError")]
    pub stop_on_error: bool,
    /// Skip the validators of the collections
    #[arg(long = "bypassDocumentValidation")]
    pub bypass_validation: bool,
    /// Do not build the indexes of a dump or archive
    #[arg(long = "noIndexRestore")]
    pub no_indexes: bool,
    /// Apply the oplog of a dump or archive, which has what changed while mongodump --oplog made it
    #[arg(long = "oplogReplay")]
    pub oplog_replay: bool,
    #[arg(long, short, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
}

impl CommonOptions {
    /// The format, as given or as the name of the file says.
    pub fn format(&self, path: &std::path::Path) -> Format {
        if let Some(format) = self.format {
            return format;
        }
        let name = path.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.').map(|(_, ending)| ending) {
            _ if path.is_dir() => Format::Dump,
            Some("csv") => Format::Csv,
            Some("tsv") => Format::Tsv,
            Some("bson") => Format::Bson,
            Some("archive") => Format::Archive,
            _ => Format::Json,
        }
    }
}
