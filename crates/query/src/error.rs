//! Errors that a client sees: MongoDB's numeric codes, their names and a message.
//!
//! This is the one table of codes of the product. The store and the server use it too, so that a
//! code is spelled in one place. Codes that MongoDB names in its public list have a variant here;
//! codes that exist only as a number (`Location31249`) are [`ErrorCode::Location`].

use std::borrow::Cow;
use std::fmt;

use frond_bson::{Doc, DocBuf};

/// Result of every function of this crate that can refuse its input.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Declares the named codes once: the enum, its numbers, its names and the way back.
macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)+) => {
        /// A MongoDB error code. Numbers and names are those that drivers and applications test for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // the name is the documentation; see MongoDB's list of error codes
        pub enum ErrorCode {
            $($(#[$doc])* $name,)+
            /// A code known only by its number; its name is `Location` and the number.
            Location(i32),
        }

        impl ErrorCode {
            /// Every named code, in the order of the table.
            pub const NAMED: &'static [ErrorCode] = &[$(ErrorCode::$name,)+];

            /// The number, as in the `code` field of a reply.
            pub const fn code(self) -> i32 {
                match self {
                    $(ErrorCode::$name => $code,)+
                    ErrorCode::Location(code) => code,
                }
            }

            /// The name, as in the `codeName` field of a reply.
            pub fn name(self) -> Cow<'static, str> {
                match self {
                    $(ErrorCode::$name => Cow::Borrowed(stringify!($name)),)+
                    ErrorCode::Location(code) => Cow::Owned(format!("Location{code}")),
                }
            }

            /// The code with this number; a number without a name becomes a location.
            pub const fn from_code(code: i32) -> ErrorCode {
                match code {
                    $($code => ErrorCode::$name,)+
                    other => ErrorCode::Location(other),
                }
            }
        }
    };
}

error_codes! {
    InternalError = 1,
    BadValue = 2,
    NoSuchKey = 4,
    GraphContainsCycle = 5,
    HostUnreachable = 6,
    HostNotFound = 7,
    UnknownError = 8,
    FailedToParse = 9,
    CannotMutateObject = 10,
    UserNotFound = 11,
    UnsupportedFormat = 12,
    Unauthorized = 13,
    TypeMismatch = 14,
    Overflow = 15,
    InvalidLength = 16,
    ProtocolError = 17,
    AuthenticationFailed = 18,
    IllegalOperation = 20,
    EmptyArrayOperation = 21,
    InvalidBSON = 22,
    AlreadyInitialized = 23,
    LockTimeout = 24,
    NamespaceNotFound = 26,
    IndexNotFound = 27,
    PathNotViable = 28,
    NonExistentPath = 29,
    InvalidPath = 30,
    RoleNotFound = 31,
    RolesNotRelated = 32,
    PrivilegeNotFound = 33,
    CannotBackfillArray = 34,
    FileStreamFailed = 39,
    ConflictingUpdateOperators = 40,
    CursorNotFound = 43,
    LockBusy = 46,
    NoMatchingDocument = 47,
    NamespaceExists = 48,
    InvalidRoleModification = 49,
    MaxTimeMSExpired = 50,
    DollarPrefixedFieldName = 52,
    InvalidIdField = 53,
    NotSingleValueField = 54,
    InvalidDBRef = 55,
    EmptyFieldName = 56,
    DottedFieldName = 57,
    CommandNotFound = 59,
    ShardKeyNotFound = 61,
    WriteConcernTimeout = 64,
    MultipleErrorsOccurred = 65,
    ImmutableField = 66,
    CannotCreateIndex = 67,
    IndexAlreadyExists = 68,
    AuthSchemaIncompatible = 69,
    InvalidOptions = 72,
    InvalidNamespace = 73,
    NodeNotFound = 74,
    WriteConcernLegacyOK = 75,
    NoReplicationEnabled = 76,
    OperationIncomplete = 77,
    UnknownReplWriteConcern = 79,
    IndexOptionsConflict = 85,
    IndexKeySpecsConflict = 86,
    NetworkTimeout = 89,
    CallbackCanceled = 90,
    ShutdownInProgress = 91,
    InvalidReplicaSetConfig = 93,
    NotYetInitialized = 94,
    NotSecondary = 95,
    OperationFailed = 96,
    NoProjectionFound = 97,
    DBPathInUse = 98,
    UnsatisfiableWriteConcern = 100,
    OutdatedClient = 101,
    LockFailed = 107,
    NotExactValueField = 111,
    WriteConflict = 112,
    CommandNotSupported = 115,
    DocTooLargeForCapped = 116,
    ConflictingOperationInProgress = 117,
    NamespaceNotSharded = 118,
    OplogStartMissing = 120,
    DocumentValidationFailure = 121,
    NotAReplicaSet = 123,
    CommandFailed = 125,
    FailedToSatisfyReadPreference = 133,
    ReadConcernMajorityNotAvailableYet = 134,
    CappedPositionLost = 136,
    JSInterpreterFailure = 139,
    InvalidSSLConfiguration = 140,
    SSLHandshakeFailed = 141,
    CursorInUse = 143,
    ExceededMemoryLimit = 146,
    ZLibError = 147,
    ReadConcernMajorityNotEnabled = 148,
    MustUpgrade = 158,
    DurationOverflow = 159,
    MaxStalenessOutOfRange = 160,
    IncompatibleCollationVersion = 161,
    ViewDepthLimitExceeded = 165,
    CommandNotSupportedOnView = 166,
    OptionNotSupportedOnView = 167,
    InvalidPipelineOperator = 168,
    TooManyMatchingDocuments = 170,
    CannotIndexParallelArrays = 171,
    QueryPlanKilled = 175,
    AmbiguousIndexKeyPattern = 181,
    InvalidViewDefinition = 182,
    ClientMetadataMissingField = 183,
    ClientMetadataAppNameTooLarge = 184,
    ClientMetadataDocumentTooLarge = 185,
    ClientMetadataCannotBeMutated = 186,
    LinearizableReadConcernError = 187,
    PrimarySteppedDown = 189,
    FailPointEnabled = 192,
    FailPointSetFailed = 193,
    ViewPipelineMaxSizeExceeded = 195,
    InvalidIndexSpecificationOption = 197,
    CannotBuildIndexKeys = 201,
    NoSuchSession = 206,
    InvalidUUID = 207,
    TooManyLocks = 208,
    KeyNotFound = 211,
    DuplicateSession = 213,
    DatabaseDropPending = 215,
    ElectionInProgress = 216,
    IncompleteTransactionHistory = 217,
    UpdateOperationFailed = 218,
    CloseChangeStream = 222,
    IllegalOpMsgFlag = 223,
    QueryFeatureNotAllowed = 224,
    TransactionTooOld = 225,
    AtomicityFailure = 226,
    CannotImplicitlyCreateCollection = 227,
    MaxSubPipelineDepthExceeded = 232,
    TooManyDocumentSequences = 233,
    RetryChangeStream = 234,
    InternalErrorNotSupported = 235,
    CursorKilled = 237,
    NotImplemented = 238,
    SnapshotTooOld = 239,
    ConversionFailure = 241,
    CannotCreateCollection = 242,
    SnapshotUnavailable = 246,
    NoSuchTransaction = 251,
    TransactionCommitted = 256,
    TransactionTooLarge = 257,
    UnknownFeatureCompatibilityVersion = 258,
    InvalidResumeToken = 260,
    TooManyLogicalSessions = 261,
    ExceededTimeLimit = 262,
    OperationNotSupportedInTransaction = 263,
    TooManyFilesOpen = 264,
    PreparedTransactionInProgress = 267,
    CannotBackup = 268,
    IndexBuildAborted = 276,
    UnsatisfiableCommitQuorum = 278,
    ClientDisconnect = 279,
    ChangeStreamFatalError = 280,
    IndexBuildAlreadyInProgress = 285,
    ChangeStreamHistoryLost = 286,
    ChecksumMismatch = 288,
    TransactionExceededLifetimeLimitSeconds = 290,
    NoQueryExecutionPlans = 291,
    QueryExceededMemoryLimitNoDiskUseAllowed = 292,
    DataCorruptionDetected = 301,
    ObjectIsBusy = 314,
    APIVersionError = 322,
    APIStrictError = 323,
    APIDeprecationError = 324,
    MechanismUnavailable = 334,
    APIMismatchError = 347,
    KeyPatternShorterThanBound = 349,
    UnsupportedOpQueryCommand = 352,
    InvalidBSONType = 357,
    CannotConvertIndexToUnique = 359,
    CollectionUUIDMismatch = 361,
    RetryableTransactionInProgress = 363,
    TemporarilyUnavailable = 365,
    UserWritesBlocked = 371,
    ChangeStreamNotEnabled = 376,
    NonConformantBSON = 378,
    DuplicateKeyId = 386,
    TransactionTooLargeForCache = 388,
    ReauthenticationRequired = 391,
    IndexInformationTooLarge = 396,
    SocketException = 9001,
    NotWritablePrimary = 10107,
    BSONObjectTooLarge = 10334,
    DuplicateKey = 11000,
    InterruptedAtShutdown = 11600,
    Interrupted = 11601,
    InterruptedDueToReplStateChange = 11602,
    BackgroundOperationInProgressForDatabase = 12586,
    BackgroundOperationInProgressForNamespace = 12587,
    NotPrimaryNoSecondaryOk = 13435,
    NotPrimaryOrSecondary = 13436,
    OutOfDiskSpace = 14031,
    IDLDuplicateField = 40413,
    IDLFailedToParse = 40414,
    IDLUnknownField = 40415,
    ClientMarkedKilled = 46841,
    NotARetryableWriteCommand = 50768,
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// A refusal as the client sees it: `code`, `codeName` and `errmsg` of the reply.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// The `code` and `codeName` of the reply.
    pub code: ErrorCode,
    /// The `errmsg` of the reply.
    pub message: String,
    /// Further fields of the reply, such as `keyPattern` and `keyValue` of a duplicate key.
    pub details: Option<Box<DocBuf>>,
}

impl Error {
    /// An error with any code.
    #[cold]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Error {
        Error {
            code,
            message: message.into(),
            details: None,
        }
    }

    /// An error whose code is known only by its number (`LocationNNNNN`); named numbers get their name.
    #[cold]
    pub fn location(code: i32, message: impl Into<String>) -> Error {
        Error::new(ErrorCode::from_code(code), message)
    }

    /// Code 2, `BadValue`: an argument has the right type but a wrong value, or an operator is unknown.
    #[cold]
    pub fn bad_value(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::BadValue, message)
    }

    /// Code 2, `BadValue`: the operator would name a field with text that is not UTF-8.
    #[cold]
    pub(crate) fn not_a_name(operator: &str) -> Error {
        Error::bad_value(format!(
            "{operator} requires the names of fields to be valid UTF-8"
        ))
    }

    /// Code 9, `FailedToParse`: the structure of the request is wrong.
    #[cold]
    pub fn failed_to_parse(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::FailedToParse, message)
    }

    /// Code 14, `TypeMismatch`: an argument has the wrong BSON type.
    #[cold]
    pub fn type_mismatch(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::TypeMismatch, message)
    }

    /// Code 15, `Overflow`: nested deeper than the server follows, or a number out of range.
    #[cold]
    pub fn overflow(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::Overflow, message)
    }

    /// Code 1, `InternalError`: a broken invariant of the server itself.
    #[cold]
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorCode::InternalError, message)
    }

    /// Code 238, `NotImplemented`: MongoDB knows `what`, this server does not. `what` begins with
    /// the name that the user wrote, for example ``"the query operator '$where'"``.
    #[cold]
    pub fn not_supported(what: impl fmt::Display) -> Error {
        Error::new(
            ErrorCode::NotImplemented,
            format!("{what} is not supported by this server"),
        )
    }

    /// The code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The text of `errmsg`.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The further fields of the reply, if any.
    pub fn details(&self) -> Option<&Doc> {
        self.details.as_deref().map(|details| &**details)
    }

    /// The same error with further fields for the reply.
    pub fn with_details(mut self, details: DocBuf) -> Error {
        self.details = Some(Box::new(details));
        self
    }

    /// The same error with `prefix` and the separator `" :: caused by :: "` before its message, as
    /// MongoDB reports where a nested failure came from.
    pub fn context(mut self, prefix: impl fmt::Display) -> Error {
        self.message = format!("{prefix} :: caused by :: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_and_names_agree_both_ways() {
        let mut seen = HashSet::new();
        for &code in ErrorCode::NAMED {
            assert!(seen.insert(code.code()), "{code} has a number twice");
            assert_eq!(ErrorCode::from_code(code.code()), code);
        }
        for (number, name) in [
            (2, "BadValue"),
            (9, "FailedToParse"),
            (26, "NamespaceNotFound"),
            (43, "CursorNotFound"),
            (59, "CommandNotFound"),
            (66, "ImmutableField"),
            (85, "IndexOptionsConflict"),
            (11000, "DuplicateKey"),
            (31249, "Location31249"),
        ] {
            assert_eq!(ErrorCode::from_code(number).name(), name);
            assert_eq!(ErrorCode::from_code(number).code(), number);
        }
    }

    #[test]
    fn context_goes_before_the_message() {
        let error = Error::bad_value("x").context("Failed to parse: f");
        assert_eq!(error.message(), "Failed to parse: f :: caused by :: x");
        assert_eq!(
            error.to_string(),
            "BadValue: Failed to parse: f :: caused by :: x"
        );
    }
}
