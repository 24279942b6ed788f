//! The codes: their numbers, their names, and the way back from a number.

use std::borrow::Cow;
use std::fmt;

/// Declares the named codes once: the enum, its numbers, its names and the way back.
macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)+) => {
        /// A MongoDB error code. Numbers and names are those that drivers and applications test for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs)] // the name is the documentation; see MongoDB's list of error codes
        pub enum ErrorCode {
            $($(#[$doc])* $name,)+
            /// A code known only by its number: the location of a check in MongoDB's source, or a code
            /// that Frond never raises by itself but a fail point may.
            Location(i32),
        }

        impl ErrorCode {
            /// Every code that has a variant, in the order of their numbers.
            pub const NAMED: &'static [ErrorCode] = &[$(ErrorCode::$name,)+];

            /// The number, as in the `code` field of a reply.
            pub const fn code(self) -> i32 {
                match self {
                    $(ErrorCode::$name => $code,)+
                    ErrorCode::Location(code) => code,
                }
            }

            /// The name, as in the `codeName` field of a reply. MongoDB calls a code without a name of its
            /// own `Location` and the number.
            pub fn name(self) -> Cow<'static, str> {
                match self {
                    $(ErrorCode::$name => Cow::Borrowed(stringify!($name)),)+
                    ErrorCode::Location(code) => match name_of(code) {
                        Some(name) => Cow::Borrowed(name),
                        None => Cow::Owned(format!("Location{code}")),
                    },
                }
            }

            /// Whether it is one of MongoDB's interruptions: the operation ended before it was complete, for a reason
            /// outside of it, and may be tried again as a whole.
            pub const fn is_interruption(self) -> bool {
                matches!(
                    self,
                    ErrorCode::Interrupted
                        | ErrorCode::ClientDisconnect
                        | ErrorCode::InterruptedAtShutdown
                        | ErrorCode::MaxTimeMSExpired
                        | ErrorCode::ExceededTimeLimit
                        | ErrorCode::TransactionExceededLifetimeLimitSeconds
                        | ErrorCode::InterruptedDueToReplStateChange
                )
            }

            /// Whether MongoDB has the code in the category of errors after which the same operation may succeed, here or
            /// at another server: the network failed, the server stops, or it is not the primary.
            pub const fn is_retriable(self) -> bool {
                matches!(
                    self.code(),
                    6 | 7 | 89 | 91 | 134 | 189 | 262 | 9001 | 10107 | 11600 | 11602 | 13435 | 13436
                )
            }

            /// The code with this number; a number without a variant becomes a location.
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
    FailedToParse = 9,
    UnsupportedFormat = 12,
    Unauthorized = 13,
    TypeMismatch = 14,
    Overflow = 15,
    InvalidLength = 16,
    ProtocolError = 17,
    AuthenticationFailed = 18,
    IllegalOperation = 20,
    AlreadyInitialized = 23,
    LockTimeout = 24,
    NamespaceNotFound = 26,
    IndexNotFound = 27,
    PathNotViable = 28,
    CannotBackfillArray = 34,
    FileStreamFailed = 39,
    ConflictingUpdateOperators = 40,
    CursorNotFound = 43,
    NoMatchingDocument = 47,
    NamespaceExists = 48,
    MaxTimeMSExpired = 50,
    DollarPrefixedFieldName = 52,
    InvalidIdField = 53,
    NotSingleValueField = 54,
    InvalidDBRef = 55,
    EmptyFieldName = 56,
    CommandNotFound = 59,
    WriteConcernTimeout = 64,
    ImmutableField = 66,
    CannotCreateIndex = 67,
    IndexAlreadyExists = 68,
    InvalidOptions = 72,
    InvalidNamespace = 73,
    NodeNotFound = 74,
    NoReplicationEnabled = 76,
    UnknownReplWriteConcern = 79,
    IndexOptionsConflict = 85,
    IndexKeySpecsConflict = 86,
    NetworkTimeout = 89,
    InvalidReplicaSetConfig = 93,
    NotYetInitialized = 94,
    NotSecondary = 95,
    OperationFailed = 96,
    UnsatisfiableWriteConcern = 100,
    NewReplicaSetConfigurationIncompatible = 103,
    NodeNotElectable = 104,
    InconsistentReplicaSetNames = 108,
    ConfigurationInProgress = 109,
    NotExactValueField = 111,
    WriteConflict = 112,
    CommandNotSupported = 115,
    ConflictingOperationInProgress = 117,
    DocumentValidationFailure = 121,
    NotAReplicaSet = 123,
    CommandFailed = 125,
    CappedPositionLost = 136,
    JSInterpreterFailure = 139,
    CursorInUse = 143,
    ExceededMemoryLimit = 146,
    DurationOverflow = 159,
    IncompatibleCollationVersion = 161,
    ViewDepthLimitExceeded = 165,
    CommandNotSupportedOnView = 166,
    OptionNotSupportedOnView = 167,
    InvalidPipelineOperator = 168,
    QueryPlanKilled = 175,
    AmbiguousIndexKeyPattern = 181,
    ClientMetadataAppNameTooLarge = 184,
    ClientMetadataDocumentTooLarge = 185,
    ClientMetadataCannotBeMutated = 186,
    PrimarySteppedDown = 189,
    FailPointSetFailed = 193,
    InvalidIndexSpecificationOption = 197,
    CannotBuildIndexKeys = 201,
    ClusterTimeFailsRateLimiter = 202,
    InvalidUUID = 207,
    IncompleteTransactionHistory = 217,
    QueryFeatureNotAllowed = 224,
    TransactionTooOld = 225,
    MaxSubPipelineDepthExceeded = 232,
    CursorKilled = 237,
    NotImplemented = 238,
    SnapshotTooOld = 239,
    ConversionFailure = 241,
    NoSuchTransaction = 251,
    TransactionCommitted = 256,
    TransactionTooLarge = 257,
    InvalidResumeToken = 260,
    ExceededTimeLimit = 262,
    OperationNotSupportedInTransaction = 263,
    IndexBuildAborted = 276,
    UnsatisfiableCommitQuorum = 278,
    ClientDisconnect = 279,
    ChangeStreamFatalError = 280,
    IndexBuildAlreadyInProgress = 285,
    ChangeStreamHistoryLost = 286,
    TransactionExceededLifetimeLimitSeconds = 290,
    NoQueryExecutionPlans = 291,
    QueryExceededMemoryLimitNoDiskUseAllowed = 292,
    DataCorruptionDetected = 301,
    APIVersionError = 322,
    APIStrictError = 323,
    MechanismUnavailable = 334,
    CannotConvertIndexToUnique = 359,
    CollectionUUIDMismatch = 361,
    TransactionTooLargeForCache = 388,
    NotWritablePrimary = 10107,
    BSONObjectTooLarge = 10334,
    DuplicateKey = 11000,
    InterruptedAtShutdown = 11600,
    Interrupted = 11601,
    InterruptedDueToReplStateChange = 11602,
    NotPrimaryNoSecondaryOk = 13435,
    NotPrimaryOrSecondary = 13436,
    OutOfDiskSpace = 14031,
    IDLDuplicateField = 40413,
    IDLFailedToParse = 40414,
    IDLUnknownField = 40415,
    NotARetryableWriteCommand = 50768,
}

/// The name of a code that has no variant. Fail points and errors of the wire name codes by number.
fn name_of(code: i32) -> Option<&'static str> {
    let at = FURTHER_NAMES.binary_search_by_key(&code, |(code, _)| *code);
    at.ok().map(|at| FURTHER_NAMES[at].1)
}

/// Names of further codes that drivers and applications know, in the order of their numbers.
const FURTHER_NAMES: &[(i32, &str)] = &[
    (7, "HostNotFound"),
    (8, "UnknownError"),
    (10, "CannotMutateObject"),
    (11, "UserNotFound"),
    (21, "EmptyArrayOperation"),
    (22, "InvalidBSON"),
    (29, "NonExistentPath"),
    (30, "InvalidPath"),
    (31, "RoleNotFound"),
    (32, "RolesNotRelated"),
    (33, "PrivilegeNotFound"),
    (46, "LockBusy"),
    (49, "InvalidRoleModification"),
    (57, "DottedFieldName"),
    (61, "ShardKeyNotFound"),
    (65, "MultipleErrorsOccurred"),
    (69, "AuthSchemaIncompatible"),
    (75, "WriteConcernLegacyOK"),
    (77, "OperationIncomplete"),
    (90, "CallbackCanceled"),
    (91, "ShutdownInProgress"),
    (97, "NoProjectionFound"),
    (98, "DBPathInUse"),
    (101, "OutdatedClient"),
    (107, "LockFailed"),
    (116, "DocTooLargeForCapped"),
    (118, "NamespaceNotSharded"),
    (120, "OplogStartMissing"),
    (133, "FailedToSatisfyReadPreference"),
    (134, "ReadConcernMajorityNotAvailableYet"),
    (140, "InvalidSSLConfiguration"),
    (141, "SSLHandshakeFailed"),
    (147, "ZLibError"),
    (148, "ReadConcernMajorityNotEnabled"),
    (158, "MustUpgrade"),
    (160, "MaxStalenessOutOfRange"),
    (170, "TooManyMatchingDocuments"),
    (171, "CannotIndexParallelArrays"),
    (182, "InvalidViewDefinition"),
    (183, "ClientMetadataMissingField"),
    (187, "LinearizableReadConcernError"),
    (192, "FailPointEnabled"),
    (195, "ViewPipelineMaxSizeExceeded"),
    (206, "NoSuchSession"),
    (208, "TooManyLocks"),
    (211, "KeyNotFound"),
    (213, "DuplicateSession"),
    (215, "DatabaseDropPending"),
    (216, "ElectionInProgress"),
    (218, "UpdateOperationFailed"),
    (222, "CloseChangeStream"),
    (223, "IllegalOpMsgFlag"),
    (226, "AtomicityFailure"),
    (227, "CannotImplicitlyCreateCollection"),
    (233, "TooManyDocumentSequences"),
    (234, "RetryChangeStream"),
    (235, "InternalErrorNotSupported"),
    (242, "CannotCreateCollection"),
    (246, "SnapshotUnavailable"),
    (258, "UnknownFeatureCompatibilityVersion"),
    (261, "TooManyLogicalSessions"),
    (264, "TooManyFilesOpen"),
    (267, "PreparedTransactionInProgress"),
    (268, "CannotBackup"),
    (288, "ChecksumMismatch"),
    (314, "ObjectIsBusy"),
    (324, "APIDeprecationError"),
    (347, "APIMismatchError"),
    (349, "KeyPatternShorterThanBound"),
    (352, "UnsupportedOpQueryCommand"),
    (357, "InvalidBSONType"),
    (363, "RetryableTransactionInProgress"),
    (365, "TemporarilyUnavailable"),
    (371, "UserWritesBlocked"),
    (376, "ChangeStreamNotEnabled"),
    (378, "NonConformantBSON"),
    (386, "DuplicateKeyId"),
    (391, "ReauthenticationRequired"),
    (396, "IndexInformationTooLarge"),
    (9001, "SocketException"),
    (12586, "BackgroundOperationInProgressForDatabase"),
    (12587, "BackgroundOperationInProgressForNamespace"),
    (46841, "ClientMarkedKilled"),
];

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_agree_both_ways() {
        let numbers: Vec<i32> = ErrorCode::NAMED.iter().map(|code| code.code()).collect();
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        for &code in ErrorCode::NAMED {
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
            (91, "ShutdownInProgress"),
            (10107, "NotWritablePrimary"),
            (11000, "DuplicateKey"),
            (31249, "Location31249"),
        ] {
            assert_eq!(ErrorCode::from_code(number).name(), name);
            assert_eq!(ErrorCode::from_code(number).code(), number);
        }
    }

    #[test]
    fn a_code_is_listed_once() {
        assert!(FURTHER_NAMES.is_sorted_by(|a, b| a.0 < b.0));
        for &(number, name) in FURTHER_NAMES {
            assert_eq!(ErrorCode::from_code(number), ErrorCode::Location(number));
            assert_eq!(ErrorCode::from_code(number).name(), name);
        }
    }
}
