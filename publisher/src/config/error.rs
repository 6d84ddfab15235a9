//! What can be wrong with a configuration.

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}: {source}; check --config")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no file.
    #[error("the configuration file {path} is {kind}, not a file; check --config")]
    NotAFile {
        /// What was given.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// It cannot be a configuration.
    #[error(
        "the configuration file {path} has more than {max} bytes, too many for a configuration; \
         check --config"
    )]
    TooLarge {
        /// The file.
        path: String,
        /// Most bytes that are read.
        max: u64,
    },
    /// The file is not TOML.
    #[error("{path}:{line}: not valid TOML: {message}")]
    Syntax {
        /// The file.
        path: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong there.
        message: String,
    },
    /// A key that does not exist.
    #[error("{origin}: unknown key `{key}`; {hint}")]
    UnknownKey {
        /// File, variable or flag.
        origin: String,
        /// The key as written.
        key: String,
        /// What may have been meant.
        hint: String,
    },
    /// A value that its key does not allow.
    #[error("{origin}: {key}: {problem}; allowed: {allowed}")]
    Value {
        /// File, variable or flag.
        origin: String,
        /// The key.
        key: String,
        /// What is wrong.
        problem: String,
        /// What would be right.
        allowed: String,
    },
    /// Values that contradict each other.
    #[error("{origin}: {key}: {problem}")]
    Contradiction {
        /// File, variable or flag.
        origin: String,
        /// The key.
        key: String,
        /// What is wrong and what to do.
        problem: String,
    },
}
